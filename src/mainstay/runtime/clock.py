"""The process's clock: what the drivers read and wait by, and what tests replace.

A clock is swapped, never patched: `install()` puts another one in place and returns the one that
was there. Generated wrappers read the time through a namespace of their own; such namespaces
follow along.

There are three readings. `monotonic` is for waits and deadlines; on Linux and macOS it stands still
while the machine sleeps. `steady` is never set either, and goes on: it measures what others count
meanwhile, as a store does with a lease. `wall` is the time of day.
"""

from __future__ import annotations

import sys
import time
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from typing import Any

    from mainstay.ports import Clock


def steady_clock(platform: str = sys.platform) -> Callable[[], float]:
    """A clock of this machine that is never set, and goes on while the machine sleeps.

    On Linux time.monotonic() does not, nor on macOS (`mach_absolute_time`); there the name of the
    clock that does is another one. On Windows time.monotonic() goes on: up to Python 3.12 it is
    `GetTickCount64`, since then `QueryPerformanceCounter`, and both include sleep. A system may
    have the name of a clock and refuse to read it.

    >>> steady_clock()() > 0.0
    True
    """
    name = "CLOCK_MONOTONIC_RAW" if platform == "darwin" else "CLOCK_BOOTTIME"
    number = getattr(time, name, None)
    if number is None:
        return time.monotonic
    try:
        time.clock_gettime(number)
    except OSError:
        return time.monotonic
    return partial(time.clock_gettime, number)


class SystemClock:
    """Real time.

    >>> SystemClock().monotonic() <= SystemClock().monotonic()
    True
    """

    __slots__ = ()

    monotonic = staticmethod(time.monotonic)
    steady = staticmethod(steady_clock())
    wall = staticmethod(time.time)

    def sleep(self, seconds: float, cancel: threading.Event | None = None) -> bool:
        """Waits; True if the cancel event ended it."""
        if cancel is not None:
            return cancel.wait(seconds)
        time.sleep(seconds)
        return False


SYSTEM = SystemClock()
current: Clock = SYSTEM
steady: Callable[[], float] = SYSTEM.steady
"""The reading of the current clock by which leases are measured. A clock that knows no sleep of the
machine has its `monotonic` in place of it."""
_followers: list[dict[str, Any]] = []


def install(clock: Clock) -> Clock:
    """Makes a clock the process's own; returns the one before."""
    global current, steady
    measure = getattr(clock, "steady", clock.monotonic)
    before, current, steady = current, clock, measure
    for namespace in _followers:
        namespace["now"] = clock.monotonic
    return before


def follow(namespace: dict[str, Any]) -> None:
    """Keeps `namespace["now"]` equal to the current clock's monotonic."""
    namespace["now"] = current.monotonic
    _followers.append(namespace)
