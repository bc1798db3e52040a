"""Watches a store's clock beside the clocks of this machine that are never set.

Each step of a store passes the store's time to `look`, which answers with what this process knows
besides. That is one reading of a clock and a few comparisons: no system call on Linux.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import mainstay.runtime.clock as clock
from mainstay.core.base.clock_jumps import NO_VIEW, TOLERANCE, ClockView, observed
from mainstay.runtime.reports.logs import logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.base.clock_jumps import Reading

_ON_THIS_MACHINE = ("sqlite:",)
"""The stores whose processes are all on one machine, by the beginning of their URLs."""
_LOUD = 10.0
"""Seconds by which no answer of a server is late: the clock was set, and the log has it."""
_log = logger()
_EVERY = 60.0
"""Seconds for which one reading is compared with: two clocks drift apart by less than a jump."""


class StoreClock:
    """The clock of one store, as this process has seen it.

    >>> StoreClock("memory://").look(1000.0).jumps
    ()
    """

    __slots__ = ("_boot", "_offset", "_reading", "_seen", "_steady", "_until", "_url", "_view")

    def __init__(self, url: str) -> None:
        self._url = url
        self._boot = boot() if url.startswith(_ON_THIS_MACHINE) else ""
        self._steady = clock.SYSTEM.steady
        """What the store's clock is compared with."""
        self._reading: Reading | None = None
        self._offset, self._until = math.nan, -math.inf
        """The difference of the two clocks, and until when it is compared with."""
        self._view = NO_VIEW
        self._seen: tuple[float, ClockView] = (math.nan, NO_VIEW)
        """The time that was passed last, and what was known then."""

    def look(self, now: float) -> ClockView:
        """What is known at a moment of the store's clock.

        The steps of one transaction pass the same object: one reading, which is looked at once.
        """
        seen = self._seen
        if seen[0] is now:
            return seen[1]
        steady = self._steady()
        gained = now - steady - self._offset
        if not (-TOLERANCE < gained < TOLERANCE and steady < self._until):
            self._observe(now, steady)
        view = self._view
        if self._boot:
            view = ClockView(view.jumps, self._boot, steady)
        self._seen = (now, view)
        return view

    def _observe(self, now: float, steady: float) -> None:
        """Takes the next reading; a warning if the clock was set, and the answer was not slow."""
        last = self._reading
        if last is not None:
            by = now - last.stored - steady + last.steady
            if abs(by) > _LOUD:
                _log.warning("the clock of %s was set %+.0f s", self._url, by)
        reading = self._reading = observed(last, now, steady)
        self._offset, self._until = now - steady, steady + _EVERY
        self._view = ClockView(reading.jumps)

    def before_jumps(self, now: float) -> float:
        """The time as the store's clock would show it if it had not been set ahead.

        What purges goes by it: a clock that is set ahead, and perhaps back again, must not cost the
        records that would have been kept. Records of after the jump are purged later by as much.

        >>> StoreClock("memory://").before_jumps(1000.0)
        1000.0
        """
        return now - sum([jump.by for jump in self.look(now).jumps])


class OwnClock(StoreClock):
    """Of a store whose clock is the process's own; virtual time begins and ends at will.

    >>> OwnClock("memory://").look(1000.0).jumps
    ()
    """

    __slots__ = ()

    def look(self, now: float) -> ClockView:
        """The same, unless a test has replaced the clock."""
        if clock.current is not clock.SYSTEM:
            self._reading, self._until = None, -math.inf
            return NO_VIEW
        steady = self._steady()
        if not (-TOLERANCE < now - steady - self._offset < TOLERANCE and steady < self._until):
            self._observe(now, steady)
        return self._view


def clock_of(url: str) -> StoreClock:
    """The watched clock of the store with a URL.

    >>> type(clock_of("memory://")).__name__
    'OwnClock'
    """
    return OwnClock(url) if url.startswith("memory:") else StoreClock(url)


@cache
def boot() -> str:
    """The machine since its last start, in a few characters; empty where that is not known.

    A process in a time namespace of its own has another uptime, so the namespace is a part of it.
    """
    space = Path("/proc/self/ns/time")
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        number = space.readlink().name if space.is_symlink() else ""
    except (OSError, ValueError):
        return ""
    digits = "".join(each for each in number if each.isdigit())
    return f"{text[:8]}{text[-4:]}.{digits[-6:]}"
