"""Stages that return, raise or outlive what they should not; and runs that are repaired."""

import asyncio
import pickle
import sqlite3
import threading

import pytest

from mainstay import Engine, Jitter, RetryPolicy
from mainstay.core.base.change import DROP, Change
from mainstay.drivers.pipeline.records import DATASETS, OPEN_RUNS, RUNS
from mainstay.errors import (
    Conflict,
    LedgerError,
    PolicyError,
    ResultNotKept,
    StoredValueError,
    UsageError,
)
from mainstay.profiles.pipelines import (
    PIPELINE_POLICY,
    GovernanceBlocked,
    PipelineHalted,
    SchemaValidationError,
)
from tests.profiles.pipelines.places import Down, Flaky, Place, operator, stage


def rows():
    yield 1


async def arows():
    yield 1


@pytest.mark.parametrize("function", [rows, arows])
def test_a_generator_is_no_stage(function):
    """A call would run nothing of it, and the stage would be done."""
    with pytest.raises(PolicyError, match="no generator"):
        stage("poll", function)


POLICY = RetryPolicy(
    name="own", attempt_timeout=9.0, backoff=PIPELINE_POLICY.backoff, jitter=Jitter.full()
)


@pytest.mark.parametrize(
    ("options", "nested"),
    [
        ({}, "allow"),
        ({"max_attempts": 2}, "allow"),
        ({"policy": POLICY}, "allow"),
        ({"policy": POLICY.replace(nested="collapse")}, "collapse"),
        ({"policy": pickle.loads(pickle.dumps(POLICY))}, "allow"),
        ({"policy": POLICY.replace(nested="collapse"), "max_attempts": 2}, "collapse"),
        ({"policy": POLICY.replace(nested="warn")}, "warn"),
        ({"policy": POLICY.replace(nested="refuse")}, "refuse"),
    ],
)
def test_a_stage_and_what_it_calls_may_both_retry(options, nested):
    """Unless its policy declares otherwise."""
    assert stage("poll", lambda: 1, **options).policy.nested == nested


@pytest.mark.parametrize("returned", [rows, arows, lambda: iter([1]), lambda: map(str, [1])])
def test_a_result_that_can_be_read_once(place, returned):
    """A retry of the next stage would find it empty: it is an error of the stage."""
    load = Flaky()
    with place.engine() as engine:
        stages = stage("poll", lambda *_: returned()), stage("load", load, after="poll")
        pipeline = place.pipeline(engine, *stages)
        with pytest.raises(UsageError, match="which can be read only once"):
            pipeline.run()

        async def poll():
            return returned()

        pipeline = place.pipeline(engine, stage("poll", poll), name="b")
        with pytest.raises(UsageError, match="which can be read only once"):
            asyncio.run(pipeline.arun())
    assert load.calls == 0


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (StopIteration(3), "halted"),
        (ExceptionGroup("g", [ValueError(1)]), "halted"),
        (Exception("\ud800 text"), "halted"),
        (Exception("z" * 3_000_000), "halted"),
        (MemoryError(), "halted"),
        (KeyboardInterrupt(), "running"),
        (SystemExit(3), "running"),
        (BaseExceptionGroup("g", [KeyboardInterrupt()]), "running"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_whatever_a_stage_raises(place, error, state):
    """It reaches the caller; what is no Exception leaves the run to be resumed, at once."""
    raised = [error]

    def poll():
        if raised:
            raise raised.pop()
        return 1

    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("poll", poll))
        with pytest.raises(type(error)) as caught:
            pipeline.run(run_id="a")
        assert caught.value is error
        found = pipeline.get("a")
        assert found.state == state
        assert len(str(found.why)) < 100_000
        if state == "running":
            engine.pipelines.close()
            assert pipeline.resume("a").results["poll"] == 1


def test_an_exception_whose_text_cannot_be_had(place):
    """It halts the run as any other."""

    class Odd(Exception):
        def __str__(self):
            raise RuntimeError("no")

    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("poll", Flaky(Odd())))
        with pytest.raises(Odd):
            pipeline.run(run_id="a")
        assert pipeline.get("a").state == "halted"
    assert place.kinds()[0] == ["failed_fast"]


@pytest.mark.req("PL-05", "PL-06")
def test_an_attempt_that_was_given_up_keeps_its_own_context(tmp_path):
    """It goes on in its thread: what the next attempt is given is not its own."""
    place, seen = Place(tmp_path), []
    is_second, is_late = threading.Event(), threading.Event()

    def load(ctx):
        number = ctx.attempt
        if number == 1:
            assert is_second.wait(20)
        else:
            is_second.set()
            assert is_late.wait(20)
        seen.append((number, ctx.attempt))
        is_late.set()
        return number

    with place.engine() as engine:
        result = place.pipeline(engine, stage("load", load, timeout=0.2)).run()
    assert result.results["load"] == 2
    assert seen == [(1, 1), (2, 2)]


def test_results_are_kept_up_to_a_size_of_the_run(place):
    """The record is written anew after each stage; what is not kept has a note, and is used."""
    text = "x" * 900_000
    with place.engine() as engine:
        stages = [stage(f"s{number}", lambda: text) for number in range(12)]
        last = stage("last", lambda ctx: len(ctx.results["s11"]), after="s11")
        pipeline = place.pipeline(engine, *stages, last)
        assert pipeline.run(run_id="r").results["last"] == 900_000
        notes = [each.note for each in pipeline.get("r").stages]
        assert [bool(note) for note in notes] == [False] * 9 + [True] * 3 + [False]
        assert "8,388,608 are kept of a run" in notes[9]
        again = pipeline.run(run_id="r")
        assert again.results["last"] == 900_000
        with pytest.raises(ResultNotKept):
            again.results["s11"]


@pytest.mark.parametrize("given", [object(), float("nan"), {"a": print}])
def test_an_input_that_cannot_be_recorded(place, given):
    """It is named as the input, before anything is written."""
    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("poll", Flaky()))
        with pytest.raises(UsageError, match="the input of pipeline etl cannot be recorded"):
            pipeline.run(given)
        assert list(pipeline.runs()) == []


# --- runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("run_id", ["\udc80", "a\0b", "", "x" * 201, 7])
def test_ids_of_runs_that_no_store_can_hold(place, run_id):
    """They are refused before anything is written."""
    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("poll", Flaky()))
        with pytest.raises(UsageError, match="run_id"):
            pipeline.run(run_id=run_id)
        assert list(pipeline.runs()) == []


@pytest.mark.parametrize("run_id", ["../../x", "a/b", "é\n", "a\x1b[31m", " "])
def test_ids_of_runs_are_no_paths(place, run_id):
    """Whatever stands in one, the files are those of the folder."""
    with place.engine() as engine:
        place.pipeline(engine, stage("poll", Flaky())).run(run_id=run_id)
    names = [path.name for path in (place.folder / "ledgers").iterdir()]
    assert sorted(names) == [".ledgers.lock", "pipeline_retry_log.json", "versioning_ledger.json"]
    assert place.ledger("versioning_ledger").entries[0].run_id == run_id


@pytest.mark.req("PL-06")
def test_an_unsafe_stage_with_a_new_name_after_a_crash(place):
    """Its process has ended in the middle of it: under whatever name, a person decides first."""
    died, charged = [KeyboardInterrupt()], []

    def charge():
        charged.append(1)
        raise died.pop()

    once = {"idempotency": "unsafe", "max_attempts": 1}
    with place.engine() as engine:
        with pytest.raises(KeyboardInterrupt):
            place.pipeline(engine, stage("charge", charge, **once)).run(run_id="a")
        engine.pipelines.close()
        renamed = place.pipeline(engine, stage("debit", charge, **once))
        with pytest.raises(PipelineHalted, match="may have happened: a person must decide"):
            renamed.resume("a")
        assert [item.kind for item in engine.inbox] == ["quarantine"]
    assert charged == [1]


def test_two_that_resume_one_run_at_once(place):
    """One of them goes on, and the other is told when to come again."""
    begun, go_on = threading.Event(), threading.Event()
    failures = [Down(400)]

    def load():
        if failures:
            raise failures.pop()
        begun.set()
        assert go_on.wait(20)
        return "done"

    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("load", load))
        with pytest.raises(Down):
            pipeline.run(run_id="a")
        (item,) = engine.inbox
        engine.inbox.act(item.id, "release", **operator(engine))
        results = []
        first = threading.Thread(target=lambda: results.append(pipeline.resume("a")))
        first.start()
        assert begun.wait(20)
        with place.engine() as other, pytest.raises(Conflict):
            place.pipeline(other, stage("load", load)).resume("a")
        go_on.set()
        first.join(20)
    assert [each.results["load"] for each in results] == ["done"]
    assert place.kinds()[1].count("resumed") == 1


# --- what is damaged elsewhere --------------------------------------------------------------------


def record_of(engine, address):
    return engine.store.read(RUNS, address)[0]


def put(engine, address, value, space=RUNS):
    change = DROP if value is None else Change(value)
    engine.store.transact(space, address, lambda *_: (change, None))


class Spoiled:
    """A run of pipeline b, b/x, whose record a stage of it damages; it is not carried over."""

    def __init__(self, place, engine, datasets):
        self.whole = None

        def check():
            if self.whole is None:
                self.whole = record_of(engine, "b/x")
                put(engine, "b/x", b'{"state":"x"')

        pipeline = place.pipeline(engine, stage("check", check, datasets=datasets), name="b")
        with pytest.raises(StoredValueError, match="run b/x: the record of the run is damaged"):
            pipeline.run(run_id="x")


@pytest.mark.req("PL-03")
@pytest.mark.parametrize("repaired", ["restored", "removed"])
def test_a_damaged_record_stops_its_run_and_holds_its_data_sets(place, repaired):
    """Other pipelines go on; its data sets are free once it is restored or removed."""
    poll = Flaky()
    with place.engine() as engine:
        spoiled = Spoiled(place, engine, "d-7")
    with place.engine() as engine:
        place.pipeline(engine, stage("poll", poll)).run(run_id="a")
        place.pipeline(engine, stage("poll", poll, datasets="d-8")).run(run_id="c")
        assert [(item.kind, item.data["address"]) for item in engine.inbox] == [
            ("corrupted_state", "b/x")
        ]
        with pytest.raises(
            GovernanceBlocked, match="d-7: it is in quarantine since run b/x: run b/x"
        ):
            place.pipeline(engine, stage("load", poll, datasets="d-7"), name="c").run(run_id="y")
        again = place.pipeline(engine, stage("check", poll, datasets="d-7"), name="b")
        with pytest.raises(StoredValueError, match="run b/x: the record of the run is damaged"):
            again.resume("x")
        with pytest.raises(StoredValueError, match="run b/x: the record of the run is damaged"):
            again.run(run_id="x")
        found = {(each.run_id, each.state) for each in engine.pipelines.all()}
        assert found == {("a", "succeeded"), ("c", "succeeded"), ("x", "damaged"), ("y", "halted")}
        assert poll.calls == 2
        put(engine, "b/x", spoiled.whole if repaired == "restored" else None)
        put(engine, "c/y", None)
        put(engine, "c/y", None, OPEN_RUNS)
        place.pipeline(engine, stage("load", poll, datasets="d-7"), name="d").run()
        assert engine.store.read(DATASETS, "d-7")[0] is None
    assert poll.calls == 3


@pytest.mark.req("PL-03")
def test_a_record_that_is_restored_holds_what_it_has_in_quarantine(place):
    """And nothing else of what was held while it could not be read."""
    poll = Flaky()
    with place.engine() as engine:
        halted = place.pipeline(
            engine,
            stage("check", Flaky(SchemaValidationError("row 7")), datasets="d-7"),
            stage("load", poll, datasets="d-8", after="check"),
            name="b",
        )
        with pytest.raises(SchemaValidationError):
            halted.run(run_id="x")
        whole = record_of(engine, "b/x")
        put(engine, "b/x", b"{")
        put(engine, "b/x", b'4f {"datasets":["d-7","d-8"]}', OPEN_RUNS)
        put(engine, "d-7", None, DATASETS)  # as if the process had been killed before
        place.pipeline(engine, stage("poll", poll)).run()
        for name in ("d-7", "d-8"):
            with pytest.raises(
                GovernanceBlocked, match=f"{name}: it is in quarantine since run b/x"
            ):
                place.pipeline(engine, stage("load", poll, datasets=name), name=f"c-{name}").run()
        put(engine, "b/x", whole)
        place.pipeline(engine, stage("poll", poll)).run()
        held = engine.store.read(DATASETS, "d-7")[0]
        assert b"row 7" in held
        assert b"damaged" not in held
        assert b"b/x" not in (engine.store.read(DATASETS, "d-8")[0] or b"")
        assert engine.store.read(OPEN_RUNS, "b/x")[0] is None
    assert poll.calls == 2


@pytest.mark.req("PL-03")
@pytest.mark.parametrize("entry", [None, b"4f", b'4f {"datasets":'])
def test_data_sets_that_only_a_stage_knows_stop_its_pipeline(place, entry):
    """So does an entry of an earlier version, or a damaged one; other pipelines go on."""
    poll = Flaky()
    with place.engine() as engine:
        Spoiled(place, engine, lambda _: ["d-7"])
        if entry is not None:
            put(engine, "b/x", entry, OPEN_RUNS)
        place.pipeline(engine, stage("poll", poll)).run()
        with pytest.raises(StoredValueError, match="run b/x: the record of the run is damaged"):
            place.pipeline(engine, stage("poll", poll), name="b").run(run_id="z")
        put(engine, "b/x", None)
        place.pipeline(engine, stage("poll", poll), name="b").run(run_id="z")
    assert poll.calls == 2


@pytest.mark.req("PL-08")
def test_a_damaged_record_of_a_data_set_stops_what_uses_it(place):
    """It is named; the stage is not called, and pipelines with other data sets go on."""
    poll = Flaky()
    with place.engine() as engine:
        put(engine, "d-7", b"{", DATASETS)
        uses = place.pipeline(engine, stage("load", poll, datasets="d-7"), name="b")
        with pytest.raises(StoredValueError, match="data set d-7: the record of the data set is"):
            uses.run(run_id="x")
        assert poll.calls == 0
        place.pipeline(engine, stage("load", poll, datasets="d-8")).run()
        with pytest.raises(StoredValueError, match="data set d-7: the record of the data set is"):
            uses.run(run_id="y")
        found = {(each.run_id, each.state) for each in engine.pipelines.all("b")}
        assert (poll.calls, found) == (1, {("x", "halted"), ("y", "halted")})
        assert [item.subject for item in engine.inbox if item.kind == "corrupted_state"] == [
            "data set d-7"
        ]


@pytest.mark.req("PL-08")
def test_a_quarantine_is_written_to_a_data_set_that_is_restored(place):
    """Its record was damaged when the run was halted, and is an older one now."""
    poll = Flaky()
    with place.engine() as engine:

        def check():
            put(engine, "d-7", b"{", DATASETS)
            raise SchemaValidationError("row 7")

        halted = place.pipeline(engine, stage("check", check, datasets="d-7"), name="b")
        with pytest.raises(SchemaValidationError):
            halted.run(run_id="x")
        place.pipeline(engine, stage("poll", poll)).run()
        put(engine, "d-7", None, DATASETS)
        with pytest.raises(GovernanceBlocked, match="d-7: it is in quarantine since run b/x"):
            place.pipeline(engine, stage("load", poll, datasets="d-7"), name="c").run()
    assert poll.calls == 1


def test_a_damaged_record_that_was_carried_over_stops_nothing(place):
    """What it holds in quarantine is known to its data sets by then."""
    poll = Flaky()
    with place.engine() as engine:
        place.pipeline(engine, stage("check", poll, datasets="d-7"), name="b").run(run_id="x")
        put(engine, "b/x", b"{")
        place.pipeline(engine, stage("load", poll, datasets="d-7")).run()
        assert list(engine.inbox) == []
    assert poll.calls == 2


@pytest.mark.req("PL-09")
def test_the_ledgers_of_another_folder_stop_no_run(place):
    """That is reported; what was halted there is in quarantine all the same."""
    other = place.folder / "other"

    def check():
        other.mkdir()
        (other / "versioning_ledger.json").write_text("{")
        raise SchemaValidationError("row 7")

    poll = Flaky()
    with place.engine() as engine:
        halted = place.pipeline(
            engine, stage("check", check, datasets="d-7"), ledgers=other, name="b"
        )
        with pytest.raises(SchemaValidationError):
            halted.run(run_id="x")
    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("poll", poll))
        pipeline.run(run_id="a")
        with pytest.raises(Exception, match="in quarantine since run b/x"):
            place.pipeline(engine, stage("load", poll, datasets="d-7"), name="c").run()
        with pytest.raises(LedgerError, match="other/versioning_ledger"):
            place.pipeline(engine, stage("check", poll), ledgers=other, name="b").run()
    assert poll.calls == 1
    assert (other / "versioning_ledger.json").read_text() == "{"


@pytest.mark.req("PL-09")
def test_ledgers_of_an_older_backup(place):
    """At the next start the files have every run of the store again."""
    folder = place.folder / "ledgers"
    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("poll", Flaky()))
        pipeline.run(run_id="a")
        backup = {path: path.read_bytes() for path in folder.glob("*.json")}
        pipeline.run(run_id="b")
    for path, content in backup.items():
        path.write_bytes(content)
    with place.engine() as engine:
        place.pipeline(engine, stage("poll", Flaky())).run(run_id="c")
    assert [each.run_id for each in place.ledger("versioning_ledger").runs] == ["a", "b", "c"]
    place.assert_whole()


@pytest.mark.req("PL-09")
def test_a_run_that_the_ledgers_have_and_the_store_has_not(place):
    """Its entries could not be written: it is refused before any call, with the line."""
    poll = Flaky()
    for number in range(2):
        with Engine(sinks=[], share=None) as engine:
            pipeline = place.pipeline(engine, stage("poll", poll))
            if number:
                with pytest.raises(LedgerError, match="give it another id") as caught:
                    pipeline.run(run_id="daily")
                assert caught.value.line > 1
            else:
                pipeline.run(run_id="daily")
    assert poll.calls == 1


@pytest.mark.req("PL-09")
@pytest.mark.parametrize("damage", ["folder", "no UTF-8", "byte order mark", "empty", "the other"])
def test_a_ledger_that_is_none(place, damage):
    """An error with the file, and the line if it has one; nothing is called or overwritten."""
    folder, poll = place.folder / "ledgers", Flaky()
    path = folder / "versioning_ledger.json"
    with place.engine() as engine:
        place.pipeline(engine, stage("poll", Flaky())).run()
    data = path.read_bytes()
    if damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes({
            "no UTF-8": data.replace(b'"began"', b'"beg\xff"'),
            "byte order mark": b"\xef\xbb\xbf" + data,
            "empty": b"",
            "the other": (folder / "pipeline_retry_log.json").read_bytes(),
        }[damage])  # fmt: skip
    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage("poll", poll))
        with pytest.raises(LedgerError, match=r"versioning_ledger\.json") as caught:
            pipeline.run()
    assert caught.value.line == (0 if damage == "folder" else 10 if damage == "no UTF-8" else 1)
    assert poll.calls == 0
    assert path.is_dir() == (damage == "folder")


def test_a_transaction_that_cannot_be_rolled_back(place):
    """What the stage raised reaches the caller, and not that the connection was lost with it."""

    class Lost(sqlite3.Connection):
        def rollback(self):
            raise sqlite3.OperationalError("the connection is lost")

    def load(ctx):
        raise SchemaValidationError("row 7")

    database = place.folder / "runs.db"
    with place.engine() as engine:
        pipeline = place.pipeline(engine, stage(
            "load", load, idempotency="outbox",
            connect=lambda: sqlite3.connect(database, factory=Lost, check_same_thread=False),
        ))  # fmt: skip
        with pytest.raises(SchemaValidationError):
            pipeline.run()
