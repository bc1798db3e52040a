"""A bulkhead: a limit of calls at once, a limit of calls that wait for a place, and no more.

One count of places for threads, asyncio and trio. A place that becomes free is handed, under the
lock, to the call that has waited longest, and stays counted; so no call overtakes another, and
while one waits all places are taken. A waiter that is cancelled when it has just been given a place
passes it on. Either the waiter or the giver marks a waiter as gone, whichever is first: never both.

The lock can be taken again by the thread that holds it, because a coroutine that Python
discards gives back its place wherever the garbage collector happens to run.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict

import mainstay.runtime.clock as clock
from mainstay.core.base.deadline import NEVER
from mainstay.core.base.validate import Checker
from mainstay.core.base.value import Value
from mainstay.deadline import moment
from mainstay.drivers.layers.decorate import put_around
from mainstay.errors import BulkheadFull, CallCancelled
from mainstay.runtime.context import CANCEL
from mainstay.runtime.fork import make_rlock, reset_in_child

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self, TypeVar

    from mainstay.core.base.types import Seconds, UserValue
    from mainstay.drivers.call.callables import Args, AsyncFunction, Function, Kwargs

    F = TypeVar("F", bound=Function)

MOST = 1_000_000
_POLL = 0.02
"""Seconds between two looks at a cancel event, which ends no wait but its own."""
_NOTHING = 1e-6
"""Less time than this is none; clocks differ by that much."""


class BulkheadSnapshot(Value):
    """A bulkhead at one moment.

    >>> Bulkhead("reports", 4).snapshot()
    BulkheadSnapshot(limit=4, queue=0, refused=0, running=0, waiting=0)
    """

    __slots__ = ("limit", "queue", "refused", "running", "waiting")
    running: int
    waiting: int
    limit: int
    queue: int
    refused: int

    def __init__(self, *, running: int, waiting: int, limit: int, queue: int, refused: int) -> None:
        self._fill(running=running, waiting=waiting, limit=limit, queue=queue, refused=refused)


class Bulkhead:
    """Limits how many calls run at once; others wait their turn, or are refused with BulkheadFull.

    A decorator, `with bulkhead:` in threads, `async with bulkhead:` under asyncio and trio; the
    same object for all of them at once. Waiting calls are served in the order they came.

    Args:
        name: what errors call it.
        limit: how many calls may run at once.
        queue: how many more may wait. 0: none waits.
        max_wait: seconds to wait at most; never longer than the deadline of the call leaves.

    >>> reports = Bulkhead("reports", 1)
    >>> with reports:
    ...     with reports:
    ...         pass
    Traceback (most recent call last):
    mainstay.errors.BulkheadFull: bulkhead 'reports' is full: 1 running and 0 ...
    """

    __slots__ = (
        "__weakref__",
        "_lock",
        "_refused",
        "_running",
        "_waiters",
        "limit",
        "max_wait",
        "name",
        "queue",
    )

    def __init__(
        self, name: str, limit: int, *, queue: int = 0, max_wait: Seconds | None = None
    ) -> None:
        check = Checker("Bulkhead")
        self.name = check.name("name", name)
        self.limit = check.count("limit", limit, MOST)
        self.queue = check.count("queue", queue, MOST, 0)
        self.max_wait = check.optional_seconds("max_wait", max_wait)
        if queue == 0 and max_wait is not None:
            check.note("max_wait", max_wait, "None if queue is 0, since no call waits then")
        check.close()
        self._lock = make_rlock()
        self._begin()
        reset_in_child(self, Bulkhead._begin)

    def _begin(self) -> None:
        """Empty, as in a forked child: the calls of its parent's threads do not end there."""
        self._running = 0
        self._refused = 0
        self._waiters: OrderedDict[_Waiter, None] = OrderedDict()

    def __call__(self, function: F) -> F:
        """The function, with a limit on its calls at once."""
        decorated: F = put_around(function, self, self._call, self._acall)
        return decorated

    def _call(self, function: Function, args: Args, kwargs: Kwargs) -> UserValue:
        is_held = False
        try:
            is_held = self._take() or self._wait()
            return function(*args, **kwargs)
        finally:
            if is_held:
                self._free()

    async def _acall(self, function: AsyncFunction, args: Args, kwargs: Kwargs) -> UserValue:
        is_held = False
        try:
            is_held = self._take() or await self._await()
            return await function(*args, **kwargs)
        finally:
            if is_held:
                self._free()

    def __enter__(self) -> Self:
        if not self._take():
            self._wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._free()

    async def __aenter__(self) -> Self:
        if not self._take():
            await self._await()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._free()

    def snapshot(self) -> BulkheadSnapshot:
        """What it is doing: how many run and wait, and how many were refused so far.

        >>> with Bulkhead("reports", 4) as reports:
        ...     reports.snapshot().running
        1
        """
        with self._lock:
            running, waiting, refused = self._running, len(self._waiters), self._refused
        return BulkheadSnapshot(
            running=running, waiting=waiting, limit=self.limit, queue=self.queue, refused=refused
        )

    def __repr__(self) -> str:
        now = self.snapshot()
        return (
            f"Bulkhead({self.name!r}, {self.limit}, queue={self.queue}, max_wait={self.max_wait}:"
            f" {now.running} running, {now.waiting} waiting)"
        )

    # --- places -----------------------------------------------------------------------------------

    def _take(self) -> bool:
        """Takes a place if one is free. No call waits then: free places are handed on."""
        with self._lock:
            if self._running >= self.limit:
                return False
            self._running += 1
            return True

    def _free(self) -> None:
        """Hands the place to the next in line; without one it is free."""
        while True:
            with self._lock:
                waiter = self._pass_on_locked()
            if waiter is None or waiter.wake() or not self._dismiss(waiter):
                return

    def _pass_on_locked(self) -> _Waiter | None:
        if not self._waiters:
            self._running = max(0, self._running - 1)  # a call that forked ends in the child too
            return None
        waiter, _ = self._waiters.popitem(last=False)
        waiter.is_admitted = True
        return waiter

    def _dismiss(self, waiter: _Waiter) -> bool:
        """Takes a waiter out; True for the caller that then has its place to pass on."""
        with self._lock:
            self._waiters.pop(waiter, None)
            is_mine = waiter.is_admitted and not waiter.is_gone
            waiter.is_gone = True
            return is_mine

    # --- waiting ----------------------------------------------------------------------------------

    def _wait(self) -> bool:
        """Waits in a thread until there is a place."""
        waiter = _Threaded(self.max_wait)
        try:
            self._line_up(waiter)
            while not waiter.is_admitted:
                waiter.wait(self._patience(waiter))
        except BaseException:
            self._leave(waiter)
            raise
        return True

    async def _await(self) -> bool:
        """Waits in an event loop until there is a place."""
        waiter = _waiter_here(self.max_wait)
        try:
            self._line_up(waiter)
            while not waiter.is_admitted:
                await waiter.wait(self._patience(waiter))
        except BaseException:
            self._leave(waiter)
            raise
        return True

    def _line_up(self, waiter: _Waiter) -> None:
        """Joins the queue, or takes a place that has become free; raises if there is no room."""
        has_time = waiter.until - waiter.started > _NOTHING
        with self._lock:
            if self._running < self.limit:
                self._running += 1
                waiter.is_admitted = True
                return
            if has_time and self._has_room_locked():
                self._waiters[waiter] = None
                return
        raise self._full(0.0)

    def _has_room_locked(self) -> bool:
        if len(self._waiters) >= self.queue:
            for each in [each for each in self._waiters if each.is_dead]:
                del self._waiters[each]
        return len(self._waiters) < self.queue

    def _patience(self, waiter: _Waiter) -> float | None:
        """How long to wait before looking again, None for as long as it takes; or raises."""
        now = clock.current.monotonic()
        left = waiter.until - now
        if waiter.cancel is not None:
            if waiter.cancel.is_set():
                raise CallCancelled(self.name, 0)
            left = min(left, _POLL) if left > _NOTHING else left
        if left <= _NOTHING:
            raise self._full(max(0.0, now - waiter.started))
        return None if left == NEVER else left

    def _full(self, waited: float) -> BulkheadFull:
        with self._lock:
            self._refused += 1
        return BulkheadFull(self.name, self.limit, self.queue, waited)

    def _leave(self, waiter: _Waiter) -> None:
        """Goes without a place; one that was handed over meanwhile is passed on."""
        if self._dismiss(waiter):
            self._free()


class _Waiter:
    """A call in the queue. `is_admitted` and `is_gone` change under the bulkhead's lock."""

    __slots__ = ("cancel", "is_admitted", "is_gone", "started", "until")

    def __init__(self, max_wait: float | None) -> None:
        self.started = clock.current.monotonic()
        self.until = min(moment(), NEVER if max_wait is None else self.started + max_wait)
        self.cancel = CANCEL.get()
        self.is_admitted = False
        self.is_gone = False

    @property
    def is_dead(self) -> bool:
        """Whether nothing can wake it any more."""
        return False

    def wake(self) -> bool:
        """Has it look, from any thread; False if its event loop is closed."""
        raise NotImplementedError


class _Threaded(_Waiter):
    __slots__ = ("_event",)

    def __init__(self, max_wait: float | None) -> None:
        super().__init__(max_wait)
        self._event = threading.Event()

    def wake(self) -> bool:
        self._event.set()
        return True

    def wait(self, seconds: float | None) -> None:
        if seconds is None:
            self._event.wait()
        else:
            clock.current.sleep(seconds, self._event)


class _OnAsyncio(_Waiter):
    __slots__ = ("_event", "_loop")

    def __init__(self, max_wait: float | None) -> None:
        from asyncio import Event, get_running_loop

        super().__init__(max_wait)
        self._loop = get_running_loop()
        self._event = Event()

    @property
    def is_dead(self) -> bool:
        return self._loop.is_closed()

    def wake(self) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:  # the loop was closed
            return False
        return True

    async def wait(self, seconds: float | None) -> None:
        from asyncio import timeout

        try:
            async with timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return


class _OnTrio(_Waiter):
    __slots__ = ("_event", "_token", "_trio")

    def __init__(self, max_wait: float | None) -> None:
        super().__init__(max_wait)
        self._trio = sys.modules["trio"]
        self._token = self._trio.lowlevel.current_trio_token()
        self._event = self._trio.Event()

    def wake(self) -> bool:
        try:
            self._token.run_sync_soon(self._event.set)
        except self._trio.RunFinishedError:
            return False
        return True

    async def wait(self, seconds: float | None) -> None:
        with self._trio.move_on_after(NEVER if seconds is None else seconds):
            await self._event.wait()


def _waiter_here(max_wait: float | None) -> _OnAsyncio | _OnTrio:
    """One for the event loop this runs in."""
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_task():
        return _OnTrio(max_wait)
    return _OnAsyncio(max_wait)
