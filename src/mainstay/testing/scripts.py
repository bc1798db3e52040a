"""Functions that fail and succeed by a script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mainstay.runtime.clock as clock
from mainstay.core.base.validate import in_seconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mainstay.core.base.types import Seconds


class ScriptEnded(AssertionError):
    """A scripted function was called more often than its script allows.

    >>> issubclass(ScriptEnded, AssertionError)
    True
    """


class Step:
    """One call of a script: how long it takes and how it ends. Made by `takes`.

    >>> takes(2.0, "ok").seconds
    2.0
    """

    __slots__ = ("outcome", "seconds")

    def __init__(self, outcome: object, seconds: Seconds = 0.0) -> None:
        self.outcome = outcome
        self.seconds: Any = in_seconds(seconds)

    def end(self) -> Any:
        """Returns the outcome, or raises it if it is an exception."""
        outcome = self.outcome
        if isinstance(outcome, BaseException) or _is_exception_class(outcome):
            raise outcome  # type: ignore[misc]
        return outcome


def _is_exception_class(outcome: object) -> bool:
    return isinstance(outcome, type) and issubclass(outcome, BaseException)


def takes(seconds: Seconds, outcome: object) -> Step:
    """A step that lasts; use it under `virtual_time()`.

    >>> from mainstay.testing import virtual_time
    >>> with virtual_time() as time:
    ...     scripted(takes(2.0, "ok"))()
    'ok'
    >>> time.elapsed
    2.0
    """
    return Step(outcome, seconds)


class Script:
    """What a scripted function does, call by call; kept as its `script` attribute.

    Attributes:
        calls: the arguments of each call made so far.

    >>> function = scripted(OSError, "ok")
    >>> function.script.remaining
    2
    """

    __slots__ = ("_steps", "calls")

    def __init__(self, steps: tuple[object, ...]) -> None:
        self._steps = [step if isinstance(step, Step) else Step(step) for step in steps]
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    @property
    def remaining(self) -> int:
        """How many steps have not been played."""
        return max(0, len(self._steps) - len(self.calls))

    def next(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Step:
        """The step of the next call."""
        self.calls.append((args, kwargs))
        if len(self.calls) > len(self._steps):
            raise ScriptEnded(f"call {len(self.calls)} of a script of {len(self._steps)} steps")
        return self._steps[len(self.calls) - 1]


def scripted(*steps: object) -> Callable[..., Any]:
    """A function that raises each exception and returns each other value in turn.

    >>> flaky = scripted(ConnectionError("down"), "up")
    >>> from mainstay import Backoff, RetryPolicy
    >>> RetryPolicy(retry_on=OSError, backoff=Backoff.constant(0)).call(flaky)
    'up'
    >>> len(flaky.script.calls)
    2
    """
    script = Script(steps)

    def scripted_call(*args: Any, **kwargs: Any) -> Any:
        step = script.next(args, kwargs)
        if step.seconds:
            clock.current.sleep(step.seconds)
        return step.end()

    scripted_call.script = script  # type: ignore[attr-defined]
    return scripted_call


def scripted_async(*steps: object) -> Callable[..., Awaitable[Any]]:
    """The same as an async function, under asyncio or trio.

    >>> import asyncio
    >>> asyncio.run(scripted_async("ok")())
    'ok'
    """
    script = Script(steps)

    async def scripted_call(*args: Any, **kwargs: Any) -> Any:
        step = script.next(args, kwargs)
        if step.seconds:
            from mainstay.drivers.call.aio import current_sleep

            await current_sleep()(step.seconds)
        return step.end()

    scripted_call.script = script  # type: ignore[attr-defined]
    return scripted_call
