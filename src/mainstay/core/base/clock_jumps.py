"""Clocks that are set while records are kept: what a process can know about it, as values.

What is stored holds moments of the store's clock, and clocks are set. Two rules follow, and a third
for a store on this machine:

- *Set back*: a moment lies further ahead than its whole length. The length begins again from now.
- *Set ahead*: a process compares the store's clock with a monotonic clock at each step. If the
  store's clock has gained more than it can have drifted, moments that were set before the jump are
  moved along with it (`moved`).
- *On one machine*: a record has the uptime of the machine beside the moment, and the boot that it
  counts from. No setting of a clock changes that, also for a process that starts after it.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol, TypeVar

    Kept = TypeVar("Kept", bound=Struct)

    class Leased(Protocol):
        """A record with a lease, and the uptime of the machine when it was written."""

        @property
        def lease(self) -> float: ...
        @property
        def lease_until(self) -> float: ...
        @property
        def boot(self) -> str: ...
        @property
        def uptime(self) -> float: ...


TOLERANCE, _DRIFT = 1.0, 0.001
"""Seconds by which two clocks may differ before one was set, and more for each second between two
looks: NTP slews by 0.0005, and the answer of a server may take a part of a second."""
_LATE = 5.0
"""Seconds by which the moment of a jump may be wrong, if it is as long: answers come late."""
_MOST = 8
"""Jumps that are remembered."""


NO_TIME = 0.0
"""For a time that is not known: one object, because a default is left out of a record only if it is
that very object."""


class Jump(Struct, frozen=True, gc=False):
    """The store's clock was set ahead, when it showed `before`, by `by` seconds."""

    before: float
    by: float


class ClockView(Struct, frozen=True, gc=False):
    """What a process knows of the time beside the store's clock.

    >>> ClockView().is_same_boot("", 0.0)
    False
    """

    jumps: tuple[Jump, ...] = ()
    boot: str = ""
    """The machine since its last start; empty if records are not of one machine."""
    uptime: float = NO_TIME

    def is_same_boot(self, boot: str, uptime: float) -> bool:
        """Whether the uptime of a record and this one count from the same moment."""
        return bool(boot) and boot == self.boot and uptime <= self.uptime


NO_VIEW = ClockView()
"""Of a process that knows nothing but the store's clock."""


class Reading(Struct, frozen=True, gc=False):
    """The two clocks at one moment, and the jumps that were seen by then."""

    stored: float
    """The store's clock."""
    steady: float
    """A clock that is never set."""
    jumps: tuple[Jump, ...] = ()


def observed(last: Reading | None, now: float, steady: float) -> Reading:
    """The reading after this one: with one more jump if the store's clock was set ahead.

    If it was set back, jumps ahead that were seen before are taken back by as much.

    >>> first = observed(None, now=1000.0, steady=5.0)
    >>> observed(first, now=1010.0, steady=15.0).jumps
    ()
    >>> observed(first, now=4610.0, steady=15.0).jumps
    (Jump(before=1010.0, by=3600.0),)
    """
    if last is None:
        return Reading(now, steady)
    passed = steady - last.steady
    gained, allowed = now - last.stored - passed, TOLERANCE + _DRIFT * passed
    jumps = last.jumps
    if gained > allowed:
        jumps = (*jumps, Jump(last.stored + passed, gained))[-_MOST:]
    elif jumps and gained < -allowed:
        jumps = _taken_back(jumps, -gained)
    return Reading(now, steady, jumps)


def _taken_back(jumps: tuple[Jump, ...], seconds: float) -> tuple[Jump, ...]:
    while jumps and seconds > 0.0:
        *earlier, last = jumps
        left = last.by - seconds
        seconds -= last.by
        jumps = (*earlier, Jump(last.before, left)) if left > TOLERANCE else tuple(earlier)
    return jumps


def moved(moment: float, length: float, jumps: tuple[Jump, ...]) -> float:
    """A stored moment, which was set `length` seconds before it, after the jumps since then.

    >>> moved(130.0, 30.0, (Jump(before=110.0, by=3600.0),))
    3730.0
    >>> moved(150.0, 30.0, (Jump(before=110.0, by=3600.0),))
    150.0

    What was set just after the clock was last seen counts as set before the jump: a process learns
    of the time by an answer, which is late. If it was set after the jump, that costs a longer wait.
    """
    since = moment - length
    return moment + sum([j.by for j in jumps if since <= j.before + min(j.by / 2.0, _LATE)])


def leased(record: Kept, lease: float, now: float, view: ClockView) -> Kept:
    """A record with a lease from now on, and the uptime of the machine beside it."""
    return replace(record, lease_until=now + lease, lease=lease, boot=view.boot, uptime=view.uptime)


def unleased(record: Kept) -> Kept:
    """A record that no process holds."""
    return replace(record, lease_until=NO_TIME, lease=NO_TIME, boot="", uptime=NO_TIME)


def lease_left(record: Leased, now: float, view: ClockView = NO_VIEW) -> float:
    """The seconds that are left of a lease, never more than its length; 0.0 if it is over.

    >>> from types import SimpleNamespace
    >>> lease_left(SimpleNamespace(lease=30.0, lease_until=130.0, boot="", uptime=0.0), 110.0)
    20.0
    """
    if not record.lease:
        return 0.0
    if view.is_same_boot(record.boot, record.uptime):
        return max(0.0, record.lease - (view.uptime - record.uptime))
    left = moved(record.lease_until, record.lease, view.jumps) - now
    return max(0.0, min(record.lease, left))
