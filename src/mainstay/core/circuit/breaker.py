"""The circuit breaker: a table of states and signals, and the circuit as a value.

`admit`, `record`, `order` and `advance` take the settings, the circuit and the time, and give the
circuit as it is then. Nothing here holds a lock or reads a clock. Every change of state counts a
generation; an attempt carries the generation it was admitted in, so that a late
outcome counts for its own generation only.
"""

from __future__ import annotations

from enum import Enum

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainstay.core.base.change import ready
from mainstay.core.base.deadline import NEVER
from mainstay.core.base.entropy import uniform
from mainstay.core.circuit.window import Evidence, Totals, added, begun, moved, totals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.circuit.settings import BreakerSettings


class CircuitState(Enum):
    """What a circuit does with calls.

    >>> CircuitState.HALF_OPEN.value
    'half_open'
    """

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    FORCED_OPEN = "forced_open"
    FORCED_CLOSED = "forced_closed"
    DISABLED = "disabled"
    METRICS_ONLY = "metrics_only"

    @property
    def gauge(self) -> int:
        """For a metric: 0 if calls go through, 1 half open, 2 if they are refused.

        >>> CircuitState.OPEN.gauge
        2
        """
        return {"open": 2, "forced_open": 2, "half_open": 1}.get(self.value, 0)


class Signal(Enum):
    """What makes a circuit change its state; the last five are an operator's orders."""

    TRIPPED = "too many failures"
    WAITED = "the open time is over"
    RECOVERED = "enough probes succeeded"
    RELAPSED = "a probe failed"
    LOST = "a probe never returned"
    VOTED = "most nodes have it open"
    RECOVERED_ELSEWHERE = "a probe of another node succeeded"
    RELAPSED_ELSEWHERE = "a probe of another node failed"
    RESET = "reset"
    FORCE_OPEN = "force open"
    FORCE_CLOSE = "force close"
    DISABLE = "disable"
    OBSERVE = "observe only"


ORDERS: dict[Signal, CircuitState] = {
    Signal.RESET: CircuitState.CLOSED,
    Signal.FORCE_OPEN: CircuitState.FORCED_OPEN,
    Signal.FORCE_CLOSE: CircuitState.FORCED_CLOSED,
    Signal.DISABLE: CircuitState.DISABLED,
    Signal.OBSERVE: CircuitState.METRICS_ONLY,
}

TABLE: dict[tuple[CircuitState, Signal], CircuitState] = {
    (CircuitState.CLOSED, Signal.TRIPPED): CircuitState.OPEN,
    (CircuitState.CLOSED, Signal.VOTED): CircuitState.OPEN,
    (CircuitState.OPEN, Signal.WAITED): CircuitState.HALF_OPEN,
    (CircuitState.HALF_OPEN, Signal.RECOVERED): CircuitState.CLOSED,
    (CircuitState.HALF_OPEN, Signal.RELAPSED): CircuitState.OPEN,
    (CircuitState.HALF_OPEN, Signal.LOST): CircuitState.OPEN,
    (CircuitState.OPEN, Signal.RECOVERED_ELSEWHERE): CircuitState.CLOSED,
    (CircuitState.HALF_OPEN, Signal.RECOVERED_ELSEWHERE): CircuitState.CLOSED,
    (CircuitState.HALF_OPEN, Signal.RELAPSED_ELSEWHERE): CircuitState.OPEN,
    (CircuitState.METRICS_ONLY, Signal.TRIPPED): CircuitState.METRICS_ONLY,
    **{(state, order): target for order, target in ORDERS.items() for state in CircuitState},
}

_COUNTING = frozenset({CircuitState.CLOSED, CircuitState.METRICS_ONLY})
CAUTION = (
    CircuitState.DISABLED,
    CircuitState.FORCED_CLOSED,
    CircuitState.METRICS_ONLY,
    CircuitState.CLOSED,
    CircuitState.HALF_OPEN,
    CircuitState.OPEN,
    CircuitState.FORCED_OPEN,
)
_FIRST_SHARE = 0.1
"""What a ramp begins with."""


class Circuit(Struct, frozen=True):
    """A circuit at one moment; times are of the clock that `now` comes from."""

    state: CircuitState = CircuitState.CLOSED
    generation: int = 0
    since: float = 0.0
    reason: str = ""
    failures: int = 0
    """In a row, while closed."""
    successes: int = 0
    """Of probes, while half open."""
    openings: int = 0
    """In a row, without a stable time between them."""
    open_seconds: float = 0.0
    probes: tuple[tuple[int, float], ...] = ()
    """The probes under way: ticket and start."""
    tickets: int = 0
    seen: int = 0
    admitted: int = 0
    """Calls that came and were let through during a ramp."""
    evidence: Evidence = Evidence()
    weight: int = 0
    """How many failures opened it, or how many probes closed it."""
    key: int = 1
    """Makes the jitter of open times."""
    is_voted: bool = False
    """Opened because other nodes were, and not by evidence of its own."""


class Ticket(Struct, frozen=True):
    """An attempt that was admitted: in which generation, and as which probe."""

    generation: int
    probe: int = 0


class Refusal(Struct, frozen=True):
    """An attempt that was not admitted; None if time alone will not help."""

    retry_after: float | None = None


# --- the passage of time --------------------------------------------------------------------------


def advance(settings: BreakerSettings, circuit: Circuit, now: float) -> Circuit:
    """The circuit after the time that has passed: open circuits turn half open, lost probes count.

    A clock that steps back makes the present state begin anew.
    """
    if now < circuit.since or any(now < start for _, start in circuit.probes):
        probes = tuple((ticket, min(start, now)) for ticket, start in circuit.probes)
        circuit = replace(circuit, since=min(circuit.since, now), probes=probes)
    if circuit.state is CircuitState.HALF_OPEN:
        limit = settings.probe_timeout
        if any(start + limit <= now for _, start in circuit.probes):
            return _change(settings, circuit, Signal.LOST, now)
    elif circuit.state is CircuitState.OPEN and retry_after(settings, circuit, now) == 0.0:
        return _change(settings, circuit, Signal.WAITED, now)
    return circuit


def retry_after(settings: BreakerSettings, circuit: Circuit, now: float) -> float | None:
    """How long until asking again may help; 0.0 if calls are let through."""
    if circuit.state is CircuitState.OPEN:
        return max(0.0, circuit.since + circuit.open_seconds - now)
    if circuit.state is CircuitState.FORCED_OPEN:
        return None
    if circuit.state is CircuitState.HALF_OPEN and _is_full(settings, circuit):
        oldest = min(start for _, start in circuit.probes)
        return max(0.0, min(oldest + settings.probe_timeout - now, circuit.open_seconds))
    return 0.0


def is_worth_waiting(settings: BreakerSettings, circuit: Circuit, delay: float, now: float) -> bool:
    """Whether a call may wait so long; it is asked again when the time comes."""
    wait = retry_after(settings, circuit, now)
    return circuit.state is CircuitState.HALF_OPEN or (wait is not None and wait <= delay)


def _is_full(settings: BreakerSettings, circuit: Circuit) -> bool:
    return len(circuit.probes) >= settings.half_open_probes


def is_ramping(settings: BreakerSettings, circuit: Circuit, now: float) -> bool:
    """Whether a circuit that has closed still lets only a share of the calls through."""
    closed_again = circuit.state is CircuitState.CLOSED and circuit.openings > 0
    return closed_again and 0.0 <= now - circuit.since < settings.ramp


# --- an attempt -----------------------------------------------------------------------------------


def admit(
    settings: BreakerSettings, circuit: Circuit, now: float
) -> tuple[Circuit, Ticket | Refusal]:
    """May an attempt start?

    >>> from mainstay.core.circuit.settings import BreakerSettings
    >>> admit(BreakerSettings(), Circuit(), 0.0)[1]
    Ticket(generation=0, probe=0)
    """
    circuit = advance(settings, circuit, now)
    if circuit.state is CircuitState.HALF_OPEN and not _is_full(settings, circuit):
        number = circuit.tickets + 1
        probes = (*circuit.probes, (number, now))
        return replace(circuit, tickets=number, probes=probes), Ticket(circuit.generation, number)
    if is_ramping(settings, circuit, now):
        return _admit_on_ramp(settings, circuit, now)
    wait = retry_after(settings, circuit, now)
    if wait == 0.0 and circuit.state is not CircuitState.HALF_OPEN:
        return circuit, Ticket(circuit.generation)
    return circuit, Refusal(wait)


def _admit_on_ramp(
    settings: BreakerSettings, circuit: Circuit, now: float
) -> tuple[Circuit, Ticket | Refusal]:
    """A share of the calls that grows from a tenth to all."""
    passed = (now - circuit.since) / settings.ramp
    share = _FIRST_SHARE + (1.0 - _FIRST_SHARE) * passed
    seen = circuit.seen + 1
    if circuit.admitted < share * seen:
        circuit = replace(circuit, seen=seen, admitted=circuit.admitted + 1)
        return circuit, Ticket(circuit.generation)
    return replace(circuit, seen=seen), Refusal(settings.ramp * (1.0 - passed))


def withdraw(circuit: Circuit, ticket: Ticket) -> Circuit:
    """An attempt was admitted and not made, or cut off: its place is free again."""
    probes = tuple(probe for probe in circuit.probes if probe[0] != ticket.probe)
    return circuit if probes == circuit.probes else replace(circuit, probes=probes)


def record(
    settings: BreakerSettings,
    circuit: Circuit,
    ticket: Ticket | None,
    now: float,
    *,
    failed: bool,
    slow: bool = False,
    before: int = 0,
) -> Circuit:
    """An attempt has ended, after `before` successes that were only counted.

    Without a ticket it began while the circuit was closed and nothing was wrong.

    >>> from mainstay.core.circuit.settings import BreakerSettings
    >>> record(BreakerSettings(failure_threshold=1), Circuit(), None, 0.0, failed=True).state
    <CircuitState.OPEN: 'open'>
    """
    circuit = advance(settings, circuit, now)
    if ticket is not None and ticket.generation != circuit.generation:
        return circuit
    if circuit.state is CircuitState.HALF_OPEN:
        return (
            circuit
            if ticket is None
            else _record_probe(settings, circuit, ticket, now, failed, slow)
        )
    if circuit.state not in _COUNTING:
        return circuit
    return _record_counted(settings, circuit, now, failed, slow, before)


def _record_probe(
    settings: BreakerSettings,
    circuit: Circuit,
    ticket: Ticket,
    now: float,
    failed: bool,
    slow: bool,
) -> Circuit:
    rest = withdraw(circuit, ticket)
    if rest is circuit:
        return circuit  # it was recorded before
    if failed or (slow and settings.slow_rate is not None):
        return _change(settings, rest, Signal.RELAPSED, now)
    rest = replace(rest, successes=rest.successes + 1)
    if rest.successes >= settings.success_threshold:
        return _change(settings, rest, Signal.RECOVERED, now)
    return rest


def _record_counted(
    settings: BreakerSettings, circuit: Circuit, now: float, failed: bool, slow: bool, before: int
) -> Circuit:
    failures = (0 if before else circuit.failures) + 1 if failed else 0
    seen = circuit.evidence
    if settings.window is not None:
        seen = added(settings.window, seen, now, before=before, failed=failed, slow=slow)
    elif failures == circuit.failures:
        return circuit
    completes = settings.window is not None and awaits_success(settings, circuit, now)
    circuit = replace(circuit, failures=failures, evidence=seen)
    reason = _why_tripped(settings, circuit, now) if failed or slow or completes else ""
    if not reason:
        return circuit
    if circuit.state is CircuitState.METRICS_ONLY:
        reason = f"would open: {reason}"
    return _change(settings, circuit, Signal.TRIPPED, now, reason)


def awaits_success(settings: BreakerSettings, circuit: Circuit, now: float) -> bool:
    """Whether a success may open it: one that completes a window with failures enough.

    From then on a success only lowers the rates of a window of calls, and need not be announced.
    """
    if settings.window is None:
        return False
    sums = totals(settings.window, circuit.evidence, now)
    if sums.calls >= settings.min_calls:
        return False
    slow_rate = settings.slow_rate or NEVER
    failed, slow = sums.failed / settings.min_calls, sums.slow / settings.min_calls
    return failed >= settings.failure_rate or slow >= slow_rate


def _why_tripped(settings: BreakerSettings, circuit: Circuit, now: float) -> str:
    if settings.window is None:
        enough = circuit.failures >= settings.failure_threshold
        failures = "1 failure" if circuit.failures == 1 else f"{circuit.failures} failures in a row"
        return failures if enough else ""
    sums = totals(settings.window, circuit.evidence, now)
    if sums.calls < settings.min_calls:
        return ""
    if sums.failed / sums.calls >= settings.failure_rate:
        return f"{sums.failed} of {sums.calls} calls failed"
    if settings.slow_rate is not None and sums.slow / sums.calls >= settings.slow_rate:
        return f"{sums.slow} of {sums.calls} calls were slow"
    return ""


# --- changes of state -----------------------------------------------------------------------------


def order(
    settings: BreakerSettings, circuit: Circuit, signal: Signal, now: float, reason: str = ""
) -> Circuit:
    """The circuit after an operator's order.

    >>> from mainstay.core.circuit.settings import BreakerSettings
    >>> order(BreakerSettings(), Circuit(), Signal.FORCE_OPEN, 0.0).state
    <CircuitState.FORCED_OPEN: 'forced_open'>
    """
    return _change(settings, circuit, signal, now, reason)


def voted(settings: BreakerSettings, circuit: Circuit, seconds: float, now: float) -> Circuit:
    """The circuit after most of the nodes that share it were found to have it open.

    >>> from mainstay.core.circuit.settings import BreakerSettings
    >>> voted(BreakerSettings(), Circuit(), 12.5, 0.0).open_seconds
    12.5
    """
    circuit = advance(settings, circuit, now)
    if circuit.state is not CircuitState.CLOSED:
        return circuit
    opened = _change(settings, circuit, Signal.VOTED, now)
    return replace(opened, open_seconds=seconds, is_voted=True)


def relapsed_elsewhere(
    settings: BreakerSettings, circuit: Circuit, generation: int, seconds: float, now: float
) -> Circuit:
    """Opens again because the probe of another node failed: until that node's open time is over.

    It is never longer than its own next open time: a node with a bad network and a long backoff
    keeps no other from probing.
    """
    if circuit.generation != generation or circuit.state is not CircuitState.HALF_OPEN:
        return circuit
    opened = _change(settings, circuit, Signal.RELAPSED_ELSEWHERE, now)
    seconds = min(seconds, opened.open_seconds)
    return replace(opened, open_seconds=seconds, is_voted=circuit.is_voted)


def recovered_elsewhere(
    settings: BreakerSettings, circuit: Circuit, generation: int, now: float
) -> Circuit:
    """Closes because the probe of another node succeeded, in the open period of this circuit."""
    is_tripped = circuit.state in (CircuitState.OPEN, CircuitState.HALF_OPEN)
    if circuit.generation != generation or not is_tripped:
        return circuit
    return _change(settings, circuit, Signal.RECOVERED_ELSEWHERE, now)


def _change(
    settings: BreakerSettings, circuit: Circuit, signal: Signal, now: float, reason: str = ""
) -> Circuit:
    """The one place where a state changes: by the table."""
    state = TABLE[circuit.state, signal]
    openings, open_seconds = circuit.openings, circuit.open_seconds
    if state is CircuitState.OPEN:
        was_stable = signal is Signal.TRIPPED and now - circuit.since >= settings.stable_after
        openings = 1 if was_stable else openings + 1
        open_seconds = _open_seconds(settings, openings, circuit)
    elif signal in ORDERS:
        openings, open_seconds = 0, 0.0
    return Circuit(
        state=state,
        generation=circuit.generation + 1,
        since=now,
        reason=reason or signal.value,
        openings=openings,
        open_seconds=open_seconds,
        tickets=circuit.tickets,
        evidence=begun(settings.window, now),
        weight=_weight(settings, circuit, signal, now),
        key=circuit.key,
        is_voted=circuit.is_voted and state is CircuitState.HALF_OPEN,
    )


def _open_seconds(settings: BreakerSettings, openings: int, circuit: Circuit) -> float:
    backoff, u = settings.recovery_timeout, uniform(circuit.key, openings)
    previous = circuit.open_seconds if openings > 1 else 0.0
    part = backoff.part(openings)
    return settings.recovery_jitter.spread(backoff.base(openings), u, previous, part)


def _weight(settings: BreakerSettings, circuit: Circuit, signal: Signal, now: float) -> int:
    if signal is Signal.TRIPPED:
        return sums_of(settings, circuit, now).failed if settings.window else circuit.failures
    return circuit.successes if signal is Signal.RECOVERED else 0


# --- as a value -----------------------------------------------------------------------------------


def sums_of(settings: BreakerSettings, circuit: Circuit, now: float) -> Totals:
    """What the window holds; nothing if there is none."""
    if settings.window is None:
        return Totals()
    return totals(settings.window, circuit.evidence, now)


def moved_to(settings: BreakerSettings, circuit: Circuit, by: float) -> Circuit:
    """The same circuit on a clock that shows `by` seconds more."""
    seen = circuit.evidence
    if settings.window is not None:
        seen = moved(settings.window, seen, by)
    probes = tuple((ticket, start + by) for ticket, start in circuit.probes)
    return replace(circuit, since=circuit.since + by, probes=probes, evidence=seen)


def opened_at(circuit: Circuit) -> float:
    """When the open period of a circuit began that is open, or half open, at the latest."""
    is_half_open = circuit.state is CircuitState.HALF_OPEN
    return circuit.since - circuit.open_seconds if is_half_open else circuit.since


def merged(one: Circuit, other: Circuit) -> Circuit:
    """One circuit of two copies: the greater generation, then the more cautious state."""
    return max(one, other, key=_rank)


def _rank(circuit: Circuit) -> tuple[int, int, int, float, bytes]:
    caution = CAUTION.index(circuit.state)
    text = msgspec.json.encode(circuit)  # so that equals only are equal
    return circuit.generation, caution, circuit.failures, circuit.since, text


def encode(circuit: Circuit) -> bytes:
    """The circuit as JSON, for a store.

    >>> decode(encode(Circuit(failures=3))).failures
    3
    """
    return msgspec.json.encode(circuit)


def decode(data: bytes) -> Circuit:
    """The circuit of such a text."""
    return msgspec.json.decode(data, type=Circuit)


ready(Circuit)
