"""Commands of a circuit: each is a value that can be recorded and carried out again."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.base.rule import RULE
from mainstay.core.circuit.breaker import (
    Circuit,
    CircuitState,
    Refusal,
    Signal,
    Ticket,
    opened_at,
)
from mainstay.core.circuit.commands import (
    apply,
    changed,
    changed_again,
    settings_from_plain,
    settings_to_plain,
)
from mainstay.core.circuit.events import CircuitStateChanged
from mainstay.core.circuit.settings import BreakerSettings
from mainstay.core.circuit.window import Window, begun
from mainstay.core.events.codec import decode, encode
from mainstay.core.retry.backoff import Backoff, Jitter

ONE = BreakerSettings(failure_threshold=2, recovery_timeout=1.0)


def after(settings, circuit, *commands):
    for command in commands:
        circuit, _ = apply(settings, circuit, command)
    return circuit


def opened(settings=ONE):
    return after(settings, Circuit(), ("by_hand", 1.0, True), ("by_hand", 1.0, True))


def test_outcomes_told_by_hand_open_and_close_it():
    """Without a ticket they speak of the oldest probe, or of one that is taken for them."""
    circuit = opened()
    assert circuit.state is CircuitState.OPEN
    probing = after(ONE, circuit, ("advance", 3.0))
    assert probing.state is CircuitState.HALF_OPEN
    assert after(ONE, probing, ("by_hand", 3.0, False)).state is CircuitState.CLOSED
    admitted, ticket = apply(ONE, probing, ("admit", 3.0))
    assert isinstance(ticket, Ticket)
    assert after(ONE, admitted, ("by_hand", 3.0, True)).state is CircuitState.OPEN


def test_a_probe_is_withdrawn_or_forgotten():
    """Its place is free again; where there is none, nothing changes."""
    probing, ticket = apply(ONE, after(ONE, opened(), ("advance", 3.0)), ("admit", 3.0))
    assert isinstance(apply(ONE, probing, ("admit", 3.0))[1], Refusal)
    for command in (("withdraw", ticket), ("forget",)):
        freed = after(ONE, probing, command)
        assert isinstance(apply(ONE, freed, ("admit", 3.0))[1], Ticket)
    assert after(ONE, Circuit(), ("forget",)) == Circuit()


def test_successes_that_were_only_counted_come_in_bulk():
    """As if they had been told one by one; none at all is only the time that has passed."""
    settings = BreakerSettings(window=Window.calls(10), min_calls=2)
    start = Circuit(evidence=begun(settings.window, 0.0))
    told = after(settings, start, *[("record", None, 1.0, False, False, 0)] * 3)
    assert after(settings, start, ("passed", 1.0, 3)).evidence == told.evidence
    assert after(ONE, opened(), ("passed", 9.0, 0)).state is CircuitState.HALF_OPEN


def test_a_circuit_of_another_is_taken_over_by_one_that_knows_nothing():
    """On its own clock; one with a history of its own keeps that."""
    theirs = opened()
    mine = after(ONE, Circuit(), ("inherit", theirs, 100.0, -99.0))
    assert (mine.state, mine.since) == (CircuitState.OPEN, theirs.since - 100.0)
    known = Circuit(failures=1)
    assert after(ONE, known, ("inherit", theirs, 100.0, -99.0)) is known


def test_votes_open_it():
    """For as long as they say."""
    voted = after(ONE, Circuit(), ("vote", 7.0, 1.0))
    assert (voted.state, voted.open_seconds) == (CircuitState.OPEN, 7.0)


def test_a_node_follows_the_probe_of_another():
    """In the generation it asked in, and only what is open or half open."""
    probing, _ = apply(ONE, after(ONE, opened(), ("advance", 3.0)), ("admit", 3.0))
    generation = probing.generation
    again = after(ONE, probing, ("relapsed_elsewhere", generation, 0.5, 3.0))
    assert (again.state, again.open_seconds, again.since) == (CircuitState.OPEN, 0.5, 3.0)
    long = after(ONE, probing, ("relapsed_elsewhere", generation, 300.0, 3.0))
    assert long.open_seconds == 1.0, "no longer than its own next open time"
    closed = after(ONE, probing, ("recovered_elsewhere", generation, 3.0))
    assert (closed.state, closed.openings) == (CircuitState.CLOSED, 1)
    assert after(ONE, opened(), ("recovered_elsewhere", 1, 1.5)).state is CircuitState.CLOSED
    for circuit, number in [(probing, generation - 1), (closed, closed.generation)]:
        assert after(ONE, circuit, ("recovered_elsewhere", number, 4.0)) is circuit
        assert after(ONE, circuit, ("relapsed_elsewhere", number, 1.0, 4.0)) is circuit


def test_an_open_period_goes_on_while_it_is_half_open():
    """It began when the circuit opened; half open is noticed at a call or a step, perhaps late."""
    circuit = opened()
    assert opened_at(circuit) == circuit.since == 1.0
    assert opened_at(after(ONE, circuit, ("advance", 2.0))) == 1.0
    assert opened_at(after(ONE, circuit, ("advance", 5.0))) == 4.0


def test_who_was_opened_by_vote_keeps_its_silence_through_another_nodes_probe():
    """It has still seen nothing for itself."""
    probing = after(ONE, Circuit(), ("vote", 1.0, 1.0), ("advance", 2.0))
    assert probing.is_voted
    assert after(ONE, probing, ("relapsed_elsewhere", probing.generation, 1.0, 2.0)).is_voted
    assert not after(ONE, probing, ("by_hand", 2.0, True)).is_voted


TICKET = Ticket(0)
PROBING = apply(ONE, after(ONE, opened(), ("advance", 3.0)), ("admit", 3.0))[0]
CHANGES = [
    (Circuit(failures=1), ("record", TICKET, 2.0, True, False, 0)),
    (Circuit(failures=1), ("record", None, 2.0, True, False, 0)),
    (Circuit(failures=1), ("by_hand", 2.0, True)),
    (opened(), ("advance", 5.0)),
    (opened(), ("admit", 5.0)),
    (opened(), ("passed", 5.0, 0)),
    (opened(), ("order", Signal.FORCE_OPEN, 5.0, "maintenance")),
    (Circuit(), ("vote", 7.0, 1.0)),
    (Circuit(), ("inherit", opened(), 0.0, 1.5)),
    (PROBING, ("record", Ticket(PROBING.generation, 1), 3.5, False, False, 0)),
    (PROBING, ("recovered_elsewhere", PROBING.generation, 3.5)),
    (PROBING, ("relapsed_elsewhere", PROBING.generation, 0.5, 3.5)),
]


@pytest.mark.req("CP-16")
@pytest.mark.parametrize(("before", "command"), CHANGES, ids=[str(n) for n in range(len(CHANGES))])
def test_a_recorded_change_is_made_again_from_its_bytes(before, command):
    """The same event comes out, whatever the command."""
    circuit, _ = apply(ONE, before, command)
    assert circuit.generation != before.generation
    told = changed("op", ONE, before, command, circuit, 5.0, with_proof=True)
    again = changed_again(decode(encode(told)))
    assert again == msgspec.structs.replace(told, proof=msgspec.UNSET)


def test_a_change_without_proof_is_not_made_again():
    """There is nothing to make it from."""
    assert changed_again(CircuitStateChanged(operation="op")) is None


@given(
    ramp=st.floats(0.0, 60.0),
    window=st.none() | st.just(Window.calls(20)) | st.just(Window.seconds(30.0)),
    rate=st.floats(0.1, 1.0),
)
def test_settings_come_back_from_plain_data(ramp, window, rate):
    """All that the machine goes by, through JSON."""
    settings = BreakerSettings(ramp=ramp, window=window, failure_rate=rate)
    plain = json.loads(json.dumps(settings_to_plain(settings)))
    assert settings_from_plain(plain) == settings


@pytest.mark.parametrize("rule", [1, 2])
def test_a_change_is_made_again_by_the_version_of_its_record(rule):
    """The open time of decorrelated jitter, by the formula of then; a record without is of 1."""
    plain = settings_to_plain(
        BreakerSettings(
            failure_threshold=1,
            recovery_timeout=Backoff.exponential(10.0, max_delay=11.0),
            recovery_jitter=Jitter.decorrelated(),
        )
    )
    settings = settings_from_plain(plain, rule)
    before, command = Circuit(key=2**51 + 1), ("record", None, 5.0, True, False, 0)
    after, _ = apply(settings, before, command)
    event = changed("pay", settings, before, command, after, 5.0, with_proof=True)
    assert event.proved.rule == RULE
    answers = event.proved.answers if rule == 2 else [5.0]
    recorded = msgspec.structs.replace(
        event, proof=msgspec.structs.replace(event.proved, answers=answers)
    )
    assert changed_again(recorded).retry_after_seconds == event.retry_after_seconds
    assert (event.retry_after_seconds == 11.0) is (rule == 1)


@pytest.mark.parametrize("rule", [3, RULE])
@pytest.mark.parametrize("jitter", [Jitter.decorrelated(), Jitter.additive(1.0)])
def test_a_circuit_whose_open_time_is_a_chain_is_made_again_by_its_version(jitter, rule):
    """The curve at the end of the chain is spread by itself, within its own cap."""
    plain = settings_to_plain(
        BreakerSettings(
            failure_threshold=1,
            recovery_timeout=Backoff.chain(9.0, Backoff.exponential(2.0, max_delay=2.5)),
            recovery_jitter=jitter,
        )
    )
    settings = settings_from_plain(plain, rule)
    before, command = Circuit(key=2**51 + 1, openings=1, open_seconds=9.0), (
        "record", None, 5.0, True, False, 0,
    )  # fmt: skip
    after, _ = apply(settings, before, command)
    event = changed("pay", settings, before, command, after, 5.0, with_proof=True)
    assert event.proved.rule == RULE
    answers = [{"rule": rule}, 5.0]
    recorded = msgspec.structs.replace(
        event, proof=msgspec.structs.replace(event.proved, answers=answers)
    )
    assert changed_again(recorded).retry_after_seconds == event.retry_after_seconds
    assert (2.0 < event.retry_after_seconds <= 2.5) is (rule == RULE)


@pytest.mark.parametrize("window", [None, Window.calls(4)])
def test_a_change_that_every_version_decides_alike_states_none(window):
    """So that a process of the version before, on the same log, replays it."""
    settings = BreakerSettings(failure_threshold=1, min_calls=1, window=window)
    before, command = Circuit(key=2**51 + 1), ("record", None, 5.0, True, False, 0)
    after, _ = apply(settings, before, command)
    event = changed("pay", settings, before, command, after, 5.0, with_proof=True)
    assert (event.to_state, event.proved.answers) == ("open", [5.0])
