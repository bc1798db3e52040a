"""Pipelines: gates, halts, quarantine, ledgers, breakers, resumption; on an engine with a store."""

import asyncio
import json
import sqlite3
import threading

import pytest

import mainstay
from mainstay import BreakerSettings, Engine, MainstayWarning
from mainstay.core.inbox.items import Item
from mainstay.core.pipeline.ledger_file import encode
from mainstay.errors import (
    AttemptTimeout,
    CircuitOpenError,
    Conflict,
    LedgerError,
    OutcomeUnknown,
    PayloadMismatch,
    PolicyError,
    StoreError,
    UsageError,
)
from mainstay.profiles.pipelines import (
    DatasetRule,
    Governance,
    GovernanceBlocked,
    GovernanceRules,
    GovernanceViolation,
    Pipeline,
    PipelineHalted,
    RetryForbidden,
    SchemaValidationError,
    Stage,
    StageContext,
    read_ledger,
    read_telemetry,
)
from tests.profiles.pipelines.places import (
    Down,
    Flaky,
    decide,
    operator,
    stage,
)

# --- the gate of idempotency ----------------------------------------------------------------------


@pytest.mark.req("PL-06")
def test_undeclared_idempotency_is_an_error_before_any_call():
    """The stage cannot be made, so nothing can call it."""
    called = []
    with pytest.raises(UsageError, match="does not state how safe repeating it is"):
        Stage("load", lambda: called.append(1))
    with pytest.raises(RetryForbidden, match="non-idempotent"):
        Stage("pay", lambda: called.append(1), idempotency="unsafe")
    with pytest.raises(UsageError, match="no key"):
        Stage("load", lambda: called.append(1), idempotency="keyed")
    assert called == []


@pytest.mark.req("PL-06")
def test_an_unsafe_stage_is_called_once(place):
    """A failure that would be retried halts the run; what may have happened asks a person."""
    pay = Flaky(Down(503))
    with place.engine() as engine:
        unsafe = stage("pay", pay, idempotency="unsafe", max_attempts=1)
        pipeline = place.pipeline(engine, unsafe)
        with pytest.raises((Down, OutcomeUnknown)):
            pipeline.run(run_id="r")
        assert pay.calls == 1


@pytest.mark.req("PL-06")
def test_a_keyed_stage_has_one_result_for_its_key(place):
    """A second run with the same key gets the first result, and the stage sees the key."""
    keys = []

    def load(ctx):
        keys.append(ctx.idempotency_key)
        return len(keys)

    with place.engine() as engine:
        keyed = stage("load", load, idempotency="keyed", idempotency_key="day-7")
        pipeline = place.pipeline(engine, keyed)
        assert [pipeline.run().results["load"] for _ in range(2)] == [1, 1]
        assert keys == ["day-7"]
        by_run = stage("load", load, idempotency="keyed", idempotency_key="{run_id}-{stage}")
        place.pipeline(engine, by_run, name="other").run(run_id="a")
        own = stage("load", load, idempotency="keyed", idempotency_key=lambda ctx: ctx.input)
        place.pipeline(engine, own, name="third").run("k-9")
    assert keys == ["day-7", "a-load", "k-9"]


@pytest.mark.req("PL-06")
@pytest.mark.parametrize("ends", [KeyboardInterrupt, SystemExit])
def test_a_keyed_stage_whose_process_ended_in_it_runs_again(place, ends):
    """The exception from the default of `on_crash`: a run resumes under the same key."""
    keys = []

    def load(ctx):
        keys.append(ctx.idempotency_key)
        if len(keys) == 1:
            raise ends
        return "loaded"

    with place.engine() as engine:
        keyed = stage("load", load, idempotency="keyed", idempotency_key="day-7")
        pipeline = place.pipeline(engine, keyed)
        with pytest.raises(ends):
            pipeline.run(run_id="r")
        engine.pipelines.close()
        assert pipeline.resume("r").results["load"] == "loaded"
        assert keys == ["day-7", "day-7"]
        assert list(engine.inbox) == []


@pytest.mark.req("PL-06")
def test_a_stage_guarded_by_outbox_and_state_store(place):
    """Effect, message and record are one transaction: an attempt that fails leaves nothing."""
    database = place.folder / "runs.db"

    def connect():
        return sqlite3.connect(database)

    failures = [Down(503), Down(503)]

    def load(ctx):
        ctx.connection.execute("CREATE TABLE IF NOT EXISTS rows (id TEXT)")
        ctx.connection.execute("INSERT INTO rows VALUES (?)", (ctx.idempotency_key,))
        ctx.publish("rows.loaded.v1", {"run": ctx.run_id})
        if failures:
            raise failures.pop()
        return "loaded"

    with place.engine() as engine:
        guarded = stage("load", load, idempotency="outbox", connect=connect)
        pipeline = place.pipeline(engine, guarded)
        assert pipeline.run(run_id="r").results["load"] == "loaded"
        sent = []
        engine.outbox.relay(sent.append).drain()
        assert [message.topic for message in sent] == ["rows.loaded.v1"]
        with pytest.raises(UsageError, match="no transaction to publish in"):
            place.pipeline(engine, stage("x", lambda ctx: ctx.publish("t", {})), name="x").run()
    connection = connect()
    assert connection.execute("SELECT count(*) FROM rows").fetchone() == (1,)
    connection.close()


def test_an_outbox_stage_needs_a_store_with_transactions(tmp_path):
    """In memory there is none: it is refused when the pipeline is made."""
    guarded = stage("load", print, idempotency="outbox", connect=print)
    with Engine(sinks=[]) as engine, pytest.raises(StoreError, match="no part in a transaction"):
        Pipeline("etl", [guarded], engine=engine, ledgers=tmp_path, telemetry=tmp_path / "t.json")


# --- retries --------------------------------------------------------------------------------------


@pytest.mark.req("PL-09", "PL-10", "PL-11")
def test_a_stage_that_succeeds_in_the_end(place):
    """Two failures, a success: one ledger entry, three telemetry records, one compliance record."""
    poll = Flaky(Down(503), Down(503), [1, 2])
    with place.engine() as engine:
        pipeline = place.pipeline(
            engine, stage("poll", poll, datasets="d-1", care_labels="CARE-A"),
            governance=GovernanceRules(datasets={"d-1": DatasetRule(care_labels=("CARE-A",))}),
        )  # fmt: skip
        assert pipeline.run(run_id="r").results == {"poll": [1, 2]}
        (record,) = pipeline.compliance()
    assert (record.attempts, record.errors, record.final_status) == (3, ["HTTP_503"] * 2, "success")
    assert (record.stage, record.retry_policy) == ("poll", "exp_full_jitter")
    (entry,) = place.ledger("pipeline_retry_log").entries
    assert (entry.kind, entry.attempts, entry.max_attempts) == ("retried", 3, 5)
    assert (entry.dataset_ids, entry.care_labels) == (("d-1",), ("CARE-A",))
    assert entry.error_classes == ("HTTP_503", "HTTP_503")
    records = read_telemetry(place.telemetry).records
    assert {each.sequence for each in records} == {entry.call_id}
    assert [each.attempt for each in records] == [1, 2, 3]
    assert place.kinds() == (["retried"], ["began", "completed"])


@pytest.mark.req("PL-05")
def test_a_hard_timeout_reaches_what_is_called(tmp_path):
    """The stage knows how long its attempt may take; one that does not care is cut off."""
    seen, gate = [], threading.Event()

    def slow(ctx):
        seen.append(ctx.timeout)
        gate.wait(60)

    with Engine(sinks=[]) as engine:
        options = {"engine": engine, "ledgers": tmp_path, "telemetry": tmp_path / "t.json"}
        cut = stage("slow", slow, timeout=0.2, max_attempts=1)
        with pytest.raises(AttemptTimeout):
            Pipeline("etl", [cut], **options).run(run_id="r")
        gate.set()
        (entry,) = read_ledger(tmp_path / "pipeline_retry_log.json").entries
    assert 0.0 < seen[0] <= 0.2
    assert (entry.kind, entry.retryable) == ("exhausted", True)


@pytest.mark.req("PL-05")
def test_an_expiry_is_judged_by_its_cause(place):
    """A timeout that governance caused is not retried; a slow dependency is."""

    def waits(ctx):
        calls.append(1)
        raise TimeoutError("no consent in time") from GovernanceViolation("consent is missing")

    calls, slow = [], Flaky(TimeoutError("slow"))
    with place.engine() as engine:
        with pytest.raises(TimeoutError):
            place.pipeline(engine, stage("waits", waits)).run()
        assert place.pipeline(engine, stage("slow", slow), name="b").run().results["slow"] == "done"
    assert (len(calls), slow.calls) == (1, 2)
    assert place.kinds()[0] == ["failed_fast", "retried"]


# --- what fails fast ------------------------------------------------------------------------------


@pytest.mark.req("PL-02", "PL-03")
@pytest.mark.parametrize(
    "cls",
    ["SchemaValidationError", "GovernanceViolation", "LineageMismatch", "ImmutabilityViolation",
     "LicenseViolation", "GovernanceBlocked"],
)  # fmt: skip
def test_a_forbidden_class_halts_quarantines_and_is_in_the_ledgers(place, cls):
    """One call; the run is halted, its data sets are held, and both ledgers have it."""
    check = Flaky(getattr(mainstay, cls)("row 7"), getattr(mainstay, cls)("row 7"))
    after = Flaky()
    with place.engine() as engine:
        pipeline = place.pipeline(
            engine, stage("check", check, datasets=["d-1"]), stage("load", after, after="check")
        )
        with pytest.raises(getattr(mainstay, cls), match="row 7") as caught:
            pipeline.run(run_id="r")
        assert "is halted at stage check; inbox item" in caught.value.__notes__[-1]
        view = pipeline.get("r")
        assert (view.state, view.cause, view.quarantine) == ("halted", "fail_fast", ("d-1",))
        (item,) = engine.inbox
        assert (item.kind, item.data["datasets"]) == ("quarantine", ["d-1"])
    assert (check.calls, after.calls) == (1, 0)
    assert place.kinds() == (["failed_fast"], ["began", "halted", "quarantined"])
    assert place.events[-2].event_type in ("pipeline_halted", "inbox_raised")


@pytest.mark.req("PL-12.runtime")
def test_a_policy_cannot_allow_a_forbidden_class(place):
    """A retry_on that covers everything retries no schema failure."""
    check = Flaky(SchemaValidationError("row 7"), SchemaValidationError("row 7"))
    everything = Stage("x", print, idempotency="idempotent").policy.replace(retry_on=(Exception,))
    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("check", check, policy=everything))
        with pytest.raises(SchemaValidationError):
            pipeline.run()
    assert check.calls == 1


@pytest.mark.req("PL-08")
def test_a_halted_run_is_repaired_reviewed_and_resumed(place):
    """Resumed where it stopped, once a person has released it; in another process too."""
    poll, check = Flaky([1, 2]), Flaky(SchemaValidationError("row 7"), "checked")
    stages = [stage("poll", poll), stage("check", check, after="poll", datasets="d-1")]
    with place.engine() as engine:
        with pytest.raises(SchemaValidationError):
            place.pipeline(engine, *stages).run(run_id="r")
        with pytest.raises(PipelineHalted, match="in quarantine until a person") as caught:
            place.pipeline(engine, *stages).resume("r")
        assert engine.inbox.get(caught.value.item_id).kind == "quarantine"
    with place.engine() as engine:
        assert decide(engine, "release", why="the schema is repaired").won
        result = place.pipeline(engine, *stages).resume("r", by="ann")
    assert dict(result.results) == {"poll": [1, 2], "check": "checked"}
    assert (poll.calls, check.calls) == (1, 2)
    assert place.kinds()[1] == [
        "began", "halted", "quarantined", "reviewed", "resumed", "completed",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "text"),
    [(SystemExit(3), "its process ended each time"), (Down(503), "the last time: ")],
)
def test_a_person_releases_a_run_that_was_resumed_too_often(place, error, text):
    """Before, a person was asked for, no item said so, and nobody could let the run go on."""
    check = Flaky(*[error] * 30)
    with place.engine(breaker=None) as engine:
        pipeline = place.pipeline(engine, stage("poll", Flaky()), stage("check", check))
        with pytest.raises(type(error)):
            pipeline.run(run_id="r")
        for _ in range(2):
            while True:
                try:
                    pipeline.resume("r")
                except PipelineHalted as found:
                    halted = found
                    break
                except (SystemExit, Down, CircuitOpenError, Conflict):  # or released soon
                    place.clock.advance(301.0)
            assert "5 times without progress" in str(halted)
            (item,) = engine.inbox
            assert item.id == halted.item_id
            assert text in item.text
            assert decide(engine, "release", why="it is mended").won
        check.outcomes.clear()
        assert pipeline.resume("r").results["check"] == "done"
    place.assert_whole()


def test_an_abandoned_run_stays_in_quarantine(place):
    """Its data sets are given to no later run; the council may decide otherwise."""
    check = Flaky(SchemaValidationError("row 7"))
    checked = stage("check", check, datasets="d-1")
    rules = GovernanceRules(council=("zoe",))
    with place.engine() as engine:
        pipeline = place.pipeline(engine, checked, governance=rules)
        with pytest.raises(SchemaValidationError):
            pipeline.run(run_id="a")
        decide(engine, "abandon", why="it is beyond repair")
        assert pipeline.get("a").state == "abandoned"
        with pytest.raises(PipelineHalted, match="a person has abandoned it"):
            pipeline.resume("a")
        with pytest.raises(GovernanceBlocked, match="in quarantine since run etl/a"):
            pipeline.run(run_id="b")
        answer = decide(engine, "mark_done", kind="governance", evidence="repaired by hand")
        assert (answer.won, answer.text) == (False, "only zoe may decide about it")
        assert decide(engine, "mark_done", "zoe", "governance", evidence="repaired by hand").won
        assert pipeline.resume("b").results["check"] == "done"
    assert check.calls == 2


# --- governance -----------------------------------------------------------------------------------


@pytest.mark.req("PL-08")
def test_a_blocked_data_set_makes_no_call_over_a_rerun_and_a_restart(place):
    """Whatever is tried, the stage is not called, and each time is in the ledgers."""
    load = Flaky()
    rules = GovernanceRules(datasets={"d-1": DatasetRule(status="blocked")})
    blocked = stage("load", load, datasets="d-1")
    for run in ("a", "b"):
        with place.engine() as engine:
            pipeline = place.pipeline(engine, blocked, governance=rules)
            with pytest.raises(GovernanceBlocked):
                pipeline.run(run_id=run)
            with pytest.raises(PipelineHalted):
                pipeline.resume(run)
            with pytest.raises(PipelineHalted):
                pipeline.run(run_id=run)
    assert load.calls == 0
    assert [entry.attempts for entry in place.ledger("pipeline_retry_log").entries] == [0, 0]
    assert place.kinds()[0] == ["failed_fast", "failed_fast"]


@pytest.mark.req("PL-08")
def test_a_restricted_data_set_is_given_once(place):
    """A retry is a conflict for the council, and so is a re-run; no second call is made."""
    load = Flaky(Down(503))
    rules = GovernanceRules(council=("ann",), datasets={"d-1": DatasetRule(status="restricted")})
    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("load", load, datasets="d-1"), governance=rules)
        with pytest.raises(GovernanceBlocked, match="is restricted, and stage etl/load was given"):
            pipeline.run(run_id="a")
        with pytest.raises(GovernanceBlocked, match="is restricted"):
            pipeline.run(run_id="b")
        items = [item for item in engine.inbox if item.kind == "governance"]
        assert [item.deciders for item in items] == [("ann",), ("ann",)]
    assert load.calls == 1
    assert place.kinds()[1].count("escalated") == 2
    assert "governance_escalated" in [event.event_type for event in place.events]


@pytest.mark.req("PL-08")
def test_care_labels_gate_every_attempt(place):
    """A stage that is not cleared is not called; a label that comes during a retry stops it."""
    path = place.folder / "governance.yml"
    path.write_text("version: 1\ndatasets: {}\n")

    def poll(ctx):
        calls.append(1)
        path.write_text("version: 1\ncouncil: [ann]\ndatasets:\n  d-1: {care_labels: [CARE-A]}\n")
        raise Down(503)

    calls = []
    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("poll", poll, datasets="d-1"), governance=path)
        with pytest.raises(GovernanceViolation, match="CARE label CARE-A"):
            pipeline.run(run_id="a")
    assert calls == [1]
    entry = place.ledger("versioning_ledger").entries[-1]
    assert (entry.kind, entry.care_labels, entry.attempts) == ("escalated", ("CARE-A",), 1)


@pytest.mark.req("PL-08")
def test_masking_is_never_weakened_by_a_rerun(place):
    """The strongest level is remembered over processes; a weaker stage is not called."""
    weak = Flaky()
    with place.engine() as engine:
        place.pipeline(engine, stage("mask", Flaky(), datasets="d-1", masking=3)).run()
    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("mask", weak, datasets="d-1", masking=2))
        with pytest.raises(GovernanceViolation, match="level 2 would weaken that"):
            pipeline.run()
        strong = stage("mask", Flaky(), datasets="d-1", masking=4)
        assert place.pipeline(engine, strong).run().results["mask"] == "done"
    assert weak.calls == 0
    assert "masked" in place.kinds()[1]


@pytest.mark.req("PL-08")
def test_a_check_of_the_users_own(place):
    """It is asked before each call, with the data set and the context; its reason is the error."""
    asked = []

    def check(dataset, ctx):
        asked.append((dataset, ctx.stage_name, ctx.attempt))
        return "consent has expired" if ctx.attempt == 2 else None

    load = Flaky(Down(503))
    with place.engine() as engine:
        governance = Governance(check=check)
        pipeline = place.pipeline(
            engine, stage("load", load, datasets="d-1"), governance=governance
        )
        with pytest.raises(GovernanceViolation, match="d-1: consent has expired"):
            pipeline.run()
        refuses = Governance(check=lambda *_: False)
        with pytest.raises(GovernanceViolation, match="the check of governance refused it"):
            place.pipeline(
                engine, stage("x", load, datasets="d-2"), governance=refuses, name="b"
            ).run()
    assert asked == [("d-1", "load", 1), ("d-1", "load", 2)]
    assert load.calls == 1


def test_data_sets_by_a_function_of_the_context(place):
    """A stage may know its data sets only when it runs."""
    with place.engine() as engine:
        named = stage("load", Flaky(SchemaValidationError("x")), datasets=lambda ctx: [ctx.input])
        pipeline = place.pipeline(engine, named, datasets="all")
        with pytest.raises(SchemaValidationError):
            pipeline.run("d-9", run_id="r")
        assert pipeline.get("r").quarantine == ("all", "d-9")
        with pytest.raises(UsageError, match="must be names"):
            place.pipeline(engine, stage("y", print, datasets=lambda ctx: [5]), name="b").run()


# --- the breaker ----------------------------------------------------------------------------------


@pytest.mark.req("PL-07")
@pytest.mark.parametrize(
    "error",
    [Down(500), ConnectionRefusedError("no route"), Down(429), Down(503)],
    ids=["transient errors", "external provider", "throttling loop", "upstream outage"],
)
def test_the_four_situations_of_a_breaker(place, error):
    """Three failures in a row open it; while it is open nothing is called; one probe closes it."""
    poll = Flaky(*[error] * 3)
    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("poll", poll))
        with pytest.raises(type(error)):
            pipeline.run(run_id="r")
        assert poll.calls == 3
        with pytest.raises(CircuitOpenError):
            pipeline.resume("r")
        assert (poll.calls, pipeline.get("r").cause) == (3, "refused")
        place.clock.advance(301.0)
        assert pipeline.resume("r").results["poll"] == "done"
        assert engine.breaker("etl.poll").state.value == "closed"
    assert poll.calls == 4
    assert place.kinds()[0] == ["exhausted", "refused"]


@pytest.mark.req("PL-07")
def test_a_failed_probe_is_in_telemetry_and_ledger(place):
    """After the cooldown a single call is made; it fails, the circuit stays open, both know it."""
    poll = Flaky(*[Down(503)] * 9)
    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("poll", poll))
        with pytest.raises(Down):
            pipeline.run(run_id="r")
        place.clock.advance(301.0)
        with pytest.raises(Down):
            pipeline.resume("r")
        assert poll.calls == 4
        assert engine.breaker("etl.poll").state.value == "open"
    entry = place.ledger("pipeline_retry_log").entries[-1]
    assert (entry.kind, entry.attempts, entry.circuit_open) == ("probe_failed", 1, True)
    last = read_telemetry(place.telemetry).records[-1]
    assert (last.sequence, last.circuit_open, last.outcome) == (entry.call_id, True, "failure")


def test_a_circuit_of_the_engine_comes_first(place):
    """If the engine guards the stage, no other circuit is made for it."""
    poll = Flaky(*[Down(503)] * 9)
    with place.engine(breaker=BreakerSettings(failure_threshold=2)) as engine:
        with pytest.raises(Down):
            place.pipeline(engine, stage("poll", poll)).run()
        assert [circuit.name for circuit in engine.circuits.of("etl.poll")] == ["etl.poll"]
    assert poll.calls == 2


def test_schema_failures_open_no_circuit(place):
    """They are not the other side's doing."""
    check = Flaky(*[SchemaValidationError("x")] * 5)
    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("check", check))
        for run in "abcde":
            with pytest.raises(SchemaValidationError):
                pipeline.run(run_id=run)
        assert engine.breaker("etl.check").state.value == "closed"


def test_an_open_circuit_is_known_to_the_next_process(place):
    """Through the store: a restart does not begin to call at once."""
    poll = Flaky(*[Down(503)] * 9)
    with place.engine(share=1.0) as engine:
        with pytest.raises(Down):
            place.pipeline(engine, stage("poll", poll)).run(run_id="r")
        engine.catch_up()
    with place.engine(share=1.0) as engine:
        pipeline = place.pipeline(engine, stage("poll", poll))
        with pytest.raises(CircuitOpenError):
            pipeline.resume("r")
    assert poll.calls == 3


# --- what is forbidden ----------------------------------------------------------------------------


@pytest.mark.req("PL-12.runtime")
def test_growing_concurrency_is_refused(place):
    """A retry asks for no more calls at once than the attempt before."""
    widths = [2, 4]

    def load(ctx):
        calls.append(ctx.attempt)
        found = ctx.map(lambda n: n * n, range(5), concurrency=widths[ctx.attempt - 1])
        assert found == [0, 1, 4, 9, 16]
        raise Down(503)

    calls = []
    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("load", load))
        with pytest.raises(RetryForbidden, match="asks for 4 calls at once") as caught:
            pipeline.run(run_id="r")
    assert caught.value.rule == "growing-concurrency"
    assert calls == [1, 2]
    assert place.kinds()[0] == ["failed_fast"]


@pytest.mark.req("PL-12.runtime")
def test_a_loop_of_resumptions_is_bounded(place):
    """Without progress a run is resumed so often and no more, until a person releases it."""
    poll = Flaky(*[Down(503)] * 99)
    with place.engine() as engine:
        once = stage("poll", poll, max_attempts=1)
        pipeline = place.pipeline(engine, once, max_resumes=2)
        with pytest.raises(Down):
            pipeline.run(run_id="r")
        for _ in range(2):
            with pytest.raises(Down):
                pipeline.resume("r")
        with pytest.raises(PipelineHalted, match="resumed 2 times without progress"):
            pipeline.resume("r")
    assert poll.calls == 3


@pytest.mark.req("PL-12.runtime")
def test_every_failure_is_in_telemetry_and_ledger_without_any_sink(place, caplog):
    """An engine without sinks swallows nothing: telemetry, ledger and the exception are there."""
    poll = Flaky(KeyError("x"))
    with place.engine(sinks=[]) as engine, pytest.raises(KeyError):
        place.pipeline(engine, stage("poll", poll)).run(run_id="r")
    (record,) = read_telemetry(place.telemetry).records
    assert (record.error_class, record.retryable, record.is_final) == ("KeyError", False, True)
    assert place.kinds()[0] == ["failed_fast"]


@pytest.mark.req("PL-12.runtime")
def test_the_retry_after_of_a_provider_is_waited_for(place):
    """Never less than it asks for."""
    poll = Flaky(Down(429, **{"Retry-After": "20"}))
    with place.engine() as engine:
        began = place.clock.monotonic()
        place.pipeline(engine, stage("poll", poll)).run()
        assert place.clock.monotonic() - began >= 20.0


@pytest.mark.req("PL-12.runtime")
@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"max_attempts": 1_000}, "unbounded-retries"),
        ({"backoff": mainstay.Backoff.constant(0.0)}, "no-backoff"),
        ({"respect_retry_after": False}, "ignored-retry-after"),
        ({"retry_on": (SchemaValidationError,)}, "forbidden-class"),
    ],
)
def test_a_policy_with_a_forbidden_behaviour_is_refused(options, rule):
    """When the stage is declared, by the name of the rule."""
    policy = Stage("x", print, idempotency="idempotent").policy.replace(**options)
    with pytest.raises(PolicyError, match=rule):
        Stage("poll", print, idempotency="idempotent", policy=policy)


# --- runs -----------------------------------------------------------------------------------------


def test_a_run_id_is_used_once(place):
    """The same id returns the result; another input is refused."""
    poll = Flaky([1])
    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("poll", poll))
        assert pipeline.run("a", run_id="r").results["poll"] == [1]
        assert pipeline.run("a", run_id="r").results["poll"] == [1]
        with pytest.raises(PayloadMismatch):
            pipeline.run("b", run_id="r")
        with pytest.raises(UsageError, match="there is no run 'x'"):
            pipeline.resume("x")
        assert list(engine.pipelines._parts.records.entries()) == []
        with pytest.raises(UsageError, match="run_id"):
            pipeline.run(run_id="")
        assert [view.run_id for view in pipeline.runs()] == ["r"]
    assert poll.calls == 1


def test_a_run_under_way_is_not_taken(place):
    """Another caller gets Conflict while the lease lives."""

    def poll(ctx):
        with pytest.raises(Conflict):
            pipeline.resume("r")
        assert pipeline.get("r").is_leased
        assert [view.is_leased for view in pipeline.runs()] == [True]
        return ctx.input

    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("poll", poll))
        assert pipeline.run({"day": 7}, run_id="r").results["poll"] == {"day": 7}


def test_a_dag_of_stages(place):
    """Results by name; a stage sees those of all stages before it."""
    seen = {}

    def of(name):
        def function(ctx):
            assert isinstance(ctx, StageContext)
            seen[name] = dict(ctx.results)
            return name

        return function

    with place.engine() as engine:
        pipeline = place.pipeline(
            engine,
            stage("load", of("load"), after=["left", "right"], kind="sink"),
            stage("left", of("left"), after="poll", kind="transform"),
            stage("right", of("right"), after="poll", kind="transform"),
            stage("poll", of("poll"), kind="source"),
        )
        pipeline.run()
    assert set(seen["load"]) == {"poll", "left", "right"}
    assert set(seen["left"]) >= {"poll"}


def test_async_stages(place):
    """Async and plain stages in one pipeline, with retries, gates and resumption."""
    failures = [Down(503), SchemaValidationError("row 7")]
    asked = []

    async def poll(ctx):
        if failures:
            raise failures.pop(0)
        return [1, 2]

    async def check(dataset, ctx):
        asked.append(ctx.attempt)

    async def main(engine):
        pipeline = place.pipeline(
            engine, stage("poll", poll, datasets="d-1"),
            stage("load", lambda ctx: sum(ctx.results["poll"]), after="poll"),
            governance=Governance(check=check),
        )  # fmt: skip
        with pytest.raises(UsageError, match="has async stages"):
            pipeline.run()
        with pytest.raises(UsageError, match="has async stages"):
            pipeline.resume("r")
        with pytest.raises(SchemaValidationError):
            await pipeline.arun(run_id="r")
        decide(engine, "release", why="repaired")
        return await pipeline.aresume("r")

    with place.engine() as engine:
        assert asyncio.run(main(engine)).results["load"] == 3
    assert asked == [1, 2, 1]


def test_results_that_are_not_kept(place):
    """A later stage of the same process has them; after a resumption it is an error by name."""
    failures = [Down(503)]

    def poll():
        return threading.Lock()

    def load(ctx):
        assert ctx.results["poll"]
        if failures:
            raise failures.pop()

    with place.engine() as engine:
        later = stage("load", load, after="poll", max_attempts=1)
        pipeline = place.pipeline(engine, stage("poll", poll), later)
        with pytest.raises(Down):
            pipeline.run(run_id="r")
        assert "cannot" in pipeline.get("r").stages[0].note
        with pytest.raises(mainstay.ResultNotKept):
            pipeline.resume("r")


def test_wrong_arguments(place):
    """All problems at once."""
    with place.engine() as engine:
        with pytest.raises(PolicyError) as caught:
            place.pipeline(engine, print, lease=0.0, keep=-1.0, max_resumes=-1, datasets=[5])
        fields = {problem.field for problem in caught.value.problems}
        assert fields == {"stages", "lease", "keep", "max_resumes", "datasets"}


# --- files ----------------------------------------------------------------------------------------


def halted_once(place):
    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("check", Flaky(SchemaValidationError("x"))))
        with pytest.raises(SchemaValidationError):
            pipeline.run(run_id="r")


@pytest.mark.req("PL-09")
def test_missing_files_are_written_from_the_store(place):
    """At the next start: the store is the truth."""
    halted_once(place)
    before = {path: path.read_bytes() for path in (place.folder / "ledgers").glob("*.json")}
    assert len(before) == 2
    for path in before:
        path.unlink()
    with place.engine() as engine:
        place.pipeline(engine, stage("poll", Flaky()), name="b").run(run_id="s")
    runs = {(each.pipeline_id, each.run_id) for each in place.ledger("versioning_ledger").runs}
    assert runs == {("etl", "r"), ("b", "s")}
    place.assert_whole()


@pytest.mark.req("PL-09")
@pytest.mark.parametrize("damage", ["truncated", "newer", "altered", "no JSON", "removed entry"])
def test_a_damaged_ledger_is_an_error_with_its_line(place, damage):
    """Before any stage is called; nothing is overwritten."""
    halted_once(place)
    path = place.folder / "ledgers" / "versioning_ledger.json"
    data = path.read_bytes()
    wrong = {
        "truncated": data[:-40],
        "newer": data.replace(b'"version": 1', b'"version": 9'),
        "altered": data.replace(b'"kind":"halted"', b'"kind":"masked"'),
        "no JSON": b"ledger\n",
        "removed entry": b"\n".join(
            line for line in data.split(b"\n") if b'"kind":"began"' not in line
        ),
    }[damage]
    path.write_bytes(wrong)
    poll = Flaky()
    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("poll", poll))
        with pytest.raises(LedgerError, match=r"versioning_ledger\.json, line \d+: ") as caught:
            pipeline.run()
    assert caught.value.line >= 1
    assert poll.calls == 0
    assert path.read_bytes() == wrong


@pytest.mark.req("PL-09")
def test_a_ledger_that_the_store_does_not_know(place):
    """Entries that were altered with new hashes differ from the store: nothing is written."""
    halted_once(place)
    path = place.folder / "ledgers" / "pipeline_retry_log.json"
    found = read_ledger(path)
    from mainstay.core.pipeline.ledger import RETRY_LOG, ledger_of, sealed

    forged = sealed([found.entries[0]], RETRY_LOG, (), 5.0)
    path.write_bytes(encode(ledger_of(RETRY_LOG, [forged])))
    before = path.read_bytes()
    with place.engine() as engine:
        other = Flaky()
        with pytest.raises(LedgerError, match="are not those of the store"):
            place.pipeline(engine, stage("check", other), name="b").run()
        assert other.calls == 0
        (item,) = engine.inbox
        with pytest.raises(LedgerError, match="are not those of the store"):
            engine.inbox.act(item.id, "release", why="x", **operator(engine))
    assert json.loads(path.read_bytes())["entries"] == json.loads(before)["entries"]


@pytest.mark.req("PL-09")
def test_the_retention_of_ledgers(place):
    """Runs that ended longer ago are dropped from files and store; what is open stays."""
    with Engine(sinks=[]) as engine:  # in memory the store's clock is the virtual one
        pipeline = place.pipeline(engine, stage("poll", Flaky(Down(503))), keep=3600.0)
        pipeline.run(run_id="old")
        assert place.kinds() == (["retried"], ["began", "completed"])
        place.clock.advance(7200.0)
        pipeline.run(run_id="new")
    assert [each.run_id for each in place.ledger("versioning_ledger").runs] == ["new"]
    assert place.ledger("pipeline_retry_log").entries == ()
    assert place.ledger("versioning_ledger").kept_since
    place.assert_whole()


@pytest.mark.req("PL-10")
def test_two_policies_in_one_file_are_told_apart(place):
    """Two pipelines, two policies, one telemetry file: each record names its own."""
    quick = Stage("x", print, idempotency="idempotent").policy.replace(name="quick", max_attempts=2)
    with place.engine() as engine:
        one = place.pipeline(engine, stage("poll", Flaky(Down(503))), name="one")
        two = place.pipeline(engine, stage("poll", Flaky(Down(503)), policy=quick), name="two")
        one.run()
        two.run()
        assert [len(each.compliance()) for each in (one, two)] == [1, 1]
    records = read_telemetry(place.telemetry).records
    assert {(each.pipeline_id, each.policy) for each in records} == {
        ("one", "pipeline"), ("two", "quick"),
    }  # fmt: skip
    policies = {(e.pipeline_id, e.policy) for e in place.ledger("pipeline_retry_log").entries}
    assert policies == {("one", "pipeline"), ("two", "quick")}


def test_a_governance_item_of_ones_own_is_noted(place):
    """Items of that kind that no run has raised are closed as before."""
    with place.engine() as engine:
        put = engine.inbox.put(Item(kind="governance", subject="s", operation="o", text="t"))
        answer = engine.inbox.act(put.id, "mark_done", evidence="done", **operator(engine))
        assert answer.item.result == "noted"


def test_no_warnings(place, recwarn):
    """A plain run warns of nothing."""
    with place.engine() as engine:
        place.pipeline(engine, stage("poll", Flaky())).run()
    assert [each for each in recwarn if issubclass(each.category, MainstayWarning)] == []
