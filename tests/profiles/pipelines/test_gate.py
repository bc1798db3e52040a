"""The governance gate against what goes wrong around it: it refuses, and never lets through."""

import asyncio

import pytest

from mainstay import Backoff, Jitter, RetryPolicy
from mainstay.errors import ConfigError, PolicyError, UsageError
from mainstay.profiles.pipelines import (
    DatasetRule,
    Governance,
    GovernanceBlocked,
    GovernanceRules,
    GovernanceViolation,
    PipelineHalted,
    SchemaValidationError,
    read_governance,
)
from tests.profiles.pipelines.places import Down, Flaky, decide, operator, stage

BLOCKED = GovernanceRules(datasets={"d-7": DatasetRule(status="blocked")})
RESTRICTED = GovernanceRules(council=("ann",), datasets={"d-7": DatasetRule(status="restricted")})
HALTED = (["failed_fast"], ["began", "halted", "quarantined"])


def raising(error):
    def function(*_):
        raise error

    return function


@pytest.mark.req("PL-08")
@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_check_that_finds_nothing_opens_no_gate(place, how):
    """`next(...)` without a match raises StopIteration, which is no leave for any data set."""
    load = Flaky()

    async def aload(ctx):
        return load(ctx)

    gate = Governance(check=lambda dataset, _: next(x for x in () if x == dataset))
    with place.engine() as engine:
        function = load if how == "sync" else aload
        pipeline = place.pipeline(
            engine, stage("load", function, datasets=("d-1", "d-7")), governance=gate
        )
        with pytest.raises((StopIteration, RuntimeError)):
            pipeline.run(run_id="a") if how == "sync" else asyncio.run(pipeline.arun(run_id="a"))
        assert pipeline.get("a").state == "halted"
    assert load.calls == 0


@pytest.mark.req("PL-08")
def test_data_sets_by_a_function_that_returns_one_name(place):
    """A text is one data set, and not as many as it has letters."""
    load = Flaky()
    with place.engine() as engine:
        pipeline = place.pipeline(
            engine,
            stage("load", load, datasets=lambda ctx: ctx.input["of"]),
            governance=BLOCKED,
        )
        with pytest.raises(GovernanceBlocked, match="d-7 is blocked"):
            pipeline.run({"of": "d-7"})
    assert load.calls == 0


@pytest.mark.req("PL-03", "PL-08", "PL-13")
@pytest.mark.parametrize(
    "declared",
    [
        {"datasets": raising(KeyError("of"))},
        {"datasets": raising(StopIteration())},
        {"datasets": lambda _: ["\udc80"]},
        {"datasets": lambda _: None},
        {"idempotency": "keyed", "idempotency_key": raising(KeyError("of"))},
        {"idempotency": "keyed", "idempotency_key": lambda _: None},
    ],
    ids=["data sets", "StopIteration", "no text", "none", "key", "no key"],
)
def test_what_cannot_be_prepared_halts_the_run(place, declared):
    """With its entries in both ledgers and in the telemetry, as a call does; nothing is called."""
    load = Flaky()
    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("load", load, **declared))
        with pytest.raises((LookupError, ValueError, StopIteration, UsageError)):
            pipeline.run(run_id="a")
        assert pipeline.get("a").state == "halted"
        assert [each.final_status for each in pipeline.compliance()] == ["failure"]
    assert place.kinds() == HALTED
    assert load.calls == 0


def test_what_can_be_prepared_in_the_end_is_called(place):
    """A registry of data sets that is down for a moment is asked again, as the policy has it."""
    down = [Down(503), Down(503)]

    def datasets(_):
        if down:
            raise down.pop()
        return ["d-1"]

    with place.engine() as engine:
        load = Flaky()
        pipeline = place.pipeline(engine, stage("load", load, datasets=datasets))
        assert pipeline.run(run_id="a").results["load"] == "done"
    assert load.calls == 1
    assert place.kinds()[1] == ["began", "completed"]


@pytest.mark.req("PL-03", "PL-08")
@pytest.mark.parametrize("damage", ["damaged", "removed", "emptied"])
@pytest.mark.parametrize("when", ["between stages", "in the last stage", "in a retry"])
def test_governance_that_is_damaged_during_a_run(place, damage, when):
    """No stage is called without it; what is halted is in the ledgers, what was done stays done."""
    path = place.folder / "governance.yml"
    path.write_text("datasets:\n  d-7: {care_labels: [CARE-A]}\n")

    def spoil(ctx):
        path.unlink()
        if damage != "removed":
            path.write_text("" if damage == "emptied" else "datasets: {d-7: {stat\n")
        if when == "in a retry":
            raise Down(503)
        return "done"

    load = Flaky()
    given = {"datasets": "d-7", "care_labels": "CARE-A"}
    stages = [stage("a", spoil, **given)]
    if when == "between stages":
        stages.append(stage("b", load, after="a", **given))
    with place.engine() as engine:
        pipeline = place.pipeline(engine, *stages, governance=path)
        if when == "in the last stage":
            assert pipeline.run(run_id="a").results["a"] == "done"
            assert pipeline.get("a").state == "succeeded"
            return
        with pytest.raises(ConfigError, match=r"governance\.yml"):
            pipeline.run(run_id="a")
        assert pipeline.get("a").state == "halted"
        with pytest.raises(ConfigError):
            pipeline.run(run_id="b")
        assert pipeline.get("b") is None
    assert load.calls == 0
    assert place.kinds() == HALTED
    assert place.ledger("versioning_ledger").entries[-1].care_labels == ("CARE-A",)


def test_a_rule_that_changes_neither_date_nor_size_of_its_file(place):
    """It is the content that counts: "restricted" and "blocked   " take as many bytes."""
    import os

    path = place.folder / "governance.yml"
    path.write_text('datasets: {d-7: {status: "open"   }}\n')
    before = path.stat()
    gate = Governance(path)
    path.write_text('datasets: {d-7: {status: "blocked"}}\n')
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert gate.rules.of("d-7").status == "blocked"


def test_a_change_of_the_working_folder_changes_no_governance(place, monkeypatch):
    """A relative path is that of the folder in which it was given."""
    monkeypatch.chdir(place.folder)
    (place.folder / "governance.yml").write_text("datasets: {d-7: {status: blocked}}\n")
    gate = Governance("governance.yml")
    monkeypatch.chdir("/")
    assert gate.rules.of("d-7").status == "blocked"


@pytest.mark.req("PL-08")
def test_what_a_stage_does_to_its_context_changes_no_gate(place):
    """A retry is asked about the data sets that were declared."""
    path = place.folder / "governance.yml"
    path.write_text("datasets: {d-7: {status: open}}\n")
    calls = []

    def load(ctx):
        calls.append(ctx.datasets)
        ctx.datasets = ()
        path.write_text("datasets: {d-7: {status: blocked}}\n")
        raise Down(503)

    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("load", load, datasets="d-7"), governance=path)
        with pytest.raises(GovernanceBlocked):
            pipeline.run()
    assert calls == [("d-7",)]


@pytest.mark.req("PL-08")
def test_only_the_council_gives_a_restricted_data_set_again(place):
    """A schema failure with it goes to the council as well: to resume is to give it again."""
    load = Flaky(SchemaValidationError("row 7"))
    with place.engine() as engine:
        pipeline = place.pipeline(
            engine, stage("load", load, datasets="d-7"), governance=RESTRICTED
        )
        with pytest.raises(SchemaValidationError):
            pipeline.run(run_id="a")
        operator(engine, "ann")
        refused = decide(engine, "mark_done", "bob", kind="governance", evidence="e")
        assert (refused.won, refused.text) == (False, "only ann may decide about it")
        with pytest.raises(PipelineHalted):
            pipeline.resume("a")
        assert load.calls == 1
        assert decide(engine, "mark_done", "ann", kind="governance", evidence="e").won
        assert pipeline.resume("a").results["load"] == "done"
    assert load.calls == 2
    assert place.kinds()[1].count("escalated") == 1


@pytest.mark.req("PL-08")
def test_a_council_decides_once(place):
    """A second answer, one that comes late, and one of two at once change nothing."""
    load = Flaky(SchemaValidationError("x"), SchemaValidationError("y"))
    with place.engine() as engine:
        pipeline = place.pipeline(
            engine, stage("load", load, datasets="d-7"), governance=RESTRICTED
        )
        with pytest.raises(SchemaValidationError):
            pipeline.run(run_id="a")
        (item,) = engine.inbox
        assert decide(engine, "mark_done", kind="governance", evidence="e").won
        again = engine.inbox.act(item.id, "abandon", why="no", **operator(engine))
        assert (again.won, "has decided 'mark_done' before" in again.text) == (False, True)
        with pytest.raises(SchemaValidationError):
            pipeline.resume("a")
        stale = engine.inbox.act(
            item.id, "mark_done", evidence="old", revision=item.revision, **operator(engine)
        )
        assert not stale.won
        assert pipeline.get("a").quarantine_status == "held"
        assert decide(engine, "abandon", why="enough", kind="governance").won
        assert pipeline.get("a").state == "abandoned"
    assert load.calls == 2


@pytest.mark.req("PL-08")
def test_the_council_is_that_of_the_moment_of_the_conflict(place):
    """Who has left it since the run began does not decide."""
    path = place.folder / "governance.yml"
    path.write_text("council: [eve]\ndatasets: {d-7: {status: restricted}}\n")

    def load(ctx):
        path.write_text("council: [ann]\ndatasets: {d-7: {status: restricted}}\n")
        raise Down(503)

    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("load", load, datasets="d-7"), governance=path)
        with pytest.raises(GovernanceBlocked):
            pipeline.run()
        (item,) = engine.inbox
        assert item.deciders == ("ann",)


@pytest.mark.req("PL-08")
def test_a_restricted_data_set_and_a_run_id_that_is_used_again(place):
    """A run that is not kept any longer frees its id, and not its data sets."""
    from mainstay import Engine

    load = Flaky()
    with Engine(sinks=[]) as engine:  # in memory the store's clock is the virtual one
        given = {"governance": RESTRICTED, "keep": 60.0}
        pipeline = place.pipeline(engine, stage("load", load, datasets="d-7"), **given)
        pipeline.run(run_id="daily")
        place.clock.advance(3600.0)
        with pytest.raises(GovernanceBlocked, match="was given it before"):
            pipeline.run(run_id="daily")
        assert [item.kind for item in engine.inbox] == ["governance"]
    assert load.calls == 1
    assert [each.run_id for each in place.ledger("versioning_ledger").runs] == ["daily"]
    assert place.kinds()[1] == ["began", "halted", "quarantined", "escalated"]


@pytest.mark.req("PL-08")
def test_a_check_that_refuses_leaves_nothing_behind(place):
    """A restricted data set that was refused was not given: a later run is."""
    load, answers = Flaky(), ["not today", None]
    gate = Governance(RESTRICTED, check=lambda *_: answers.pop(0))
    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("load", load, datasets="d-7"), governance=gate)
        with pytest.raises(GovernanceViolation, match="not today"):
            pipeline.run()
        decide(engine, "release")
        assert pipeline.run().results["load"] == "done"


@pytest.mark.req("PL-08")
def test_a_stage_does_not_stop_masking(place):
    """To leave the level out on a re-run would weaken it as a lower one does."""
    plain = Flaky()
    with place.engine() as engine:
        place.pipeline(engine, stage("mask", Flaky(), datasets="d-7", masking=3)).run()
        place.pipeline(engine, stage("load", Flaky(), datasets="d-7")).run()
        pipeline = place.pipeline(engine, stage("mask", plain, datasets="d-7"))
        with pytest.raises(GovernanceViolation, match="does not mask it any more"):
            pipeline.run()
    assert plain.calls == 0


@pytest.mark.req("PL-02", "PL-12.runtime")
def test_what_is_raised_from_a_schema_failure_is_one(place):
    """A class of one's own that wraps it is not retried, whatever the policy names."""

    class IngestError(Exception):
        pass

    calls = []

    def check():
        calls.append(1)
        try:
            raise SchemaValidationError("row 7")
        except SchemaValidationError as error:
            raise IngestError("file 3") from error

    policy = RetryPolicy(
        max_attempts=5, backoff=Backoff.exponential(0.5, factor=2.0, max_delay=30.0),
        jitter=Jitter.full(), retry_on=(IngestError,),
    )  # fmt: skip
    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("check", check, policy=policy))
        with pytest.raises(IngestError):
            pipeline.run()
    assert calls == [1]
    assert place.kinds() == HALTED


@pytest.mark.req("PL-09")
def test_secrets_in_the_names_of_data_sets(place):
    """No ledger, view, item or event has them; the gate knows the data set all the same."""
    name = "https://reader:hunter22@host/d"
    with place.engine() as engine:
        check = Flaky(SchemaValidationError("row 7"))
        pipeline = place.pipeline(engine, stage("check", check, datasets=name), datasets=name)
        with pytest.raises(SchemaValidationError):
            pipeline.run(run_id="a")
        with pytest.raises(GovernanceBlocked):
            pipeline.run(run_id="b")
        shown = [str(pipeline.get("a").to_dict()), *map(str, engine.inbox), *map(str, place.events)]
    files = [path.read_text() for path in (place.folder / "ledgers").glob("*.json")]
    assert len(files) == 2
    assert not [text for text in [*shown, *files] if "hunter22" in text]
    assert "https://reader:" in files[0]


# --- the file -------------------------------------------------------------------------------------

WRONG = {
    "no UTF-8": (b"version: 1\ndatasets: {d-\xff: {status: open}}\n", [":2: is not UTF-8"]),
    "UTF-16": ("version: 1\n".encode("utf-16"), [":1: is not UTF-8: it begins as UTF-16 does"]),
    "empty": (b"", [":1: holds no rules"]),
    "comments": (b"# nothing\n", [":1: holds no rules"]),
    "cut off": (b"version: 1\ndatasets:\n  d-7:\n    status:", [":4: datasets.d-7.status: has no"]),
    "cut off early": (b"version: 1\ndatasets:\n", [":2: datasets: has no value"]),
    "no YAML": (b"datasets: {d-7: {stat\n", ["is not YAML"]),
    "a list": (b"- d-7\n", [":1: "]),
    "later": (b"council: [ann]\nversion: 2\n", [":2: has version 2, and this mainstay reads"]),
    "twice": (
        b"datasets:\n  d: {status: blocked}\n  d: {status: open}\n",
        [":3: datasets.d: is g"],
    ),
    "unknown": (b"version: 1\ncouncl: [ann]\n", [":2: councl: unknown key"]),
    "several": (
        b"datasets:\n  d-1:\n    status: op\n  a.b:\n    masking: x\n    careLabels:\n      - 7\n",
        [":3: datasets.d-1.status = 'op'", ":5: datasets.", ":7: datasets."],
    ),
    "JSON": (
        b'{\n"datasets": {\n"d-7": {\n"status": "bad"}}}',
        [":4: datasets.d-7.status = 'bad'"],
    ),
}


@pytest.mark.req("PL-08")
@pytest.mark.parametrize("name", WRONG)
def test_a_damaged_governance_file(tmp_path, name):
    """Every problem at once, each with its file and line; nothing is overwritten."""
    content, problems = WRONG[name]
    path = tmp_path / "governance.yml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_governance(path)
    text = str(caught.value)
    assert [
        each for each in problems if f"governance.yml{each}" not in text and each not in text
    ] == []
    assert len(caught.value.problems) == len(problems)
    assert "ledger" not in text
    assert path.read_bytes() == content


def test_a_governance_file_that_is_none(tmp_path):
    """A folder, and a file that is not there."""
    with pytest.raises(ConfigError, match="is a directory"):
        read_governance(tmp_path)
    with pytest.raises(ConfigError, match="there is no such file"):
        read_governance(tmp_path / "governance.yml")


def test_a_governance_file_with_a_byte_order_mark(tmp_path):
    """As editors on Windows write it."""
    path = tmp_path / "governance.yml"
    path.write_bytes(b"\xef\xbb\xbfdatasets:\n  d-7: {status: blocked, masking: 2}\n")
    assert read_governance(path).of("d-7") == DatasetRule(status="blocked", masking=2)


# --- declarations ---------------------------------------------------------------------------------


@pytest.mark.req("PL-06")
@pytest.mark.parametrize("key", ["load-{date}", "{", "{0}", "{run_id.__class__}", 7])
def test_a_key_with_a_field_that_nothing_fills_in(key):
    """It is refused when the stage is declared."""
    with pytest.raises(PolicyError, match="idempotency_key"):
        stage("load", print, idempotency="keyed", idempotency_key=key)


@pytest.mark.parametrize("name", ["b.c", "..", "a/b", "a;b", "é", ""])
def test_names_of_stages(name):
    """`a.b` and `c` would have the circuit and the keys of `a` and `b.c`."""
    with pytest.raises(PolicyError, match="name"):
        stage(name, print)
