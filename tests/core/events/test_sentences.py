"""Every event as one line of a log."""

import pytest
from msgspec.structs import replace

from mainstay import events
from mainstay.core.base.event import Event
from mainstay.core.events.catalogue import CATALOGUE

FAILED = {"exception_type": "OSError", "exception_message": "no route"}
GAVE_UP = {
    "total_seconds": 1.5, "reason": "no attempt left", "final_exception_type": "OSError",
    "final_exception_message": "no route",
}  # fmt: skip
ALERT = {"alert": "storm", "metric": "failure_rate", "value": 0.51234, "threshold": 0.5}
ITEM = {"item": "3f2a", "item_kind": "exhausted"}
MESSAGE = {"message": "8d0f", "topic": "user.created.v1"}
SENTENCES = [
    (
        events.OutboxRetry(attempt_number=1, delay_seconds=1.5, reason="no route", **MESSAGE),
        "pay: message 8d0f (user.created.v1) failed at attempt 1; the next is in 1.5 s: no route",
    ),
    (
        events.OutboxDead(total_attempts=4, reason="OSError: no route", **MESSAGE),
        "pay: message 8d0f (user.created.v1) is dead after 4 attempts: OSError: no route",
    ),
    (
        events.OutboxReplayed(operator="ann", is_out_of_order=True, **MESSAGE),
        "pay: message 8d0f (user.created.v1) was replayed by ann, out of order",
    ),
    (
        events.OutboxReplayed(**MESSAGE),
        "pay: message 8d0f (user.created.v1) was replayed by unnamed",
    ),
    (
        events.OutboxDiscarded(operator="ann", why="a test", **MESSAGE),
        "pay: message 8d0f (user.created.v1) was discarded by ann: a test",
    ),
    (
        events.OutboxDiscarded(**MESSAGE),
        "pay: message 8d0f (user.created.v1) was discarded by unnamed",
    ),
    (
        events.OutboxPurged(purged=7, older_than_seconds=604800.0),
        "pay: 7 messages that ended more than 604800 s ago were deleted",
    ),
    (
        events.OutboxLeaseLost(**MESSAGE),
        (
            "pay: message 8d0f (user.created.v1) was taken over by another worker, because its"
            " lease had run out; it may be published twice, with the same id"
        ),
    ),
    (
        events.AttemptFailed(
            attempt_number=1, max_attempts=3, kind="transient", reason="retry_on: OSError", **FAILED
        ),
        "pay: attempt 1 of 3 failed (transient; retry_on: OSError): OSError: no route",
    ),
    (
        events.RetryAttempt(attempt_number=1, max_attempts=3, delay_seconds=0.25, **FAILED),
        "pay: attempt 1 of 3 failed with OSError: no route; next in 0.250 s",
    ),
    (
        events.RetryExhausted(total_attempts=3, **GAVE_UP),
        "pay: gave up after 3 attempts in 1.500 s (no attempt left): OSError: no route",
    ),
    (
        events.CallFailed(total_attempts=1, **GAVE_UP),
        "pay: gave up after 1 attempt in 1.500 s (no attempt left): OSError: no route",
    ),
    (
        events.CallSucceeded(total_attempts=2, total_seconds=0.5),
        "pay: succeeded on attempt 2 after 0.500 s",
    ),
    (
        events.CallInterrupted(total_attempts=2, by="KeyboardInterrupt"),
        "pay: cancelled by KeyboardInterrupt after 2 attempt(s)",
    ),
    (
        events.HookFailed(hook="before_retry", **FAILED),
        "pay: before_retry raised OSError: no route",
    ),
    (events.CallRefused(by="CircuitOpenError", reason="it is open"), "pay: not called; it is open"),
    (
        events.AttemptHedged(waited_seconds=0.2, hedge_number=1),
        "pay: no answer after 0.200 s, hedge 1 started",
    ),
    (events.FallbackUsed(**FAILED), "pay: the fallback answered for OSError: no route"),
    (
        events.PlanDeclared(plan="ab12", fields={"name": "api", "max_attempts": 5}),
        "pay: by the policy 'api' from here on: 5 attempts at most (plan ab12)",
    ),
    (events.CallsCounted(calls=7000), "pay: 7,000 calls succeeded at once"),
    (
        events.CircuitStateChanged(from_state="closed", to_state="open", reason="failed"),
        "pay: circuit closed -> open (failed)",
    ),
    (
        events.CircuitOrdered(order="reset", operator="ann", why="it is back"),
        "pay: ann ordered the circuit to reset: it is back",
    ),
    (
        events.CircuitCall(outcome="failed", state="open", exception_type="OSError"),
        "pay: a call failed with OSError; the circuit is open",
    ),
    (
        events.CircuitCall(outcome="refused", state="open"),
        "pay: a call was refused; the circuit is open",
    ),
    (events.CircuitOrdered(order="reset", operator="ann"), "pay: ann ordered the circuit to reset"),
    (
        events.Idempotency(idempotency_key="o-7", action="record"),
        "pay: its outcome is kept under the key 'o-7'",
    ),
    (
        events.Idempotency(idempotency_key="o-7", action="hit"),
        "pay: answered from the record of the key 'o-7'",
    ),
    (
        events.LeaseExpired(idempotency_key="o-7", lease=30.0),
        "pay: the lease of 30 s of the key 'o-7' ran out while it ran; another call may take over",
    ),
    (
        events.LeaseExpired(idempotency_key="o-7", lease=30.0, taken=True),
        "pay: the lease of 30 s of the key 'o-7' ran out while it ran; another call has taken over",
    ),
    (
        events.InboxRaised(severity="high", text="gave up", **ITEM),
        "pay: a person must decide (exhausted, high, 3f2a): gave up",
    ),
    (
        events.InboxDecided(decision="retry", operator="ann", why="it is back", **ITEM),
        "pay: ann decided retry on exhausted 3f2a: it is back",
    ),
    (
        events.InboxDecided(decision="retry", operator="ann", **ITEM),
        "pay: ann decided retry on exhausted 3f2a",
    ),
    (
        events.InboxClosed(decision="retry", operator="ann", result="released", **ITEM),
        "pay: retry of exhausted 3f2a was carried out: released",
    ),
    (
        events.InboxClosed(result="it was replayed by ben", **ITEM),
        "pay: exhausted 3f2a was closed: it was replayed by ben",
    ),
    (
        events.OperatorRefused(operator="eve", about="act", reason="the name is locked"),
        "pay: eve was refused (act): the name is locked",
    ),
    (events.OperatorAdded(operator="ann"), "pay: ann was added"),
    (events.OperatorAdded(operator="bob", authorised_by="ann"), "pay: bob was added by ann"),
    (
        events.OperatorChanged(operator="bob", change="disabled", authorised_by="ann"),
        "pay: bob was disabled by ann",
    ),
    (
        events.OperatorChanged(operator="the identity of the store", change="renewed"),
        "pay: the identity of the store was renewed",
    ),
    (
        events.SagaStepFailed(saga_id="t-1", step="credit", **FAILED),
        "pay: saga t-1: step credit failed: OSError: no route",
    ),
    (
        events.SagaStepFailed(saga_id="t-1", step="credit", in_doubt=True, **FAILED),
        "pay: saga t-1: step credit failed, and may have happened: OSError: no route",
    ),
    (
        events.SagaStepUndone(saga_id="t-1", step="debit", success=True),
        "pay: saga t-1: step debit is undone",
    ),
    (
        events.SagaStepUndone(saga_id="t-1", step="debit", **FAILED),
        "pay: saga t-1: step debit could not be undone: OSError: no route",
    ),
    (
        events.EffectPartiallyFailed(effect_key="u-1", **FAILED),
        "pay: u-1 failed after a part of it was applied: OSError: no route",
    ),
    (events.EffectCompensated(effect_key="u-1", success=True), "pay: u-1 is compensated"),
    (
        events.EffectCompensated(effect_key="u-1", is_undone=True, **FAILED),
        "pay: u-1 is not compensated: its compensating event was not published: OSError: no route",
    ),
    (
        events.EffectCompensated(effect_key="u-1", **FAILED),
        "pay: u-1 is not compensated: it is not undone: OSError: no route",
    ),
    (
        events.SagaRecovered(saga_id="t-1", state="running", recoveries=2),
        "pay: saga t-1: recovered while running (recovery 2)",
    ),
    (
        events.SagaStuck(saga_id="t-1", text="step notify failed behind the pivot"),
        "pay: saga t-1: stuck: step notify failed behind the pivot",
    ),
    (events.SagaEnded(saga_id="t-1", state="compensated"), "pay: saga t-1: compensated"),
    (
        events.PipelineRunHalted(
            run_id="r-1",
            stage="poll",
            cause="fail_fast",
            total_attempts=1,
            datasets=["d-7"],
            **FAILED,
        ),
        (
            "pay: run r-1: halted at stage poll (fail_fast) after 1 attempts: OSError: no route;"
            " in quarantine: d-7"
        ),
    ),
    (
        events.PipelineRunHalted(
            run_id="r-1", stage="poll", cause="exhausted", total_attempts=5, **FAILED
        ),
        "pay: run r-1: halted at stage poll (exhausted) after 5 attempts: OSError: no route",
    ),
    (
        events.PipelineRunResumed(run_id="r-1", stage="poll", resumes=1),
        "pay: run r-1: resumed at stage poll",
    ),
    (events.PipelineRunEnded(run_id="r-1", stages=3), "pay: run r-1: 3 stages are done"),
    (
        events.GovernanceEscalated(run_id="r-1", datasets=["d-7"], text="it is blocked"),
        "pay: run r-1: escalated to the council: d-7: it is blocked",
    ),
    (
        events.AlertFired(window_seconds=60.0, **ALERT),
        "pay: alert storm fired: failure_rate is 0.5123, threshold 0.5, over 60 s",
    ),
    (
        events.AlertCleared(lasted_seconds=90.4, group="eu", **ALERT),
        "pay: alert storm cleared after 90 s: failure_rate is 0.5123",
    ),
    (
        events.RecordsLost(
            records=1200,
            first_at="13:14:58Z",
            last_at="13:14:59Z",
            reason="the disk is full",
        ),
        "pay: 1,200 records were lost from 13:14:58Z to 13:14:59Z: the disk is full",
    ),
]


@pytest.mark.parametrize(("event", "sentence"), SENTENCES, ids=lambda each: str(each)[:40])
def test_an_event_is_one_line_of_a_log(event, sentence):
    """With its operation first, and what an operator needs to act."""
    assert replace(event, operation="pay").sentence() == sentence


@pytest.mark.parametrize(
    ("event", "start"),
    [
        (events.AlertFired(group="eu", **ALERT), "eu: alert storm"),
        (events.AlertFired(**ALERT), "everything: alert storm"),
        (events.PlanDeclared(plan="ab12"), "by the policy '' from here on: ? attempts"),
        (events.RecordsLost(records=3), "audit log: 3 records were lost"),
    ],
    ids=["alert of a group", "alert", "plan", "lost records"],
)
def test_an_event_without_an_operation_begins_with_its_subject(event, start):
    """An alert may be of all operations, and a plan of several."""
    assert event.sentence().startswith(start)


def test_every_event_has_a_sentence_here():
    """An event that is added is read once by a person."""
    assert {type(event) for event, _ in SENTENCES} == set(CATALOGUE.values())


def test_an_event_without_a_wording_of_its_own_has_its_name():
    """So a listener can print any event."""
    assert Event.sentence(events.CallsCounted(operation="pay")) == "pay: calls_counted"


@pytest.mark.parametrize(
    ("event", "level"),
    [
        (events.SagaStepUndone(success=True), "INFO"),
        (events.SagaStepUndone(), "ERROR"),
        (events.EffectCompensated(success=True), "INFO"),
        (events.EffectCompensated(), "ERROR"),
        (events.SagaEnded(state="succeeded"), "DEBUG"),
        (events.SagaEnded(state="compensated"), "WARNING"),
    ],
)
def test_a_saga_is_logged_by_what_it_came_to(event, level):
    """A success is no news; a compensation is, and one that failed is an error."""
    assert event.logged_at == level
