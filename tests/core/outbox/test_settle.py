"""What becomes of an entry, step by step and against an independent model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mainstay.core.outbox.entry import (
    HOLDERS,
    STATES,
    TRANSITIONS,
    Entry,
    Failure,
    Phase,
    aggregate_key,
)
from mainstay.core.outbox.message import Message
from mainstay.core.outbox.settle import (
    LONGEST_WAIT,
    MOST_HISTORY,
    DeadRules,
    crashed,
    discarded,
    failed,
    given_back,
    is_over,
    published,
    refused,
    replayed,
)
from mainstay.errors import UsageError

DOWN = Failure(100.0, 1, "transient", "ConnectionError: down")


def entry(**fields):
    message = Message(id="8d0f", topic="t", payload=b"{}", aggregate_id="u-1")
    defaults = {"aggregate": "0::u-1", "phase": Phase.CLAIMED, "attempts": 1}
    return Entry(message=message, **{**defaults, **fields})


def after(before, done):
    """The entry as the table has it then; also checks that the transition is a legal one."""
    assert done.phase in TRANSITIONS[before.phase]
    return replace(
        before,
        phase=done.phase,
        attempts=done.attempts,
        crashes=done.crashes,
        history=before.history if done.history is None else done.history,
    )


@pytest.mark.req("EF-10")
def test_the_fourth_failure_is_dead_and_each_is_in_the_history():
    """Three retries, then the dead-letter queue."""
    one = entry(attempts=0, phase=Phase.READY)
    phases = []
    for attempt in range(1, 5):
        claimed = replace(one, phase=Phase.CLAIMED, attempts=one.attempts + 1)
        failure = Failure(100.0 * attempt, attempt, "transient", "down")
        done = failed(claimed, failure, DeadRules(), is_final=False, delay=2.0)
        one = replace(after(claimed, done), phase=Phase.READY if not done.is_dead else done.phase)
        phases.append(done.phase)
    assert phases == [Phase.WAITING] * 3 + [Phase.DEAD]
    assert [each.attempt for each in one.history] == [1, 2, 3, 4]
    assert one.retry_count == 3


def test_a_failure_that_is_final_is_dead_at_once():
    assert failed(entry(), DOWN, DeadRules(), is_final=True, delay=0.0).phase is Phase.DEAD


def test_dead_may_hold_its_aggregate_if_it_has_one():
    """Without an aggregate there is nothing to hold."""
    rules = DeadRules(1, holds=True)
    assert failed(entry(), DOWN, rules, is_final=False, delay=0.0).phase is Phase.HOLDING
    alone = failed(entry(aggregate=None), DOWN, rules, is_final=False, delay=0.0)
    assert alone.phase is Phase.DEAD
    assert alone.is_dead
    assert not alone.blocks


@given(st.floats(-1e6, 1e9))
def test_no_wait_is_longer_than_what_counts_as_a_clock_that_was_set_back(delay):
    """Or it would count as over at once."""
    done = failed(entry(), DOWN, DeadRules(), is_final=False, delay=delay)
    assert done.next_at is not None
    assert DOWN.at <= done.next_at <= DOWN.at + LONGEST_WAIT
    assert refused(entry(), 100.0, delay).next_at <= 100.0 + LONGEST_WAIT


def test_what_was_not_attempted_gives_its_attempt_back():
    """An open circuit charges none; nor does a stop, nor an entry before it that waits."""
    assert refused(entry(attempts=3), 100.0, 5.0).attempts == 2
    assert refused(entry(attempts=3), 100.0, 5.0).blocks
    behind = given_back(entry(attempts=3), is_behind=True)
    assert (behind.phase, behind.attempts) == (Phase.PARKED, 2)
    assert given_back(entry(attempts=1), is_behind=False).phase is Phase.READY
    assert given_back(entry(attempts=0), is_behind=False).attempts == 0


def test_a_published_entry_is_sent():
    done = published(entry(), 7.0)
    assert (done.phase, done.ended_at, done.history) == (Phase.SENT, 7.0, None)


def test_a_message_that_kills_its_worker_is_dead_after_as_many_crashes_as_attempts():
    """Each crash is in its history."""
    one = entry(attempts=0)
    for attempt in range(1, 5):
        one = replace(one, phase=Phase.CLAIMED, attempts=attempt)
        one = after(one, crashed(one, 5.0, DeadRules()))
    assert one.phase is Phase.DEAD
    assert one.crashes == 4
    assert [each.kind for each in one.history] == ["crash"] * 4


def test_a_replay_keeps_the_id_begins_anew_and_comes_last():
    dead = entry(phase=Phase.DEAD, attempts=4, crashes=2)
    done = replayed(dead, 9.0, "ann")
    assert (done.id, done.phase, done.attempts, done.crashes) == ("8d0f", Phase.READY, 0, 0)
    assert done.is_moved
    assert done.is_replay
    assert done.history[-1].text == "replayed by ann"


def test_a_replay_of_what_its_aggregate_waits_for_keeps_its_place():
    done = replayed(entry(phase=Phase.HOLDING, attempts=4), 9.0, "")
    assert not done.is_moved
    assert not done.is_replay
    assert done.history[-1].text == "replayed by unnamed"


def test_a_discard_keeps_the_reason():
    done = discarded(entry(phase=Phase.DEAD), 9.0, "ann", "a test")
    assert (done.phase, done.ended_at) == (Phase.DISCARDED, 9.0)
    assert done.history[-1].text == "discarded by ann: a test"
    assert discarded(entry(phase=Phase.HOLDING), 9.0, "", "").history[-1].text == (
        "discarded by unnamed"
    )


@pytest.mark.parametrize("phase", [each for each in Phase if STATES[each] != "DEAD"])
def test_only_the_dead_are_replayed_or_discarded(phase):
    with pytest.raises(UsageError, match="only a dead one can be replayed"):
        replayed(entry(phase=phase), 9.0, "ann")
    with pytest.raises(UsageError, match="only a dead one can be discarded"):
        discarded(entry(phase=phase), 9.0, "ann", "why")


def test_a_history_keeps_the_first_and_the_latest():
    many = tuple(Failure(float(n), n, "transient", "down") for n in range(MOST_HISTORY))
    done = failed(entry(history=many), DOWN, DeadRules(99), is_final=False, delay=1.0)
    assert len(done.history) == MOST_HISTORY
    assert done.history[0].at == 0.0
    assert done.history[-1] is DOWN


COMMANDS = st.lists(
    st.sampled_from(["publish", "fail", "final", "refuse", "back", "crash", "replay", "discard"]),
    max_size=30,
)


@given(COMMANDS, st.integers(1, 6), st.booleans())
def test_laws_of_an_entry(commands, most, holds):
    """Against a model that only counts: dead exactly when charged attempts reach the most."""
    rules = DeadRules(most, holds=holds)
    one, charged = entry(attempts=0, phase=Phase.READY), 0
    for command in commands:
        state = one.state
        if state == "PENDING":
            one = replace(one, phase=Phase.CLAIMED, attempts=one.attempts + 1)
            state = "CLAIMED"
        if state == "CLAIMED" and command in ("replay", "discard"):
            continue
        if state == "DEAD" and command not in ("replay", "discard"):
            continue
        if state in ("SENT", "DISCARDED"):
            assert TRANSITIONS[one.phase] == {Phase.PURGED}
            break
        step = {
            "publish": lambda e: published(e, 1.0),
            "fail": lambda e: failed(e, DOWN, rules, is_final=False, delay=1.0),
            "final": lambda e: failed(e, DOWN, rules, is_final=True, delay=1.0),
            "refuse": lambda e: refused(e, 1.0, 1.0),
            "back": lambda e: given_back(e, is_behind=False),
            "crash": lambda e: crashed(e, 1.0, rules),
            "replay": lambda e: replayed(e, 1.0, "ann"),
            "discard": lambda e: discarded(e, 1.0, "ann", "why"),
        }[command]
        one = after(one, step(one))
        charged += command in ("fail", "final", "crash")
        if command == "replay":
            charged = 0
        assert (one.state == "DEAD") == (
            command == "final" or (command in ("fail", "crash") and charged >= most)
        )
        if one.state == "PENDING":
            assert one.attempts == charged


def test_every_phase_has_a_state_and_what_may_follow():
    assert set(TRANSITIONS) == set(STATES) == set(Phase)
    assert {STATES[phase] for phase in HOLDERS} == {"PENDING", "CLAIMED", "DEAD"}


def test_a_lease_beyond_the_longest_was_written_by_another_clock():
    """A clock that was set back by a day must not keep entries for a day."""
    assert is_over(5.0, 5.0)
    assert not is_over(5.0 + LONGEST_WAIT, 5.0)
    assert is_over(5.1 + LONGEST_WAIT, 5.0)


def test_no_two_aggregates_share_a_key():
    """Also if the type of one ends where the id of the other begins."""
    assert aggregate_key("a:b", "c") != aggregate_key("a", "b:c")
    assert aggregate_key("a", "") is None
