"""Attempts of one call that race each other: the first answer wins.

`Race` knows what has become of the attempts and when the next may start. Where they run differs:
tasks of a group under asyncio and trio, threads otherwise. Losing tasks are cancelled and awaited;
a losing thread cannot be ended, so its cancel event is set, and it is abandoned and counted.

Attempts run off the caller's stack. So that a retry inside still sees the retries around it, and
`deadline.remaining()` their ends, each attempt has those entered on its own stack.
"""

from __future__ import annotations

import sys
import threading
from contextvars import copy_context

import mainstay.runtime.clock as clock
from mainstay.core.base.deadline import NEVER
from mainstay.core.events.describe import describe
from mainstay.core.retry.effects import Returned
from mainstay.core.retry.events import AttemptHedged
from mainstay.deadline import moment
from mainstay.drivers.call.callables import name_of
from mainstay.drivers.layers.decorate import emit_aside, note_on
from mainstay.runtime.context import CANCEL, context
from mainstay.runtime.enclosing import OPEN, Enclosure, enclosures
from mainstay.runtime.reports.tracebacks import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Protocol, Self, TypeAlias

    from mainstay.core.base.types import UserValue
    from mainstay.core.retry.effects import Outcome
    from mainstay.drivers.call.callables import Args, AsyncFunction, Function, Kwargs
    from mainstay.ports import Sink
    from mainstay.runtime.overrides import Overrides

    Raised: TypeAlias = tuple[
        type[BaseException] | None, BaseException | None, TracebackType | None
    ]

    class HedgeRule(Protocol):
        """What a race needs to know of the hedge."""

        max_hedges: int
        listeners: tuple[Sink, ...]

    class HedgeBook(Protocol):
        """What a hedge has learned and counted; see hedge.py."""

        @property
        def hedge(self) -> HedgeRule: ...

        overrides: Overrides
        abandoned: set[Worker]

        def delay(self) -> float | None: ...
        def charge(self, now: float, /) -> float | None: ...
        def count(self, *, hedged: int = 0, won: int = 0) -> None: ...
        def learn(self, seconds: float, /) -> None: ...


_POLL = 0.02
"""Seconds between two looks at the caller's cancel event while threads are waited for."""
_NOTHING = 1e-6
"""Less time than this is none; clocks differ by that much."""


class Race:
    """The attempts of one call. `ended` is called where an attempt runs, the rest by the caller."""

    __slots__ = (
        "_cancel", "_is_paid", "_name", "_next_at", "_outcomes", "_started", "_verdict", "around",
        "begun", "book", "call", "delay",
    )  # fmt: skip

    def __init__(self, book: HedgeBook, function: Function, args: Args, kwargs: Kwargs) -> None:
        self.book = book
        self.call = (function, args, kwargs)
        self.around = [Enclosure(e.plan, e.end, retries=e.retries) for e in enclosures()]
        self.delay = book.delay() if book.overrides.has_retries else None
        self.begun = 0
        self._name = name_of(function)
        self._cancel = CANCEL.get()
        self._started = clock.current.monotonic()
        self._next_at = NEVER if self.delay is None else self._started + self.delay
        self._is_paid = False
        self._outcomes: dict[int, Outcome] = {}
        self._verdict: tuple[int, Outcome, float] | None = None
        """Which attempt answered first, or means "stop", and when; a failure is no verdict."""

    @property
    def is_over(self) -> bool:
        return self._verdict is not None or len(self._outcomes) == self.begun

    def begin(self) -> int:
        """The number of an attempt that starts now."""
        self.begun += 1
        return self.begun

    def withdraw(self) -> None:
        """The last attempt could not be started, and no other will be."""
        self.begun -= 1
        self._next_at = NEVER

    def ended(self, number: int, outcome: Outcome) -> None:
        """An attempt has ended; of two at once in threads, either may win."""
        if self._verdict is None and not isinstance(outcome, Exception):
            self._verdict = number, outcome, clock.current.monotonic()
        self._outcomes[number] = outcome

    def until_hedge(self) -> float | None:
        """Seconds to the next hedge, or None if there is to be none."""
        if self._next_at == NEVER:
            return None
        return max(0.0, self._next_at - clock.current.monotonic())

    def may_hedge(self) -> bool:
        """Whether a hedge is to start now; the budget is asked once for each."""
        now = clock.current.monotonic()
        if self.is_over or now < self._next_at - _NOTHING:
            return False
        wait = self._permission(now)
        self._next_at = NEVER if wait is None else now + wait
        self._is_paid = bool(wait)
        return wait == 0.0

    def _permission(self, now: float) -> float | None:
        """How long the hedge is to wait yet, or None if there is to be none."""
        is_stopped = self._cancel is not None and self._cancel.is_set()
        if is_stopped or moment() - now <= _NOTHING:
            return None
        return 0.0 if self._is_paid else self.book.charge(now)

    def hedged(self) -> None:
        """A hedge has started."""
        hedge, now, number = self.book.hedge, clock.current.monotonic(), self.begun - 1
        is_last = self.delay is None or number >= hedge.max_hedges
        self._next_at = NEVER if is_last else now + (self.delay or 0.0)
        self.book.count(hedged=1)
        emit_aside(
            (*hedge.listeners, *self.book.overrides.listeners),
            AttemptHedged,
            operation=self._name,
            waited_seconds=max(0.0, now - self._started),
            hedge_number=number,
        )

    def answered(self, value: UserValue, now: float) -> UserValue:
        """The value of a call that succeeded, whose duration is learned."""
        self.book.learn(now - self._started)
        return value

    def result(self) -> UserValue:
        """What the call comes to: the answer, what means "stop", or the first failure."""
        outcome: Outcome | None
        each: Outcome | None
        number, outcome, at = self._verdict or (0, None, 0.0)
        # Also of a loser, while it was being cancelled. A copy: in threads, one may end just now.
        for each in list(self._outcomes.values()):
            if isinstance(each, KeyboardInterrupt | SystemExit):
                outcome = each
        try:
            if not isinstance(outcome, Returned):
                raise outcome or self._failure()
            if number > 1:
                self.book.count(won=1)
            return self.answered(outcome.value, at)
        except BaseException as error:
            shorten(error)
            raise
        finally:  # the traceback of what is raised holds this frame, which held what is raised
            self._outcomes, self._verdict = {}, None
            outcome = each = None

    def _failure(self) -> Exception:
        """The first attempt's error, with a note of the others'."""
        first = self._outcomes[1]
        assert isinstance(first, Exception)
        redact = self.around[0].plan.redact if self.around else None
        for number, other in sorted(self._outcomes.items()):
            if other is not first and isinstance(other, Exception):
                name, message = describe(other, redact)
                note_on(first, f"hedge {number - 1} of {self._name} failed too: {name}: {message}")
        return first


# --- attempts in threads --------------------------------------------------------------------------


class Threads:
    """The attempts of a race in threads. Those that still run at the end are abandoned."""

    def __init__(self, race: Race) -> None:
        self.race = race
        self.changed = threading.Event()
        self._outer = CANCEL.get()
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        abandoned = self.race.book.abandoned
        for worker in self._workers:
            worker.cancel.set()
            if not worker.is_done:
                abandoned.add(worker)
            if worker.is_done:  # perhaps just now: it may have looked before it was entered
                abandoned.discard(worker)
                worker.join()

    def start(self) -> bool:
        """Starts an attempt; a hedge for which there is no thread is left out."""
        worker = Worker(self, self.race.begin())
        try:
            worker.start()
        except RuntimeError:
            self.race.withdraw()
            if not self._workers:
                raise
            return False
        self._workers.append(worker)
        return True

    def wait(self, seconds: float | None) -> None:
        """Waits for an attempt to end, with an eye on the caller's cancel event."""
        if self._outer is not None:
            seconds = _POLL if seconds is None else min(seconds, _POLL)
        if seconds is None:
            self.changed.wait()
        else:
            clock.current.sleep(seconds, self.changed)
        self.changed.clear()
        if self._outer is not None and self._outer.is_set():
            self._outer = None
            for worker in self._workers:
                worker.cancel.set()


class Worker(threading.Thread):
    """Runs one attempt in a copy of the caller's context, with a cancel event of its own."""

    def __init__(self, group: Threads, number: int) -> None:
        super().__init__(name=f"mainstay-hedge-{number}", daemon=True)
        self.cancel = threading.Event()
        self.is_done = False
        self._work = (group, number, copy_context())

    def run(self) -> None:
        group, number, here = self._work
        del self._work
        outcome: Outcome
        try:
            outcome = Returned(here.run(self._attempt, group.race))
        except BaseException as error:
            outcome = error
        self.is_done = True
        group.race.ended(number, outcome)
        del outcome  # its traceback holds this frame
        group.race.book.abandoned.discard(self)
        group.changed.set()

    def _attempt(self, race: Race) -> UserValue:
        with context(cancel=self.cancel):
            return _inside(race.around, *race.call)


def _inside(
    around: Sequence[Enclosure], function: Function, args: Args, kwargs: Kwargs
) -> UserValue:
    """Calls the function with the retries that enclose it on the stack, outermost first."""
    if not around:
        return function(*args, **kwargs)
    frame = sys._getframe()
    OPEN[frame] = around[-1]
    try:
        return _inside(around[:-1], function, args, kwargs)
    finally:
        del OPEN[frame], frame


# --- attempts in tasks ----------------------------------------------------------------------------


def group_here(race: Race) -> _OnAsyncio | _OnTrio:
    """A group of the event loop this runs in; when it is left, all its attempts have ended."""
    trio = sys.modules.get("trio")
    return _OnTrio(race) if trio and trio.lowlevel.in_trio_task() else _OnAsyncio(race)


async def _run(group: _OnAsyncio | _OnTrio, number: int) -> None:
    """Every outcome is handed over, also a cancellation: it is for the caller to raise."""
    outcome: Outcome
    try:
        outcome = Returned(await _ainside(group.race.around, *group.race.call))
    except BaseException as error:
        outcome = error
    group.race.ended(number, outcome)
    del outcome  # its traceback holds this frame
    group.changed.set()


async def _ainside(
    around: Sequence[Enclosure], function: AsyncFunction, args: Args, kwargs: Kwargs
) -> UserValue:
    """The same as _inside, for a function to await."""
    if not around:
        return await function(*args, **kwargs)
    frame = sys._getframe()
    OPEN[frame] = around[-1]
    try:
        return await _ainside(around[:-1], function, args, kwargs)
    finally:
        del OPEN[frame], frame


class _OnAsyncio:
    def __init__(self, race: Race) -> None:
        from asyncio import Event, TaskGroup

        self.race = race
        self.changed = Event()
        self._group = TaskGroup()
        self._tasks: list[Task[None]] = []

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *raised: *Raised) -> None:  # noqa: PYI036 -- handed on as they come
        await self._group.__aexit__(*raised)

    def start(self) -> None:
        self._tasks.append(self._group.create_task(_run(self, self.race.begin())))

    async def wait(self, seconds: float | None) -> None:
        """Waits for an attempt to end, at most that long."""
        from asyncio import timeout

        try:
            async with timeout(seconds):
                await self.changed.wait()
        except TimeoutError:
            return
        self.changed.clear()

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


class _OnTrio:
    def __init__(self, race: Race) -> None:
        self.race = race
        self._trio = sys.modules["trio"]
        self.changed = self._trio.Event()
        self._manager = self._trio.open_nursery()

    async def __aenter__(self) -> Self:
        self._nursery = await self._manager.__aenter__()
        return self

    async def __aexit__(self, *raised: *Raised) -> None:  # noqa: PYI036 -- handed on as they come
        try:
            await self._manager.__aexit__(*raised)
        except BaseExceptionGroup as group:  # of one: the attempts themselves raise nothing
            raise group.exceptions[0] from None

    def start(self) -> None:
        self._nursery.start_soon(_run, self, self.race.begin())

    async def wait(self, seconds: float | None) -> None:
        """Waits for an attempt to end, at most that long."""
        with self._trio.move_on_after(NEVER if seconds is None else seconds):
            await self.changed.wait()
            self.changed = self._trio.Event()

    def cancel(self) -> None:
        self._nursery.cancel_scope.cancel()
