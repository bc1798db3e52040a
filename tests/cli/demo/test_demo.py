"""`mainstay demo`: real calls to a real service, whose outcome the script foretells."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections import Counter

import pytest

from mainstay import Engine
from mainstay.cli import guard
from mainstay.cli.demo.script import FORBIDDEN, MISSING, SLOW, THROTTLED_LONG, Script
from mainstay.cli.demo.summary import frame
from mainstay.cli.demo.traffic import OPERATIONS, POLICIES, Traffic
from mainstay.cli.screen.console import Screen
from mainstay.events import CallSucceeded, RetryAttempt, RetryExhausted

CALLS, SEED = 40, 175
"""A seed under which 40 calls meet every fault there is."""

ATTEMPTS = {"standard": 3} | {policy.name: policy.max_attempts for policy in POLICIES}


def foretell(script):
    """What must become of the calls, from the script and the policies alone."""
    counts = Counter()
    for call in range(script.calls):
        faults, name = script.faults(call), script.operation(call)
        counts.update(fate(faults, ATTEMPTS[OPERATIONS[name]], name == "search"))
    return counts


def fate(faults, allowed, is_held):
    """The outcome of one call, and its retries where they do not depend on the clock."""
    if not faults:
        return {"first": 1}
    if faults[0] in (MISSING, FORBIDDEN):
        return {"failed": 1, "deliberate": 1}
    if is_held and len(faults) > 1 and faults[0] in (SLOW, THROTTLED_LONG):
        return {"failed": 1, "held": 1}
    if len(faults) < allowed:
        return {"saved": 1}
    return {"failed": 1, "exhausted": 1}


@pytest.fixture(scope="module")
def report():
    """One run with --json."""
    words = ["demo", "--calls", str(CALLS), "--seed", str(SEED), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "mainstay", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.req("IT-041-01")
def test_the_counts_are_those_foretold(report):
    """The full flow, from socket to summary, ends as script and policies say it must."""
    told = foretell(Script(SEED, CALLS))
    assert report["calls"] == CALLS
    assert report["succeeded_at_first_attempt"] == told["first"]
    assert report["saved_by_retries"] == told["saved"]
    assert report["failed"] == told["failed"]
    assert report["deadline_held"] == told["held"]
    deliberate = [f for f in report["failures"] if f["deliberate"]]
    assert sum(f["count"] for f in deliberate) == told["deliberate"]
    assert min(told[k] for k in ("first", "saved", "deliberate", "held", "exhausted")) > 0


@pytest.mark.req("IT-041-01")
def test_the_service_counted_what_the_engine_says(report):
    """Each attempt is a request: no more, and no fewer."""
    assert report["service_requests"] == report["calls"] + report["retries"]
    assert report["added_load_percent"] == round(100 * report["retries"] / CALLS, 1)
    failed_attempts = sum(t["count"] for t in report["failed_attempts"])
    assert failed_attempts == report["retries"] + report["failed"]


@pytest.mark.req("UVS-3")
def test_what_cannot_help_is_not_retried(report):
    """404 and 401 fail at once, with their category."""
    deliberate = [f for f in report["failures"] if f["deliberate"]]
    assert {(f["kind"], f["cause"]) for f in deliberate} == {
        ("permanent", "status 404"),
        ("auth", "status 401"),
    }
    once = report["operations"]["profile.read"]
    assert once["retries"] == once["saved"] == 0


def test_every_fault_was_met(report):
    """Throttling, overload, reset connections, timeouts, and what is final."""
    kinds = {t["kind"] for t in report["failed_attempts"]}
    assert kinds == {"transient", "throttled", "overload", "timeout", "permanent", "auth"}
    assert report["waited_seconds"] > 1.0, "a Retry-After of 1 s was honoured"
    assert report["elapsed_seconds"] < 30


@pytest.mark.req("UVS-1", "UVS-2", "UVS-3")
def test_a_person_watches_it_in_a_terminal(terminal):
    """Failures, retries with their delay, successes and give-ups show live, then in a summary."""
    screen = terminal("demo", "--calls", str(CALLS), "--seed", str(SEED))
    assert screen.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.text)
    assert "attempts in flight" in text
    assert re.search(r"attempt 1 failed, again in \d\.\d\d s \(\w+: ", text)
    assert re.search(r"saved by attempt \d after \d\.\d\d s", text)
    told = foretell(Script(SEED, CALLS))
    summary = text[text.rindex(f"{CALLS} calls in ") :]
    assert f"{told['saved']}  would have failed without retries" in summary
    assert "status 404 (permanent): not retried" in summary
    assert "status 401 (auth): not retried" in summary
    assert "search: another attempt would have passed the deadline of 2 s" in summary
    assert "policy once allows no retry" in summary
    assert "no attempt left of the " in summary
    assert "Traceback" not in text


def test_one_moment_of_the_display(tmp_path):
    """The outage, what is in flight and what waits, and each kind of event in words."""
    traffic = Traffic(100, SEED, tmp_path)
    traffic.begun = 51
    traffic.wire.open.update(range(3))
    same = {"operation": "search", "kind": "overload"}
    for event in (
        RetryAttempt(attempt_number=1, delay_seconds=0.5, exception_message="HTTP 503", **same),
        RetryExhausted(reason="no attempt left; status 503", final_exception_message="x", **same),
        CallSucceeded(operation="search", total_attempts=2, total_seconds=0.25),
    ):
        traffic.tally(event)
    screen = Screen()
    with screen.capture() as capture:
        screen.print(frame(traffic))
    text = capture.get()
    assert "2 of 100 calls" in text
    assert "3 attempts in flight, 46 calls waiting for their next   the service is down" in text
    assert "search: attempt 1 failed, again in 0.50 s (overload: HTTP 503)" in text
    assert "search: failed after 0.00 s, no attempt left (overload: x)" in text
    assert "search: saved by attempt 2 after 0.25 s" in text
    traffic.begun = 60
    assert not traffic.is_outage
    traffic.engine.close()


def test_a_pipe_gets_lines_and_the_summary(run):
    """A log gets progress without escapes, and ends with what to try next."""
    done = run("demo", "--calls", "8", "--seed", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(r" +\d\.\d s  \d of 8 calls: ", done.stdout)
    assert " s  8 of 8 calls: " in done.stdout
    assert "What it cost" in done.stdout
    assert "mainstay demo --seed 2" in done.stdout
    assert "\x1b" not in done.stdout


# --- stopping -------------------------------------------------------------------------------------


@pytest.mark.req("UVS-6", "IT-041-15")
def test_ctrl_c_stops_it_at_once(terminal):
    """In a terminal: exit code 130, a line that says so, the cursor back, no process left."""
    screen = terminal("demo", "--seed", str(SEED))
    screen.wait_for("again in")
    screen.press(b"\x03")
    assert screen.wait() == 130
    told = re.search(
        r"interrupted after (\d+) of 300 calls; \d+ under way were cancell", screen.text
    )
    assert int(told[1]) < 300, "it did not go on to its end"
    assert "Traceback" not in screen.text
    assert screen.text.rindex("\x1b[?25h") > screen.text.rindex("\x1b[?25l")
    assert not screen.has_left_something()


def test_ctrl_c_with_json_says_nothing(monkeypatch, capsys):
    """A program that reads JSON gets none, rather than a piece of it or a line of prose."""
    monkeypatch.setattr(Traffic, "_run", Interrupting(KeyboardInterrupt()).at_once)
    assert guard.run(["demo", "--json"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_leaves_stops_it():
    """`mainstay demo | head -1` ends when head does."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mainstay", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "of 300 calls" in process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(60) == 141
    process.stderr.close()


class Interrupting:
    """An observer that stops the demo when something is under way; remembers the port."""

    def __init__(self, error):
        self.error = error
        self.port = 0

    def at_once(self, *_):
        raise self.error

    def __call__(self, traffic):
        self.port = traffic.wire.port
        exports = traffic.tally.counts["report.export"]
        if self.error is not None and exports.retries:
            raise self.error


@pytest.mark.parametrize("error", [None, KeyboardInterrupt(), ZeroDivisionError("a bug")])
def test_nothing_is_left_behind(error, tmp_path):
    """No thread, no listening port, no open attempt: at the end, on Ctrl+C, and on a bug."""
    observer = Interrupting(error)
    traffic = Traffic(12 if error is None else 300, SEED, tmp_path)
    with Engine(sinks=[]) as other:  # one thread renews the leases of the whole process
        other.operation("warm", key="up").call(int, "1")
    before = set(threading.enumerate())
    if error is None:
        traffic.run(observer)
    else:
        with pytest.raises(type(error)):
            traffic.run(observer)
    assert set(threading.enumerate()) <= before
    assert traffic.wire.open == set()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", observer.port)) != 0


def test_a_machine_without_loopback_is_told(monkeypatch, capsys):
    """The demo says what it needs instead of failing as a bug."""

    async def refuse(*_arguments, **_options):
        raise OSError(99, "Cannot assign requested address")

    monkeypatch.setattr(asyncio, "start_server", refuse)
    assert guard.run(["demo", "--calls", "1"]) == 1
    assert "cannot listen on 127.0.0.1: Cannot assign requested address" in capsys.readouterr().err


def test_a_loopback_that_is_down_is_reported_before_any_call(monkeypatch, capsys):
    """A sandbox may let the service listen and nothing reach it: no bug, and no calls in vain."""

    async def unreachable(*_arguments, **_options):
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(asyncio, "open_connection", unreachable)
    assert guard.run(["demo", "--calls", "1"]) == 1
    shown = capsys.readouterr()
    assert "cannot connect to 127.0.0.1: Network is unreachable" in shown.err
    assert "loopback" in shown.err
    assert "1 calls" not in shown.out


# --- the script -----------------------------------------------------------------------------------


def test_the_script_is_the_same_everywhere():
    """Faults depend on the seed and the call alone, in any process and version of Python."""
    script = Script(7, 300)
    code = (
        "from mainstay.cli.demo.script import Script; s = Script(7, 300);"
        "print([len(s.faults(c)) for c in range(300)])"
    )
    other = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONHASHSEED": "5"},
    )
    assert json.loads(other.stdout) == [len(script.faults(c)) for c in range(300)]
    assert foretell(script) == foretell(Script(7, 300)) != foretell(Script(8, 300))


def test_the_outage_spares_nobody_and_ends():
    """Every call that begins in it fails at first; the later it begins, the sooner it is over."""
    script = Script(7, 300)
    lengths = [len(script.faults(c)) for c in range(300) if script.is_outage(c)]
    assert lengths == sorted(lengths, reverse=True)
    assert set(lengths) == {4, 3, 2, 1}
