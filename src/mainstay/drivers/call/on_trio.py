"""Waiting and cutting off under trio."""

from __future__ import annotations

import trio

import mainstay.runtime.clock as clock
from mainstay.core.base.deadline import NEVER, remaining
from mainstay.errors import AttemptTimeout
from mainstay.runtime.context import BOUND, Bound, current_bound


def open_scope(end: float, limit: float) -> _Scope:
    """Starts an attempt that is cancelled at the end, a moment of our clock."""
    return _Scope(end, limit)


class _Scope:
    """A trio cancel scope that distinguishes its own cancellation from any other."""

    __slots__ = ("_bound", "_limit", "_scope")

    def __init__(self, end: float, limit: float) -> None:
        outer = current_bound()
        if outer.end < end:
            end, limit = outer.end, remaining(clock.current.monotonic(), outer.end)
        self._limit = limit
        self._bound = Bound(end, outer)
        BOUND.set(self._bound)
        until = NEVER if end == NEVER else trio.current_time() + self._limit
        self._scope = trio.CancelScope(deadline=until)
        self._scope.__enter__()

    def failed(self, caught: BaseException) -> Exception:
        self._bound.is_over = True
        try:
            is_cut = self._scope.__exit__(type(caught), caught, caught.__traceback__)
        except Exception as rest:  # what is left of a group without our cancellations
            return rest
        if is_cut:
            error = AttemptTimeout(self._limit)
            error.__cause__ = caught
            return error
        if isinstance(caught, Exception):
            return caught
        try:
            raise caught
        finally:
            del caught  # its traceback holds this frame: only the collector could free both

    def ended(self) -> None:
        self._bound.is_over = True
        self._scope.__exit__(None, None, None)
