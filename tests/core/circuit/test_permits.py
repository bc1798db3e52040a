"""Permits for probes: how many nodes probe a shared circuit at once, and what the others learn."""

import msgspec
import pytest
from hypothesis import settings as budget
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from mainstay.core.base.change import KEEP
from mainstay.core.base.clock_jumps import Jump
from mainstay.core.circuit.breaker import Circuit, CircuitState, Signal, Ticket
from mainstay.core.circuit.cluster import Seat, has_recovered, sit
from mainstay.core.circuit.cluster import decode as table_of
from mainstay.core.circuit.commands import apply
from mainstay.core.circuit.permits import (
    Answer,
    Outcome,
    Permit,
    Permits,
    Settlement,
    Verdict,
    begun,
    decode,
    renew,
    settle,
    settlement,
    take,
)
from mainstay.core.circuit.settings import BreakerSettings
from mainstay.errors import StoredValueError

LEASE = 10.0


def asked(value, token="a#1", now=100.0, *, opened=50.0, limit=1, jumps=()):
    """The record after a node has asked, and its answer; the node is the first letter."""
    change, answer = take(
        value, token[0], token, opened=opened, limit=limit, lease=LEASE, now=now, jumps=jumps
    )
    return (value if change is KEEP else change.value), answer


def ended(value, outcome, token="a#1", now=101.0, **fields):
    fields = {"at": now, **fields}
    change, _ = settle(value, token[0], frozenset({token}), outcome, now=now, **fields)
    return value if change is KEEP else change.value


def test_one_node_has_the_permit_and_the_others_wait_for_its_lease():
    """As many as there are; the answer is when the first of them runs out."""
    value, answer = asked(None, "a#1", 100.0, limit=2)
    assert answer == Answer(Verdict.GRANTED)
    value, answer = asked(value, "b#1", 104.0, limit=2)
    assert answer == Answer(Verdict.GRANTED)
    _, answer = asked(value, "c#1", 106.0, limit=2)
    assert answer == Answer(Verdict.TAKEN, 4.0)


def test_a_permit_is_taken_once_however_often_it_is_asked_for():
    """The reply may have been lost."""
    value, _ = asked(None)
    value, answer = asked(value, now=103.0)
    assert answer.verdict is Verdict.GRANTED
    assert decode(value).held == {"a#1": Permit(103.0, LEASE)}


def test_the_permit_of_a_dead_process_runs_out():
    """A prober that renews its lease keeps it."""
    value, _ = asked(None)
    change, is_held = renew(value, frozenset({"a#1"}), LEASE, 105.0)
    assert is_held
    assert asked(change.value, "b#1", 111.0)[1].verdict is Verdict.TAKEN
    value, answer = asked(change.value, "b#1", 115.0)
    assert answer.verdict is Verdict.GRANTED
    assert renew(value, frozenset({"a#1"}), LEASE, 116.0)[1] is False, "another has it"


def test_a_permit_that_is_returned_is_free():
    """Without an outcome nothing is known of the service."""
    value = ended(asked(None)[0], Outcome.RELEASED)
    assert asked(value, "b#1", 102.0)[1].verdict is Verdict.GRANTED


def test_after_a_probe_that_failed_no_other_node_probes_until_its_open_time_is_over():
    """A node that opened before that opens again with it; one that has opened since has its own."""
    value = ended(asked(None)[0], Outcome.FAILED, wait=30.0)
    assert asked(value, "b#1", 111.0)[1] == Answer(Verdict.RELAPSED, 20.0)
    assert asked(value, "b#1", 111.0, opened=105.0)[1].verdict is Verdict.GRANTED
    assert asked(value, "b#1", 131.0)[1].verdict is Verdict.GRANTED
    assert asked(value, "a#2", 130.9)[1].verdict is Verdict.GRANTED, "it knows"


def test_a_moment_that_is_left_is_waited_out():
    """The clocks of two nodes differ by as much: no further open period begins."""
    value = ended(asked(None)[0], Outcome.FAILED, wait=30.0)
    answer = asked(value, "b#1", 130.97)[1]
    assert answer.verdict is Verdict.TAKEN
    assert answer.seconds == pytest.approx(0.03)


def test_after_a_probe_that_succeeded_every_node_that_asks_closes():
    """If its circuit was open by then."""
    value = ended(asked(None)[0], Outcome.RECOVERED)
    assert asked(value, "b#1", 102.0)[1] == Answer(Verdict.RECOVERED)
    assert asked(value, "b#1", 140.0, opened=110.0)[1].verdict is Verdict.GRANTED
    value = ended(value, Outcome.FAILED, "b#1", 141.0, wait=30.0)
    assert asked(value, "c#1", 142.0)[1].verdict is Verdict.RELAPSED, "the last word counts"


def test_the_probes_of_all_nodes_add_up_to_the_successes_that_close_it():
    """Those of this open period: a failure begins the count again, and so does another opening."""
    value = ended(asked(None)[0], Outcome.SUCCEEDED, threshold=3)
    value = ended(asked(value, "b#1", 102.0)[0], Outcome.SUCCEEDED, "b#1", 103.0, threshold=3)
    assert decode(value).successes == 2
    later, _ = asked(value, "c#1", 200.0, opened=150.0)
    assert decode(later).successes == 0
    failed = ended(value, Outcome.FAILED, "c#1", 104.0, wait=1.0)
    assert decode(failed).successes == 0
    value = ended(value, Outcome.SUCCEEDED, "c#1", 104.0, threshold=3)
    assert decode(value).recovered == 104.0
    assert asked(value, "d#1", 105.0)[1].verdict is Verdict.RECOVERED


def test_a_late_step_counts_from_when_the_probe_ended():
    """The store was slow: the wait is over when that of the node is."""
    value = ended(asked(None)[0], Outcome.FAILED, now=109.0, at=101.0, wait=30.0)
    assert decode(value).relapsed == 101.0
    assert ended(value, Outcome.RECOVERED, now=120.0, at=999.0) is not None
    assert decode(ended(value, Outcome.RECOVERED, now=120.0, at=999.0)).recovered == 120.0


def test_a_clock_that_is_set_back_begins_leases_and_waits_again():
    """No node waits for a day, and a success that lies ahead is none."""
    value, _ = asked(None, now=86_500.0)
    value, answer = asked(value, "b#1", 100.0)
    assert answer == Answer(Verdict.TAKEN, LEASE)
    value, answer = asked(value, "b#1", 105.0)
    assert answer == Answer(Verdict.TAKEN, 5.0), "it was begun again once, not each time"
    assert asked(value, "b#1", 110.0)[1].verdict is Verdict.GRANTED
    failed = ended(None, Outcome.FAILED, now=86_500.0, wait=30.0)
    failed, answer = asked(failed, "b#1", 100.0)
    assert answer == Answer(Verdict.RELAPSED, 30.0)
    assert asked(failed, "b#1", 131.0)[1].verdict is Verdict.GRANTED
    recovered = ended(None, Outcome.RECOVERED, now=86_500.0)
    assert asked(recovered, "b#1", 100.0)[1].verdict is Verdict.GRANTED


def test_a_clock_that_is_set_ahead_ends_no_lease_and_no_wait():
    """For a node that has seen it: a probe under way has its permit, and an outcome is news."""
    jumps = (Jump(before=102.0, by=86_400.0),)
    value, _ = asked(None)
    value, answer = asked(value, "b#1", 86_505.0, jumps=jumps)
    assert answer == Answer(Verdict.TAKEN, 5.0)
    assert asked(value, "b#1", 86_509.0, jumps=jumps)[1] == Answer(Verdict.TAKEN, 1.0)
    value = renew(value, frozenset({"a#1"}), LEASE, 86_509.0, jumps)[0].value
    assert asked(value, "b#1", 86_518.0, jumps=jumps)[1] == Answer(Verdict.TAKEN, 1.0)
    assert asked(value, "b#1", 86_519.0, jumps=jumps)[1].verdict is Verdict.GRANTED
    failed = ended(None, Outcome.FAILED, wait=30.0)
    failed, answer = asked(failed, "b#1", 86_510.0, opened=86_490.0, jumps=jumps)
    assert answer == Answer(Verdict.RELAPSED, 21.0)
    recovered = ended(None, Outcome.RECOVERED)
    answer = asked(recovered, "b#1", 86_510.0, opened=86_490.0, jumps=jumps)[1]
    assert answer.verdict is Verdict.RECOVERED
    one = ended(None, Outcome.SUCCEEDED, threshold=2)
    value, _ = asked(one, "b#1", 86_510.0, opened=86_490.0, jumps=jumps)
    assert decode(value).successes == 1


def test_a_permit_of_a_node_that_is_gone_runs_out_though_the_clock_was_set_ahead():
    """However often others ask meanwhile."""
    jumps = (Jump(before=102.0, by=4.0), Jump(before=107.0, by=3600.0))
    value, _ = asked(None)
    for now in (108.0, 3709.0, 3711.0, 3714.0, 3719.0):
        value, answer = asked(value, "b#1", now, jumps=jumps)
    assert answer.verdict is Verdict.GRANTED


def test_what_changes_nothing_is_not_written():
    """Nodes that are refused do not write."""
    value, _ = asked(None)
    assert asked(value, "b#1", 101.0)[0] is value
    assert renew(None, frozenset(), LEASE, 0.0)[0] is not KEEP
    with pytest.raises(StoredValueError, match="the record of the permits of a circuit is damaged"):
        decode(b"{")


def test_a_record_of_a_later_version_is_read():
    """What an older process does not know, it leaves out."""
    assert decode(b'{"held":{"a":{"since":1.0,"lease":2.0,"more":3}},"new":1}').held == {
        "a": Permit(1.0, 2.0)
    }


# --- what a change of a circuit means for its permits ---------------------------------------------

RULES = BreakerSettings(recovery_timeout=30.0, half_open_probes=2, success_threshold=2)
OPEN = Circuit(state=CircuitState.OPEN, generation=1, since=0.0, open_seconds=30.0)


def probing():
    """A circuit with two probes under way."""
    one, first = apply(RULES, OPEN, ("admit", 31.0))
    two, second = apply(RULES, one, ("admit", 32.0))
    return two, first, second


def test_a_probe_begins_and_ends():
    """Admitted, counted, withdrawn."""
    circuit, first, second = probing()
    assert begun(OPEN, circuit) == (1, 2)
    for command, outcome in [
        (("record", first, 33.0, False, False, 0), Outcome.SUCCEEDED),
        (("withdraw", first), Outcome.RELEASED),
    ]:
        after, _ = apply(RULES, circuit, command)
        assert settlement(circuit, after) == Settlement((1,), outcome)
        assert begun(circuit, after) == ()
    assert settlement(circuit, circuit) is None
    assert settlement(OPEN, circuit) is None
    once, _ = apply(RULES, circuit, ("record", first, 33.0, False, False, 0))
    closed, _ = apply(RULES, once, ("record", second, 34.0, False, False, 0))
    assert settlement(once, closed) == Settlement((2,), Outcome.RECOVERED)


def test_all_permits_are_returned_with_the_state():
    """A failure brings the open time; an order or another node's probe brings nothing."""
    circuit, first, _ = probing()
    failed, _ = apply(RULES, circuit, ("record", first, 33.0, True, False, 0))
    assert settlement(circuit, failed) == Settlement((1, 2), Outcome.FAILED, 30.0)
    lost, _ = apply(RULES, circuit, ("advance", 99.0))
    assert settlement(circuit, lost) == Settlement((1, 2), Outcome.FAILED, 30.0)
    for command in [
        ("order", Signal.RESET, 33.0, ""),
        ("order", Signal.FORCE_OPEN, 33.0, ""),
        ("relapsed_elsewhere", circuit.generation, 5.0, 33.0),
        ("recovered_elsewhere", circuit.generation, 33.0),
    ]:
        after, _ = apply(RULES, circuit, command)
        assert settlement(circuit, after) == Settlement((1, 2), Outcome.RELEASED)


# --- many nodes -----------------------------------------------------------------------------------

SECONDS = st.sampled_from([0.001, 0.5, 1.0, 4.0, 9.999, 10.0, 30.0])


class Leases(RuleBasedStateMachine):
    """Nodes take, renew and return permits, die, and the clock is set; in any order."""

    tokens = Bundle("tokens")

    @initialize(limit=st.integers(1, 3))
    def begin(self, limit):
        self.limit, self.now, self.count, self.value = limit, 1e9, 0, None
        self.until = {}
        """By our own bookkeeping: until when each lease runs."""

    @rule(target=tokens)
    def ask(self):
        self.count += 1
        token = f"{self.count}#1"
        value, answer = asked(self.value, token, self.now, opened=self.now, limit=self.limit)
        live = [end for end in self.until.values() if end > self.now]
        assert (answer.verdict is Verdict.GRANTED) is (len(live) < self.limit)
        if answer.verdict is Verdict.GRANTED:
            self.until[token] = self.now + LEASE
        else:
            assert 0.0 < answer.seconds <= LEASE
        self.value = value
        return token

    @rule(token=tokens)
    def renew(self, token):
        change, is_held = renew(self.value, frozenset({token}), LEASE, self.now)
        assert is_held is (self.until.get(token, 0.0) > self.now)
        if is_held:
            self.until[token] = self.now + LEASE
        self.value = self.value if change is KEEP else change.value

    @rule(token=consumes(tokens), outcome=st.sampled_from(list(Outcome)))
    def end(self, token, outcome):
        self.value = ended(self.value, outcome, token, self.now)
        self.until.pop(token, None)

    @rule(seconds=SECONDS)
    def time_passes(self, seconds):
        self.now += seconds

    @rule(seconds=st.sampled_from([1.0, 5.0, 86_400.0]))
    def clock_is_set_back(self, seconds):
        """What runs longer than a lease begins again from now, for the next one that looks."""
        self.now -= seconds
        change, _ = renew(self.value, frozenset(), LEASE, self.now)
        self.value = self.value if change is KEEP else change.value
        live = {each: end for each, end in self.until.items() if end > self.now + seconds}
        self.until = {each: min(end, self.now + LEASE) for each, end in live.items()}
        lost = {each for each, end in decode(self.value).held.items()} - set(live)
        for token in lost:  # nobody looked while it was over: it is held again for its rest
            self.until[token] = min(self._end_of(token), self.now + LEASE)

    def _end_of(self, token):
        held = decode(self.value).held[token]
        return held.since + held.lease

    @invariant()
    @precondition(lambda self: self.value is not None)
    def no_more_than_allowed(self):
        held = decode(self.value).held
        live = [each for each in held.values() if each.since + each.lease > self.now]
        assert len(live) <= self.limit
        assert all(each.since <= self.now for each in live)


TestLeases = Leases.TestCase
TestLeases.settings = budget(max_examples=60, stateful_step_count=40)


class Fleet(RuleBasedStateMachine):
    """Nodes with an open circuit each, whose calls come in any order, on one store."""

    names = ("a", "b", "c", "d")

    @initialize(limit=st.integers(1, 2), threshold=st.integers(1, 2))
    def begin(self, limit, threshold):
        self.rules = BreakerSettings(
            recovery_timeout=30.0, half_open_probes=limit, success_threshold=threshold
        )
        self.now, self.row, self.table = 1000.0, None, None
        self.circuits, self.changes, self.opened = {}, {}, {}
        for index, name in enumerate(self.names):
            self.circuits[name] = Circuit(
                state=CircuitState.OPEN, generation=1, since=990.0 + index, open_seconds=30.0,
            )  # fmt: skip
            self.changes[name] = []
        self.under_way = []
        self.quiet_until = 0.0

    def change(self, name, command):
        """One change of a circuit, and what it means for the permits."""
        before = self.circuits[name]
        after, answer = apply(self.rules, before, command)
        self.circuits[name] = after
        if after.generation != before.generation:
            self.changes[name].append(after.state)
            self.opened[name] = before.since if before.state is CircuitState.OPEN else after.since
        ends = settlement(before, after)
        if ends is not None:
            tokens = frozenset(f"{name}#{ticket}" for ticket in ends.tickets)
            change, _ = settle(
                self.row, name, tokens, ends.outcome, at=after.since, now=self.now,
                wait=ends.wait, threshold=self.rules.success_threshold,
            )  # fmt: skip
            self.row = self.row if change is KEEP else change.value
        return answer

    @rule(name=st.sampled_from(names))
    def call(self, name):
        """A call: it is refused, goes through, or is a probe, if there is a permit."""
        ticket = self.change(name, ("admit", self.now))
        if not isinstance(ticket, Ticket) or not ticket.probe:
            return
        change, answer = take(
            self.row, name, f"{name}#{ticket.probe}", opened=self.opened[name],
            limit=self.rules.half_open_probes, lease=60.0, now=self.now,
        )  # fmt: skip
        self.row = self.row if change is KEEP else change.value
        if answer.verdict is Verdict.GRANTED:
            assert self.now >= self.quiet_until, "a probe has failed a moment ago"
            self.under_way.append((name, ticket, self.now))
        elif answer.verdict is Verdict.TAKEN:
            self.change(name, ("withdraw", ticket))
        elif answer.verdict is Verdict.RELAPSED:
            self.change(name, ("relapsed_elsewhere", ticket.generation, answer.seconds, self.now))
            assert self.circuits[name].state is CircuitState.OPEN
        else:
            self.change(name, ("recovered_elsewhere", ticket.generation, self.now))
            assert self.circuits[name].state is CircuitState.CLOSED

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), failed=st.booleans())
    def probe_ends(self, data, failed):
        index = data.draw(st.integers(0, len(self.under_way) - 1))
        name, ticket, _ = self.under_way.pop(index)
        is_current = ticket.generation == self.circuits[name].generation
        self.change(name, ("record", ticket, self.now, failed, False, 0))
        if is_current and failed:
            self.quiet_until = self.now + 29.9
            self.under_way = []  # those of other nodes count for nothing here

    @rule(name=st.sampled_from(names))
    def step(self, name):
        """A background step: the node brings its circuit, and follows a recovery."""
        seat = Seat(self.now, self.circuits[name])
        change, table = sit(self.table, name, seat, self.now, 1e9)
        self.table = change.value
        if has_recovered(table, name, self.opened.get(name, self.circuits[name].since)):
            self.change(name, ("recovered_elsewhere", self.circuits[name].generation, self.now))

    @rule(seconds=st.sampled_from([0.01, 0.5, 1.0, 5.0, 30.0]))
    def time_passes(self, seconds):
        self.now += seconds

    @invariant()
    def few_probe_at_once(self):
        """Those whose lease runs, of circuits that wait for them."""
        holders = [
            name
            for name, ticket, start in self.under_way
            if self.now < start + 60.0 and ticket.generation == self.circuits[name].generation
        ]
        assert len(holders) <= self.rules.half_open_probes

    @invariant()
    def an_open_period_has_one_half_open_time(self):
        """Of each node: open, half open, then closed or open again; or closed by another's."""
        for changes in self.changes.values():
            for before, after in zip([CircuitState.OPEN, *changes], changes, strict=False):
                assert (before, after) in {
                    (CircuitState.OPEN, CircuitState.HALF_OPEN),
                    (CircuitState.OPEN, CircuitState.CLOSED),
                    (CircuitState.HALF_OPEN, CircuitState.OPEN),
                    (CircuitState.HALF_OPEN, CircuitState.CLOSED),
                }


TestFleet = Fleet.TestCase
TestFleet.settings = budget(max_examples=60, stateful_step_count=40)


def test_a_fleet_closes_in_one_step_each():
    """One probe succeeds: the others close at their next step, and none asks again."""
    rules = BreakerSettings(recovery_timeout=30.0)
    half_open, ticket = apply(rules, OPEN, ("admit", 31.0))
    closed, _ = apply(rules, half_open, ("record", ticket, 31.5, False, False, 0))
    value = None
    for name, circuit in [("a", closed), ("b", OPEN), ("c", half_open)]:
        change, table = sit(value, name, Seat(32.0, circuit), 32.0, 10.0)
        value = change.value
        assert has_recovered(table, name, 0.0) is (name != "a")
    assert table_of(value).seats["a"].circuit.reason == Signal.RECOVERED.value


def test_permits_are_plain_json():
    """Any version reads them."""
    row = Permits(held={"a#1": Permit(1.0, 2.0)}, successes=1)
    assert msgspec.json.decode(msgspec.json.encode(row))["held"] == {
        "a#1": {"since": 1.0, "lease": 2.0}
    }
