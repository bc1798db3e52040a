"""Waiting and cutting off under asyncio.

asyncio.timeout() arms and cancels a timer for every attempt. Attempts with the same limit expire
in the order they began, so first attempts queue in a lane, a dictionary in order of insertion,
with one timer for its head. The timer never fires early, is armed again only when it fires, and
rests when the lane is empty. Whose cancellation it was is told as asyncio.timeout() tells it, by
counting `cancelling()`.
"""

from __future__ import annotations

from asyncio import CancelledError, current_task, sleep
from weakref import ref

from mainstay import clock
from mainstay.ambient import LIMITS, TASK_LIMIT, TaskLimit
from mainstay.core.deadline import NEVER
from mainstay.errors import AttemptTimeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task, TimerHandle
    from typing import Any


__all__ = ["begin", "open_scope", "sleep"]

now = clock.current.monotonic
clock.follow(globals())  # which keeps `now` up to date

_MAX_LANES = 64
"""Limits in use at once per loop; past that, lanes that rest are dropped."""


def begin(limit: float) -> Scope | None:
    """Starts a first attempt that is cancelled after the limit; None outside asyncio's tasks."""
    try:
        task = current_task()
    except RuntimeError:
        return None
    if task is None:  # trio's, perhaps as a guest in an asyncio loop
        return None
    mine = TASK_LIMIT.get()
    if mine is None or mine.owner() is not task:
        mine = _own_limit(task, mine)
    end = now() + limit
    if mine.end < end or LIMITS.get().end < end:
        return open_scope(end, limit)
    try:
        lane = task.get_loop().mainstay_lanes[limit]  # type: ignore[attr-defined]
    except (AttributeError, KeyError):
        lane = _new_lane(task.get_loop(), limit)
    scope = Scope(task, end, limit, lane.queue, mine)
    lane.queue[scope] = None
    if lane.timer is None:
        lane.arm(limit)
    return scope


def open_scope(end: float, limit: float) -> Scope:
    """Starts an attempt that is cancelled at the end, a moment of our clock."""
    task = current_task()
    assert task is not None
    mine = TASK_LIMIT.get()
    if mine is None or mine.owner() is not task:
        mine = _own_limit(task, mine)
    outer = min(mine.end, LIMITS.get().end)
    if outer < end:
        end, limit = outer, max(0.0, outer - now())
    return _Alone(task, end, limit, mine)


def _own_limit(task: Task[Any], inherited: TaskLimit | None) -> TaskLimit:
    """A limit of the task's own; it starts with what the task that started it has left."""
    mine = TaskLimit(ref(task), NEVER if inherited is None else inherited.end)
    TASK_LIMIT.set(mine)
    return mine


class Scope:
    """An attempt with an end. Exactly one of `failed` and `ended` is called."""

    __slots__ = ("_cancelling", "_limit", "_mine", "_outer", "_queue", "_task", "end", "is_expired")

    def __init__(
        self,
        task: Task[Any],
        end: float,
        limit: float,
        queue: dict[Scope, None],
        mine: TaskLimit,
    ) -> None:
        self._task = task
        self.end = end
        self._limit = limit
        self._queue = queue
        self._cancelling = task.cancelling()
        self._mine = mine
        self._outer = mine.end
        mine.end = end
        self.is_expired = False

    def expire(self) -> None:
        self.is_expired = True
        self._task.cancel()

    def failed(self, caught: BaseException) -> Exception:
        """What the attempt failed with; raises what is not for us to catch."""
        self._mine.end = self._outer
        if not self.is_expired:
            self._leave()
        elif self._task.uncancel() <= self._cancelling and isinstance(caught, CancelledError):
            timeout = AttemptTimeout(self._limit)
            timeout.__cause__ = caught
            return timeout
        if isinstance(caught, Exception):
            return caught
        raise caught

    def ended(self) -> None:
        """The attempt returned; it may have swallowed our cancellation."""
        self._mine.end = self._outer
        if self.is_expired:
            self._task.uncancel()
        else:
            self._leave()

    def _leave(self) -> None:
        del self._queue[self]


class _Alone(Scope):
    """A scope with a timer of its own: a retry, or one that an outer deadline cuts short."""

    __slots__ = ("_timer",)

    def __init__(self, task: Task[Any], end: float, limit: float, mine: TaskLimit) -> None:
        super().__init__(task, end, limit, {}, mine)
        self._timer: TimerHandle | None = None
        if end != NEVER:
            self._timer = task.get_loop().call_later(limit, self.expire)

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class _Lane:
    """The attempts of one loop that have the same limit, in the order of their ends."""

    __slots__ = ("loop", "queue", "timer")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self.queue: dict[Scope, None] = {}
        self.timer: TimerHandle | None = None

    def arm(self, delay: float) -> None:
        self.timer = self.loop.call_later(delay, self._fire)

    def _fire(self) -> None:
        self.timer = None
        moment = now()
        while self.queue:
            scope = next(iter(self.queue))
            if scope.end > moment:
                self.arm(scope.end - moment)
                return
            del self.queue[scope]
            scope.expire()


def _new_lane(loop: AbstractEventLoop, limit: float) -> _Lane:
    """Lanes live on their loop, and end with it."""
    lanes: dict[float, _Lane] = getattr(loop, "mainstay_lanes", {})
    if len(lanes) >= _MAX_LANES:
        for other in [key for key, lane in lanes.items() if not lane.queue]:
            del lanes[other]
    lane = lanes[limit] = _Lane(loop)
    loop.mainstay_lanes = lanes  # type: ignore[attr-defined]
    return lane
