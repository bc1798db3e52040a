"""Ends a function whose lease has run out, for calls with `on_lease_lost="cancel"`.

An async function is cancelled: in asyncio its task, in trio a cancel scope around it. A sync
function cannot be; its cancel event is set, so that its waits and those of its retries end. In
either case the call raises LeaseLost.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from mainstay.errors import CallCancelled, LeaseLost
from mainstay.runtime.context import context

if TYPE_CHECKING:
    from asyncio import Task
    from types import TracebackType
    from typing import Any

    from mainstay.core.base.types import UserValue
    from mainstay.drivers.call.call import Call
    from mainstay.drivers.idempotency.keyed_call import KeyedCall

_POLL = 0.05
"""Seconds between two looks at an outer cancel event."""


class stopping:  # noqa: N801 -- a context manager is used like a function
    """Ends what runs inside if the lease of its call runs out; does nothing by default."""

    __slots__ = ("_call", "_scope", "_this")

    def __init__(self, this: KeyedCall, call: Call) -> None:
        self._this = this
        self._call = call
        self._scope: _TrioScope | _TaskScope | _EventScope | None = None

    def __enter__(self) -> None:
        this = self._this
        if this.options.on_lease_lost == "cancel" and this.lease is not None:
            scope = self._scope = _scope(self._call)
            scope.__enter__()
            this.stop = scope.stop

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        scope = self._scope
        if scope is None:
            return
        self._this.stop = None
        if scope.ended(error):
            call = self._this.call
            raise LeaseLost(call.operation, call.key) from error


def _scope(call: Call) -> _TrioScope | _TaskScope | _EventScope:
    asyncio, trio = sys.modules.get("asyncio"), sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_task():
        return _TrioScope(trio)
    if asyncio is not None:
        try:
            task = asyncio.current_task()
        except RuntimeError:  # no loop is running here
            task = None
        if task is not None:
            return _TaskScope(task)
    return _EventScope(call)


class _TaskScope:
    """Cancels a task of asyncio, and knows its own cancellation from others'."""

    def __init__(self, task: Task[UserValue]) -> None:
        self._loop = task.get_loop()
        self._task = task
        self._is_over = self._is_stopped = False

    def __enter__(self) -> None:
        self._before = self._task.cancelling()

    def stop(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:  # the loop was closed: nothing runs any more
            return

    def _cancel(self) -> None:
        if not (self._is_over or self._is_stopped):  # it may run out again meanwhile
            self._is_stopped = True
            self._task.cancel()

    def ended(self, error: BaseException | None) -> bool:
        self._is_over = True
        if not self._is_stopped:
            return False
        is_ours = self._task.uncancel() <= self._before
        return is_ours and type(error).__name__ == "CancelledError"


class _TrioScope:
    """A cancel scope of trio."""

    def __init__(self, trio: Any) -> None:
        self._scope = trio.CancelScope()
        self._token = trio.lowlevel.current_trio_token()
        self._finished: type[Exception] = trio.RunFinishedError

    def __enter__(self) -> None:
        self._scope.__enter__()

    def stop(self) -> None:
        try:
            self._token.run_sync_soon(self._scope.cancel)
        except self._finished:
            return

    def ended(self, error: BaseException | None) -> bool:
        traceback = None if error is None else error.__traceback__
        self._scope.__exit__(None if error is None else type(error), error, traceback)
        return bool(self._scope.cancelled_caught)


class _EventScope:
    """Sets the cancel event that what runs inside sees."""

    def __init__(self, call: Call) -> None:
        self._event = _Event(call.cancel)
        call.cancel = self._event
        self._context = context(cancel=self._event)

    def __enter__(self) -> None:
        self._context.__enter__()

    def stop(self) -> None:
        self._event.set()

    def ended(self, error: BaseException | None) -> bool:
        self._context.__exit__()
        return isinstance(error, CallCancelled) and self._event.is_own()


class _Event(threading.Event):
    """A cancel event that is also set if the one outside is."""

    def __init__(self, outer: threading.Event | None) -> None:
        super().__init__()
        self._outer = outer

    def is_own(self) -> bool:
        return super().is_set()

    def is_set(self) -> bool:
        return super().is_set() or (self._outer is not None and self._outer.is_set())

    def wait(self, timeout: float | None = None) -> bool:
        if self._outer is None:
            return super().wait(timeout)
        import mainstay.runtime.clock as clock

        end = None if timeout is None else clock.SYSTEM.monotonic() + timeout
        while not self.is_set():
            left = _POLL if end is None else min(_POLL, end - clock.SYSTEM.monotonic())
            if left <= 0.0:
                return False
            super().wait(left)
        return True
