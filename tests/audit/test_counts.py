"""Calls that succeed at once are counted, whichever way they take and whoever else closes."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys

import pytest

from mainstay import Backoff, Engine, RetryPolicy
from mainstay.audit import AuditLog, read_log, replay_log


async def one():
    """An async function that succeeds."""
    return 1


def blocks(engine):
    """A block that succeeds."""
    for attempt in engine.operation("op").attempts():
        with attempt:
            pass


WAYS = {
    "call": lambda engine: engine.call("op", int, "1"),
    "run": lambda engine: engine.run("op", int, "1"),
    "acall": lambda engine: asyncio.run(engine.acall("op", one)),
    "arun": lambda engine: asyncio.run(engine.arun("op", one)),
    "a function that is gone": lambda engine: engine.protect("op")(lambda: 1)(),
    "an async function that is gone": lambda engine: asyncio.run(engine.protect("op")(one)()),
    "a block": blocks,
}


def counts(where):
    """What a log says was counted."""
    told = [record.event for record in read_log(where)]
    return [(e.operation, e.calls) for e in told if e.event_type == "calls_counted"]


@pytest.fixture
def where(tmp_path):
    """The place of a log."""
    return str(tmp_path / "audit.jsonl")


@pytest.mark.req("CP-18")
@pytest.mark.parametrize("way", WAYS)
def test_a_call_that_succeeds_at_once_is_counted_whichever_way_it_takes(where, way):
    """Or success rates would come out too low, in silence."""
    with Engine(sinks=[], audit=AuditLog(where, successes="counted")) as engine:
        for _ in range(3):
            WAYS[way](engine)
        gc.collect()
    assert counts(where) == [("op", 3)]


def test_a_result_that_is_not_accepted_is_no_success(where):
    """Such a call is told of; it is not counted besides."""
    policy = RetryPolicy(
        name="op", max_attempts=2, backoff=Backoff.constant(0), retry_if_result=lambda v: v < 3
    )
    with Engine(policies=[policy], sinks=[], audit=AuditLog(where, successes="counted")) as engine:
        results = iter((1, 3, 5, 1, 1))
        for _ in range(3):
            engine.run("op", lambda: next(results))
    assert counts(where) == [("op", 1)]


def test_an_engine_that_closes_leaves_the_counts_of_another_alone(where):
    """Two engines share a log; what the second counts afterwards is told too."""
    log = AuditLog(where, successes="counted")
    first, second = (Engine(sinks=[], audit=log) for _ in range(2))
    first.call("first", int, "1")
    first.close()
    for _ in range(2):
        second.call("second", int, "1")
    second.close()
    assert counts(where) == [("first", 1), ("second", 2)]


PROGRAM = """
import sys
from mainstay import Engine
from mainstay.audit import AuditLog
engine = Engine(sinks=[], audit=AuditLog(sys.argv[1], successes="counted", spill=False))
engine.call("op", int, "1")
"""


def test_a_process_that_just_ends_has_told_its_counts(where):
    """Nobody closed the engine."""
    subprocess.run([sys.executable, "-c", PROGRAM, where], check=True, timeout=60)
    assert counts(where) == [("op", 1)]


FORKING = """
import os, sys
from mainstay import Engine
from mainstay.audit import AuditLog
from mainstay.testing import scripted
engine = Engine(sinks=[], audit=AuditLog(sys.argv[1], successes="counted", spill=False))
for _ in range(2):
    engine.call("op", int, "1")
engine.call("broken", scripted(ConnectionError, "fine"))
child = os.fork()
if not child:
    engine.call("op", int, "1")
    engine.call("broken", scripted(ConnectionError, "fine"))
    engine.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
engine.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_tells_its_own_counts_and_its_plans(where):
    """What was counted before is told once, by the parent; what a child tells can be replayed."""
    subprocess.run([sys.executable, "-c", FORKING, where], check=True, timeout=60)
    assert counts(where) == [("op", 1), ("op", 2)]
    report = replay_log(where)
    assert (report.ok, report.calls, dict(report.unproved)) == (True, 2, {})


LOADING = """
import os, sys, threading, time
from mainstay.audit import AuditLog
from mainstay.events import CallFailed

begun = threading.Event()

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "mainstay.core.audit.chain" and threading.current_thread() is not MAIN:
            begun.set()
            time.sleep(0.3)

MAIN = threading.current_thread()
log = AuditLog(sys.argv[1], spill=False)
is_loaded = "mainstay.core.audit.chain" in sys.modules
sys.meta_path.insert(0, Slow())
log(CallFailed(operation="op"))
assert is_loaded or begun.wait(30.0)
child = os.fork()
if child == 0:
    log(CallFailed(operation="op"))
    os._exit(0 if log.flush(20.0) else 1)
assert os.waitpid(child, 0)[1] == 0
log.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_a_fork_in_the_midst_of_an_import_waits_for_it(tmp_path, kind):
    """Half a module would be left to the child, which could never write."""
    url = f"sqlite:///{tmp_path}/a.db" if kind == "sqlite" else str(tmp_path / "a.jsonl")
    command = [sys.executable, "-W", "ignore", "-c", LOADING, url]
    assert subprocess.run(command, check=False, timeout=60).returncode == 0
