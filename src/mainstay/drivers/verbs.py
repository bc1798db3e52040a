"""The verbs of a policy, of a circuit and of an operation: call, acall, run, arun, attempts.

A site keeps what makes its calls, one function for each verb, generated when the verb is first
used. A call is then that function, called from the verb's own frame: no other frame stands between
the caller and the template of drivers/call/templates.py.
"""

from __future__ import annotations

from types import AsyncGeneratorType, CoroutineType, GeneratorType

from mainstay.drivers.call.callables import (
    check_callable,
    context_managers,
    coroutine_function,
    refuse_coroutine,
)
from mainstay.drivers.call.site import Ways
from mainstay.drivers.call.wrap import caller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any, ParamSpec, TypeVar

    from mainstay.core.base.types import UserValue
    from mainstay.core.explain.explain import Explanation
    from mainstay.core.retry.policy import Policy
    from mainstay.drivers.call.blocks import Attempts
    from mainstay.drivers.call.callables import Function
    from mainstay.drivers.call.result import RetryResult
    from mainstay.drivers.call.site import Site

    P = ParamSpec("P")
    R = TypeVar("R")


class Verbs:
    """Calling and decorating under a site: shared by policies and an engine's operations.

    A subclass has its site as `_site`, once a call was made; before, it may have None there.
    """

    __slots__ = ()
    _site: Site

    @property
    def _verb_site(self) -> Site:
        raise TypeError("a subclass must define where its calls are made")

    def call(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function, and again if it fails as the policy allows.

        Returns what the function returned; raises what it raised last.

        >>> from mainstay import RetryPolicy
        >>> RetryPolicy(retry_on=OSError).call(int, "42")
        42
        """
        try:
            way = self._site.ways.call
        except AttributeError:  # it has no site yet
            way = None
        try:
            value: R = (way or way_of(self._verb_site, "call"))(function, args, kwargs)
        except Exception as error:
            explain_failed(function, error)
            raise
        if type(value) in UNRUN:
            refuse_unrun(function, value)
        return value

    @coroutine_function
    def acall(
        self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]:
        """Awaits the async function, and again if it fails as the policy allows.

        >>> import asyncio
        >>> from mainstay import RetryPolicy
        >>> async def answer(): return 42
        >>> asyncio.run(RetryPolicy(retry_on=OSError).acall(answer))
        42
        """
        try:
            way = self._site.ways.acall
        except AttributeError:
            way = None
        if way is None:
            try:
                way = way_of(self._verb_site, "acall")
            except Exception as error:
                return refused(error)
        return way(function, args, kwargs)  # type: ignore[no-any-return]

    def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> RetryResult[R]:
        """Like `call`, but answers with a RetryResult and never raises for a failed call.

        >>> from mainstay import RetryPolicy
        >>> RetryPolicy(retry_on=OSError).run(int, "x").last_exception
        ValueError("invalid literal for int() with base 10: 'x'")
        """
        site = self._verb_site
        return checked(function, (site.ways.run or way_of(site, "run"))(function, args, kwargs))

    async def arun(
        self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> RetryResult[R]:
        """Like `acall`, but answers with a RetryResult and never raises for a failed call.

        >>> import asyncio
        >>> from mainstay import RetryPolicy
        >>> async def answer(): return 42
        >>> asyncio.run(RetryPolicy(retry_on=OSError).arun(answer)).value
        42
        """
        site = self._verb_site
        return await (site.ways.arun or way_of(site, "arun"))(function, args, kwargs)  # type: ignore[no-any-return]

    def explain(self, *around: Policy) -> Explanation:
        """What a call comes to at worst, and what is likely a mistake; nothing is called.

        Args:
            around: the policies of the retries that enclose it, the nearest first.

        >>> from mainstay import RetryPolicy
        >>> RetryPolicy(attempt_timeout=10.0, deadline=8.0).explain().warnings[0].code
        'timeout-past-deadline'
        """
        from mainstay.drivers.explain import explain_site

        return explain_site(self._verb_site, around)

    def attempts(self) -> Attempts:
        """Attempts as blocks: `for attempt in policy.attempts(): with attempt: ...`.

        >>> from mainstay import RetryPolicy
        >>> for attempt in RetryPolicy(retry_on=OSError).attempts():
        ...     with attempt:
        ...         attempt.number
        1
        """
        from mainstay.drivers.call.blocks import Attempts

        return Attempts(self._verb_site)


class _Named(Verbs):
    """The calls of a site under one name."""

    __slots__ = ("_site",)

    def __init__(self, site: Site) -> None:
        self._site = site

    @property
    def _verb_site(self) -> Site:
        return self._site


def named_calls(calls: Verbs, name: str) -> Verbs:
    """The same calls with a name, whatever they call; log and events have it."""
    return _Named(calls._verb_site.of(name))  # noqa: SLF001 -- of this module


def way_of(site: Site, verb: str) -> Function:
    """What makes the calls of a verb at a site, from now on."""
    UNRUN.update(context_managers())
    way = caller(site, awaits=verb[0] == "a", reports=verb.endswith("run"))
    way.__name__ = way.__qualname__ = verb  # what the warning names if nobody awaits it
    if site.ways is Ways.NONE:
        site.ways = Ways()
    setattr(site.ways, verb, way)
    return way


async def refused(error: Exception) -> Any:
    """Raises an error of ours where the call is awaited, as an `async def` does."""
    raise error


def explain_failed(function: Function, error: Exception) -> None:
    """Explains the failure of what cannot be called; else leaves out the frame of the verb."""
    if isinstance(error, TypeError):
        check_callable(function)  # raises with the reason if it is no function
    error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)


UNRUN: set[type] = {AsyncGeneratorType, CoroutineType, GeneratorType}
"""Results that have not run yet: perhaps the function cannot be retried so."""


def checked(function: Function, result: RetryResult[R]) -> RetryResult[R]:
    """The result, unless it is of what has not run yet.

    In a function of its own: the failure in a result refers to the frames that were under way, and
    none of those may hold the result.
    """
    if type(result.value) in UNRUN:
        refuse_unrun(function, result.value)
    return result


def refuse_unrun(function: Function, value: UserValue) -> None:
    """Refuses what has not run yet: its failures would come where nothing retries."""
    check_callable(function)
    if type(value) is not CoroutineType:
        return  # a plain function that returns a generator of its own making
    refuse_coroutine(function, value, "await policy.acall(...) or policy.arun(...) instead")
