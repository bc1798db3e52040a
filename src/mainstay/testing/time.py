"""Virtual time: waits end at once, and the clock moves as if they had taken their time.

Replaced are the process's clock (mainstay.runtime.clock), `time.sleep` in the thread that asked,
and, while it lasts, the clock of asyncio's own event loops: when a loop has nothing left to run,
time jumps to its next timer, unless threads work for it (threads.py). Trio takes a clock when it
starts: `trio.run(main, clock=time.trio_clock())`.
"""

from __future__ import annotations

import threading
import time as _time
from contextlib import contextmanager
from math import ceil, ulp
from typing import TYPE_CHECKING, Any

import mainstay.runtime.clock as clock
from mainstay.core.base.validate import in_seconds
from mainstay.testing.threads import STUCK, Threads, make_patient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.core.base.types import Seconds

_PATIENCE = 0.02
"""Real seconds to wait for a cancel event before time jumps past it."""
_ANSWERS_WITHIN = 0.02
"""Real seconds to wait for a socket; the project's own tests, on busy machines, have more."""
_PER_SECOND = 1024
"""Steps of a second at which a clock may begin. A power of two: a float holds such a moment and the
sum of it and a delay of whole or half seconds exactly, and so their difference is the delay."""


class VirtualTime:
    """A clock that moves only in waits. `virtual_time()` makes and installs one.

    Attributes:
        sleeps: every wait of sync code, in order.

    >>> with virtual_time() as time:
    ...     time.advance(3.0)
    >>> time.elapsed
    3.0
    """

    def __init__(self, start: float | None = None) -> None:
        # Moments, not a beginning and what has passed: the moment that a sum of now and a delay
        # gives is the one that a wait of that delay leads to, to the last bit.
        self._now = _begins(_time.monotonic()) if start is None else start
        self._wall = _begins(_time.time()) if start is None else start
        self._moved = self._slept = 0.0
        self._trio: Any = None
        self._lock = threading.Lock()
        self.sleeps: list[float] = []

    @property
    def elapsed(self) -> float:
        """Virtual seconds since the beginning, to the nanosecond."""
        return round(self._moved + self._of_trio(), 9)

    def advance(self, seconds: Seconds) -> None:
        """Moves the clock.

        >>> clock = VirtualTime(); clock.advance(1.5); clock.elapsed
        1.5
        """
        forward: Any = in_seconds(seconds)
        with self._lock:
            self._move(max(0.0, forward))

    def suspend(self, seconds: Seconds) -> None:
        """The machine sleeps: leases and the time of day go on; waits and deadlines stand still.

        >>> clock = VirtualTime(); before = clock.monotonic(); clock.suspend(60.0)
        >>> clock.monotonic() - before, clock.steady() - before
        (0.0, 60.0)
        """
        forward: Any = in_seconds(seconds)
        with self._lock:
            self._slept += max(0.0, forward)

    def monotonic(self) -> float:
        """The virtual monotonic clock; starts at the real one's millisecond, or at a given time."""
        return self._now + self._of_trio()

    def steady(self) -> float:
        """The same, with the time for which the machine slept."""
        return self.monotonic() + self._slept

    def wall(self) -> float:
        """The virtual wall clock; starts at the real one's millisecond, or at a given time."""
        return self._wall + self._of_trio() + self._slept

    def sleep(self, seconds: float, cancel: threading.Event | None = None) -> bool:
        """Waits in virtual time; a cancel event gets a moment of real time to be set.

        The end of a thread's work gets as much real time as it is waited for: what a busy machine
        does to a thread decides nothing.
        """
        is_work = getattr(cancel, "is_work", False)
        if cancel is not None and cancel.wait(min(seconds, STUCK) if is_work else _PATIENCE):
            return True
        with self._lock:
            self.sleeps.append(seconds)
        self.advance(seconds)
        return False

    def jump_to(self, moment: float) -> None:
        """Moves the clock to a moment of `monotonic()`, never back.

        >>> clock = VirtualTime(); clock.jump_to(clock.monotonic() + 2.0); clock.elapsed
        2.0
        """
        with self._lock:
            mine = moment - self._of_trio()
            if mine > self._now:
                self._move(mine - self._now)
                self._now = mine

    def trio_clock(self) -> Any:
        """A clock for `trio.run(main, clock=...)`, which this clock then follows.

        >>> import trio
        >>> with virtual_time() as time:
        ...     trio.run(trio.sleep, 60, clock=time.trio_clock())
        >>> time.elapsed
        60.0
        """
        from trio.testing import MockClock

        self._move(self._of_trio())  # of a clock before this one
        self._trio = MockClock(autojump_threshold=0)
        make_patient(self._trio)
        return self._trio

    def _of_trio(self) -> float:
        return 0.0 if self._trio is None else float(self._trio.current_time())

    def _move(self, seconds: float) -> None:
        self._moved += seconds
        self._now += seconds
        self._wall += seconds


def _begins(now: float) -> float:
    return ceil(now * _PER_SECOND) / _PER_SECOND


@contextmanager
def virtual_time(start: float | None = None) -> Iterator[VirtualTime]:
    """Makes waiting instant and exact, in sync and async code.

    The clocks begin where the real ones stand, or at `start`: then every run is the same.

    >>> import time as real
    >>> with virtual_time() as time:
    ...     real.sleep(3600)
    >>> time.elapsed
    3600.0
    """
    virtual = VirtualTime(start)
    before = clock.install(virtual)
    threads = Threads()
    undo = [_patch_sleep(virtual), _patch_asyncio(virtual, threads), threads.watch()]
    try:
        yield virtual
    finally:
        for step in undo:
            step()
        clock.install(before)


def _patch_sleep(virtual: VirtualTime) -> Any:
    """time.sleep of this thread; other threads go on sleeping for real."""
    real, here = _time.sleep, threading.get_ident()

    def sleep(seconds: float, /) -> None:
        if threading.get_ident() == here:
            virtual.sleep(seconds)
        else:
            real(seconds)

    _time.sleep = sleep  # type: ignore[assignment]

    def undo() -> None:
        _time.sleep = real

    return undo


def _patch_asyncio(virtual: VirtualTime, threads: Threads) -> Any:
    """Makes asyncio's loops read the virtual clock, and jump when they have nothing to run."""
    from asyncio.base_events import BaseEventLoop

    loops: Any = BaseEventLoop
    real_time, real_step = loops.time, loops._run_once

    def run_once(loop: Any) -> None:
        # What is due within the clock's resolution runs; a late clock's steps are longer than that.
        loop._clock_resolution = max(loop._clock_resolution, ulp(virtual.monotonic()))
        if not loop._ready and not loop._stopping and loop._scheduled and not _is_real(loop):
            _jump(loop, virtual, threads)
        real_step(loop)

    loops.time = lambda loop: real_time(loop) if _is_real(loop) else virtual.monotonic()
    loops._run_once = run_once

    def undo() -> None:
        loops.time, loops._run_once = real_time, real_step

    return undo


def _is_real(loop: Any) -> bool:
    """Whether a loop talks to a real server in a thread of its own, in real time."""
    return getattr(loop, "keeps_real_time", False)


def _jump(loop: Any, virtual: VirtualTime, threads: Threads) -> None:
    """Moves time to the loop's next timer, unless a socket or a thread has something first."""
    live = [handle._when for handle in loop._scheduled if not handle._cancelled]
    if not live:
        return
    moment = min(live)
    events = loop._selector.select(_ANSWERS_WITHIN if _has_sockets(loop) else 0) or threads.outlast(
        loop, moment - virtual.monotonic(), lambda: virtual.monotonic() >= moment
    )
    if events:
        loop._process_events(events)
    else:
        virtual.jump_to(moment)


def _has_sockets(loop: Any) -> bool:
    """Whether the loop listens to more than its own pipe; the proactor of Windows has no map."""
    get_map = getattr(loop._selector, "get_map", None)
    return get_map is None or len(get_map()) > 1
