"""What any version has stored opens, replays and verifies: a folder for each, made by `generate`.

The cases are taken from what is stored, and what is expected of them from `cases` and `content`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import pickle
import shutil
import sqlite3
import warnings
from pathlib import Path

import pytest

import mainstay
from mainstay import (
    AuditLog,
    Engine,
    Item,
    OperatorKey,
    OutcomeUnknown,
    PayloadMismatch,
    ResultNotKept,
    StoredFailure,
    UsageError,
)
from mainstay.audit import read_log, replay_log, verify_log
from mainstay.core.circuit import cluster
from mainstay.core.codec.outcome import decode_outcome
from mainstay.core.inbox.items import decode as decode_item
from mainstay.profiles.pipelines import TelemetrySink
from mainstay.sinks.delivery.adopt import adopt
from tests.stored import cases, content, dumps
from tests.stored.generate import fingerprint

HERE = Path(__file__).parent
VERSIONS = sorted(path for path in HERE.iterdir() if path.is_dir() and path.name[0] == "v")
STORES = ("sqlite", "postgres", "redis", "nats")
ROWS = "SELECT key, value FROM mainstay_kept WHERE space = ?"


def loaded(folder, name):
    return json.loads((folder / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module", params=VERSIONS, ids=lambda folder: folder.name)
def version(request):
    """The folder of one version."""
    return request.param


# --- stores ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=STORES)
def url(request, version, tmp_path_factory):
    """A store with everything that the version has stored in it."""
    if request.param == "sqlite":
        path = tmp_path_factory.mktemp("stored") / "store.sqlite"
        shutil.copy(version / "store.sqlite", path)
        yield f"sqlite:///{path}"
        return
    with content.server(request, request.param, tmp_path_factory) as place:
        dump = json.loads(gzip.decompress((version / f"{request.param}.json.gz").read_bytes()))
        getattr(dumps, f"load_{request.param}")(place, dump)
        yield place


@pytest.fixture
def engine(url):
    with content.open_engine(url, share=None, breaker=None) as engine:
        yield engine


def keys(engine, begins):
    """The keys of the records in the store that begin so, without that."""
    found, after = [], ""
    while page := engine.store.scan("records", after):
        found += [json.loads(address) for address, _ in page]
        after = page[-1][0]
    return [each[2].removeprefix(begins) for each in found if each[2].startswith(begins)]


def stored_rows(version, space):
    """What the file of SQLite has in a space, also what has ended since by the clock of a store."""
    with contextlib.closing(sqlite3.connect(version / "store.sqlite")) as connection:
        return dict(connection.execute(ROWS, [space]).fetchall())


def never():
    """A call that is recorded does not run again."""
    raise content.Ran


def test_a_recorded_value_is_replayed(engine):
    """Of every type, ours and the user's: with its type and value, and the call does not run."""
    names = keys(engine, "value ")
    assert len(names) > 60
    for name in names:
        found = content.keyed(engine, f"value {name}").call(never)
        expected = cases.VALUES[name]
        assert (type(found), found) == (type(expected), expected), name


def test_a_recorded_failure_is_replayed(engine):
    """With the same class, arguments, attributes and notes; or by what stands for it."""
    names = keys(engine, "failure ")
    assert len(names) >= 15
    for name in names:
        found = content.keyed(engine, f"failure {name}").run(never).last_exception
        expected = cases.FAILURES[name]()
        if name == "stands for":
            assert isinstance(found, StoredFailure)
            assert found.type_name == "tests.stored.shapes.Gone"
            continue
        assert type(found) is type(expected), (name, found)
        assert str(found) == str(expected)
        later = {each: value for cls in type(found).__mro__ for each, value in added_to(cls)}
        stored = {each: value for each, value in own(expected).items() if each not in later}
        assert {each: getattr(found, each) for each in stored} == stored, name
        for each, default in later.items():
            assert getattr(found, each) in (default, getattr(expected, each))


ADDED = {"CommandFailed": {"reason": ""}, "OutcomeUnknown": {"item_id": None}}
"""Attributes that errors got after version 1, and what a record without them gives."""


def added_to(cls):
    return ADDED.get(cls.__name__, {}).items()


def own(error):
    """What an exception has of its own; mainstay adds a note to what it gives up on."""
    return {name: value for name, value in vars(error).items() if name != "__notes__"}


def test_a_recorded_note_and_cause_are_replayed(engine):
    """As notes."""
    for name, note in (("noted", "seen at noon"), ("caused", "caused by KeyError: 'inner'")):
        found = content.keyed(engine, f"failure {name}").run(never).last_exception
        assert note in found.__notes__


def test_the_arguments_of_a_recorded_call_are_known_again(engine):
    """The same arguments are the same payload, of whichever classes; others are refused."""
    names = keys(engine, "arguments ")
    assert len(names) > 60
    by_arguments = engine.idempotent(operation="by arguments", ttl=None)(content.take)
    for name in names:
        arguments = cases.ARGUMENTS[name]
        call = content.keyed(engine, f"arguments {name}").call
        assert call(content.take, **arguments) == by_arguments(**arguments) == len(arguments), name
        with pytest.raises(PayloadMismatch):
            call(content.take, **arguments, more=1)


def test_a_tenants_record_and_one_without_a_result_are_replayed(engine):
    """The one for the tenant alone; the other as the error that it could not be kept with."""
    with mainstay.context(tenant_id="t1"):
        assert content.keyed(engine, "of a tenant").call(never) == "the tenant's"
    with pytest.raises(content.Ran):
        content.keyed(engine, "of a tenant").call(never)
    # Versions 1 and 2 recorded a UsageError in its place.
    with pytest.raises((ResultNotKept, UsageError), match="cannot be recorded"):
        content.keyed(engine, "not kept").call(never)


def test_a_response_is_replayed(engine):
    """To a request with the same Idempotency-Key."""
    answer = content.request(engine, "k-1", is_run=False)
    assert asyncio.run(answer) == (201, b"made")


def test_a_command_is_replayed(url, tmp_path):
    """What it wrote, byte for byte; and the exit code of one that failed."""
    done = content.run_command(url, tmp_path, "--key", "command")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"a\xffb", b"\xfec")
    exits = ["sh", "-c", "exit 3"]
    never_on = ("--key", "failed", "--never-on-exit", "3", "--quiet")
    assert content.run_command(url, tmp_path, *never_on, command=exits).returncode == 3


def test_a_call_left_by_a_process_that_is_gone_is_taken_over_or_put_before_a_person(engine):
    """Its lease is over."""
    left = content.keyed(engine, "left", policy=content.TWICE, idempotency="idempotent")
    assert left.call(lambda: "again") == "again"
    with pytest.raises(OutcomeUnknown):
        content.keyed(engine, "left to a person", on_crash="unknown").call(never)


def test_an_outcome_that_was_unknown_is_unknown_until_a_person_decides(engine):
    """The item leads to the record, and the decision is replayed from then on."""
    with pytest.raises(OutcomeUnknown):
        content.keyed(engine, "unknown").call(never)
    [item] = [each for each in engine.inbox if each.subject == '[null,"pay","unknown"]']
    act = {"by": "ann", "proof": content.SECRET, "evidence": '{"paid": true}'}
    assert engine.inbox.act(item.id, "mark_done", **act).item.is_over
    assert content.keyed(engine, "unknown").call(never) == {"paid": True}


def test_the_inbox_is_read(engine):
    """Items of each kind, and one that was raised twice: its identity is stored."""
    items = {(each.kind, each.subject): each for each in engine.inbox.all()}
    for kind in content.KINDS:
        item = items[kind, f"a {kind}"]
        assert (item.status, item.text, item.operation) == ("open", f"a {kind}", "pay")
        assert [each.text for each in item.history] == [f"a {kind}"]
    assert items["alert", "twice"].times == 2
    again = Item(kind="alert", subject="twice", operation="pay", text="too slow")
    assert engine.inbox.put(again).times == 3
    assert items["unknown_outcome", cases.ITEM.subject].data == cases.ITEM.data
    given_up = [item for kind, item in items.items() if item.operation == "given up"]
    assert [item.kind for item in given_up] == ["exhausted"]


def test_an_item_that_was_closed_is_read(version):
    """It ends some months after its decision: by then only the file has it."""
    items = [decode_item(value) for value in stored_rows(version, "inbox").values()]
    (done,) = [item for item in items if item.is_over]
    assert (done.kind, done.decision.by, done.decision.why) == ("governance", "ann", "no use")


def test_operators_prove_who_they_are(engine, url, version):
    """By a secret and by a key; who is disabled is refused, and nobody new is the first."""
    verify = engine.operators.verify
    verify("ann", content.SECRET)
    verify("bob", OperatorKey(version / "key.pem"))
    refused = [("ann", "a guess"), ("eve", content.OTHER_SECRET)]
    if not url.startswith("sqlite"):  # a hash at its real cost for each; stores have no part in it
        refused.clear()
    for name, proof in refused:
        with pytest.raises(mainstay.IdentityRefused):
            verify(name, proof)
    with pytest.raises(mainstay.IdentityRefused, match="not the first"):
        engine.operators.add("mallory", secret="a secret of mine")
    found = {each.name: each for each in engine.operators}
    assert {name: each.is_enabled for name, each in found.items()} == {
        "ann": True,
        "bob": True,
        "eve": False,
    }
    assert found["eve"].added_by == "ann"


def test_what_an_operator_ordered_is_seen_and_obeyed(url):
    """An order has no end. What a process left is forgotten in time, whoever reads it."""
    found = {each["name"]: each for each in json.loads(content.command(url, "circuits", "--json"))}
    assert (found["ordered"]["state"], found["ordered"]["order"]["by"]) == ("forced_open", "ann")
    with content.open_engine(url, **content.budgets()) as engine:
        with pytest.raises(mainstay.CircuitOpenError):
            engine.call("ordered", int)
        assert engine.call("working", int) == 0


def test_a_new_process_takes_over_the_circuits_that_were_left(version):
    """At the time they were stored: what was open or forced is, and the others let calls through.

    That depends on the clock of the store, which no test can set back on a server. The tables are
    the same bytes in every store.
    """
    rows = stored_rows(version, "circuits")
    for name, state in content.CIRCUITS.items():
        table = cluster.decode(rows[name])
        stored_at = max(seat.seen for seat in table.seats.values())
        left = cluster.prospect(table, "new:1:1", stored_at + 60.0, 10.0)
        assert left.circuit.state.value == state or left.order.signal.value == "force open", name
        if name == "opened":
            assert "failures in a row" in left.circuit.reason


# --- logs -----------------------------------------------------------------------------------------

LOGS = ("sqlite", "postgres", "jsonl", "rotated", "pruned")


@pytest.fixture(params=LOGS)
def log(request, version, tmp_path, tmp_path_factory):
    """Where a log is; its heads are in a folder of its name."""
    if request.param == "postgres":
        with content.server(request, "postgres", tmp_path_factory) as place:
            dump = json.loads(gzip.decompress((version / "postgres.json.gz").read_bytes()))
            dumps.load_postgres(place, dump)
            yield place, version / "postgres"
        return
    shutil.copytree(version / request.param, tmp_path / request.param)
    if request.param == "sqlite":
        shutil.copy(version / "store.sqlite", tmp_path / "sqlite")
    name = {"sqlite": "sqlite/store.sqlite", "pruned": "pruned/audit.sqlite"}.get(request.param)
    where = (
        tmp_path / request.param / "audit.jsonl" if name is None else f"sqlite:///{tmp_path}/{name}"
    )
    yield where, version / request.param


def test_a_stored_log_verifies(log, version):
    """With its signatures, and the heads that lie outside."""
    where, folder = log
    verdict = verify_log(where, heads=folder / "heads.jsonl", public_key=version / "key.pub.pem")
    assert verdict.ok, verdict.problem
    assert verdict.signed_until == verdict.ends_with > 20
    assert (verdict.begins_after > 0) is (folder.name == "pruned")


def test_a_stored_log_is_read_and_replayed(log):
    """Every decision in it comes out as it was recorded."""
    where, folder = log
    read = [record.event for record in read_log(where)]
    assert {"plan_declared", "attempt_failed", "retry_attempt"} <= {e.event_type for e in read}
    names = {e.exception_type for e in read if e.event_type == "attempt_failed"}
    assert (
        folder.name == "pruned"
        or {"mainstay.errors.AttemptTimeout", "tests.stored.shapes.Rejected"} <= names
    )
    report = replay_log(where)
    assert report.ok, report.divergence
    assert report.calls > 5


def test_a_stored_log_goes_on(log, version, tmp_path):
    """What is written now is linked to what was written then."""
    where, folder = log
    heads = tmp_path / "heads.jsonl"
    shutil.copy(folder / "heads.jsonl", heads)
    before = verify_log(where).ends_with
    sink = AuditLog(where, key=version / "key.pem", heads=heads, spill=False)
    with content.open_engine("memory://", audit=sink) as engine:
        content.calls(engine)
    verdict = verify_log(where, heads=heads, public_key=version / "key.pub.pem")
    assert verdict.ok, verdict.problem
    assert verdict.signed_until == verdict.ends_with > before
    assert replay_log(where).ok


def test_a_spill_is_taken_up(version, tmp_path):
    """What another version could not write is adopted, written by the next, and replayed."""
    spilled = tmp_path / "spill"
    where = content.spill(tmp_path, spilled)
    [home] = spilled.iterdir()
    for found in home.iterdir():  # the folders of processes; the key stays
        if found.is_dir():
            shutil.rmtree(found)
    shutil.copytree(version / "spilled" / "home", home, dirs_exist_ok=True)
    assert list(spilled.rglob("*.jsonl"))
    assert all(adopt(path) for path in spilled.rglob("*.jsonl"))
    sink = AuditLog(where, spill=spilled)
    with Engine(sinks=[], audit=sink) as engine:
        engine.run("parse", int, "x")
    assert list(spilled.rglob("*.jsonl")) == []
    found = [record.event.operation for record in read_log(where)]
    assert "failed Rejected" in found
    assert "parse" in found
    assert verify_log(where).ok
    assert replay_log(where).ok


def test_telemetry_is_added_to(version, tmp_path):
    """The file of another version is read, and what is new is added to it."""
    path = tmp_path / "telemetry.json"
    shutil.copy(version / "telemetry.json", path)
    before = json.loads(path.read_text(encoding="utf-8"))
    sink = TelemetrySink(path, pipeline_id="etl_v1")
    with content.open_engine("memory://", sinks=[sink]) as engine:
        content.calls(engine)
    after = json.loads(path.read_text(encoding="utf-8"))
    assert len(after["records"]) == 2 * len(before["records"])


# --- fingerprints and pickles ---------------------------------------------------------------------


def test_the_same_arguments_have_the_same_fingerprint(version):
    """Whatever module a class of ours has moved to: another one would make a key a mismatch."""
    stored = loaded(version, "fingerprints.json")
    assert {name: fingerprint(cases.ARGUMENTS[name]) for name in stored} == stored


def test_a_pickle_is_read(version):
    """Of each public value and each protocol: by the name that its class had then."""
    stored = loaded(version, "pickles.json")
    for name, texts in stored.items():
        for protocol, text in texts.items():
            found = pickle.loads(base64.b64decode(text))
            assert is_same(found, cases.PICKLED[name]), (name, protocol, found)


def test_an_event_with_a_witness_is_read_and_has_the_same_fingerprint(version):
    """It holds a circuit, of classes that are not public; a record, a key or a pickle may too."""
    stored = loaded(version, "witnessed.json")
    found = [decode_outcome(stored["record"].encode()).value]
    found += [pickle.loads(base64.b64decode(text)) for text in stored["pickles"].values()]
    for event in found:
        assert json.loads(json.dumps(event.to_dict())) == stored["event"]
        assert fingerprint({"event": event}) == stored["fingerprint"]


def is_same(found, expected):
    """Equal; or, of a class that cannot tell, of the same type and state."""
    if type(found) is not type(expected):
        return False
    if isinstance(expected, BaseException):
        has_all = all(hasattr(found, name) for name in vars(expected))
        return has_all and told_by(found) == told_by(expected)
    return found == expected or state_of(found) == state_of(expected)


def told_by(error):
    """What can be compared of an exception: some attributes know no equality."""
    return error.args, getattr(error, "__notes__", [])


def state_of(value):
    return repr([repr(part) for part in value.__reduce_ex__(2)[1:]])


def test_every_public_class_of_values_is_among_the_pickles():
    """A class that is made public later is stored by a later version."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        public = {name: getattr(mainstay, name) for name in mainstay.__all__}
    have = {type(value) for value in cases.PICKLED.values()}
    rest = {name for name, found in public.items() if isinstance(found, type) and found not in have}
    assert rest == HOLD_A_PROCESS


HOLD_A_PROCESS = {
    "AdaptiveThrottle", "Attempt", "Attempts", "AuditLog", "AuditStream", "Bulkhead",
    "CircuitBreaker", "CircuitRegistry", "Decorated", "Engine", "Hedge", "Inbox", "KeyedOperation",
    "MemoryGuard", "Operation", "OperatorKey", "Operators", "RateLimit", "Recovery",
    "RetryBudget", "RetryStatistics", "SagaContext", "SagaExecutor", "Sagas",
    "TokenBudget", "carrying", "context",
}  # fmt: skip
"""What has locks, files, keys or calls under way, and is no value."""
