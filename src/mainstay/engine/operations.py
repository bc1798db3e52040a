"""Operations: a function is called as one of them, with its policy, its guards and its key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.drivers.verbs import Verbs
from mainstay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import ParamSpec, TypeVar

    from mainstay.core.retry.policy import Policy
    from mainstay.drivers.call.blocks import Attempts
    from mainstay.drivers.call.result import RetryResult
    from mainstay.drivers.call.site import Site
    from mainstay.drivers.idempotency.keys import KeyOptions
    from mainstay.drivers.idempotency.records import Records

    P = ParamSpec("P")
    R = TypeVar("R")


class Operation(Verbs):
    """One operation of an engine: `call`, `acall`, `run`, `arun`, `attempts`.

    >>> from mainstay import Engine
    >>> Engine().operation("parse").policy.name
    'standard'
    """

    __slots__ = ("_site",)

    def __init__(self, site: Site) -> None:
        self._site = site

    @property
    def name(self) -> str:
        """The operation's name."""
        return self._site.operation

    @property
    def policy(self) -> Policy:
        """The policy it runs under."""
        return self._site.policy

    @property
    def _verb_site(self) -> Site:
        return self._site


class KeyedOperation(Operation):
    """One operation with a key: its calls are recorded, and replayed.

    >>> from mainstay import Engine
    >>> with Engine() as engine:
    ...     operation = engine.operation("roll", key="game-1")
    ...     operation.call(int, "4"), operation.call(int, "4")
    (4, 4)
    """

    __slots__ = ("_options", "_records")

    def __init__(self, site: Site, records: Records, options: KeyOptions) -> None:
        super().__init__(site)
        self._records = records
        self._options = options

    def call(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function, or replays what it came to before.

        >>> Engine().operation("parse", key="a").call(int, "7")
        7
        """
        return self._records.run(self._site, self._options, function, args, kwargs)  # type: ignore[no-any-return]

    async def acall(
        self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Awaits the function, or replays what it came to before.

        >>> import asyncio
        >>> async def answer(): return 42
        >>> asyncio.run(Engine().operation("ask", key="a").acall(answer))
        42
        """
        return await self._records.arun(self._site, self._options, function, args, kwargs)  # type: ignore[no-any-return]

    def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> RetryResult[R]:
        """Like `call`, but answers with a RetryResult; a replay counts no attempt.

        >>> Engine(sinks=[]).operation("parse", key="a").run(int, "x").success
        False
        """
        return self._records.result(self._site, self._options, function, args, kwargs)

    async def arun(
        self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> RetryResult[R]:
        """Like `acall`, but answers with a RetryResult; a replay counts no attempt.

        >>> import asyncio
        >>> async def answer(): return 42
        >>> asyncio.run(Engine().operation("ask", key="a").arun(answer)).value
        42
        """
        return await self._records.aresult(self._site, self._options, function, args, kwargs)

    def attempts(self) -> Attempts:
        """Refused: a block has no function and no arguments to record.

        >>> Engine().operation("parse", key="a").attempts()
        Traceback (most recent call last):
        mainstay.errors.UsageError: a block cannot be recorded. give call() a function
        """
        raise UsageError("a block cannot be recorded", hint="give call() a function")


def check_operation(name: object, idempotency: str | None, *, strict: bool) -> None:
    """Refuses what is no name, and in strict mode an operation that is not declared."""
    if not isinstance(name, str):
        raise UsageError(
            f"operation = {name!r}: must be the name of an operation, as a text",
            hint='such as engine.protect("orders.list") or engine.call("orders.list", f)',
        )
    if idempotency is None and strict:
        raise UsageError(
            f"operation {name!r} does not state how safe repeating it is",
            hint='idempotency="idempotent", "keyed" or "unsafe"',
        )
