"""A log replays in another process, and says where it does not."""

import json
import random
import subprocess
import sys

import pytest

import mainstay
from mainstay import BreakerSettings, Engine, RetryBudget, RetryPolicy
from mainstay.audit import AuditLog, read_log, replay_log, replay_records
from mainstay.core.events.codec import decode
from mainstay.testing import assert_replays, virtual_time

PROGRAM = """
import sys
from mainstay.testing import assert_replays
report = assert_replays(sys.argv[1])
print(report.events, report.calls, report.decisions)
"""


def write_log(where, calls, **fields):
    """Some calls with trouble of several sorts."""
    rand = random.Random(3)
    policy = RetryPolicy(name="standard", retry_on=(OSError, KeyError), deadline=20.0, **fields)

    def function():
        number = rand.random()
        if number < 0.5:
            return number
        raise (ConnectionError, TimeoutError, KeyError, ValueError)[int(number * 1000) % 4]("x")

    with (
        virtual_time(),
        Engine(
            sinks=[AuditLog(where)],
            policies=[policy],
            budget=RetryBudget(floor=20),
            breaker=BreakerSettings(failure_threshold=8, recovery_timeout=0.5),
            seed=1,
        ) as engine,
    ):
        for _ in range(calls):
            engine.run("op", function)


@pytest.mark.req("CP-16", "IT-041-03")
@pytest.mark.parametrize("place", ["{}/audit.jsonl", "sqlite:///{}/audit.db"])
def test_a_log_replays_in_another_process(tmp_path, place):
    """From what it holds alone: no object of the writer is there."""
    where = place.format(tmp_path)
    write_log(where, 400)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, where], capture_output=True, text=True, check=True
    )
    events, calls, decisions = map(int, done.stdout.split())
    assert events == sum(1 for _ in read_log(where)) > 500
    assert 100 < calls < decisions


@pytest.mark.req("CP-16")
def test_a_decision_that_comes_out_otherwise_fails_the_test(tmp_path):
    """With the record's number, the field and both values."""
    path = tmp_path / "audit.jsonl"
    write_log(str(path), 50)
    bodies = [record.body for record in read_log(str(path))]
    changed = tmp_path / "changed.jsonl"
    log = AuditLog(str(changed))

    for body in bodies:
        event = json.loads(body)
        if event["event_type"] == "plan_declared":
            event["fields"]["max_attempts"] = 2
        log(decode(json.dumps(event)))
    log.close()
    with pytest.raises(AssertionError, match="max_attempts was recorded as 3, and comes out as 2"):
        assert_replays(str(changed))
    assert replay_log(str(changed)).divergence.event_type == "attempt_failed"


def test_a_log_without_proof_fails_unless_that_is_allowed(tmp_path):
    """Nothing was compared, which is no success."""
    where = str(tmp_path / "audit.jsonl")
    log = AuditLog(where)
    log.wants_evidence = False
    with virtual_time(), Engine(sinks=[log]) as engine:
        engine.run("op", int, "x")
    with pytest.raises(AssertionError, match="cannot be replayed in full"):
        assert_replays(where)
    assert assert_replays(where, proved=False).calls == 0


def test_a_record_that_is_no_event_is_counted(tmp_path):
    """A log may hold what a later version wrote."""
    where = str(tmp_path / "audit.jsonl")
    write_log(where, 10)
    records = list(read_log(where))

    strange = records[0]._replace(body=b'{"event_type":"from_the_future"}')
    report = replay_records([*records, strange])
    assert report.ok
    assert report.unproved["a record that is no event of ours"] == 1


@pytest.mark.req("CP-18")
@pytest.mark.parametrize("protects", [True, False])
def test_calls_that_succeed_at_once_are_counted(tmp_path, protects):
    """Their number by operation, also while a circuit makes some of them be told."""
    where = str(tmp_path / "audit.jsonl")
    log = AuditLog(where, successes="counted")
    with virtual_time(), Engine(sinks=[log], breaker=BreakerSettings()) as engine:
        answer = engine.protect("op")(lambda: 42)
        for _ in range(70):
            answer() if protects else engine.call("op", lambda: 42)
        engine.run("other", int, "x")
        engine.call("other", int, "7")
    told = [record.event for record in read_log(where)]
    counted = {e.operation: e.calls for e in told if e.event_type == "calls_counted"}
    assert counted == {"op": 70, "other": 1}
    assert all(event.timestamp for event in told)


def test_counts_are_told_while_it_goes_on(tmp_path):
    """Every ten seconds, with the next event: a kill loses the last few only."""
    where = str(tmp_path / "audit.jsonl")
    log = AuditLog(where, successes="counted")
    with virtual_time() as time, Engine(sinks=[log]) as engine:
        for _ in range(3):
            engine.call("op", int, "7")
            time.advance(11.0)
            engine.run("op", int, "x")
    counts = [r.event.calls for r in read_log(where) if b"calls_counted" in r.body]
    assert counts == [1, 1, 1]


def test_successes_takes_one_of_three(tmp_path):
    """Anything else is refused by name."""
    with pytest.raises(mainstay.MainstayError, match="successes"):
        AuditLog(str(tmp_path / "a.jsonl"), successes="sometimes")
