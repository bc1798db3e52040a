"""Waiting and cutting off under trio."""

from __future__ import annotations

import trio

from mainstay import clock
from mainstay.ambient import LIMITS, Limits
from mainstay.core.deadline import NEVER, remaining
from mainstay.errors import AttemptTimeout

sleep = trio.sleep


def open_scope(end: float, limit: float) -> _Scope:
    """Starts an attempt that is cancelled at the end, a moment of our clock."""
    return _Scope(end, limit)


class _Scope:
    """A trio cancel scope that tells its own cancellation from everybody else's."""

    __slots__ = ("_limit", "_scope", "_token")

    def __init__(self, end: float, limit: float) -> None:
        outer = LIMITS.get()
        if outer.end < end:
            end, limit = outer.end, remaining(clock.current.monotonic(), outer.end)
        self._limit = limit
        self._token = LIMITS.set(Limits(end, outer.cancel))
        until = NEVER if end == NEVER else trio.current_time() + self._limit
        self._scope = trio.CancelScope(deadline=until)
        self._scope.__enter__()

    def failed(self, caught: BaseException) -> Exception:
        LIMITS.reset(self._token)
        if self._scope.__exit__(type(caught), caught, caught.__traceback__):
            error = AttemptTimeout(self._limit)
            error.__cause__ = caught
            return error
        if isinstance(caught, Exception):
            return caught
        raise caught

    def ended(self) -> None:
        LIMITS.reset(self._token)
        self._scope.__exit__(None, None, None)
