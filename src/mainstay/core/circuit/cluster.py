"""The state that processes of a circuit or a budget share: a table with a seat for each node.

A seat holds what its node has observed itself. Evidence of nodes is not added up: a node opens by
its own failures, or because most of the live nodes have opened by theirs. So one node with a bad
network opens its own circuit and no other. A circuit that was opened by the others has no vote. If
no node of a table is live, a new node inherits the circuits of the last ones; otherwise those of
its own host that have left. So short-lived processes of one host count failures together, also
beside a long-running one. If the probe of a node has succeeded, the circuits that were open then
close.

An operator's order is in the table, with a number. Each node follows it once, at its next step, and
its seat holds that number; a seat from before the order has no vote, and a node that inherits it
follows the order first.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainstay.core.base.change import KEEP, Change, read_as, ready
from mainstay.core.base.clock_jumps import moved
from mainstay.core.circuit.breaker import Circuit, CircuitState, Signal, merged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.base.clock_jumps import Jump

_KEPT = 86_400.0
"""Seconds for which the last seats of a table are remembered, at least."""
_MOST_LEFT = 16
"""Seats of nodes that have left, kept beside those of live ones."""
_TRIPPED = (CircuitState.OPEN, CircuitState.HALF_OPEN)


class Seat(Struct, frozen=True):
    """One node at the table; times are of the store's clock."""

    seen: float
    circuit: Circuit | None = None
    counts: tuple[int, int] = (0, 0)
    """Calls and retries of a budget's window."""
    has_left: bool = False
    obeyed: int = 0
    """The number of the last order that the circuit has followed."""
    silence: float = 10.0
    """Seconds without a renewal after which the node counts as gone."""
    process: str = ""
    """The process on its machine, for those that can find out whether it has ended."""


class Order(Struct, frozen=True):
    """An operator's order to a circuit in every process: by whom, when and why."""

    number: int
    signal: Signal
    by: str
    at: float
    why: str = ""

    @property
    def is_standing(self) -> bool:
        """Whether it holds until the next one, also for nodes that come later."""
        return self.signal is not Signal.RESET


class Table(Struct, frozen=True):
    """The nodes that share a circuit or a budget, and the last order that was given."""

    seats: dict[str, Seat] = {}
    order: Order | None = None


class Prospect(Struct, frozen=True):
    """What a new node begins with: by what the others of the table have left, or have open."""

    circuit: Circuit | None = None
    """Of those whose place it takes."""
    places: frozenset[str] = frozenset()
    """The nodes whose place that is."""
    open_until: float = 0.0
    """Most of the live nodes have it open until then; 0.0 if they have not."""
    order: Order | None = None
    obeyed: int = 0
    """The last order that it need not follow."""

    @property
    def rank(self) -> int:
        """How much it matters if not all can be kept; 0 if the node may begin without it."""
        if self.open_until > 0.0 or (self.order is not None and self.order.is_standing):
            return 3
        if self.circuit is None:
            return 0
        if self.circuit.state is not CircuitState.CLOSED:
            return 2
        return 1 if _has_history(self.circuit) else 0


def _has_history(circuit: Circuit) -> bool:
    """Whether a closed circuit has failures that count, or has been open lately."""
    seen = circuit.evidence
    in_window = seen.failed or seen.slow or any(each[2] or each[3] for each in seen.buckets)
    return bool(circuit.failures or circuit.openings or in_window)


def sit(
    value: bytes | None,
    node: str,
    seat: Seat,
    now: float,
    silence: float,
    jumps: tuple[Jump, ...] = (),
    places: frozenset[str] = frozenset(),
) -> tuple[Change, Table]:
    """Takes or renews a seat; the answer is the table. `jumps` are those of the store's clock.

    Seats of nodes that are gone stay while no node is live, so that the next one inherits their
    circuits. Of those that have left, some stay beside the live ones, until a new
    node of their host takes over. Those whose place this node has taken go at once: or the next
    one would find what they knew beside what became of it.
    """
    table = Table() if value is None else decode(value)
    kept = {name: each for name, each in table.seats.items() if name not in places}
    in_time = _in_time(kept, now, jumps)
    seats = {name: each for name, each in in_time.items() if now < _remembered_until(each)}
    seats[node] = replace(seat, seen=now)
    live = {name: each for name, each in seats.items() if is_live(each, now, silence)}
    if live:
        heir = None if seat.has_left or node in table.seats else _host_of(node)
        seats = live | _left_to_others(seats, heir)
    table = Table(seats, table.order)
    return _kept(table, now), table


def _in_time(seats: dict[str, Seat], now: float, jumps: tuple[Jump, ...] = ()) -> dict[str, Seat]:
    """The seats, if the store's clock was set since: none was renewed later than now.

    After a jump ahead the others have not been silent for as long as it looks.
    """
    if not jumps and all(each.seen <= now for each in seats.values()):
        return seats
    return {
        name: replace(each, seen=min(now, moved(each.seen, 0.0, jumps)))
        for name, each in seats.items()
    }


def _kept(table: Table, now: float) -> Change:
    """A table lasts for a day after the last one was there, and while a circuit of it is open.

    An order that stands lasts until another one.
    """
    stands = table.order is not None and table.order.is_standing
    until = max((_remembered_until(seat) for seat in table.seats.values()), default=0.0)
    return Change(encode(table), None if stands else max(now + _KEPT, until))


def _remembered_until(seat: Seat) -> float:
    """A day after its node was there, and not before its circuit may be probed.

    A circuit that is open for a week would otherwise be closed to a process that starts on the
    second day.
    """
    circuit = seat.circuit
    if circuit is None or circuit.state is not CircuitState.OPEN:
        return seat.seen + _KEPT
    return max(seat.seen + _KEPT, min(circuit.since, seat.seen) + circuit.open_seconds)


def _left_to_others(seats: dict[str, Seat], heir: str | None) -> dict[str, Seat]:
    """The seats of those that have left, the newest, but what a new node takes over."""
    left = {n: each for n, each in seats.items() if each.has_left and _host_of(n) != heir}
    newest = sorted(left, key=lambda name: left[name].seen)[-_MOST_LEFT:]
    return {name: left[name] for name in newest}


def _host_of(node: str) -> str:
    """The host of a node that is named `host:process:number`."""
    return node.rsplit(":", 2)[0]


def is_live(seat: Seat, now: float, silence: float) -> bool:
    """Whether a node has not left, and has renewed its seat within `silence` seconds.

    A seat of the future is one of before the clock was set back.
    """
    return not seat.has_left and abs(now - seat.seen) < silence


def without_ended(table: Table, ended: frozenset[str]) -> Table:
    """The table after the processes that have ended have left it.

    >>> table = Table({"a": Seat(0.0, process="7")})
    >>> without_ended(table, frozenset({"7"})).seats["a"].has_left
    True
    """
    seats = {
        name: replace(seat, has_left=True) if seat.process in ended else seat
        for name, seat in table.seats.items()
    }
    return Table(seats, table.order)


def is_voted_open(
    table: Table, node: str, now: float, silence: float, quorum: int | None = None
) -> float:
    """For how long most of the nodes have the circuit open, by their own evidence; 0.0 if not.

    If a quorum is given, that many are enough, whatever their share.

    A node that has no seat yet counts as one that has it closed. What opened before a probe
    succeeded has no vote: it is about to close.
    """
    live = {name: seat for name, seat in table.seats.items() if is_live(seat, now, silence)}
    voters, since = _up_to_date(table, live), _last_recovery(table, table.seats)
    waits = sorted(_open_for(seat, now, since) for seat in voters)
    votes = [wait for wait in waits if wait > 0.0]
    needed = len({*live, node}) // 2 + 1 if quorum is None else quorum
    if len(votes) < needed:
        return 0.0
    return votes[len(votes) // 2]


def has_recovered(table: Table, node: str, opened: float) -> bool:
    """Whether a probe of another node has succeeded since the circuit of this one opened."""
    mine = table.seats[node].circuit
    if mine is None or mine.state not in _TRIPPED:
        return False
    others = {name: seat for name, seat in table.seats.items() if name != node}
    return _last_recovery(table, others) > opened


def _last_recovery(table: Table, seats: dict[str, Seat]) -> float:
    """When a probe of one of these nodes last closed its circuit.

    A circuit that has closed because of another's probe does not count again: its time is later
    than that of the probe.
    """
    closed = [seat.circuit for seat in _up_to_date(table, seats) if seat.circuit is not None]
    return max(
        (
            each.since
            for each in closed
            if each.state is CircuitState.CLOSED and each.reason == Signal.RECOVERED.value
        ),
        default=0.0,
    )


def _up_to_date(table: Table, seats: dict[str, Seat]) -> list[Seat]:
    """Those that are not from before the last order."""
    last = 0 if table.order is None else table.order.number
    return [seat for seat in seats.values() if last in (0, seat.obeyed)]


def prospect(
    table: Table, node: str, now: float, silence: float, quorum: int | None = None
) -> Prospect:
    """What a new node begins with."""
    left = _left_behind(table, node, now, silence)
    seconds = is_voted_open(table, node, now, silence, quorum)
    return Prospect(
        circuit=_merged([circuit for circuit, _ in left.values()]),
        places=frozenset(left),
        open_until=now + seconds if seconds > 0.0 else 0.0,
        order=table.order,
        obeyed=_obeyed_before(table.order, [number for _, number in left.values()]),
    )


def _open_for(seat: Seat, now: float, recovery: float) -> float:
    circuit = seat.circuit
    if circuit is None or circuit.is_voted or circuit.state is not CircuitState.OPEN:
        return 0.0
    if recovery > circuit.since:
        return 0.0
    return max(0.0, min(circuit.since, now) + circuit.open_seconds - now)


def _merged(circuits: list[Circuit]) -> Circuit | None:
    """One circuit of those that are left behind; its probes are not those of the new node."""
    if not circuits:
        return None
    last = circuits[0]
    for circuit in circuits[1:]:
        last = merged(last, circuit)
    return replace(last, probes=())


def _left_behind(
    table: Table, node: str, now: float, silence: float
) -> dict[str, tuple[Circuit, int]]:
    """The circuits that a new node takes over, each with the last order it has followed.

    Those of the last nodes, if none is live. If others are live, of those that have left, on the
    same host.
    """
    others = {name: seat for name, seat in _in_time(table.seats, now).items() if name != node}
    if any(is_live(seat, now, silence) for seat in others.values()):
        host = _host_of(node)
        others = {n: each for n, each in others.items() if each.has_left and _host_of(n) == host}
    return {n: (s.circuit, s.obeyed) for n, s in others.items() if s.circuit is not None}


# --- an operator's orders -------------------------------------------------------------------------


def give(
    value: bytes | None, signal: Signal, by: str, why: str, now: float
) -> tuple[Change, Table | None]:
    """Lays an order on the table; without a table nothing, and no answer.

    >>> from mainstay.core.base.change import KEEP
    >>> give(None, Signal.RESET, "ann", "it is back", 0.0) == (KEEP, None)
    True
    """
    if value is None:
        return KEEP, None
    table = decode(value)
    number = 1 if table.order is None else table.order.number + 1
    table = replace(table, order=Order(number, signal, by, now, why))
    return _kept(table, now), table


def _obeyed_before(order: Order | None, followed: list[int]) -> int:
    """The last order that a new node need not follow.

    What it takes over may have followed it already. One that takes over nothing has nothing to
    reset, but follows an order that stands.
    """
    if order is None:
        return 0
    return min(followed, default=0 if order.is_standing else order.number)


def counted_elsewhere(table: Table, node: str, now: float, silence: float) -> tuple[int, int]:
    """The calls and retries of the other nodes."""
    others = [s.counts for n, s in table.seats.items() if n != node and is_live(s, now, silence)]
    return sum(calls for calls, _ in others), sum(retries for _, retries in others)


def encode(table: Table) -> bytes:
    """The table as JSON."""
    return msgspec.json.encode(table)


def decode(value: bytes) -> Table:
    """The table of such a text."""
    return read_as(Table, value, "circuit or budget")


ready(Table)
