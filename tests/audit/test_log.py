"""The sink: what is written when, and what happens where it cannot be."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import stat
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from mainstay import Backoff, Engine, RetryPolicy, SinkError
from mainstay.audit import AuditLog, make_key, read_log, verify_log
from mainstay.core.audit.chain import header_of
from mainstay.errors import MissingExtraError, PolicyError, StoreError, UsageError
from mainstay.events import CallSucceeded
from mainstay.stores.jsonl.journal import JsonlJournal
from mainstay.stores.memory import MemoryStore
from mainstay.stores.sqlite.store import SqliteStore
from mainstay.testing import scripted, virtual_time

POLICY = RetryPolicy(name="api", max_attempts=3, backoff=Backoff.constant(0.0))


def event(number):
    return CallSucceeded(operation=str(number))


def operations(where):
    return [record.event.operation for record in read_log(where)]


def types(where):
    return [record.event.event_type for record in read_log(where)]


@pytest.fixture
def where(tmp_path):
    return tmp_path / "audit.jsonl"


# --- engines --------------------------------------------------------------------------------------


def test_an_engine_with_a_durable_store_audits_there(tmp_path):
    """Without being asked: every decision of a failing call, after the plan it was made by."""
    url = f"sqlite:///{tmp_path}/mainstay.db"
    with Engine(url, policies=[POLICY], sinks=[]) as engine:
        engine.run("api", scripted(ConnectionError("a"), ConnectionError("b"), "fine"))
    assert types(url) == [
        "plan_declared",
        "attempt_failed", "retry_attempt",
        "attempt_failed", "retry_attempt",
        "call_succeeded",
    ]  # fmt: skip
    verdict = verify_log(url)
    assert (verdict.ok, verdict.heads) == (True, 1)


def test_an_engine_in_memory_does_not_audit(tmp_path):
    """There is nowhere that outlives it."""
    assert Engine().audit is None
    with Engine("sqlite:///:memory:") as engine:
        assert engine.audit is None
    with Engine(f"sqlite:///{tmp_path}/a.db", audit=False) as engine:
        assert engine.audit is None


def test_an_engine_audits_where_it_is_told(tmp_path, where):
    """A place, a log, or the store itself; a store that cannot is refused, and others named."""
    for audit in (str(where), where, AuditLog(where)):
        with Engine(policies=[POLICY], sinks=[], audit=audit) as engine:
            engine.run("api", scripted(ValueError("no")))
    assert types(where).count("call_failed") == 3
    with pytest.raises(StoreError, match="sqlite://, postgresql://"):
        Engine(audit=True)
    with pytest.raises(StoreError, match="cannot keep an audit log"):
        AuditLog(MemoryStore())


def test_two_engines_may_share_a_log(where):
    """One closes it, and the other goes on."""
    log = AuditLog(where)
    with Engine(policies=[POLICY], sinks=[], audit=log) as one:
        one.run("api", scripted(ValueError("no")))
    with Engine(policies=[POLICY], sinks=[], audit=log) as other:
        other.run("api", scripted(ValueError("no")))
    assert types(where).count("call_failed") == 2
    assert verify_log(where).heads == 2


def test_a_keyed_call_on_sqlite_is_not_failed_by_an_audit_that_cannot_write(tmp_path, caplog):
    """The tables of the log are gone: calls go on, and it is said once."""
    import sqlite3

    url = f"sqlite:///{tmp_path}/mainstay.db"
    engine = Engine(url, audit=AuditLog(url, spill=tmp_path / "spill"))
    with closing(sqlite3.connect(tmp_path / "mainstay.db")) as connection:
        connection.execute("DROP TABLE mainstay_audit_blocks")
    for number in range(20):
        assert engine.operation("parse", key=str(number)).call(int, "7") == 7
    assert engine.audit.flush(60)
    said = [record.getMessage() for record in caplog.records]
    assert len([text for text in said if "not delivered for now" in text]) == 1
    assert list((tmp_path / "spill").rglob("*.jsonl"))
    engine.close()


def test_a_log_in_the_store_of_an_engine_is_not_closed_before_it(tmp_path):
    """Closing the engine writes what is left first."""
    url = f"sqlite:///{tmp_path}/mainstay.db"
    engine = Engine(url, sinks=[])
    engine.operation("parse", key="a").call(int, "7")
    engine.close()
    assert types(url) == ["idempotency"]


# --- durability -----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["audit.jsonl", "sqlite"])
def test_with_durability_call_an_event_is_in_the_log_when_the_call_goes_on(tmp_path, place):
    """No flush: whoever looks finds it."""
    where = f"sqlite:///{tmp_path}/a.db" if place == "sqlite" else tmp_path / place
    log = AuditLog(where, durability="call")
    for number in range(3):
        log(event(number))
        assert operations(where) == [str(n) for n in range(number + 1)]
    log.close()


def test_concurrent_callers_share_a_commit(where):
    """Group commit: eight callers at once make fewer blocks than events."""
    journal = JsonlJournal(where)
    is_in, may_go = threading.Event(), threading.Event()
    real = journal.append

    def slow(make):
        is_in.set()
        assert may_go.wait(60)
        return real(make)

    journal.append = slow
    log = AuditLog(journal, durability="call")
    threads = [threading.Thread(target=log, args=(event(n),)) for n in range(8)]
    threads[0].start()
    assert is_in.wait(60)
    for thread in threads[1:]:
        thread.start()
    while log.stats()["taken"] < 8:
        pass
    may_go.set()
    for thread in threads:
        thread.join(60)
    assert sorted(operations(where)) == [str(n) for n in range(8)]
    assert len(list(journal.blocks())) == 2
    log.close()


def test_with_durability_call_and_no_log_an_event_is_on_disk_at_least(tmp_path, where):
    """The other side is away: what was promised is kept beside, and gets there later."""
    journal = JsonlJournal(where)
    real, journal.append = journal.append, lambda make: 1 / 0
    log = AuditLog(journal, durability="call", spill=tmp_path / "spill")
    for number in range(3):
        log(event(number))
    assert log.stats()["waiting"] == 0
    assert list((tmp_path / "spill").rglob("*.jsonl"))
    journal.append = real
    log.flush(60)
    end = threading.Event()
    for _ in range(500):
        if log.stats()["delivered"] == 3 or end.wait(0.02):
            break
    assert operations(where) == ["0", "1", "2"]
    log.close()


@pytest.mark.parametrize("last", [ConnectionError("its own"), ValueError("another")])
def test_a_strict_log_raises_where_it_cannot_write(tmp_path, where, last):
    """The caller is told, with the call's own failure as the context."""
    journal = JsonlJournal(where)
    real, journal.append = journal.append, lambda make: 1 / 0
    log = AuditLog(journal, strict=True, spill=tmp_path)
    log._buffer.timeout = 2.0  # so long the first try to write may take
    engine = Engine(policies=[POLICY], sinks=[], audit=log)
    with virtual_time():  # what is known already is told at the end of the call, as one
        Engine(policies=[POLICY], sinks=[]).run("api", scripted(ConnectionError(""), last))
    with pytest.raises(SinkError) as caught, virtual_time():
        engine.call("api", scripted(ConnectionError("a"), ConnectionError("b"), last))
    assert caught.value.__context__ is last
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    journal.append = real
    log._buffer.timeout = 20.0
    engine.close()
    assert "attempt_failed" in types(where)


def test_a_commit_that_ended_in_doubt_is_not_repeated(where):
    """The block was kept and the answer lost: the next try finds it there."""
    journal = JsonlJournal(where)
    real, failed = journal.append, []

    def lost(make):
        answer = real(make)
        if not failed:
            failed.append(True)
            raise ConnectionError("the answer was lost")
        return answer

    journal.append = lost
    log = AuditLog(journal, spill=False)
    log(event(1))
    assert log.flush(60)
    log(event(2))
    log.close()
    assert operations(where) == ["1", "2"]


DISK_FULL = """
import logging, resource, sys
from mainstay.audit import AuditLog
from mainstay.events import CallSucceeded
logging.basicConfig()
where, spill, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
log = AuditLog(where, spill=spill if spill != "False" else False)
log(CallSucceeded(operation="before"))
assert log.flush(60)
resource.setrlimit(resource.RLIMIT_FSIZE, (count, -1))
for number in range(300):
    log(CallSucceeded(operation=str(number), call_id="x" * 1000))
is_safe = log.flush(2)
print(is_safe, log.stats()["lost"], log.stats()["waiting"])
resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
sys.stdout.flush()
"""


@pytest.mark.req("CP-15.reported")
@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_on_a_full_disk_nothing_is_lost_in_silence(tmp_path, kind):
    """It waits in memory or in the spill folder, is told, and arrives when there is room."""
    where = f"sqlite:///{tmp_path}/a.db" if kind == "sqlite" else str(tmp_path / "a.jsonl")
    for spill in ("False", str(tmp_path / "spill")):
        done = subprocess.run(
            [sys.executable, "-c", DISK_FULL, where, spill, "200000"],
            capture_output=True,
            text=True,
            timeout=90,
            check=True,
        )
        assert "not delivered for now" in done.stderr
        lost = int(done.stdout.split()[1])
        assert lost == 0
    verdict = verify_log(where)
    assert verdict.ok, verdict.problem
    last = AuditLog(where, spill=tmp_path / "spill")
    assert last.flush(60)
    last.close()
    assert {*operations(where)} == {"before", *map(str, range(300))}
    assert operations(where).count("299") == 2


# --- rotation and retention -----------------------------------------------------------------------


def test_files_are_ended_and_old_ones_deleted(where):
    """The chain verifies from file to file, and from what is left of it; plans come along."""
    with virtual_time(start=1_800_000_000.0) as time:
        log = AuditLog(where, rotate=2_000, keep=3600.0)
        with Engine(policies=[POLICY], sinks=[], audit=log) as engine:
            for _ in range(10):
                engine.run("api", scripted(ConnectionError("a"), "fine"))
                assert log.flush(60)
                time.advance(600.0)
    verdict = verify_log(where)
    assert verdict.ok, verdict.problem
    assert verdict.begins_after > 0
    assert types(where)[0] == "plan_declared"
    assert not (where.parent / "audit.000001.jsonl").exists()
    assert [r.number for r in read_log(where)][-1] == verdict.ends_with


def test_old_rows_are_dropped_and_their_plans_kept(tmp_path):
    """In a database too: an anchor stands in their place, and the chain says so."""
    url = f"sqlite:///{tmp_path}/a.db"
    with virtual_time(start=1_800_000_000.0) as time:
        log = AuditLog(url, keep=3600.0)
        with Engine(policies=[POLICY], sinks=[], audit=log) as engine:
            for _ in range(10):
                engine.run("api", scripted(ConnectionError("a"), "fine"))
                assert log.flush(60)
                time.advance(600.0)
    verdict = verify_log(url)
    assert verdict.ok, verdict.problem
    assert verdict.begins_after > 0
    records = list(read_log(url))
    assert (records[0].number, records[0].event.event_type) == (0, "plan_declared")
    assert records[1].number == verdict.begins_after + 1
    with closing(SqliteStore(url).journal(closes=True)) as journal:
        notes = [header_of(block).note for block in journal.blocks()]
    assert any(note and "pruned" in note for note in notes)
    import sqlite3

    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("UPDATE mainstay_audit_anchor SET carried = '[]'")
        connection.commit()
    assert "plans that were kept" in verify_log(url).problem


def test_heads_come_every_so_many_records_and_at_the_end(where):
    """Also where several writers take turns."""
    one, two = AuditLog(where, every=10), AuditLog(where, every=10)
    for number in range(25):
        (one if number % 2 else two)(event(number))
        assert (one if number % 2 else two).flush(20)
    one.close()
    two.close()
    with closing(JsonlJournal(where)) as journal:
        assert [head.number for head in journal.heads()] == [10, 20, 25, 25]
    assert verify_log(where).heads == 4


def test_a_place_outside_that_fails_is_reported_once(where, tmp_path, caplog):
    """Heads are brought to the other places all the same, and the log is written."""
    seen = []

    def fails(head):
        raise ConnectionError("nobody is there")

    log = AuditLog(where, every=1, heads=[fails, seen.append, tmp_path / "heads"])
    for number in range(3):
        log(event(number))
        assert log.flush(60)
    log.close()
    assert len(seen) == 4
    assert len((tmp_path / "heads").read_text("utf-8").splitlines()) == 4
    assert len([r for r in caplog.records if "could not be written to" in r.getMessage()]) == 1


# --- keys and options -----------------------------------------------------------------------------


def test_a_key_is_for_its_user_only_and_never_overwritten(tmp_path):
    """Mode 0600, and a second one needs another name."""
    private, public = make_key(tmp_path / "audit.pem")
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert b"PRIVATE" not in public.read_bytes()
    with pytest.raises(UsageError, match="is there already"):
        make_key(private)


def test_what_is_no_key_is_refused(tmp_path, where):
    """When the log is made, not when the first head is due."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import x25519

    other = x25519.X25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    for key, problem in (
        (b"no key", "cannot be read"),
        (tmp_path / "none", "No such file"),
        (other, "no Ed25519 key"),
    ):
        with pytest.raises(UsageError, match=problem):
            AuditLog(where, key=key)
    with pytest.raises(UsageError, match="cannot be read"):
        verify_log(where, public_key=b"no key")


def test_without_cryptography_the_extra_is_named(where, monkeypatch):
    """A key needs the extra `signing`, and nothing else does."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(MissingExtraError, match=r"mainstay\[signing\]"):
        AuditLog(where, key=b"")
    log = AuditLog(where)
    log(event(1))
    log.close()
    assert verify_log(where).ok


def test_wrong_options_are_refused(where, tmp_path):
    """With what would be right."""
    with pytest.raises(PolicyError) as caught:
        AuditLog(where, durability="never", every=0, keep=0, rotate=0)
    assert len(caught.value.problems) == 4
    for wrong in (
        "redis://localhost",
        f"sqlite:///{tmp_path}/no/a.db",
        tmp_path / "no" / "a.jsonl",
    ):
        with pytest.raises(StoreError, match="no audit log can be at"):
            AuditLog(wrong)
    with pytest.raises(UsageError, match="is no place"):
        AuditLog(42)
    with pytest.raises(UsageError, match="rotate="):
        AuditLog(f"sqlite:///{tmp_path}/a.db", rotate=1000)
    for heads in (42, asyncio.sleep):  # nothing awaits an async function
        with pytest.raises(UsageError, match="heads cannot be written there"):
            AuditLog(where, heads=heads)


def test_an_event_without_a_written_form_costs_no_other(where, caplog):
    """A lone surrogate has no UTF-8: that one is lost, and said to be."""
    log = AuditLog(where)
    log(event(1))
    log(CallSucceeded(operation="\ud800"))
    log(event(2))
    log.close()
    assert operations(where) == ["1", "2", ""]
    assert types(where)[-1] == "records_lost"
    assert any("has no written form" in record.getMessage() for record in caplog.records)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "jsonl"])
def test_a_forked_child_writes_to_the_same_log(kind, request, tmp_path):
    """With a connection of its own; the chain is one."""
    where = {
        "sqlite": f"sqlite:///{tmp_path}/a.db",
        "jsonl": str(tmp_path / "a.jsonl"),
    }.get(kind) or request.getfixturevalue("postgres_database")
    script = """
import os, sys
from mainstay.audit import AuditLog
from mainstay.events import CallSucceeded
log = AuditLog(sys.argv[1])
log(CallSucceeded(operation="parent"))
assert log.flush(60)
child = os.fork()
if child == 0:
    log(CallSucceeded(operation="child"))
    assert log.flush(60)
    log.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
log(CallSucceeded(operation="parent again"))
log.close()
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, where], timeout=60, check=True)
    assert operations(where) == ["parent", "child", "parent again"]
    assert len({record.writer for record in read_log(where)}) == 2
    assert verify_log(where).ok


def test_the_log_of_a_process_that_just_ends_is_whole(where):
    """Nobody closed anything: the end of the process flushes."""
    script = """
import sys
from mainstay import Engine
Engine(sinks=[], audit=sys.argv[1]).run("parse", int, "x")
"""
    subprocess.run([sys.executable, "-c", script, str(where)], timeout=60, check=True)
    assert types(where) == ["plan_declared", "attempt_failed", "call_failed"]


def test_logging_is_not_touched_by_a_healthy_log(where, caplog):
    """Nothing is said where nothing is wrong."""
    caplog.set_level(logging.DEBUG)
    log = AuditLog(where)
    log(event(1))
    log.close()
    assert caplog.records == []


def test_the_limit_of_the_system_is_back(tmp_path):
    """The tests above change it in other processes only."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] in (-1, resource.RLIM_INFINITY)
