"""The flow of a run: what it asks for, what it writes, and what follows from each outcome."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.base.change import KEEP
from mainstay.core.pipeline.commands import Begin, Lost, Review, Take
from mainstay.core.pipeline.definition import PipelineDefinition
from mainstay.core.pipeline.flow import EmitRun, RunStage, WriteRun, run_flow
from mainstay.core.pipeline.outcome import StageOutcome
from mainstay.core.pipeline.record import reduce
from mainstay.core.pipeline.state import HALTED, SUCCEEDED, decode
from mainstay.core.pipeline.view import view_of
from mainstay.errors import (
    CircuitOpenError,
    DeadlineExceeded,
    GovernanceBlocked,
    OutcomeUnknown,
    SchemaValidationError,
)
from tests.core.pipeline.test_definition import stage

DEFINITION = PipelineDefinition("etl", [stage("poll"), stage("load", after="poll")])


class Store:
    """One record, as a store would keep it."""

    def __init__(self, definition=DEFINITION):
        self.definition, self.value, self.now, self.events = definition, None, 0.0, []

    def step(self, command):
        self.now += 1.0
        change, answer = reduce(self.value, command, self.now)
        self.value = self.value if change is KEEP else change.value
        return answer

    def begin(self):
        first = self.definition.stages[0].name
        return self.step(Begin("me", "etl", "r", self.definition.shape, "f", b"null", first, 9.0))

    def take(self):
        return self.step(Take("me2", self.definition.shape, 9.0, 5))

    def drive(self, record, outcomes):
        """Runs the flow with these outcomes by stage; the stages that were called, and the end."""
        flow, called, answer = run_flow(self.definition, record, 9.0), [], None
        try:
            while True:
                effect = flow.send(answer)
                answer = None
                if isinstance(effect, RunStage):
                    called.append(effect.stage)
                    answer = outcomes.get(effect.stage) or StageOutcome(
                        stage=effect.stage, attempts=1
                    )
                elif isinstance(effect, WriteRun):
                    answer = self.step(effect.command)
                else:
                    assert isinstance(effect, EmitRun)
                    self.events.append(effect.event.event_type)
        except StopIteration as end:
            return called, end.value

    @property
    def record(self):
        return decode(self.value)

    @property
    def kinds(self):
        return [e.kind for e in self.record.retries], [e.kind for e in self.record.versions]


def failed(error, attempts=1, **fields):
    return StageOutcome(stage="poll", error=error, attempts=attempts, text="no", **fields)


def run(**outcomes):
    store = Store()
    called, end = store.drive(store.begin().record, outcomes)
    return store, called, end


def test_a_run_that_succeeds():
    """Every stage once, in order; nothing in the retry log."""
    store, called, end = run()
    assert (called, store.record.state, end.is_lost) == (["poll", "load"], SUCCEEDED, False)
    assert store.kinds == ([], ["began", "completed"])
    assert store.events == ["pipeline_ended"]
    assert store.record.writes == 2


def test_a_stage_that_was_retried():
    """It has an entry with attempts, classes and the call."""
    retried = StageOutcome(
        stage="poll", attempts=3, error_classes=("HTTP_503", "HTTP_503"), call_id="7f", masking=2
    )
    store, _, _ = run(poll=retried)
    assert store.kinds == (["retried"], ["began", "masked", "completed"])
    (entry,) = store.record.retries
    assert (entry.attempts, entry.error_classes, entry.call_id) == (3, ("HTTP_503",) * 2, "7f")


@pytest.mark.req("PL-03")
@pytest.mark.parametrize(
    ("outcome", "cause", "retries", "versions"),
    [
        (failed(SchemaValidationError("no")), "fail_fast", ["failed_fast"], ["quarantined"]),
        (failed(KeyError("no")), "fail_fast", ["failed_fast"], ["quarantined"]),
        (failed(OSError("no"), 5, retryable=True), "exhausted", ["exhausted"], []),
        (failed(DeadlineExceeded(3.0), 2), "exhausted", ["exhausted"], []),
        (failed(CircuitOpenError("etl.poll", "open", 9.0), 0), "refused", ["refused"], []),
        (failed(OutcomeUnknown("etl.poll")), "unknown", ["unknown"], []),
        (
            failed(OSError("no"), 1, retryable=True, is_probe_failed=True, circuit_open=True),
            "exhausted", ["probe_failed"], [],
        ),
        (failed(GovernanceBlocked("no"), 0), "fail_fast", ["failed_fast"], ["quarantined"]),
        (
            failed(GovernanceBlocked("no"), 1, is_retry=True), "fail_fast", ["failed_fast"],
            ["quarantined", "escalated"],
        ),
        (
            failed(GovernanceBlocked("no"), 0, is_rerun=True), "fail_fast", ["failed_fast"],
            ["quarantined", "escalated"],
        ),
    ],
)  # fmt: skip
def test_what_follows_from_a_failure(outcome, cause, retries, versions):
    """Halt, quarantine and both ledgers by the cause; no later stage is called."""
    store, called, end = run(poll=outcome)
    assert called == ["poll"]
    assert end.outcome is outcome
    assert (store.record.state, store.record.halt.cause) == (HALTED, cause)
    assert store.kinds == (retries, ["began", "halted", *versions])
    assert store.record.is_held == ("quarantined" in versions)
    assert store.events[0] == "pipeline_halted"
    assert ("governance_escalated" in store.events) == ("escalated" in versions)


def test_the_class_that_is_shown():
    """That of the last failure as telemetry has it, or of the exception."""
    store, _, _ = run(poll=failed(OSError("no"), error_classes=("HTTP_500", "HTTP_503")))
    assert store.record.halt.error_class == "HTTP_503"
    store, _, _ = run(poll=failed(OSError("no")))
    assert store.record.halt.error_class == "OSError"


def test_it_is_resumed_where_it_stopped():
    """What is done is not called again; the halted stage is begun before it is called."""
    store = Store()
    broken = {"load": StageOutcome(stage="load", error=OSError("no"), attempts=5, retryable=True)}
    store.drive(store.begin().record, broken)
    assert store.record.halt.stage == "load"
    called, _ = store.drive(store.take().record, {})
    assert called == ["load"]
    assert store.record.state is SUCCEEDED
    assert store.events == ["pipeline_halted", "pipeline_resumed", "pipeline_ended"]
    assert store.record.stages["load"].attempts == 6
    view = view_of(store.record)
    assert (view.state, view.resumes, view.ended is None) == ("succeeded", 1, False)
    assert [each.status for each in view.stages] == ["done", "done"]


def test_a_pipeline_whose_last_stage_was_removed():
    """Nothing is left to do: the run is completed."""
    store = Store()
    broken = {"load": StageOutcome(stage="load", error=OSError("no"), attempts=5, retryable=True)}
    store.drive(store.begin().record, broken)
    store.definition = PipelineDefinition("etl", [stage("poll")])
    called, _ = store.drive(store.take().record, {})
    assert (called, store.record.state) == ([], SUCCEEDED)
    assert store.kinds[1][-1] == "completed"


def test_a_run_that_was_taken_over():
    """What this process would write is another's: it ends, and writes nothing."""
    store = Store()
    record = store.begin().record
    flow = run_flow(DEFINITION, record, 9.0)
    assert flow.send(None) == RunStage("poll")
    assert isinstance(flow.send(StageOutcome(stage="poll", attempts=1)), WriteRun)
    with pytest.raises(StopIteration) as end:
        flow.send(Lost())
    assert end.value.value.is_lost
    store.drive(record, {"poll": failed(OSError("no"), retryable=True)})
    flow = run_flow(DEFINITION, store.take().record, 9.0)
    assert isinstance(flow.send(None), EmitRun)
    assert isinstance(flow.send(None), WriteRun)
    with pytest.raises(StopIteration):
        flow.send(Lost())


def test_the_view_of_a_halted_run():
    """Its stages, those that were not begun too, and why it is halted."""
    store, _, _ = run(poll=failed(SchemaValidationError("no"), datasets=("d-7",)))
    view = view_of(store.record, 3.0)
    assert (view.state, view.halted_at, view.cause) == ("halted", "poll", "fail_fast")
    assert (view.quarantine, view.quarantine_status, view.is_leased) == (("d-7",), "held", True)
    assert [(each.name, each.status) for each in view.stages] == [
        ("poll", "failed"), ("load", "pending"),
    ]  # fmt: skip
    assert view.to_dict()["why"] == "SchemaValidationError: no"
    occasion = store.record.halt.occasion
    store.step(Review("release", occasion, "t", "ann", "repaired"))
    assert view_of(store.record).quarantine_status == "released"


@given(st.lists(st.sampled_from(["ok", "transient", "schema"]), max_size=6))
def test_a_run_ends_whatever_happens(moves):
    """With resumption and review after each failure, no done stage is called twice."""
    store, done = Store(), []
    record = store.begin().record
    for move in [*moves, "ok"]:
        errors = {"transient": OSError("no"), "schema": SchemaValidationError("no")}
        name = "load" if "poll" in done else "poll"
        bad = StageOutcome(stage=name, error=errors.get(move), retryable=move == "transient")
        called, end = store.drive(record, {} if move == "ok" else {name: bad})
        assert not set(called) & set(done)
        done += called if move == "ok" else called[:-1]
        if store.record.state is SUCCEEDED:
            break
        if store.record.state is HALTED:
            store.step(Review("release", store.record.halt.occasion, str(len(done)), "a", ""))
            store.step(
                Review("release", store.record.halt.occasion, move + str(store.now), "a", "")
            )
        record = store.take().record
    assert store.record.state is SUCCEEDED
    assert end.outcome is None or end.outcome.error is None
