"""The verbs of an engine: call, acall, run, arun, by the name of the operation.

They are those of drivers/verbs.py, without the Operation in between: the name leads to a site,
which is kept, and the site has what makes its calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.drivers.call.callables import coroutine_function
from mainstay.drivers.call.site import Ways
from mainstay.drivers.verbs import (
    UNRUN,
    checked,
    explain_failed,
    refuse_unrun,
    refused,
    way_of,
)

if TYPE_CHECKING:
    import threading
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any, ParamSpec, TypeVar

    from mainstay.drivers.call.result import RetryResult
    from mainstay.drivers.call.site import Site

    P = ParamSpec("P")
    R = TypeVar("R")

_MAX_OPERATIONS = 10_000
"""Sites of operations that are kept at once."""


class EngineCalls:
    """Calls by the name of their operation."""

    _sites: dict[str, Site]
    """Of the operations that were used, those without options of their own."""
    _sites_lock: threading.Lock
    _site: Callable[..., Site]

    def call(
        self, operation: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Calls a function under the operation's policy.

        >>> Engine().call("parse", int, "7")
        7
        """
        try:
            site = self._sites[operation]
        except KeyError:
            site = self._usual(operation)
        try:
            value: R = (site.ways.call or way_of(site, "call"))(function, args, kwargs)
        except Exception as error:
            explain_failed(function, error)
            raise
        if type(value) in UNRUN:
            refuse_unrun(function, value)
        return value

    @coroutine_function
    def acall(
        self,
        operation: str,
        function: Callable[P, Awaitable[R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Coroutine[Any, Any, R]:
        """Awaits an async function under the operation's policy.

        >>> import asyncio
        >>> async def answer(): return 42
        >>> asyncio.run(Engine().acall("ask", answer))
        42
        """
        try:
            way = self._sites[operation].ways.acall
        except (KeyError, TypeError):  # a name that is none is refused where the call is awaited
            way = None
        if way is None:
            try:
                way = way_of(self._sites.get(operation) or self._usual(operation), "acall")
            except Exception as error:
                return refused(error)
        return way(function, args, kwargs)  # type: ignore[no-any-return]

    def run(
        self, operation: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> RetryResult[R]:
        """Like `call`, but answers with a RetryResult.

        >>> Engine(sinks=[]).run("parse", int, "x").success
        False
        """
        site = self._sites.get(operation) or self._usual(operation)
        return checked(function, (site.ways.run or way_of(site, "run"))(function, args, kwargs))

    async def arun(
        self,
        operation: str,
        function: Callable[P, Awaitable[R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> RetryResult[R]:
        """Like `acall`, but answers with a RetryResult.

        >>> import asyncio
        >>> async def answer(): return 42
        >>> asyncio.run(Engine().arun("ask", answer)).attempts
        1
        """
        site = self._sites.get(operation) or self._usual(operation)
        return await (site.ways.arun or way_of(site, "arun"))(function, args, kwargs)  # type: ignore[no-any-return]

    def _usual(self, name: str) -> Site:
        """The site of an operation without options of its own, which is kept."""
        site = self._site(name, None, None)
        with self._sites_lock:
            if len(self._sites) >= _MAX_OPERATIONS:
                self._forget_locked()
            self._sites[name] = site
        return site

    def _forget_locked(self) -> None:
        """Drops a tenth of the sites, those that were made first.

        What makes the calls of a site refers to it. That cycle is cut, so that the site and its
        guards are freed here: in a flood of names, full collections took most of the time. A verb
        of an Operation that still has the site is made anew.
        """
        for name in list(self._sites)[: max(1, _MAX_OPERATIONS // 10)]:
            site = self._sites.pop(name, None)
            if site is not None and site.ways is not Ways.NONE:
                ways = site.ways
                ways.call = ways.acall = ways.run = ways.arun = None
