"""Waiting and cutting off under asyncio.

asyncio.timeout() arms and cancels a timer for every attempt. Attempts with the same limit expire
in the order they began, so first attempts queue in a lane, a dictionary in order of insertion,
with one timer for its head. The timer never fires early, is armed again only when it fires, and
rests when the lane is empty. Whose cancellation it was is found as in asyncio.timeout(), by
counting `cancelling()`.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from asyncio import CancelledError, current_task, get_running_loop
from typing import TYPE_CHECKING
from weakref import ref

from msgspec import Struct

import mainstay.runtime.clock as clock
from mainstay.core.base.deadline import NEVER
from mainstay.errors import AttemptTimeout
from mainstay.runtime.context import BOUND, current_bound
from mainstay.runtime.fork import reset_in_child

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task, TimerHandle
    from collections.abc import Callable
    from typing import Any

    from mainstay.core.base.types import UserValue
    from mainstay.runtime.context import Bounding


now = clock.current.monotonic
clock.follow(globals())  # which keeps `now` up to date


task_in: Callable[[AbstractEventLoop], Task[UserValue] | None] = current_task
"""The task that runs in a loop."""
_tasks: dict[AbstractEventLoop, Task[UserValue]] = {}
"""The tasks that run, by their loops; empty where that is not needed."""
if sys.version_info < (3, 12):  # there current_task() is slow: it is written in Python
    from asyncio.tasks import _current_tasks as _tasks  # type: ignore[attr-defined,no-redef]

    task_in = _tasks.get


class _LastLoop:
    """The loop that was found last, if it keeps its thread, as those of asyncio do.

    Before Python 3.12 get_running_loop() asks the system for the id of the process, which takes a
    sixth of a bounded attempt. If one task runs in the whole process, and its loop runs in this
    thread, then it runs here.
    """

    __slots__ = ("__weakref__", "ref")

    def __init__(self) -> None:
        self.ref: Callable[[], Any] | None = None

    def find(self) -> AbstractEventLoop | None:
        """The loop that runs here; None if there is none."""
        try:
            loop = get_running_loop()
        except RuntimeError:
            return None
        if sys.version_info < (3, 12) and hasattr(loop, "_thread_id"):
            self.ref = ref(loop)
        return loop

    def forget(self) -> None:
        self.ref = None


_last = _LastLoop()
reset_in_child(_last, _LastLoop.forget)

_MAX_LANES = 64
"""Limits in use at once per loop; past that, lanes that rest are dropped."""


def begin(limit: float, started: float) -> Scope | _Alone | None:
    """Starts a first attempt that is cancelled after the limit; None outside asyncio's tasks."""
    last = _last.ref
    loop: Any = None if last is None or len(_tasks) != 1 else last()
    if loop is None or loop._thread_id != get_ident():  # noqa: SLF001 -- see _LastLoop
        loop = _last.find()
        if loop is None:
            return None
    task = task_in(loop)
    if task is None:  # trio's, perhaps as a guest in an asyncio loop
        return None
    outer = BOUND.get()
    while outer.is_over and outer.outer is not None:  # current_bound(), without the call
        outer = outer.outer
    end = started + limit
    if outer.end < end:
        return open_scope(end, limit)
    try:
        lane = loop.mainstay_lanes[limit]
    except (AttributeError, KeyError):
        lane = _new_lane(loop, limit)
    scope = Scope(end, outer, lane, task.cancelling())
    BOUND.set(scope)
    lane.queue[scope] = task
    if lane.timer is None:
        lane.arm(scope, limit)
    return scope


def open_scope(end: float, limit: float) -> _Alone:
    """Starts an attempt that is cancelled at the end, a moment of our clock."""
    task = current_task()
    assert task is not None
    outer = current_bound()
    if outer.end < end:
        end, limit = outer.end, max(0.0, outer.end - now())
    lane = _Lane(task.get_loop(), limit)
    scope = Scope(end, outer, lane, task.cancelling())
    BOUND.set(scope)
    lane.queue[scope] = task
    if end != NEVER:
        lane.arm(scope, end - now())
    return _Alone(scope, lane)


class Scope(Struct, eq=False):
    """An attempt with an end: a Bound. Exactly one of `failed` and `ended` is called.

    A Struct, because making one takes half the time of a class with slots.
    """

    end: float
    outer: Bounding
    lane: _Lane
    cancelling: int
    is_over: bool = False
    expired: Task[UserValue] | None = None
    """The task, once it was cancelled for being late; until then the lane knows it."""

    def cuts_here(self) -> bool:
        """Whether it cancels the running task at its end, which is yet to come."""
        task = self.lane.queue.get(self)  # a task that was started inside has this bound as well
        return task is not None and task is task_in(self.lane.loop) and now() < self.end < NEVER

    def failed(self, caught: BaseException) -> Exception:
        """What the attempt failed with; raises what is not for us to catch."""
        left = self._end()
        if left is not None and left <= self.cancelling and isinstance(caught, CancelledError):
            timeout = AttemptTimeout(self.lane.limit)
            timeout.__cause__ = caught
            return timeout
        if isinstance(caught, Exception):
            return caught
        try:
            raise caught
        finally:
            del caught  # its traceback holds this frame: only the collector could free both

    def ended(self) -> None:
        """The attempt returned; it may have swallowed our cancellation."""
        if self.expired is None:
            self.is_over = True
            del self.lane.queue[self]
        else:
            self._end()

    def _end(self) -> int | None:
        """Lets go of the task, whose context holds this; how often others want it cancelled."""
        task, self.expired, self.is_over = self.expired, None, True
        if task is not None:
            return task.uncancel()
        self.lane.queue.pop(self, None)
        return None


class _Alone:
    """A scope in a lane of its own: a retry, or one that an outer deadline cuts short."""

    __slots__ = ("_lane", "_scope")

    def __init__(self, scope: Scope, lane: _Lane) -> None:
        self._scope = scope
        self._lane = lane

    def failed(self, caught: BaseException) -> Exception:
        self._lane.disarm()
        try:
            return self._scope.failed(caught)
        finally:
            del caught

    def ended(self) -> None:
        self._lane.disarm()
        self._scope.ended()


class _Lane:
    """The attempts of one loop that have the same limit, in the order of their ends."""

    __slots__ = ("head", "limit", "loop", "queue", "timer")

    def __init__(self, loop: AbstractEventLoop, limit: float) -> None:
        self.loop = loop
        self.limit = limit
        self.queue: dict[Scope, Task[UserValue]] = {}
        self.timer: TimerHandle | None = None
        self.head: Scope | None = None
        """Whose end the timer is set to."""

    def arm(self, scope: Scope, delay: float) -> None:
        self.head = scope
        self.timer = self.loop.call_later(max(0.0, min(delay, self.limit)), self._fire)

    def disarm(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self.head = None

    def _fire(self) -> None:
        """Cancels what is due. The head is: the timer was set for it, whatever the clock shows."""
        due, self.timer, self.head = self.head, None, None
        moment = now()
        while self.queue:
            scope = next(iter(self.queue))
            if scope is not due and scope.end > moment:
                self.arm(scope, scope.end - moment)
                return
            scope.expired = self.queue.pop(scope)
            scope.expired.cancel()


def _new_lane(loop: AbstractEventLoop, limit: float) -> _Lane:
    """Lanes live on their loop, and end with it."""
    lanes: dict[float, _Lane] = getattr(loop, "mainstay_lanes", {})
    loop.mainstay_lanes = lanes  # type: ignore[attr-defined]
    if len(lanes) >= _MAX_LANES:
        for other in [key for key, lane in lanes.items() if not lane.queue]:
            del lanes[other]
    lane = lanes[limit] = _Lane(loop, limit)
    return lane
