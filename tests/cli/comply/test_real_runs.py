"""`mainstay comply` on 200 runs of real pipelines: telemetry, ledgers, store and audit log."""

import json
import os
import random
from dataclasses import dataclass
from dataclasses import replace as dataclass_replace
from pathlib import Path

import pytest
from msgspec.structs import replace

import mainstay.core.inbox.operators as operators
from mainstay import Engine
from mainstay.cli import guard
from mainstay.cli.comply.read import Sources, gathered, stored_runs
from mainstay.core.comply.check import check
from mainstay.core.pipeline.ledger_file import decode as decode_ledger
from mainstay.core.pipeline.ledger_file import encode as encode_ledger
from mainstay.core.telemetry.record import Telemetry, first_try, merged, total_of
from mainstay.core.telemetry.record import decode as decode_telemetry
from mainstay.core.telemetry.record import encode as encode_telemetry
from mainstay.errors import MainstayError
from mainstay.profiles.pipelines import Pipeline, SchemaValidationError, Stage
from mainstay.testing import virtual_time

WORLDS, RUNS = 10, 20
NAME = "etl_v1.2"
LOG, LEDGER = "pipeline_retry_log.json", "versioning_ledger.json"
SECRET = "correct horse battery"
pytestmark = pytest.mark.req("PL-13")


class Down(Exception):
    """The other side answers with a status that may be retried."""

    status_code = 503


class Dice:
    """A stage that fails by chance: with what is retried, with a schema error, or not at all."""

    def __init__(self, seed):
        self.dice = random.Random(seed)

    def __call__(self):
        chance = self.dice.random()
        if chance < 0.25:
            raise Down
        if chance < 0.29:
            raise SchemaValidationError("no id")
        if chance < 0.35:
            raise TimeoutError
        return 1


@dataclass
class World:
    """What 20 runs of a pipeline have left behind."""

    folder: Path
    stored: list
    telemetry: Telemetry
    log: object
    ledger: object


def play(folder, clock, seed, *, store="memory://", runs=RUNS):
    """Some halt; some of those are reviewed and resumed, at once or after the cooldown."""
    dice = random.Random(seed)
    with Engine(store, sinks=[], audit=f"{folder}/audit.jsonl", seed=seed, share=None) as engine:
        engine.operators.add("ann", secret=SECRET)
        pipeline = Pipeline(
            NAME,
            [
                Stage("poll", Dice(seed + 1), idempotency="idempotent", kind="source"),
                Stage("check", Dice(seed + 2), after="poll", idempotency="idempotent"),
                Stage("load", Dice(seed + 3), after="check", idempotency="keyed",
                      idempotency_key="load-{run_id}"),
                Stage("side", Dice(seed + 4), idempotency="idempotent"),
            ],
            engine=engine,
            ledgers=folder,
            telemetry=folder / "telemetry.json",
            max_parallel=1 + seed % 2,
        )  # fmt: skip
        for number in range(runs):
            run_one(engine, pipeline, f"r-{number}", dice, clock)
        stored = stored_runs(engine.store)
    telemetry = decode_telemetry((folder / "telemetry.json").read_bytes())
    ledgers = [decode_ledger((folder / name).read_bytes()) for name in (LOG, LEDGER)]
    return World(folder, stored, telemetry, *ledgers)


def run_one(engine, pipeline, name, dice, clock):
    is_new = True
    for _ in range(4):
        try:
            pipeline.run(run_id=name) if is_new else pipeline.resume(name)
        except (MainstayError, Down, TimeoutError):
            for item in list(engine.inbox):
                engine.inbox.act(item.id, "release", by="ann", proof=SECRET)
        else:
            return
        if dice.random() < 0.4:
            return
        clock.advance(dice.choice((1.0, 301.0)))
        is_new = False


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """The runs, made without waiting for the disk."""
    with pytest.MonkeyPatch.context() as patch, virtual_time() as clock:
        patch.setattr(os, "fsync", lambda _file: None)
        patch.setattr(operators, "COST", operators.Hash(salt="", n=16))
        return [play(tmp_path_factory.mktemp("real"), clock, seed) for seed in range(WORLDS)]


def rules(world, folder, *, telemetry=None, log=None, ledger=None, has_all=True, form=bytes):
    """The rules that are broken, with some of the files exchanged, or written in another form."""
    paths = [folder / "telemetry.json", folder / LOG, folder / LEDGER]
    paths[0].write_bytes(form(encode_telemetry(telemetry or world.telemetry)))
    paths[1].write_bytes(form(encode_ledger(log or world.log)))
    paths[2].write_bytes(form(encode_ledger(ledger or world.ledger)))
    sources = Sources([str(paths[0])], [str(paths[1]), str(paths[2])])
    sources.audit = [f"{world.folder}/audit.jsonl"] if has_all else []
    sources.store = "memory://" if has_all else ""
    stored = world.stored if has_all else []
    found = gathered(sources, stored, run="", since="", max_attempts=5, cooldown=300.0)
    return {each.rule for each in sources.lined(check(found))}


def without(values, index):
    return (*values[:index], *values[index + 1 :])


def test_the_runs_have_what_there_is_to_find(worlds):
    """Otherwise the tests below would show little."""
    kinds = {entry.kind for world in worlds for entry in world.log.entries}
    assert kinds == {"retried", "failed_fast", "exhausted", "refused", "probe_failed"}
    kinds = {entry.kind for world in worlds for entry in world.ledger.entries}
    assert kinds >= {"began", "halted", "quarantined", "reviewed", "resumed", "completed"}
    assert sum(len(world.stored) for world in worlds) == WORLDS * RUNS


def test_200_real_runs_break_no_rule(worlds, tmp_path):
    """With the files alone, and with store and audit log."""
    for world in worlds:
        assert rules(world, tmp_path) == set(), world.folder
        assert rules(world, tmp_path, has_all=False) == set(), world.folder


def indented(data):
    """As an editor or `jq` would write it."""
    return json.dumps(json.loads(data), indent=3, sort_keys=True, ensure_ascii=False).encode()


def test_what_is_no_offence_turns_nothing_red(worlds, tmp_path):
    """Another form of the files, another order of records, and runs that the store has dropped."""
    for number, world in enumerate(worlds):
        dice, has_all = random.Random(number), bool(number % 2)
        assert rules(world, tmp_path, form=indented, has_all=has_all) == set(), number
        records = list(world.telemetry.records)
        dice.shuffle(records)
        shuffled = replace(world.telemetry, records=records)
        assert rules(world, tmp_path, telemetry=shuffled, has_all=has_all) == set(), number
        kept = dataclass_replace(world, stored=dice.sample(world.stored, RUNS // 2))
        assert rules(kept, tmp_path) == set(), number
        fewer = merged(world.telemetry, Telemetry(totals=[], records=[]), dice.randint(0, 9))
        assert rules(world, tmp_path, telemetry=fewer, has_all=has_all) == set(), number


def test_one_offence_in_real_runs_turns_it_red(worlds, tmp_path):
    """A record deleted, a retried schema error added, an entry removed: each by its rule."""
    for number, world in enumerate(worlds):
        dice, has_all = random.Random(number), bool(number % 2)
        records = world.telemetry.records
        gone = without(records, dice.randrange(len(records)))
        fewer = replace(world.telemetry, records=list(gone))
        found = rules(world, tmp_path, telemetry=fewer, has_all=has_all)
        assert found == {"missing-telemetry"}, number
        added = merged(world.telemetry, retried_schema_error(), 10_000)
        found = rules(world, tmp_path, telemetry=added, has_all=has_all)
        assert found == {"forbidden-class", "unlogged-retry"}, number
        for part in ("log", "ledger"):
            ledger = getattr(world, part)
            entries = without(ledger.entries, dice.randrange(len(ledger.entries)))
            parts = {part: replace(ledger, entries=entries)}
            assert "altered-ledger" in rules(world, tmp_path, has_all=has_all, **parts), number


def retried_schema_error():
    base = replace(first_try(NAME, "load"), sequence="5eed", timestamp="2099-01-01T00:00:00Z")
    failed = replace(base, outcome="failure", error_class="app.SchemaValidationError",
                     retryable=True, is_final=False, delay_ms=9.0)  # fmt: skip
    records = [failed, replace(base, attempt=2)]
    return Telemetry(totals=[total_of(each) for each in records], records=records)


def test_the_command_reads_what_a_pipeline_has_left(tmp_path, monkeypatch, capsys):
    """Store, audit log, ledgers and telemetry, after the process has closed them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(operators, "COST", operators.Hash(salt="", n=16))
    with virtual_time() as clock:
        play(tmp_path, clock, 3, store=f"sqlite:///{tmp_path}/etl.db", runs=5)
    files = ["telemetry.json", LOG, LEDGER, "audit.jsonl", "--store", "sqlite:///etl.db"]
    code = guard.run(["comply", *files, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert (code, document["findings"], document["checked"]["runs"]) == (0, [], 5)
    assert document["checked"]["audit_records"] > 0
    found = ["telemetry.json", "--store", "sqlite:///etl.db", "--json"]
    assert guard.run(["comply", *found]) == 0  # the ledgers are where the runs name them
    capsys.readouterr()
    (tmp_path / LEDGER).unlink()
    assert guard.run(["comply", *found]) == 1
    (only,) = json.loads(capsys.readouterr().out)["findings"]
    assert (only["rule"], Path(only["file"]).name) == ("altered-ledger", LEDGER)
