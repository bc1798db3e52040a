"""Whose turn it is to purge expired records: of all processes on a store, one at a time.

One record has the time of the last purge. The process that finds it long enough ago writes the
present time and purges; the others find that, and do nothing. No process holds anything: if one
ends in the middle, the next one goes on after the usual time.

What is purged is what a read would call expired (`may_purge`). A process that starts after the
clock was set ahead cannot see that by itself. So a store whose processes are all on one machine
keeps a reading of its clock beside that of the machine (`gone_on`), from which the next purge goes
on.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from mainstay.core.base.change import KEEP, Change, ready
from mainstay.core.base.clock_jumps import TOLERANCE, Jump, Reading, observed
from mainstay.core.base.spaces import Space
from mainstay.core.idempotency.record import decode, is_expired

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.base.clock_jumps import ClockView

TURN = "turn"
"""The key of the record of turns."""
CLOCK = "clock"
"""The key of the reading of the clocks."""
_RECORDS = Space.RECORDS.value
_KEEP_EVERY = 60.0
"""Seconds after which a reading is kept again: two clocks drift apart by less than a jump."""


class LastPurge(Struct, frozen=True):
    """When expired records were last purged, on the store's clock."""

    at: float


def is_due(value: bytes | None, every: float, now: float) -> bool:
    """Whether the last purge is long enough ago, or lies ahead because the clock was set back.

    >>> is_due(None, 60.0, now=100.0), is_due(b'{"at":90.0}', 60.0, now=100.0)
    (True, False)
    >>> is_due(b'{"at":900.0}', 60.0, now=100.0)
    True
    """
    if value is None:
        return True
    try:
        last = msgspec.json.decode(value, type=LastPurge).at
    except (ValueError, RecursionError):  # it is damaged: a purge writes it anew
        return True
    return not last <= now < last + every


def take_turn(value: bytes | None, every: float, now: float) -> tuple[Change, bool]:
    """Takes the turn if it is due; whether it was.

    >>> change, is_mine = take_turn(None, 60.0, now=100.0)
    >>> is_mine, take_turn(change.value, 60.0, now=101.0)[1]
    (True, False)
    """
    if not is_due(value, every, now):
        return KEEP, False
    return Change(msgspec.json.encode(LastPurge(now))), True


# --- what may be purged ---------------------------------------------------------------------------


def may_purge(space: str, value: bytes, expires: float, now: float, view: ClockView) -> bool:
    """Whether a record may go whose time to be purged has come on the store's clock.

    The outcome of a call has the time for which it is kept, and the uptime of the machine: it is
    judged as a read judges it. Any other record waits for as long as the clock was set ahead.

    >>> from mainstay.core.base.clock_jumps import NO_VIEW, ClockView, Jump
    >>> may_purge("sagas", b"{}", expires=50.0, now=60.0, view=NO_VIEW)
    True
    >>> may_purge("sagas", b"{}", expires=50.0, now=60.0, view=ClockView((Jump(40.0, 15.0),)))
    False
    """
    if space == _RECORDS:
        try:
            record = decode(value)
        except (ValueError, RecursionError):  # it is damaged: it has no length to go by
            pass
        else:
            if record.kept_for:
                return is_expired(record, now, view)
    return expires + sum([jump.by for jump in view.jumps]) <= now


class KeptReading(Struct, frozen=True):
    """The store's clock and that of the machine at one moment, and the jumps seen by then."""

    stored: float
    steady: float
    boot: str
    jumps: tuple[Jump, ...] = ()


def gone_on(value: bytes | None, now: float, view: ClockView) -> tuple[tuple[Jump, ...], Change]:
    """All jumps since the machine has started that were seen, and what becomes of the reading.

    >>> from mainstay.core.base.clock_jumps import ClockView
    >>> jumps, change = gone_on(None, 1000.0, ClockView(boot="b", uptime=5.0))
    >>> gone_on(change.value, 4610.0, ClockView(boot="b", uptime=15.0))[0]
    (Jump(before=1010.0, by=3600.0),)
    """
    if not view.boot:
        return view.jumps, KEEP
    last = _kept_reading(value)
    if last is None or not view.is_same_boot(last.boot, last.steady):
        return view.jumps, _reading(Reading(now, view.uptime, view.jumps), view.boot)
    seen = observed(Reading(last.stored, last.steady, last.jumps), now, view.uptime)
    passed = view.uptime - last.steady
    if passed < _KEEP_EVERY and abs(now - last.stored - passed) < TOLERANCE:
        return seen.jumps, KEEP  # it was not set, ahead or back
    return seen.jumps, _reading(seen, view.boot)


def _kept_reading(value: bytes | None) -> KeptReading | None:
    if value is None:
        return None
    try:
        return msgspec.json.decode(value, type=KeptReading)
    except (ValueError, RecursionError):  # it is damaged: it is written anew
        return None


def _reading(seen: Reading, boot: str) -> Change:
    kept = KeptReading(seen.stored, seen.steady, boot, seen.jumps)
    return Change(msgspec.json.encode(kept))


ready(LastPurge)
ready(KeptReading)
