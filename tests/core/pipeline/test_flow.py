"""The flow of a run: what it asks for, what it writes, and what follows from each outcome."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.base.change import KEEP
from mainstay.core.pipeline.commands import Begin, Close, Done, Lost, Review, Take
from mainstay.core.pipeline.definition import PipelineDefinition
from mainstay.core.pipeline.flow import EmitRun, RunStages, WriteRun, first_of, run_flow
from mainstay.core.pipeline.outcome import StageOutcome
from mainstay.core.pipeline.record import reduce
from mainstay.core.pipeline.state import HALTED, RUNNING, SUCCEEDED, decode
from mainstay.core.pipeline.view import damaged_view, view_of
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

    def __init__(self, definition=DEFINITION, most=1):
        self.definition, self.value, self.now, self.events = definition, None, 0.0, []
        self.most, self.widest, self.states = most, 0, []

    def step(self, command):
        self.now += 1.0
        change, answer = reduce(self.value, command, self.now)
        self.value = self.value if change is KEEP else change.value
        return answer

    def begin(self):
        first = first_of(self.definition, self.most)
        return self.step(Begin("me", "etl", "r", self.definition.shape, "f", b"null", first, 9.0))

    def take(self):
        return self.step(Take("me2", self.definition.shape, 9.0, 5))

    def drive(self, record, outcomes):
        """Runs the flow with these outcomes by stage; the stages that were called, and the end."""
        flow, called, answer = run_flow(self.definition, record, 9.0, self.most), [], None
        under_way = []
        try:
            while True:
                effect = flow.send(answer)
                answer = None
                if isinstance(effect, RunStages):
                    called += effect.stages
                    under_way += effect.stages
                    self.widest = max(self.widest, len(under_way))
                    name = under_way.pop(self.which(len(under_way)))
                    answer = outcomes.get(name) or StageOutcome(stage=name, attempts=1)
                elif isinstance(effect, WriteRun):
                    answer = self.step(effect.command)
                    self.states.append(self.record.state)
                else:
                    assert isinstance(effect, EmitRun)
                    self.events.append(effect.event.event_type)
        except StopIteration as end:
            return called, end.value

    def which(self, count):
        """Which of the stages under way ends first."""
        return count - 1

    @property
    def record(self):
        return decode(self.value)

    @property
    def kinds(self):
        return [e.kind for e in self.record.retries], [e.kind for e in self.record.versions]


def failed(error, attempts=1, stage="poll", **fields):
    return StageOutcome(stage=stage, error=error, attempts=attempts, text="no", **fields)


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
    assert flow.send(None) == RunStages(("poll",))
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


# --- stages at the same time ----------------------------------------------------------------------

WIDE = PipelineDefinition(
    "etl",
    [stage("a"), stage("b"), stage("c"), stage("d", after="a"), stage("e", after=("b", "d"))],
)


def test_independent_stages_run_at_the_same_time():
    """As many as are allowed, each after those it needs, one write for each that ends."""
    for most, widest, called in [
        (1, 1, ["a", "b", "c", "d", "e"]),
        (2, 2, ["a", "b", "c", "d", "e"]),
        (9, 3, ["a", "b", "c", "d", "e"]),
    ]:
        store = Store(WIDE, most)
        found, _ = store.drive(store.begin().record, {})
        assert (sorted(found), store.widest) == (called, widest)
        assert store.record.state is SUCCEEDED
        assert store.record.writes == len(store.states) == 5
        assert store.kinds == ([], ["began", "completed"])


def test_a_failure_begins_no_stage_and_waits_for_those_under_way():
    """The halt is written at once; the run is halted once the last of them has ended."""
    store = Store(WIDE, 3)
    store.which = lambda count: 0
    broken = {
        "a": failed(SchemaValidationError("no"), stage="a", datasets=("d-1",), names=("d-1",))
    }
    called, end = store.drive(store.begin().record, broken)
    assert (called, end.outcome.stage) == (["a", "b", "c"], "a")
    assert store.states == [RUNNING, RUNNING, HALTED]
    assert store.kinds == (["failed_fast"], ["began", "halted", "quarantined"])
    assert {name: each.status for name, each in store.record.stages.items()} == {
        "a": "failed", "b": "done", "c": "done",
    }  # fmt: skip


def test_two_that_fail_at_the_same_time():
    """Each is in the ledgers; the halt is the graver one, and all data sets are held."""
    store = Store(WIDE, 3)
    store.which = lambda count: 0
    broken = {
        "a": failed(OSError("no"), stage="a", retryable=True),
        "b": failed(SchemaValidationError("no"), stage="b", datasets=("d-1",), names=("d-1",)),
        "c": failed(
            GovernanceBlocked("no"), stage="c", datasets=("d-2",), names=("[2]",), is_rerun=True,
            care_labels=("CARE-A",),
        ),
    }  # fmt: skip
    called, end = store.drive(store.begin().record, broken)
    assert (end.outcome.stage, [each.stage for each in end.others]) == ("a", ["b", "c"])
    assert store.kinds[0] == ["exhausted", "failed_fast", "failed_fast"]
    assert store.kinds[1].count("quarantined") == 2
    record = store.record
    assert (record.halt.stage, record.halt.occasion, record.state) == ("b", "1.0", HALTED)
    held = record.quarantine
    assert (set(held.datasets), set(held.shown)) == ({"d-1", "d-2"}, {"d-1", "[2]"})
    assert (held.is_escalated, held.is_blocked, held.care_labels) == (True, False, ("CARE-A",))
    store.step(Review("release", record.halt.occasion, "t", "ann", ""))
    called, _ = store.drive(store.take().record, {})
    assert sorted(called) == ["a", "b", "c", "d", "e"]
    assert store.record.state is SUCCEEDED


def test_a_process_that_is_gone_after_it_has_written_a_halt():
    """It counts as halted then, and nothing that was begun beside it is forgotten."""
    store = Store(WIDE, 2)
    store.which = lambda count: 0
    flow = run_flow(WIDE, store.begin().record, 9.0, 2)
    assert flow.send(None) == RunStages(("a", "b"))
    write = flow.send(failed(SchemaValidationError("no"), stage="a"))
    store.step(write.command)
    assert (store.record.state, store.record.halt.stage) == (RUNNING, "a")
    assert isinstance(store.step(Close()), Lost)
    store.now += 99.0
    assert isinstance(store.step(Close()), Done)
    assert isinstance(store.step(Close()), Lost)
    assert (store.record.state, store.record.is_held) == (HALTED, True)
    taken = store.step(Take("me2", WIDE.shape, 9.0, 5, ("b",)))
    assert (
        "stage b, which may have happened; stage a: SchemaValidationError" in taken.record.halt.text
    )
    assert "in quarantine" in taken.why
    store.step(Review("release", store.record.halt.occasion, "t", "ann", ""))
    called, _ = store.drive(store.take().record, {})
    assert sorted(called) == ["a", "b", "c", "d", "e"]


@given(st.integers(1, 4), st.lists(st.integers(0, 9)), st.sets(st.sampled_from("abcde")))
def test_any_order_of_ends_leads_to_the_same_run(most, order, broken):
    """Whatever ends first: after resumption each stage was done once, after those it needs."""
    store, done, draws = Store(WIDE, most), [], iter([*order, *[0] * 99])
    store.which = lambda count: next(draws) % count
    record = store.begin().record
    for bad in (broken, ()):
        outcomes = {name: failed(OSError("no"), stage=name, retryable=True) for name in bad}
        called, _ = store.drive(record, outcomes)
        for name in called:
            assert set(next(x for x in WIDE.stages if x.name == name).after) <= set(done) | set(
                called
            )
        assert not set(called) & set(done)
        done += [name for name in called if name not in bad]
        assert store.widest <= most
        if store.record.state is SUCCEEDED:
            break
        record = store.take().record
    assert sorted(done) == ["a", "b", "c", "d", "e"]
    assert store.kinds[1][-1] == "completed"


def test_what_fails_with_a_restricted_data_set_is_for_the_council():
    """To go on would be to give it again; what ran out of attempts is looked at by the gate."""
    assert failed(SchemaValidationError("no"), is_given=True).is_conflict
    assert not failed(OSError("no"), is_given=True, retryable=True).is_conflict
    store, _, _ = run(poll=failed(SchemaValidationError("no"), is_given=True, council=("ann",)))
    assert store.kinds[1][-1] == "escalated"
    assert (store.record.quarantine.is_escalated, store.record.council) == (True, ("ann",))


def test_the_view_of_a_damaged_run():
    """Its address is all that is known of it."""
    view = damaged_view("etl/a/b", "cut off")
    assert (view.pipeline_id, view.run_id, view.state, view.why) == (
        "etl",
        "a/b",
        "damaged",
        "cut off",
    )


def test_a_stage_that_ends_before_it_began():
    """If the clock of the store was set back meanwhile, it took no time, and no less."""
    store = Store()
    record = store.begin().record
    store.now = -3600.0
    store.drive(record, {})
    assert [each.seconds for each in view_of(store.record).stages] == [0.0, 1.0]
