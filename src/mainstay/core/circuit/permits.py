"""Permits for the probes of a shared circuit: how many nodes may probe at once, over all of them.

One record for each circuit, beside its table and not in it: a process of an older version writes
the table anew and would drop what it does not know. A probe takes a permit before it begins and
returns it with its outcome. A permit is leased, so that of a process that was killed runs out. The
record also holds the last outcomes: a node that asks after another one's probe has failed opens
again with it, and one that asks after a success closes.

Times are of the store's clock. A lease or a wait that has more left than its whole length means
that the clock was set back: it begins again from now. `jumps` are what the process that asks has
seen of a clock that was set ahead: what was written before them is moved along.
"""

from __future__ import annotations

from enum import Enum

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainstay.core.base.change import KEEP, Change, read_as, ready
from mainstay.core.base.clock_jumps import moved
from mainstay.core.circuit.breaker import Circuit, CircuitState, Signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.base.clock_jumps import Jump

_KEPT = 86_400.0
"""Seconds for which the record is remembered after its last change."""
_SLACK = 0.05
"""Seconds that are waited out and not taken for another open period: clocks differ by less."""
_FAILED = (Signal.RELAPSED.value, Signal.LOST.value)


class Verdict(Enum):
    """What a node is answered that asks for a permit."""

    GRANTED = "granted"
    TAKEN = "taken"
    RELAPSED = "relapsed"
    RECOVERED = "recovered"


class Answer(Struct, frozen=True):
    """The verdict; and after how many seconds it is of use to ask again."""

    verdict: Verdict
    seconds: float = 0.0


class Permit(Struct, frozen=True):
    """A probe under way: since when its lease runs, and how long."""

    since: float
    lease: float


class Permits(Struct, frozen=True):
    """The permits of one circuit, and how the last probes ended."""

    held: dict[str, Permit] = {}
    successes: int = 0
    """Of probes in a row, by any node, since the last one that failed."""
    succeeded: float = 0.0
    recovered: float = 0.0
    """When enough of them had succeeded."""
    relapsed: float = 0.0
    """When a probe failed last."""
    wait: float = 0.0
    """For how many seconds from then on no node probes."""
    by: str = ""
    """The node whose probe that was: it is no news to that one."""


class Outcome(Enum):
    """How probes ended."""

    SUCCEEDED = "succeeded"
    RECOVERED = "recovered"
    FAILED = "failed"
    RELEASED = "released"


class Settlement(Struct, frozen=True):
    """What a change of a circuit means for its permits: these tickets have ended so."""

    tickets: tuple[int, ...]
    outcome: Outcome
    wait: float = 0.0


def take(
    value: bytes | None,
    node: str,
    token: str,
    *,
    opened: float,
    limit: int,
    lease: float,
    now: float,
    jumps: tuple[Jump, ...] = (),
) -> tuple[Change, Answer]:
    """Asks for a permit; `opened` is when the open period of the asking node began.

    >>> take(None, "a", "a#1", opened=0.0, limit=1, lease=10.0, now=30.0)[1].verdict
    <Verdict.GRANTED: 'granted'>
    """
    row = _read(value, now, jumps)
    if row.recovered > max(opened, row.relapsed):
        return KEEP, Answer(Verdict.RECOVERED)
    rest = row.relapsed + row.wait - now
    if rest > 0.0 and row.relapsed > opened and row.by != node:
        verdict = Verdict.RELAPSED if rest > _SLACK else Verdict.TAKEN
        return _kept(value, row, now), Answer(verdict, rest)
    others = {name: each for name, each in row.held.items() if name != token}
    if len(others) >= limit:
        wait = min(each.since + each.lease - now for each in others.values())
        return _kept(value, row, now), Answer(Verdict.TAKEN, wait)
    successes = row.successes if row.succeeded > opened else 0
    row = replace(row, held={**others, token: Permit(now, lease)}, successes=successes)
    return _kept(value, row, now), Answer(Verdict.GRANTED)


def renew(
    value: bytes | None,
    tokens: frozenset[str],
    lease: float,
    now: float,
    jumps: tuple[Jump, ...] = (),
) -> tuple[Change, bool]:
    """Begins the leases of these permits again; False if one is no longer held.

    >>> renew(None, frozenset({"a"}), 10.0, 0.0)[1]
    False
    """
    row = _read(value, now, jumps)
    mine = {name: Permit(now, lease) for name in row.held if name in tokens}
    row = replace(row, held={**row.held, **mine})
    return _kept(value, row, now), len(mine) == len(tokens)


def settle(
    value: bytes | None,
    node: str,
    tokens: frozenset[str],
    outcome: Outcome,
    *,
    at: float,
    now: float,
    wait: float = 0.0,
    threshold: int = 1,
    jumps: tuple[Jump, ...] = (),
) -> tuple[Change, Permits]:
    """Returns permits, with how their probes ended, and when; one that had run out counts too.

    >>> settle(None, "a", frozenset(), Outcome.FAILED, at=5.0, now=5.1, wait=30.0)[1].relapsed
    5.0
    """
    row, at = _read(value, now, jumps), min(at, now)
    row = replace(row, held={name: each for name, each in row.held.items() if name not in tokens})
    if outcome is Outcome.FAILED:
        row = replace(row, relapsed=at, wait=wait, by=node, successes=0)
    elif outcome is not Outcome.RELEASED:
        row = replace(row, successes=row.successes + 1, succeeded=at)
        if outcome is Outcome.RECOVERED or row.successes >= threshold:
            row = replace(row, recovered=at, successes=0)
    return _kept(value, row, now), row


def settlement(before: Circuit, after: Circuit) -> Settlement | None:
    """What a change of a circuit means for its permits; None if nothing."""
    kept = {ticket for ticket, _ in after.probes}
    gone = tuple(ticket for ticket, _ in before.probes if ticket not in kept)
    if after.generation != before.generation:
        if after.state is CircuitState.OPEN and after.reason in _FAILED:
            return Settlement(gone, Outcome.FAILED, after.open_seconds)
        if after.state is CircuitState.CLOSED and after.reason == Signal.RECOVERED.value:
            return Settlement(gone, Outcome.RECOVERED)
    elif after.successes > before.successes:
        return Settlement(gone, Outcome.SUCCEEDED)
    return Settlement(gone, Outcome.RELEASED) if gone else None


def begun(before: Circuit, after: Circuit) -> tuple[int, ...]:
    """The probes that a change of a circuit has admitted."""
    known = {ticket for ticket, _ in before.probes}
    return tuple(ticket for ticket, _ in after.probes if ticket not in known)


def decode(value: bytes) -> Permits:
    """The record of such a text."""
    return read_as(Permits, value, "permits of a circuit")


def _read(value: bytes | None, now: float, jumps: tuple[Jump, ...]) -> Permits:
    """The record without the leases that have run out, on a clock that may have been set."""
    row = Permits() if value is None else decode(value)
    if jumps:
        row = _after(row, jumps)
    live = {
        name: Permit(min(each.since, now), each.lease)
        for name, each in row.held.items()
        if now < each.since + each.lease
    }
    return replace(
        row,
        held=live,
        relapsed=min(row.relapsed, now),
        recovered=row.recovered if row.recovered <= now else 0.0,
        succeeded=min(row.succeeded, now),
    )


def _after(row: Permits, jumps: tuple[Jump, ...]) -> Permits:
    """The record as it would be if its moments had been written on the clock that was set ahead."""
    held = {
        name: Permit(moved(each.since, 0.0, jumps), each.lease) for name, each in row.held.items()
    }
    succeeded, recovered, relapsed = (
        moved(each, 0.0, jumps) if each else 0.0
        for each in (row.succeeded, row.recovered, row.relapsed)
    )
    return replace(row, held=held, succeeded=succeeded, recovered=recovered, relapsed=relapsed)


def _kept(value: bytes | None, row: Permits, now: float) -> Change:
    encoded = msgspec.json.encode(row)
    return KEEP if encoded == value else Change(encoded, now + _KEPT)


ready(Permits)
