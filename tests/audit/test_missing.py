"""What is missing in a log is stated by it: records that were lost, writers that did not close."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from mainstay import Backoff, Engine, RetryPolicy
from mainstay.audit import AuditLog, read_log, replay_log, verify_log
from mainstay.audit.stream import AuditStream
from mainstay.events import CallSucceeded
from mainstay.sinks.delivery import pressure
from mainstay.sinks.delivery.spill import Spill
from mainstay.stores.jsonl.journal import JsonlJournal
from mainstay.testing import scripted

POLICY = RetryPolicy(name="api", max_attempts=2, backoff=Backoff.constant(0.0))

PUT = 10_007
"""Events for a queue of 10,000."""


@pytest.fixture(params=["jsonl", "sqlite"])
def where(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/audit.db"
    return str(tmp_path / "audit.jsonl")


class Slow(JsonlJournal):
    """A journal whose appends wait for a gate."""

    def __init__(self, path):
        super().__init__(path)
        self.gate, self.entered = threading.Event(), threading.Event()

    def append(self, make):
        self.entered.set()
        assert self.gate.wait(60)
        return super().append(make)


def overfilled(path):
    """A log that lost some records, since its writer was stuck and there was no spill folder."""
    journal = Slow(path)
    log = AuditLog(journal, spill=False)
    log(CallSucceeded(operation="first", total_attempts=2))
    assert journal.entered.wait(60)
    for number in range(PUT - 1):
        log(CallSucceeded(operation=str(number), total_attempts=2))
    return log, journal


def test_a_saturated_loop_loses_nothing(where, monkeypatch):
    """Calls wait for the writer: more of them than the queue has room for, and each is there."""
    monkeypatch.setattr(pressure, "STUCK", 60.0)  # the machine of a test may be busy
    log = AuditLog(where, spill=False)
    engine = Engine(policies=[POLICY], sinks=[], audit=log)
    calls, tasks = 200, 100

    @engine.protect("api")
    async def fetch():
        raise ConnectionError("refused")

    async def work():
        for _ in range(calls):
            with suppress(ConnectionError):
                await fetch()

    async def main():
        await asyncio.gather(*(work() for _ in range(tasks)))

    asyncio.run(main())
    assert log.flush(60)
    stats = log.stats()
    engine.close()
    assert (stats["lost"], stats["held"] > 0) == (0, True)
    verdict = verify_log(where)
    assert (verdict.records, verdict.is_complete) == (1 + 4 * calls * tasks, True)


def test_a_loss_is_a_record_of_the_log(tmp_path, caplog):
    """How many, from when to when, and why; verify and health report it, and the chain holds."""
    path = tmp_path / "audit.jsonl"
    log, journal = overfilled(path)
    lost = log.stats()["lost"]
    assert lost == PUT - 10_000
    assert Engine(sinks=[log]).health().lost == {"AuditLog": lost}
    assert Engine(sinks=[log]).health().to_dict()["lost"] == {"AuditLog": lost}
    journal.gate.set()
    assert log.flush(60)
    log.close()
    verdict = verify_log(path)
    assert (verdict.ok, verdict.lost, verdict.is_complete) == (True, lost, False)
    (loss,) = verdict.losses
    assert loss.records == lost
    assert loss.first_at <= loss.last_at
    assert loss.reason.endswith("there is no spill folder")
    assert "disk" not in loss.reason
    assert any("events are being lost" in record.getMessage() for record in caplog.records)
    kept = [record.event for record in read_log(path)]
    assert sum(event.event_type == "call_succeeded" for event in kept) == PUT - lost
    assert replay_log(path).ok
    assert AuditStream(path).stats()["lost"] == lost
    assert len(AuditStream(path).filter(event_type="records_lost")) == 1


def test_a_loss_is_reported_once(tmp_path):
    """In the next block, and not again when the log goes on."""
    path = tmp_path / "audit.jsonl"
    log, journal = overfilled(path)
    journal.gate.set()
    assert log.flush(60)
    for number in range(3):
        log(CallSucceeded(operation=str(number), total_attempts=2))
        assert log.flush(60)
    log.close()
    verdict = verify_log(path)
    assert (verdict.lost, len(verdict.losses)) == (log.stats()["lost"], 1)


def test_an_event_without_a_written_form_is_a_loss(where):
    """It is counted in the chain, and costs no other."""
    log = AuditLog(where, spill=False)
    for name in ("good", "\ud800", "fine"):
        log(CallSucceeded(operation=name, total_attempts=2))
    log.close()
    verdict = verify_log(where)
    assert (verdict.ok, verdict.lost) == (True, 1)
    assert verdict.losses[0].reason == "a call_succeeded has no written form"
    assert log.stats()["lost"] == 1


PROGRAM = """
import os, sys, time
from mainstay import Backoff, Engine, RetryPolicy
from mainstay.audit import verify_log

engine = Engine(
    policies=[RetryPolicy(name="api", max_attempts=2, backoff=Backoff.constant(0.0))],
    sinks=[], audit=sys.argv[1],
)

def fail():
    raise ConnectionError("no")

def call():
    try:
        engine.operation("api").call(fail)
    except ConnectionError:
        pass

call()
assert engine.audit.flush(60)
if sys.argv[2] == "kill":
    call()
    os.kill(os.getpid(), 9)
if sys.argv[2] == "fork":
    child = os.fork()
    if child == 0:
        call()
        assert engine.audit.flush(60)
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
if sys.argv[2] == "closed":
    engine.close()
print(os.getpid())
"""


def ran(where, how):
    """A program that audits, and ends in some way; its process id."""
    done = subprocess.Popen([sys.executable, "-c", PROGRAM, where, how], stdout=subprocess.PIPE)
    done.communicate(timeout=60)
    return done.pid


def test_a_killed_writer_is_named(where):
    """Its host, its process, since when: what it had in memory is missing."""
    pid = ran(where, "kill")
    verdict = verify_log(where)
    assert verdict.ok
    assert not verdict.is_complete
    (writer,) = verdict.unclosed
    assert writer.pid == pid
    assert writer.writer.startswith(f"{writer.host}:{pid}:")
    assert writer.since <= writer.last
    assert ran(where, "closed") != pid
    assert [each.pid for each in verify_log(where).unclosed] == [pid]


@pytest.mark.parametrize("how", ["closed", "left"])
def test_a_program_that_ends_closes_its_writer(where, how):
    """Also one that does not close its engine: the end of the process does."""
    ran(where, how)
    assert verify_log(where).is_complete


def test_a_killed_child_is_named_and_its_parent_is_not(tmp_path):
    """Each process is a writer of its own."""
    where = str(tmp_path / "audit.jsonl")
    pid = ran(where, "fork")
    verdict = verify_log(where)
    assert verdict.ok
    assert len(verdict.unclosed) == 1
    assert verdict.unclosed[0].pid != pid


def test_a_log_that_is_used_again_after_its_close_has_another_writer(where):
    """And closes that one, too."""
    log = AuditLog(where)
    with Engine(policies=[POLICY], sinks=[], audit=log) as one:
        one.run("api", scripted(ValueError("no")))
    assert verify_log(where).is_complete
    with Engine(policies=[POLICY], sinks=[], audit=log) as other:
        other.run("api", scripted(ValueError("no")))
        assert log.flush(60)
        assert len(verify_log(where).unclosed) == 1
    assert verify_log(where).is_complete
    assert len({record.writer for record in read_log(where)}) == 2


def test_a_log_that_is_not_written_to_its_end_is_not_closed(tmp_path, caplog):
    """What is on disk comes into the log later, by another writer."""
    import sqlite3

    where = f"sqlite:///{tmp_path}/audit.db"
    log = AuditLog(f"{where}?timeout=2", spill=tmp_path / "spill")
    log(CallSucceeded(operation="a", total_attempts=2))
    assert log.flush(60)
    lock = sqlite3.connect(tmp_path / "audit.db", isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    log(CallSucceeded(operation="b", total_attempts=2))
    assert log.flush(0.1)
    log.close()
    assert any("is not closed" in record.getMessage() for record in caplog.records)
    lock.execute("ROLLBACK")
    lock.close()
    assert len(verify_log(where).unclosed) == 1
    again = AuditLog(where, spill=tmp_path / "spill")
    again(CallSucceeded(operation="c", total_attempts=2))
    assert again.flush(60)
    again.close()
    assert [record.event.operation for record in read_log(where)] == ["a", "b", "c"]
    assert len(verify_log(where).unclosed) == 1


@pytest.mark.parametrize("ends", ["close", "at exit"])
def test_losses_while_the_log_is_away_are_stated_by_the_next_process(tmp_path, monkeypatch, ends):
    """They wait on disk with the events that found room, and are counted once."""
    path, lock = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.lock"
    lock.mkdir()  # no writer can lock it
    log = AuditLog(path, spill=tmp_path / "spill")
    with monkeypatch.context() as full:
        full.setattr(Spill, "write", _refuse)
        for number in range(5 * PUT):
            log(CallSucceeded(operation=str(number), total_attempts=2))
    lost = log.stats()["lost"]
    if ends == "close":
        log.close()
    else:
        log._buffer.end()
        log._buffer.close()
    lock.rmdir()
    following = AuditLog(path, spill=tmp_path / "spill")
    following(CallSucceeded(operation="last", total_attempts=2))
    assert following.flush(60)  # a close waits 5 s, and leaves what is not written to another
    following.close()
    verdict = verify_log(path)
    assert verdict.ok, verdict.problem
    assert lost > 0
    assert verdict.lost == lost == sum(each.records for each in verdict.losses)
    assert verdict.records - len(verdict.losses) == 5 * PUT - lost + 1
    assert not verdict.is_complete


def _refuse(*_, **__):
    raise OSError(28, "No space left on device")
