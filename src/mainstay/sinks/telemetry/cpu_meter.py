"""How much CPU time the retried calls of a thread have used, each its share.

A thread's clock does not know calls. If several are under way in one thread, as in an event
loop, what the thread uses meanwhile is divided among them, so that the parts never come to more
than the whole.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

thread_time: Callable[[], float] = getattr(time, "thread_time", time.process_time)
"""The CPU time of this thread; of the process, if a platform knows nothing finer."""


class CpuMeter:
    """One thread's meter: the share grows by what the thread uses, divided by who is under way.

    Another thread that reads it gets the last known share.

    >>> used = iter([0.0, 0.0, 3.0, 5.0])
    >>> meter = CpuMeter(lambda: next(used))
    >>> a, b = meter.begin(), meter.begin()
    >>> meter.read() - a, meter.end() - b
    (1.5, 2.5)
    """

    __slots__ = ("_cpu", "_last", "_share", "_thread", "_under_way")

    def __init__(self, cpu: Callable[[], float]) -> None:
        self._cpu = cpu
        self._last = 0.0
        self._share = 0.0
        self._under_way = 0
        self._thread = threading.get_ident()

    def begin(self) -> float:
        """A call begins to be retried; the answer is where it begins."""
        share = self.read()
        self._under_way += 1
        return share

    def read(self) -> float:
        """The share of each call under way, up to now."""
        if threading.get_ident() != self._thread:
            return self._share
        now = self._cpu()
        if self._under_way:
            self._share += max(0.0, now - self._last) / self._under_way
        self._last = now
        return self._share

    def end(self) -> float:
        """A call has ended; the answer is where."""
        share = self.read()
        self._under_way -= 1
        return share


class Meters(threading.local):
    """The meter of whichever thread asks."""

    def __init__(self, cpu: Callable[[], float]) -> None:
        self.meter = CpuMeter(cpu)
