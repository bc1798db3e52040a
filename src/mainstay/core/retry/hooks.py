"""What hooks receive, and the effect by which the core asks a driver to call one."""

from __future__ import annotations

from mainstay.core.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from mainstay.core.known.kind import Kind

    Hook: TypeAlias = Callable[["RetryInfo"], object]


RELEASE = "ms_release"
"""Where an exception has the function that frees what it holds, such as a connection of a pool. A
driver calls it before it waits for another attempt, and awaits what it returns if it can."""


class RetryInfo(Value):
    """What a hook receives about a retry.

    `before_retry` is called with the failure that is about to be retried and the delay that will
    be waited; `after_retry` when the retry has ended, with `exception` None if it succeeded.
    Arguments and results of the call are not in it, so that a hook that logs leaks none.

    >>> RetryInfo(operation="fetch", attempt=1, max_attempts=3, delay=0.1).attempt
    1
    """

    __slots__ = ("attempt", "delay", "exception", "kind", "max_attempts", "operation", "reason")
    operation: str
    attempt: int
    max_attempts: int
    delay: float
    exception: BaseException | None
    kind: Kind | None
    reason: str

    def __init__(
        self,
        operation: str,
        attempt: int,
        max_attempts: int,
        delay: float,
        exception: BaseException | None = None,
        kind: Kind | None = None,
        reason: str = "",
    ) -> None:
        self._fill(operation=operation, attempt=attempt, max_attempts=max_attempts, delay=delay,
                   exception=exception, kind=kind, reason=reason)  # fmt: skip


class CallHook:
    """Asks the driver to call a hook, and to await what it returns if it can."""

    __slots__ = ("hook", "info", "name")

    def __init__(self, name: str, hook: Hook, info: RetryInfo) -> None:
        self.name = name
        self.hook = hook
        self.info = info
