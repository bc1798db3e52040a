"""The life of a keyed call, driven by hand: each answer, and what is asked for next."""

from concurrent.futures import CancelledError as FutureCancelled

import pytest

from mainstay.core.base.deadline import NEVER
from mainstay.core.codec.outcome import Succeeded, decode_outcome
from mainstay.core.idempotency.call import (
    OVERDUE,
    EmitEvent,
    Escalate,
    Invoke,
    Keyed,
    Pause,
    Recorded,
    StoreCommand,
    keyed,
)
from mainstay.core.idempotency.record import (
    Begin,
    Busy,
    Done,
    Doubt,
    Lost,
    Mismatch,
    RecordState,
    Release,
    Replay,
    Run,
    Settle,
    Unknown,
)
from mainstay.core.known.kind import Kind
from mainstay.core.known.registry import REGISTRY
from mainstay.core.known.table import Row, Table
from mainstay.core.retry.effects import Question, Returned
from mainstay.core.retry.policy import Policy
from mainstay.errors import (
    CircuitOpenError,
    Conflict,
    LeaseLost,
    OutcomeUnknown,
    PayloadMismatch,
    ResultRejected,
    StoredValueError,
    StoreUnavailable,
)

POLICY = Policy(name="p", max_attempts=3, retry_on=(ConnectionError,))
AWAY = StoreUnavailable("sqlite:///a.db", "write", "database is locked")


def call(**options):
    return Keyed("charge", "k", "f", "me", **options)


def play(answers, **options):
    """The effects of a life that is given these answers, the last one included."""
    call_flow, effects = keyed(call(**options), POLICY), []
    effects += [call_flow.send(answer) for answer in (None, *answers)]
    return effects


def ran(outcome, *answers, attempts=1, **options):
    """What is asked for once the call itself has ended so."""
    return play([Run(1, attempts), outcome, *answers], **options)[2:]


def settled(effect):
    """State and outcome of a step that settles."""
    assert isinstance(effect.command, Settle)
    return effect.command.state, decode_outcome(effect.command.outcome)


# --- the beginning --------------------------------------------------------------------------------


def test_a_call_begins_with_a_claim():
    """With all that the store needs to decide."""
    step, invoke = play([Run(4, 1)], lease=5.0, on_crash="unknown")
    assert step == StoreCommand(Begin("me", "f", 5.0, 3, "unknown"))
    assert invoke == Invoke(4, 3)


@pytest.mark.parametrize(("attempts", "left"), [(1, 3), (2, 2), (3, 1), (4, 1)])
def test_attempts_before_a_crash_are_gone(attempts, left):
    """What is left is the policy's less those; one at least, because the claim was granted."""
    assert play([Run(1, attempts)])[-1] == Invoke(1, left, attempts)


def test_what_has_ended_is_replayed():
    """Told of as a hit."""
    replay = Replay(RecordState.SUCCEEDED, b"1")
    assert play([replay, None])[1:] == [EmitEvent("hit"), replay]


def test_another_payload_is_refused():
    """With the operation and the key."""
    _, error = play([Mismatch("g")])
    assert isinstance(error, PayloadMismatch)
    assert (error.operation, error.key) == ("charge", "k")


def test_an_outcome_found_unknown_just_now_is_told_and_brought_to_a_person():
    """Before the caller hears of it."""
    unknown = Unknown(3, "why", is_new=True, owner="a", epoch=2)
    _, tell, escalate, error = play([unknown, None, None])
    assert (tell, escalate) == (EmitEvent("unknown"), Escalate("why", 3, owner="a", epoch=2))
    assert isinstance(error, OutcomeUnknown)


def test_an_outcome_found_unknown_before_is_brought_to_a_person_unless_it_was():
    """Whoever found it out may have been killed before it raised the matter."""
    _, escalate, error = play([Unknown(3, "why"), None])
    assert escalate == Escalate("why", 3, is_new=False)
    assert isinstance(error, OutcomeUnknown)


# --- another call with the key --------------------------------------------------------------------


def test_waiting_asks_again_ever_more_slowly():
    """Doubling up to half a second, and never past the end of the other's lease."""
    answers, pauses = [Busy(60.0), None, 0.0, NEVER], []
    for second in range(8):
        answers += [float(second), None, Busy(60.0 if second < 6 else 0.1)]
    pauses = [e.seconds for e in play(answers, wait=100.0) if isinstance(e, Pause)]
    assert pauses == [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5, 0.1]


def test_whoever_waited_gets_the_others_result():
    """Or runs, where the other has released the key."""
    replay = Replay(RecordState.SUCCEEDED, b"1")
    effects = play([Busy(1.0), None, 0.0, NEVER, 0.0, None, replay, None])
    assert effects[1:4] == [EmitEvent("conflict"), Question.NOW, Question.LEFT]
    assert effects[-2:] == [EmitEvent("hit"), replay]
    assert play([Busy(1.0), None, 0.0, NEVER, 0.0, None, Run(2, 2)])[-1] == Invoke(2, 2, 2)


@pytest.mark.parametrize(("wait", "left"), [(1.0, NEVER), (30.0, 1.0)])
def test_waiting_has_an_end(wait, left):
    """Its own or the caller's; then it is a conflict that says when to ask again."""
    effects = play([Busy(60.0), None, 0.0, left, 0.995, None, Busy(59.0), 1.0], wait=wait)
    assert effects[5] == Pause(pytest.approx(0.005))
    assert isinstance(effects[-1], Conflict)
    assert effects[-1].retry_after == 59.0


def test_whoever_does_not_wait_hears_of_the_conflict_at_once():
    """No pause, no second question to the store."""
    effects = play([Busy(7.0), None, 0.0, NEVER, 0.0], on_conflict="raise")
    assert isinstance(effects[-1], Conflict)
    assert effects[-1].retry_after == 7.0
    assert not any(isinstance(effect, Pause) for effect in effects)


# --- how it ended ---------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, 0, "", False, [], {}])
def test_a_value_is_recorded_before_the_caller_has_it(value):
    """Whatever its truth value."""
    returned = Returned(value)
    step, end = ran(returned, Done())
    assert settled(step) == (RecordState.SUCCEEDED, Succeeded(value))
    assert (step.command.owner, step.command.epoch, step.command.ttl) == ("me", 1, 86_400.0)
    assert end == Recorded(returned)


def test_a_result_that_was_not_accepted_is_not_kept():
    """`retry_if_result` wanted another to the last: the next call may get one."""
    returned = Returned("pending", is_accepted=False)
    assert ran(returned, Done()) == [StoreCommand(Release("me", 1)), returned]


def test_a_final_failure_is_recorded():
    """It would be the same the next time."""
    failure = ValueError("no such order", 7)
    step, tell, end = ran(failure, Done(), None)
    state, outcome = settled(step)
    assert state is RecordState.FAILED
    assert repr(outcome.exception) == repr(failure)
    assert (tell, end) == (EmitEvent("record"), failure)


class PoolClosed(Exception):
    """As a library has it: permanent for this process, and not for the next one."""

    __module__ = "pools"


@pytest.mark.parametrize(
    ("is_own", "attributes", "is_recorded"),
    [
        (False, {}, False),
        (False, {"status_code": 404}, True),
        (True, {}, True),
        (None, {"status_code": 404, "ms_once": "PUT whose body cannot be read again"}, True),
    ],
)
def test_what_a_table_has_as_permanent_is_recorded_if_it_is_of_the_request(
    monkeypatch, is_own, attributes, is_recorded
):
    """A status is an answer; a pool that is closed, or a name that no host has, is none.

    What the user's own table has as permanent, the user has decided.
    """
    table = Table("pools", {"pools.PoolClosed": Row(Kind.PERMANENT, "the pool is closed")})
    monkeypatch.setattr(REGISTRY, "find", lambda _name: table if is_own is False else None)
    REGISTRY.register(table if is_own else Table("others", {}))
    failure = PoolClosed("closed")
    failure.__dict__.update(attributes)
    try:
        step = ran(failure, Done(), *([None] if is_recorded else []))[0]
    finally:
        REGISTRY.unregister("pools")
        REGISTRY.unregister("others")
    assert (step != StoreCommand(Release("me", 1))) is is_recorded


@pytest.mark.parametrize(
    "failure",
    [
        ConnectionError("reset"),
        PermissionError("no"),
        RuntimeError("?"),
        CircuitOpenError("charge", 1.0),
        LeaseLost("charge", "k"),
        ResultRejected("charge", 2, "pending"),
        AWAY,
        StoredValueError("no class shop.Order"),
        FutureCancelled(),
        KeyboardInterrupt(),
        GeneratorExit(),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_a_failure_that_may_be_gone_the_next_time_releases_the_key(failure):
    """As if it had not begun; and it is raised as it came."""
    assert ran(failure, Done()) == [StoreCommand(Release("me", 1)), failure]
    assert not getattr(failure, "__notes__", None)


def test_a_call_cut_off_where_a_crash_is_for_a_person_is_left_to_its_lease():
    """Nobody knows how far it came: releasing it would have it run again."""
    assert ran(cut := KeyboardInterrupt(), on_crash="unknown") == [cut]


def test_a_function_cancelled_because_its_lease_ran_out_is_left_to_its_lease_too():
    """Where a crash is for a person: how far it came is as unknown as after a crash."""
    lost = LeaseLost("charge", "k")
    lost.__cause__ = KeyboardInterrupt()
    assert ran(lost, on_crash="unknown") == [lost]
    assert ran(lost, Done()) == [StoreCommand(Release("me", 1)), lost]


@pytest.mark.parametrize("cause", [None, ConnectionError()])
def test_a_lease_that_was_lost_before_an_attempt_cuts_nothing_off(cause):
    """No attempt was under way: the key is released."""
    lost = LeaseLost("charge", "k")
    lost.__cause__ = cause
    released = [StoreCommand(Release("me", 1)), lost]
    assert ran(lost, Done(), on_crash="unknown") == released


def test_an_ambiguous_end_is_recorded_as_unknown_and_brought_to_a_person():
    """In this order."""
    failure = OutcomeUnknown("charge")
    effects = ran(failure, Done(), None, None, attempts=2)
    doubt, tell, escalate = StoreCommand(Doubt("me", 1)), EmitEvent("unknown"), effects[2]
    assert effects == [doubt, tell, escalate, failure]
    assert escalate == Escalate("it may have been applied", 2, owner="me", epoch=1)


# --- a claim that took longer than its lease ------------------------------------------------------

CLAIM = StoreCommand(Begin("me", "f", 30.0, 3, "retry"))


def test_a_claim_that_is_overdue_is_made_again_before_anything_runs():
    """Of the same owner, so that the record is renewed; then the call is as any other."""
    effects = play([Run(1, 1), OVERDUE, Run(1, 1), Returned(5), Done()])
    assert effects[:4] == [CLAIM, Invoke(1, 3), CLAIM, Invoke(1, 3)]
    assert settled(effects[4])[1] == Succeeded(5)


def test_what_another_has_taken_over_meanwhile_is_waited_for():
    """And replayed, if that has ended."""
    replay = Replay(RecordState.SUCCEEDED, b"1")
    effects = play([Run(1, 1), OVERDUE, Busy(5.0), None, 0.0, NEVER, 0.0, None, replay, None])
    assert effects[2:4] == [CLAIM, EmitEvent("conflict")]
    assert effects[-2:] == [EmitEvent("hit"), replay]


def test_claims_that_are_overdue_again_and_again_run_nothing():
    """The claim is given up, and the error names the lease."""
    effects = play([Run(1, 1), OVERDUE, Run(1, 1), OVERDUE, Run(1, 1), OVERDUE, Done()])
    assert [each for each in effects if isinstance(each, Invoke)] == [Invoke(1, 3)] * 3
    assert effects[-2] == StoreCommand(Release("me", 1))
    assert isinstance(effects[-1], LeaseLost)
    assert "each of 3 claims took longer than the lease of 30 s" in effects[-1].__notes__[0]


# --- a lease that was lost ------------------------------------------------------------------------


def test_a_late_value_is_handed_over_and_not_recorded():
    """Somebody else has the key; the caller learns what it was."""
    _, tell, lost = ran(Returned(5), Lost(), None)
    assert tell == EmitEvent("lost")
    assert isinstance(lost, LeaseLost)
    assert (lost.operation, lost.key, lost.value, lost.__cause__) == ("charge", "k", 5, None)


@pytest.mark.parametrize("failure", [ValueError("no"), OutcomeUnknown("charge")])
def test_a_late_failure_is_the_cause(failure):
    """And is not recorded either."""
    _, _, lost = ran(failure, Lost(), None)
    assert isinstance(lost, LeaseLost)
    assert lost.__cause__ is failure


def test_releasing_what_was_lost_raises_the_failure_itself():
    """There was nothing to be recorded."""
    failure = ConnectionError()
    assert ran(failure, Lost())[-1] is failure


# --- a store that is away -------------------------------------------------------------------------


def test_a_value_that_could_not_be_recorded_says_that_it_ran():
    """The caller hears of the store, and that the call may be made again."""
    away = StoreUnavailable("sqlite:///a.db", "write", "database is locked")
    step, end = ran(Returned(5), away, lease=12.0)
    assert settled(step)[0] is RecordState.SUCCEEDED
    assert end is away
    (note,) = away.__notes__
    assert "charge ran and returned" in note
    assert "12 s" in note


def test_a_final_failure_that_could_not_be_recorded_raises_the_stores_error():
    """As a value does, because it would have been replayed; the failure is the cause."""
    failure = ValueError("no")
    away = StoreUnavailable("sqlite:///a.db", "write", "database is locked")
    step, end = ran(failure, away)
    assert settled(step)[0] is RecordState.FAILED
    assert (end, end.__cause__) == (away, failure)
    assert "charge ran and raised ValueError" in away.__notes__[0]


@pytest.mark.parametrize(
    "failure",
    [ConnectionError(), OutcomeUnknown("charge"), KeyboardInterrupt()],
    ids=lambda failure: type(failure).__name__,
)
def test_a_store_that_is_away_hides_no_failure(failure):
    """Least of all a cancellation."""
    _, end = ran(failure, AWAY)
    assert end is failure
    (note,) = failure.__notes__
    assert "database is locked" in note
