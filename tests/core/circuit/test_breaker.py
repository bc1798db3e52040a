"""The breaker's core against a small model of it, written from the specification.

`Model` keeps plain lists of calls with their times and a dictionary of probes; it shares no code
with the core. Hypothesis plays calls, stragglers, orders and clock jumps to both and compares all
that can be seen. Times are quarters of a second, so that nothing hangs on rounding; what does hang
on it has tests of its own.
"""

import math
from itertools import pairwise

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from mainstay.core.circuit import breaker as core
from mainstay.core.circuit.breaker import (
    ORDERS,
    TABLE,
    Circuit,
    CircuitState,
    Refusal,
    Signal,
    Ticket,
    admit,
    advance,
    decode,
    encode,
    merged,
    moved_to,
    order,
    record,
    retry_after,
    withdraw,
)
from mainstay.core.circuit.settings import BreakerSettings
from mainstay.core.circuit.snapshot import summary
from mainstay.core.circuit.window import Evidence, Totals, Window, begun
from mainstay.core.retry.backoff import Backoff, Jitter

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
FORCED_OPEN, FORCED_CLOSED = CircuitState.FORCED_OPEN, CircuitState.FORCED_CLOSED
DISABLED, METRICS_ONLY = CircuitState.DISABLED, CircuitState.METRICS_ONLY
START = 1000.0


# --- the model ------------------------------------------------------------------------------------


class Model:
    """What the specification says, with lists."""

    def __init__(self, rules, now):
        self.rules = rules
        self.generation = self.openings = 0
        self.open_for = 0.0
        self.last_ticket = 0
        self.change(CLOSED, now, generation=0)

    def change(self, state, now, generation=1):
        self.state, self.since = state, now
        self.generation += generation
        self.probes, self.successes = {}, 0
        self.calls, self.latest = [], now
        """Of each call since the change: (time, failed, slow)."""

    def open(self, now, *, relapse):
        was_stable = not relapse and now - self.since >= self.rules.stable_after
        self.openings = 1 if was_stable else self.openings + 1
        first, most = self.rules.recovery_timeout.initial, self.rules.recovery_timeout.max_delay
        grows = self.rules.recovery_timeout.kind == "exponential"
        self.open_for = min(first * 2 ** (self.openings - 1), most) if grows else first
        self.change(OPEN, now)

    def look(self, now):
        """Time passes; where it runs backwards, what began later begins now."""
        self.since = min(self.since, now)
        self.probes = {ticket: min(start, now) for ticket, start in self.probes.items()}
        if self.state is OPEN and now >= self.since + self.open_for:
            self.change(HALF_OPEN, now)
        limit = self.rules.probe_timeout
        if any(now >= start + limit for start in self.probes.values()):
            self.open(now, relapse=True)

    def admit(self, now):
        """(generation, probe) of an attempt that may start, or None."""
        self.look(now)
        if self.state in (OPEN, FORCED_OPEN):
            return None
        if self.state is not HALF_OPEN:
            return self.generation, 0
        if len(self.probes) >= self.rules.half_open_probes:
            return None
        self.last_ticket += 1
        self.probes[self.last_ticket] = now
        return self.generation, self.last_ticket

    def withdraw(self, ticket):
        self.probes.pop(ticket[1], None)

    def record(self, ticket, now, failed, slow, before):
        self.look(now)
        if ticket is not None and ticket[0] != self.generation:
            return
        if self.state is HALF_OPEN and ticket is not None and ticket[1] in self.probes:
            self.record_probe(ticket, now, bad=failed or (slow and self.rules.slow_rate))
        elif self.state in (CLOSED, METRICS_ONLY):
            rules = self.rules
            is_short = rules.window is not None and self.sums(now)[0] < rules.min_calls
            self.count(now, failed, slow, before)
            if (failed or slow or is_short) and self.is_too_much(now):
                if self.state is CLOSED:
                    self.open(now, relapse=False)
                else:
                    self.change(METRICS_ONLY, now)

    def record_probe(self, ticket, now, *, bad):
        del self.probes[ticket[1]]
        if bad:
            self.open(now, relapse=True)
            return
        self.successes += 1
        if self.successes >= self.rules.success_threshold:
            self.change(CLOSED, now)

    def count(self, now, failed, slow, before):
        window = self.rules.window
        if window is not None and window.kind == "seconds":
            if now < self.latest - window.size:
                self.calls, self.latest = [], now
            now = max(now, self.latest)
        gap = now - self.latest
        for n in range(1, before + 1):  # evenly; what falls on an edge belongs before it
            moment = self.latest + gap * n / before
            self.calls.append((max(self.latest, moment - 0.001) if gap else now, False, False))
        self.calls.append((now, failed, slow))
        self.latest = now

    def is_too_much(self, now):
        if self.rules.window is None:
            return self.streak() >= self.rules.failure_threshold
        calls, failed, slow = self.sums(now)
        if calls < self.rules.min_calls:
            return False
        too_slow = self.rules.slow_rate is not None and slow >= self.rules.slow_rate * calls
        return too_slow or failed >= self.rules.failure_rate * calls

    def streak(self):
        return next(
            (n for n, call in enumerate(reversed(self.calls)) if not call[1]), len(self.calls)
        )

    def sums(self, now):
        window, calls = self.rules.window, self.calls
        if window is None:
            return 0, 0, 0
        if window.kind == "calls":
            calls = calls[-window.size :]
        elif now < self.latest - window.size:
            calls = []
        else:
            newest = max(now, self.latest) // window.width
            calls = [call for call in calls if call[0] // window.width > newest - window.buckets]
        return len(calls), sum(call[1] for call in calls), sum(call[2] for call in calls)


# --- the comparison -------------------------------------------------------------------------------

COUNTS = {
    "failure_threshold": st.integers(1, 4),
    "success_threshold": st.integers(1, 3),
    "half_open_probes": st.integers(1, 3),
    "probe_timeout": st.sampled_from([4.0, 32.0]),
    "stable_after": st.sampled_from([0.0, 8.0, 64.0]),
    "recovery_timeout": st.sampled_from([8.0, Backoff.exponential(2.0, max_delay=16.0)]),
}
SLOW = st.sampled_from([{}, {"slow_after": 1.0, "slow_rate": 0.5}])
RATES = {"failure_rate": st.sampled_from([0.25, 0.5, 1.0]), "min_calls": st.integers(1, 5)}
IN_A_ROW = st.fixed_dictionaries(COUNTS)
BY_CALLS = st.tuples(
    st.fixed_dictionaries(
        {**COUNTS, **RATES, "window": st.sampled_from(list(map(Window.calls, (5, 8))))}
    ),
    SLOW,
).map(lambda pair: {**pair[0], **pair[1]})
BY_TIME = st.tuples(
    st.fixed_dictionaries(
        {
            **COUNTS,
            **RATES,
            "window": st.sampled_from([Window.seconds(16.0, 4), Window.seconds(8.0, 1)]),
        }
    ),
    SLOW,
).map(lambda pair: {**pair[0], **pair[1]})
WAITS = st.one_of(st.integers(0, 12), st.integers(0, 300)).map(lambda n: n / 4)


class Comparison(RuleBasedStateMachine):
    """The core and the model hear the same, and must look the same."""

    kinds = IN_A_ROW

    @initialize(data=st.data())
    def begin(self, data):
        self.rules = BreakerSettings(**data.draw(self.kinds))
        self.now = self.latest = START
        self.circuit = Circuit(since=START, evidence=begun(self.rules.window, START))
        self.model = Model(self.rules, START)
        self.tickets = []

    def step(self, function, *args, **fields):
        """One step of the core: pure, at most one change, and that one from the table."""
        before, text = self.circuit, encode(self.circuit)
        answer = function(*args, **fields)
        assert function(*args, **fields) == answer
        assert encode(before) == text
        after = answer[0] if isinstance(answer, tuple) else answer
        if after.generation != before.generation:
            assert after.generation == before.generation + 1
            assert after.state in {to for (state, _), to in TABLE.items() if state is before.state}
        else:
            assert after.state is before.state
        self.circuit = after
        return answer

    @rule(seconds=WAITS)
    def time_passes(self, seconds):
        self.now += seconds

    @rule(seconds=WAITS)
    def the_clock_steps_back(self, seconds):
        self.now -= seconds

    @rule(asking=st.integers(1, 4))
    def the_open_time_ends(self, asking):
        """And some ask; so that half open is seen as often as closed."""
        if self.model.state is OPEN:
            self.now = max(self.now, self.model.since + self.model.open_for)
            for _ in range(asking):
                self.an_attempt_asks()

    @rule()
    def the_time_of_the_probes_ends(self):
        if self.model.probes:
            self.now += self.rules.probe_timeout
            self.somebody_looks()

    @rule()
    def somebody_looks(self):
        self.step(advance, self.rules, self.circuit, self.now)
        self.model.look(self.now)

    @rule()
    def an_attempt_asks(self):
        _, answer = self.step(admit, self.rules, self.circuit, self.now)
        expected = self.model.admit(self.now)
        if expected is None:
            assert isinstance(answer, Refusal)
            self.check_refusal(answer)
        else:
            assert answer == Ticket(*expected)
            self.tickets.append(answer)

    def check_refusal(self, refusal):
        if self.model.state is FORCED_OPEN:
            assert refusal.retry_after is None
        elif self.model.state is OPEN:
            assert refusal.retry_after == self.model.since + self.model.open_for - self.now
            assert 0.0 < refusal.retry_after <= self.model.open_for
        else:
            assert 0.0 < refusal.retry_after <= self.rules.probe_timeout

    @rule(data=st.data(), failed=st.booleans(), slow=st.booleans(), twice=st.booleans())
    def an_attempt_ends(self, data, failed, slow, twice):
        """Of whatever age; some are told of twice."""
        if not self.tickets:
            return
        ticket = data.draw(st.sampled_from(self.tickets[-3:]) | st.sampled_from(self.tickets))
        if not twice:
            self.tickets.remove(ticket)
        self.ends(ticket, failed, slow, 0)

    @rule(twice=st.booleans())
    def the_newest_attempt_succeeds(self, twice):
        for ticket in self.tickets[-1:] * (1 + twice):
            self.ends(ticket, failed=False, slow=False, before=0)

    @rule(failed=st.booleans(), slow=st.booleans(), before=st.integers(0, 6))
    def an_attempt_ends_that_did_not_ask(self, failed, slow, before):
        self.ends(None, failed, slow, before)

    @rule(times=st.integers(1, 4))
    def everything_fails(self, times):
        for _ in range(times):
            self.ends(None, failed=True, slow=False, before=0)

    def ends(self, ticket, failed, slow, before):
        told = {"failed": failed, "slow": slow, "before": before}
        self.step(record, self.rules, self.circuit, ticket, self.now, **told)
        pair = None if ticket is None else (ticket.generation, ticket.probe)
        self.model.record(pair, self.now, failed, slow, before)

    @rule(data=st.data())
    def an_attempt_is_cut_off(self, data):
        if not self.tickets:
            return
        ticket = data.draw(st.sampled_from(self.tickets))
        self.tickets.remove(ticket)
        self.step(withdraw, self.circuit, ticket)
        self.model.withdraw((ticket.generation, ticket.probe))

    @rule(signal=st.sampled_from([*[Signal.RESET] * 4, *ORDERS]))
    def an_operator_orders(self, signal):
        self.step(order, self.rules, self.circuit, signal, self.now)
        self.model.openings, self.model.open_for = 0, 0.0
        self.model.change(ORDERS[signal], self.now)

    @invariant()
    def they_look_the_same(self):
        circuit, model = self.circuit, self.model
        assert (circuit.state, circuit.generation) == (model.state, model.generation)
        assert (circuit.since, circuit.openings) == (model.since, model.openings)
        assert circuit.open_seconds == model.open_for
        assert dict(circuit.probes) == model.probes
        assert circuit.successes == model.successes
        if self.rules.window is None and model.state in (CLOSED, METRICS_ONLY):
            assert circuit.failures == model.streak()
        assert core.sums_of(self.rules, circuit, self.now) == Totals(*model.sums(self.now))

    @invariant()
    def never_more_probes_than_allowed(self):
        assert len(self.circuit.probes) <= self.rules.half_open_probes
        assert self.circuit.state is HALF_OPEN or not self.circuit.probes

    @invariant()
    def an_open_circuit_ends(self):
        """However the clock jumped: once looked at, it is open for its time at most."""
        seen = advance(self.rules, self.circuit, self.now)
        if seen.state is OPEN:
            assert isinstance(admit(self.rules, seen, self.now + seen.open_seconds)[1], Ticket)

    @invariant()
    def a_half_open_circuit_makes_room(self):
        """However the clock jumped: a probe that never returns is written off in its time."""
        seen = advance(self.rules, self.circuit, self.now)
        if seen.state is HALF_OPEN and seen.probes:
            later = advance(self.rules, seen, self.now + self.rules.probe_timeout)
            assert later.state is OPEN
            assert later.reason == Signal.LOST.value

    @invariant()
    def only_closed_doors_refuse(self):
        _, answer = admit(self.rules, self.circuit, self.now)
        if self.circuit.state in (FORCED_CLOSED, DISABLED, METRICS_ONLY):
            assert isinstance(answer, Ticket)

    @invariant()
    def it_travels(self):
        """Through a store, and to another clock: there it answers as it does here."""
        assert decode(encode(self.circuit)) == self.circuit
        for by in (-4096.0, 64.0):
            there = moved_to(self.rules, self.circuit, by)
            circuit, answer = admit(self.rules, self.circuit, self.now)
            expected = moved_to(self.rules, circuit, by), answer
            assert admit(self.rules, there, self.now + by) == expected


class ByCalls(Comparison):
    kinds = BY_CALLS


class ByTime(Comparison):
    kinds = BY_TIME


@pytest.mark.req("NFR-041-13", "FR-041-52", "FR-041-53", "FR-041-54", "FR-041-57", "FR-041-58")
@pytest.mark.parametrize("machine", [Comparison, ByCalls, ByTime])
def test_the_core_does_what_the_model_does(machine):
    """Whatever is played, and however the clock jumps."""
    phases = (Phase.reuse, Phase.generate, Phase.shrink)
    rules = settings(max_examples=120, stateful_step_count=40, deadline=None, phases=phases)
    run_state_machine_as_test(machine, settings=rules)


# --- the table ------------------------------------------------------------------------------------


def test_the_table_is_that_of_the_design():
    """Nine ways by itself, one that only begins to count anew, and every order from everywhere."""
    by_itself = {key: to for key, to in TABLE.items() if key[1] not in ORDERS}
    assert by_itself == {
        (CLOSED, Signal.TRIPPED): OPEN,
        (CLOSED, Signal.VOTED): OPEN,
        (OPEN, Signal.WAITED): HALF_OPEN,
        (HALF_OPEN, Signal.RECOVERED): CLOSED,
        (HALF_OPEN, Signal.RELAPSED): OPEN,
        (HALF_OPEN, Signal.LOST): OPEN,
        (OPEN, Signal.RECOVERED_ELSEWHERE): CLOSED,
        (HALF_OPEN, Signal.RECOVERED_ELSEWHERE): CLOSED,
        (HALF_OPEN, Signal.RELAPSED_ELSEWHERE): OPEN,
        (METRICS_ONLY, Signal.TRIPPED): METRICS_ONLY,
    }
    assert ORDERS == {
        Signal.RESET: CLOSED,
        Signal.FORCE_OPEN: FORCED_OPEN,
        Signal.FORCE_CLOSE: FORCED_CLOSED,
        Signal.DISABLE: DISABLED,
        Signal.OBSERVE: METRICS_ONLY,
    }
    for state in CircuitState:
        for signal, to in ORDERS.items():
            assert TABLE[state, signal] is to
            after = order(BreakerSettings(), Circuit(state=state), signal, 1.0, "because")
            assert (after.state, after.generation, after.reason) == (to, 1, "because")


# --- one step after the other ---------------------------------------------------------------------


def fails(rules, circuit, now, times=1, **told):
    for _ in range(times):
        circuit = record(rules, circuit, None, now, failed=True, **told)
    return circuit


def opened(rules, now=0.0):
    circuit = fails(rules, Circuit(since=now, evidence=begun(rules.window, now)), now, 100)
    assert circuit.state is OPEN
    return circuit


def probed(rules, circuit, now, *, failed):
    """The circuit after a probe when its open time is over."""
    now = max(now, circuit.since + circuit.open_seconds)
    circuit, ticket = admit(rules, circuit, now)
    assert ticket.probe
    return record(rules, circuit, ticket, now, failed=failed), now


@pytest.mark.req("PL-07", "FR-041-54", "FR-041-55", "UT-041-12", "UT-041-13")
def test_three_failures_open_it_for_three_hundred_seconds_and_one_probe():
    """The pipelines' circuit, by hand."""
    rules = BreakerSettings(failure_threshold=3, recovery_timeout=300.0)
    circuit = fails(rules, Circuit(), 10.0, 2)
    assert (circuit.state, circuit.failures) == (CLOSED, 2)
    circuit = fails(rules, circuit, 10.0)
    assert (circuit.state, circuit.reason) == (OPEN, "3 failures in a row")
    assert admit(rules, circuit, 10.0)[1] == Refusal(300.0)
    assert admit(rules, circuit, 309.75)[1] == Refusal(0.25)
    circuit, probe = admit(rules, circuit, 310.0)
    assert (circuit.state, probe) == (HALF_OPEN, Ticket(2, 1))
    assert isinstance(admit(rules, circuit, 310.0)[1], Refusal)
    assert record(rules, circuit, probe, 311.0, failed=False).state is CLOSED
    assert record(rules, circuit, probe, 311.0, failed=True).state is OPEN


@pytest.mark.parametrize("failed", [True, False])
def test_a_straggler_speaks_of_its_own_time_only(failed):
    """Admitted before the opening, it neither closes nor opens what came after."""
    rules = BreakerSettings(failure_threshold=1, recovery_timeout=10.0)
    _, old = admit(rules, Circuit(), 0.0)
    for circuit, now in [
        (opened(rules), 1.0),
        (advance(rules, opened(rules), 10.0), 11.0),
        (probed(rules, opened(rules), 10.0, failed=False)[0], 11.0),
    ]:
        assert record(rules, circuit, old, now, failed=failed) == circuit


def test_a_probe_that_comes_back_after_it_was_written_off_is_late():
    """It was counted as failed; its success closes nothing."""
    rules = BreakerSettings(failure_threshold=1, recovery_timeout=10.0, probe_timeout=5.0)
    circuit, ticket = admit(rules, opened(rules), 10.0)
    circuit = record(rules, circuit, ticket, 15.0, failed=False)
    assert (circuit.state, circuit.reason, circuit.since) == (OPEN, "a probe never returned", 15.0)


def test_a_probe_that_is_told_of_twice_counts_once():
    """Of two successes asked for, it is one."""
    rules = BreakerSettings(failure_threshold=1, success_threshold=2, half_open_probes=2)
    circuit, ticket = admit(rules, opened(rules), 30.0)
    once = record(rules, circuit, ticket, 31.0, failed=False)
    assert record(rules, once, ticket, 31.0, failed=False) == once
    assert record(rules, once, ticket, 31.0, failed=True) == once


def test_a_probe_of_before_takes_no_place_from_one_of_now():
    """Places are numbered through, also past a lost probe and an order."""
    rules = BreakerSettings(failure_threshold=1, probe_timeout=5.0)
    circuit, old = admit(rules, opened(rules), 30.0)
    circuit = advance(rules, circuit, 35.0)
    assert (circuit.state, circuit.generation) == (OPEN, 3)
    circuit, new = admit(rules, circuit, 65.0)
    assert old.probe != new.probe
    assert withdraw(circuit, old) == circuit
    assert record(rules, circuit, old, 65.0, failed=False) == circuit
    assert withdraw(circuit, new).probes == ()


def test_a_slow_probe_is_no_good_probe_where_slow_calls_count():
    """Otherwise the circuit would close on what had opened it."""
    slow = {"window": Window.calls(5), "min_calls": 1, "slow_after": 1.0, "slow_rate": 1.0}
    for fields, expected in [(slow, OPEN), ({"failure_threshold": 1}, CLOSED)]:
        rules = BreakerSettings(**fields)
        circuit, ticket = admit(rules, opened(rules), 30.0)
        assert record(rules, circuit, ticket, 31.0, failed=False, slow=True).state is expected


def test_slow_calls_alone_open_it():
    """Half of them slow, none failed."""
    rules = BreakerSettings(window=Window.calls(4), min_calls=4, slow_after=1.0, slow_rate=0.5)
    circuit = record(rules, Circuit(), None, 0.0, failed=False, slow=True)
    circuit = record(rules, circuit, None, 0.0, failed=False, slow=True, before=2)
    assert (circuit.state, circuit.reason) == (OPEN, "2 of 4 calls were slow")


def test_the_happy_time_before_a_failure_is_spread_over_it():
    """An outage after an hour of health opens a window of ten seconds as soon as any."""
    rules = BreakerSettings(window=Window.seconds(10.0), min_calls=10)
    circuit, now = Circuit(since=0.0), 3600.0
    circuit = fails(rules, circuit, now, before=3600)
    for _ in range(20):
        now += 0.25
        circuit = fails(rules, circuit, now)
    assert circuit.state is OPEN


def test_metrics_only_says_what_would_have_happened():
    """It begins to count anew, and lets everything through."""
    rules = BreakerSettings(failure_threshold=2)
    circuit = order(rules, Circuit(), Signal.OBSERVE, 0.0)
    circuit = fails(rules, circuit, 1.0, 2)
    assert (circuit.state, circuit.reason) == (METRICS_ONLY, "would open: 2 failures in a row")
    assert (circuit.generation, circuit.failures) == (2, 0)
    assert isinstance(admit(rules, circuit, 1.0)[1], Ticket)


@given(
    st.sampled_from([FORCED_CLOSED, DISABLED, METRICS_ONLY]), st.lists(st.booleans(), max_size=30)
)
def test_an_operators_open_doors_stay_open(state, failures):
    """Whatever fails."""
    rules, circuit = BreakerSettings(failure_threshold=1, half_open_probes=1), Circuit(state=state)
    for now, failed in enumerate(failures):
        circuit, ticket = admit(rules, circuit, float(now))
        assert isinstance(ticket, Ticket)
        circuit = record(rules, circuit, ticket, float(now), failed=failed)
        assert circuit.state is state


def test_nothing_but_an_order_ends_an_order():
    """Neither time nor calls."""
    rules = BreakerSettings(failure_threshold=1)
    for signal in (Signal.FORCE_OPEN, Signal.FORCE_CLOSE, Signal.DISABLE):
        circuit = order(rules, opened(rules), signal, 1.0)
        later = fails(rules, advance(rules, circuit, 1e7), 1e7, 3)
        assert later == circuit
        assert order(rules, later, Signal.RESET, 1e7).state is CLOSED


# --- the open time --------------------------------------------------------------------------------


@pytest.mark.req("FR-041-56")
def test_each_opening_in_a_row_lasts_longer_up_to_a_cap():
    """1, 2, 4, 5, 5 seconds; a circuit that closes for a moment goes on where it was."""
    rules = BreakerSettings(
        failure_threshold=1,
        recovery_timeout=Backoff.exponential(1.0, max_delay=5.0),
        stable_after=60.0,
    )
    circuit, now, lasted = opened(rules), 0.0, []
    for _ in range(5):
        lasted.append(circuit.open_seconds)
        circuit, now = probed(rules, circuit, now, failed=True)
    assert lasted == [1.0, 2.0, 4.0, 5.0, 5.0]
    circuit, now = probed(rules, circuit, now, failed=False)
    assert fails(rules, circuit, now + 59.75).open_seconds == 5.0
    assert fails(rules, circuit, now + 60.0).open_seconds == 1.0
    assert fails(rules, order(rules, circuit, Signal.RESET, now), now).open_seconds == 1.0


JITTERS = st.sampled_from(
    [
        Jitter.percent(0.2),
        Jitter.full(),
        Jitter.equal(),
        Jitter.additive(3.0),
        Jitter.decorrelated(),
    ]
)


@given(JITTERS, st.integers(0, 2**51).map(lambda n: 2 * n + 1), st.integers(1, 80))
def test_jittered_open_times_stay_within_their_bounds(jitter, key, openings):
    """Never below nothing, never above the cap (a percentage may pass it by itself)."""
    backoff = Backoff.exponential(2.0, max_delay=64.0)
    rules = BreakerSettings(failure_threshold=1, recovery_timeout=backoff, recovery_jitter=jitter)
    circuit, now = fails(rules, Circuit(key=key), 0.0), 0.0
    for n in range(1, openings + 1):
        base, open_seconds = min(2.0 * 2 ** (n - 1), 64.0), circuit.open_seconds
        low, high = {
            "percent": (0.8 * base, 1.2 * base),
            "full": (0.0, base),
            "equal": (base / 2, base),
            "additive": (base, min(base + 3.0, 64.0)),
            "decorrelated": (2.0, 64.0),
        }[jitter.kind]
        assert low <= open_seconds <= high * (1 + 1e-12)
        circuit, now = probed(rules, circuit, now, failed=True)
    assert circuit.openings == openings + 1


@given(JITTERS, st.integers(0, 2**51).map(lambda n: 2 * n + 1))
def test_after_a_stable_time_the_next_opening_is_a_first_one(jitter, key):
    """To the bit as the first one of all was, whatever came between."""
    rules = BreakerSettings(
        failure_threshold=1,
        recovery_timeout=Backoff.exponential(2.0, max_delay=1000.0),
        recovery_jitter=jitter,
        stable_after=10.0,
    )
    circuit, now = fails(rules, Circuit(key=key), 0.0), 0.0
    first = circuit.open_seconds
    for _ in range(6):
        circuit, now = probed(rules, circuit, now, failed=True)
    circuit, now = probed(rules, circuit, now, failed=False)
    again = fails(rules, circuit, now + 11.0)
    assert (again.open_seconds, again.openings) == (first, 1)


def test_two_circuits_do_not_probe_at_once():
    """Their keys differ, and so do their open times; the same key gives the same."""
    rules = BreakerSettings(failure_threshold=1, recovery_jitter=Jitter.full())
    times = [fails(rules, Circuit(key=key), 0.0).open_seconds for key in (12345, 99999, 12345)]
    assert times[0] == times[2] != times[1]


MOMENTS = st.floats(0.0, 1e9)


@given(MOMENTS, st.floats(0.001, 1e6), st.floats(0.0, 2.0))
def test_no_rounding_lets_a_call_through_an_open_circuit(since, open_seconds, share):
    """At any moment: refused for more than no time, or a probe."""
    rules = BreakerSettings(failure_threshold=1, recovery_timeout=open_seconds)
    circuit = opened(rules, since)
    for now in (since + open_seconds, since + open_seconds * share):
        after, answer = admit(rules, circuit, now)
        if isinstance(answer, Refusal):
            assert after.state is OPEN
            assert answer.retry_after > 0.0
        else:
            assert after.state is HALF_OPEN
            assert answer.probe
    assert admit(rules, circuit, since + open_seconds)[0].state is HALF_OPEN


@given(MOMENTS, st.floats(0.001, 1e6))
def test_no_rounding_keeps_a_lost_probe(start, limit):
    """When its time is over it is written off, to the last bit."""
    rules = BreakerSettings(failure_threshold=1, probe_timeout=limit)
    circuit = Circuit(state=HALF_OPEN, since=start, probes=((1, start),), tickets=1)
    assert advance(rules, circuit, start + limit).state is OPEN


def test_a_step_back_to_before_a_probe_does_not_keep_its_place_for_ever():
    """Half open since 100, a probe at a million, and the clock at 200: 60 seconds from there."""
    rules = BreakerSettings(probe_timeout=60.0)
    circuit = Circuit(state=HALF_OPEN, since=100.0)
    circuit, _ = admit(rules, circuit, 1e6)
    circuit = advance(rules, circuit, 200.0)
    assert circuit.state is HALF_OPEN
    assert advance(rules, circuit, 259.0).state is HALF_OPEN
    assert advance(rules, circuit, 260.0).state is OPEN


# --- the ramp -------------------------------------------------------------------------------------

RAMP = BreakerSettings(failure_threshold=1, recovery_timeout=10.0, ramp=100.0)


def closed_again():
    circuit, now = probed(RAMP, opened(RAMP), 10.0, failed=False)
    assert circuit.state is CLOSED
    return circuit, now


def share(circuit, moments):
    """How many of the calls at these moments are let through."""
    passed = []
    for now in moments:
        circuit, answer = admit(RAMP, circuit, now)
        passed.append(isinstance(answer, Ticket))
    return sum(passed) / len(passed)


def test_a_ramp_lets_the_first_call_through():
    """Otherwise a quiet service would be refused for nothing."""
    circuit, now = closed_again()
    assert isinstance(admit(RAMP, circuit, now)[1], Ticket)


def test_a_ramp_admits_a_growing_share_and_then_everything():
    """A tenth at the beginning, half about halfway, all at the end."""
    circuit, now = closed_again()
    shares = [share(circuit, [now + at] * 1000) for at in (0.0, 25.0, 50.0, 75.0, 99.0, 100.0)]
    assert shares == sorted(shares)
    assert shares[0] == pytest.approx(0.1, abs=0.01)
    assert shares[2] == pytest.approx(0.55, abs=0.01)
    assert shares[4] < 1.0 == shares[5]


def test_whoever_is_refused_on_a_ramp_hears_when_it_ends():
    """The rest of it, which is never nothing."""
    circuit, now = closed_again()
    circuit, _ = admit(RAMP, circuit, now)
    circuit, answer = admit(RAMP, circuit, now + 40.0)
    while isinstance(answer, Ticket):
        circuit, answer = admit(RAMP, circuit, now + 40.0)
    assert answer.retry_after == pytest.approx(60.0)


def test_only_a_circuit_that_was_open_ramps():
    """Not a new one, and not one that an operator has reset."""
    circuit, now = closed_again()
    assert core.is_ramping(RAMP, circuit, now)
    assert not core.is_ramping(RAMP, Circuit(), 0.0)
    assert not core.is_ramping(RAMP, order(RAMP, circuit, Signal.RESET, now), now)
    assert share(Circuit(), [0.0] * 50) == 1.0


def test_a_clock_that_steps_back_does_not_keep_a_ramp():
    """It begins anew, and lasts as long."""
    circuit, _ = closed_again()
    circuit = advance(RAMP, circuit, 2.0)
    assert core.is_ramping(RAMP, circuit, 2.0)
    assert not core.is_ramping(RAMP, circuit, 102.0)


# --- as a value -----------------------------------------------------------------------------------

CIRCUITS = st.builds(
    Circuit,
    state=st.sampled_from(CircuitState),
    generation=st.integers(0, 2),
    since=st.sampled_from([0.0, 1.5]),
    reason=st.sampled_from(["", "x"]),
    failures=st.integers(0, 2),
    probes=st.sampled_from([(), ((1, 0.5),)]),
    evidence=st.sampled_from(
        [Evidence(), Evidence(100, 1 << 99, 3), Evidence(buckets=((7, 3, 2, 1),))]
    ),
    key=st.sampled_from([1, 2**52 - 1]),
)


@given(CIRCUITS, CIRCUITS, CIRCUITS)
def test_merging_is_in_any_order_and_any_number(one, two, three):
    """Commutative, associative, idempotent; the greater generation wins, then the more cautious."""
    assert merged(one, two) == merged(two, one)
    assert merged(merged(one, two), three) == merged(one, merged(two, three))
    assert merged(one, one) == one
    assert merged(one, two) in (one, two)
    assert merged(one, two).generation == max(one.generation, two.generation)


def test_of_one_generation_the_more_cautious_wins():
    """Nobody closes what another has good reason to keep open."""
    states = [DISABLED, FORCED_CLOSED, METRICS_ONLY, CLOSED, HALF_OPEN, OPEN, FORCED_OPEN]
    for bold, careful in pairwise(states):
        assert merged(Circuit(state=bold, since=9.0), Circuit(state=careful)).state is careful


@given(CIRCUITS)
def test_a_circuit_survives_a_store(circuit):
    """As JSON, and back."""
    assert decode(encode(circuit)) == circuit


@pytest.mark.parametrize("size", [100, 10_000])
def test_a_long_window_survives_a_store(size):
    """Its bits are a number far beyond 64 of them."""
    rules = BreakerSettings(window=Window.calls(size))
    circuit = record(rules, Circuit(), None, 0.0, failed=True)
    circuit = record(rules, circuit, None, 0.0, failed=False, before=size - 2)
    assert core.sums_of(rules, circuit, 0.0) == Totals(size, 1, 0)
    assert decode(encode(circuit)) == circuit


# --- what people see ------------------------------------------------------------------------------


@pytest.mark.req("FR-041-64", "AC-031")
def test_a_snapshot_tells_failures_in_a_row():
    """Without a window: their number, and no rates."""
    rules = BreakerSettings(failure_threshold=3, recovery_timeout=8.0)
    seen = summary("pay", rules, fails(rules, Circuit(), 0.0, 2), 5.0, refused=4)
    assert (seen.name, seen.state, seen.failure_count, seen.refused) == ("pay", CLOSED, 2, 4)
    assert (seen.calls, seen.failure_rate, seen.slow_rate) == (0, None, None)
    assert seen.is_healthy
    seen = summary("pay", rules, opened(rules, 1.0), 5.0, refused=0)
    assert (seen.retry_after, seen.seconds_in_state, seen.openings) == (4.0, 4.0, 1)
    assert not seen.is_healthy
    assert seen.to_dict()["state"] == "open"


@pytest.mark.req("FR-041-53", "FR-041-64")
def test_a_snapshot_tells_what_the_window_holds_and_how_the_probes_do():
    """Rates are of the window; probes and their successes of the half-open state."""
    rules = BreakerSettings(
        window=Window.calls(8), min_calls=8, success_threshold=3, half_open_probes=2
    )
    circuit = record(rules, Circuit(), None, 0.0, failed=True, slow=True, before=3)
    seen = summary("pay", rules, circuit, 0.0, refused=0)
    assert (seen.calls, seen.failure_count, seen.failure_rate, seen.slow_rate) == (4, 1, 0.25, 0.25)
    circuit, ticket = admit(rules, opened(rules), 30.0)
    circuit, _ = admit(rules, record(rules, circuit, ticket, 30.0, failed=False), 31.0)
    seen = summary("pay", rules, circuit, 31.0, refused=0)
    assert (seen.state, seen.success_count, seen.probes, seen.generation) == (HALF_OPEN, 1, 1, 2)


def test_how_long_to_wait_is_never_negative_nor_longer_than_it_takes():
    """Full of probes: until the oldest is written off, or another open time, whichever is less."""
    rules = BreakerSettings(failure_threshold=1, recovery_timeout=5.0, probe_timeout=60.0)
    circuit, _ = admit(rules, opened(rules), 5.0)
    assert retry_after(rules, circuit, 6.0) == 5.0
    assert retry_after(rules, circuit, 62.0) == 3.0
    assert retry_after(rules, opened(rules), 100.0) == 0.0
    assert retry_after(rules, order(rules, Circuit(), Signal.FORCE_OPEN, 0.0), 1.0) is None


@given(st.floats(allow_nan=False, allow_infinity=False), st.booleans())
def test_any_clock_will_do(now, failed):
    """Also one that shows less than nothing, or more than any calendar."""
    assume(math.isfinite(now + 1e3))
    rules = BreakerSettings(failure_threshold=1, window=None)
    circuit, ticket = admit(rules, Circuit(since=now, evidence=begun(rules.window, now)), now)
    assert isinstance(ticket, Ticket)
    assert record(rules, circuit, ticket, now, failed=failed).state is (OPEN if failed else CLOSED)


# --- a window that a success completes ------------------------------------------------------------


@given(
    outcomes=st.lists(st.booleans(), min_size=1, max_size=20),
    rate=st.sampled_from([0.2, 0.5, 0.75, 1.0]),
    least=st.integers(1, 10),
)
def test_the_rate_is_judged_from_the_call_on_that_completes_the_window(outcomes, rate, least):
    """Whatever the last call was: the circuit opens at the first call at which the rate is met."""
    settings = BreakerSettings(window=Window.calls(20), min_calls=least, failure_rate=rate)
    opens = None
    for n in range(least, len(outcomes) + 1):
        is_judged = n == least or outcomes[n - 1]
        if is_judged and sum(outcomes[:n]) >= rate * n:
            opens = n
            break
    circuit, opened = Circuit(), None
    for n, failed in enumerate(outcomes, 1):
        circuit = record(settings, circuit, None, float(n), failed=failed)
        if circuit.state is CircuitState.OPEN:
            opened = n
            break
    assert opened == opens


def test_a_success_is_awaited_while_it_could_open_the_circuit():
    """Only then must the driver announce successes; by failures, and by slow calls."""
    settings = BreakerSettings(
        window=Window.calls(10), min_calls=4, failure_rate=0.5, slow_after=1.0, slow_rate=0.75
    )
    circuit = Circuit()
    assert not core.awaits_success(settings, circuit, 0.0)
    circuit = record(settings, circuit, None, 0.0, failed=True)
    assert not core.awaits_success(settings, circuit, 0.0)
    assert core.awaits_success(settings, record(settings, circuit, None, 0.0, failed=True), 0.0)
    slow = Circuit()
    for _ in range(3):
        slow = record(settings, slow, None, 0.0, failed=False, slow=True)
    assert core.awaits_success(settings, slow, 0.0)
    assert not core.awaits_success(BreakerSettings(), circuit, 0.0)
    done = record(settings, slow, None, 0.0, failed=False, slow=False)
    assert done.state is CircuitState.OPEN
