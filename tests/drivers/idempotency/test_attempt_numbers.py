"""After crashes the attempts of a key are numbered on, in the record and in the audit log."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from mainstay import AuditStream, Backoff, Engine, RetryPolicy, events
from mainstay.audit import read_log, verify_log
from mainstay.audit.replay import replay_log
from mainstay.core.base.change import Change
from mainstay.core.codec.canonical import canonical
from mainstay.core.idempotency.record import Begin, reduce
from mainstay.testing import scripted, virtual_time

POLICY = RetryPolicy(
    name="work", max_attempts=5, retry_on=ConnectionError, backoff=Backoff.constant(0.0)
)

PROGRAM = """
import os, signal, sys
from mainstay import Backoff, Engine, RetryPolicy
from mainstay.audit import AuditLog

url, made, end = sys.argv[1:]
policy = RetryPolicy(
    name="work", max_attempts=5, retry_on=ConnectionError, backoff=Backoff.constant(0.0)
)

def work():
    with open(made, "a") as file:
        file.write("x")
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "fail":
        raise ConnectionError("down")
    return "done"

with Engine(url, policies=[policy], audit=AuditLog(url, durability="call")) as engine:
    operation = engine.operation("work", key="k", lease=1.0, on_crash="retry")
    try:
        operation.call(work)
    except ConnectionError:
        pass
"""


def process(url, made, end):
    command = [sys.executable, "-c", PROGRAM, url, str(made), end]
    return subprocess.run(command, timeout=60, check=False, capture_output=True).returncode


def logged(url, kind):
    return [each.event for each in read_log(url) if isinstance(each.event, kind)]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
@pytest.mark.req("AG-05", "CP-13", "IT-041-10")
@pytest.mark.parametrize("end", ["succeed", "fail"])
def test_after_kills_the_attempts_in_the_audit_add_up_to_the_executions(tmp_path, end):
    """Three processes are killed in the function; the next one counts on from theirs."""
    url, made = f"sqlite:///{tmp_path}/work.db", tmp_path / "made"
    for _ in range(3):
        assert process(url, made, "kill") == -signal.SIGKILL
    assert process(url, made, end) == 0
    executions = len(made.read_text())
    assert executions == {"succeed": 4, "fail": 5}[end]
    numbers = [event.attempt_number for event in logged(url, events.AttemptFailed)]
    assert numbers == {"succeed": [], "fail": [4, 5]}[end]
    (over,) = logged(url, events.CallSucceeded | events.RetryExhausted)
    assert over.total_attempts == executions
    assert verify_log(url).ok
    assert replay_log(url).ok


RESUMED = """
import os, signal, sys
from mainstay import Backoff, Engine, RetryPolicy
from mainstay.audit import AuditLog

url, made, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
policy = RetryPolicy(
    name="work", max_attempts=9, retry_on=ConnectionError, backoff=Backoff.constant(0.0)
)
log = AuditLog(url, durability="call")

def work():
    with open(made, "a") as file:
        file.write("x")
    executions = os.path.getsize(made)
    if executions in (2, 5):
        log.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    if executions < 8:
        raise ConnectionError("down")

with Engine(url, policies=[policy], audit=log) as engine:
    engine.operation("work", key=f"k{number}", lease=1.0, on_crash="retry").call(work)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
@pytest.mark.req("AG-05", "CP-13")
def test_after_kills_the_figures_of_the_audit_add_up_to_the_executions(tmp_path):
    """What a killed process has recorded was counted there, and in the call that went on."""
    url = f"sqlite:///{tmp_path}/work.db"
    for key in range(2):
        made = tmp_path / f"made {key}"
        command = [sys.executable, "-c", RESUMED, url, str(made), str(key)]
        codes = [subprocess.run(command, timeout=60, check=False).returncode for _ in range(3)]
        assert codes == [-signal.SIGKILL, -signal.SIGKILL, 0]
        assert len(made.read_text()) == 8
    total = AuditStream(url).stats()["total"]
    assert (total["attempts"], total["calls"], total["unfinished"]) == (16, 2, 0)


def crashed(engine, attempts, now):
    """Leaves the record of a process that was killed in its n-th attempt."""
    address = canonical([None, "work", "k"]).decode()
    fingerprint = _fingerprint(engine)
    value = None
    for number in range(attempts):
        begin = Begin(f"gone {number}", fingerprint, 1.0, 99)
        change, _ = reduce(value, begin, now - 1000.0 + 10 * number)
        value = change.value
    engine.store.transact("records", address, lambda *_: (Change(value), None))


def _fingerprint(engine):
    seen = []
    engine.operation("work", key="other", lease=1.0).call(scripted("done"))
    for _, value in engine.store.scan("records"):
        seen.append(value.split(b'"fingerprint":"')[1].split(b'"')[0].decode())
    return seen[0]


@pytest.mark.parametrize(("before", "outcome"), [(1, "up"), (4, "down"), (5, "down"), (7, "down")])
def test_a_call_that_goes_on_counts_from_the_attempts_before(before, outcome):
    """Its first attempt is the next one; the last one is the policy's, or the only one."""
    seen = []
    with virtual_time(), Engine(sinks=[seen.append], policies=[POLICY]) as engine:
        crashed(engine, before, engine.store.read("records", "")[1])
        seen.clear()
        operation = engine.operation("work", key="k", lease=1.0, on_crash="retry")
        failures = [] if outcome == "up" else [ConnectionError("down")] * 5
        result = operation.run(scripted(*failures, "up"))
    kinds = [type(each) for each in seen]
    if before >= 5:
        assert type(result.last_exception).__name__ == "OutcomeUnknown"
    elif outcome == "up":
        assert [each.total_attempts for each in seen if type(each) is events.CallSucceeded] == [2]
    else:
        assert kinds[:2] == [events.AttemptFailed, events.RetryExhausted]
        assert [seen[0].attempt_number, seen[0].max_attempts] == [5, 5]
        assert seen[1].total_attempts == 5
        assert result.attempts == 1
