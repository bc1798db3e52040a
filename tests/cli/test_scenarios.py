"""The user verification scenarios of the agent document, each in a terminal, by its checklist."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.processes import assert_nobody_is_left, needs_proc

pytestmark = [
    needs_proc,
    pytest.mark.skipif(os.name == "nt", reason="there are no pseudo-terminals"),
]

QUICK = ("--set", "retry.policies.standard.initialDelayMs=100")
SECRET = "correct-horse-9f3kqz"
CTRL_C = b"\x03"


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The user's own store, which `mainstay exec` makes; the folder has no configuration."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return f"sqlite:///{tmp_path}/state/mainstay/mainstay.db"


@pytest.fixture
def screen(terminal):
    """Runs a command in a terminal to its end: the exit code, and what was on the screen."""

    def screen(*words, keys=()):
        shown = terminal(*words)
        for prompt, answer in keys:
            shown.wait_for(prompt)
            shown.press(answer.encode() + b"\n")
        code = shown.wait()
        assert_nobody_is_left(shown.process.pid)
        return code, re.sub(r"\x1b\[[0-9;]*m", "", shown.text)

    return screen


@pytest.fixture
def logged(run, store):
    """The audited events of an operation, and that the log verifies and replays."""

    def logged(operation):
        for proof in ("verify", "replay"):
            done = run("audit", proof, store)
            assert done.returncode == 0, done.stdout + done.stderr
        done = run("audit", "tail", store, "--operation", operation, "--json")
        return [each["event"] for each in json.loads(done.stdout)]

    return logged


def of_type(events, *types):
    return [each for each in events if each["event_type"] in types]


def sh(script):
    return "--", "sh", "-c", script


@pytest.mark.req("UVS-1")
def test_scenario_1_a_transient_failure_is_recovered_from(screen, logged, store):
    """Failure detected, retry triggered, delay applied, success logged."""
    script = "test -e back || { touch back; echo no network >&2; exit 7; }; echo fetched"
    code, shown = screen("exec", "--operation", "fetch", *QUICK, *sh(script))
    assert code == 0
    assert "no network\nmainstay: fetch: attempt 1 of 3: exit 7; next in 0." in shown
    assert shown.endswith("fetched\n")
    failed, retry, success = logged("fetch")
    assert (failed["event_type"], failed["attempt_number"]) == ("attempt_failed", 1)
    assert 0.05 < retry["delay_seconds"] < 0.2
    assert (success["event_type"], success["total_attempts"]) == ("call_succeeded", 2)


@pytest.mark.req("UVS-2", "AG-01.exhausted", "AG-02.history")
def test_scenario_2_all_attempts_fail_and_a_person_decides(screen, logged, store):
    """All attempts logged, maximum reached, a clear error, and the escalation works to its end."""
    command = ("exec", "--operation", "charge", "--escalate", *QUICK, *sh("exit 9"))
    code, shown = screen(*command)
    assert code == 76
    assert "mainstay: charge: gave up after 3 attempts: exit 9" in shown
    item = re.search(r"an operator must decide; item (\w+): mainstay inbox show \1", shown)[1]
    events = logged("charge")
    assert [each["attempt_number"] for each in of_type(events, "attempt_failed")] == [1, 2, 3]
    (last,) = of_type(events, "retry_exhausted")
    assert last["total_attempts"] == 3
    (raised,) = of_type(events, "inbox_raised")
    assert raised["item"] == item

    assert "gave up after 3 attempt(s) (exit 9, exit 9, exit 9)" in screen("inbox", "show", item)[1]
    prompts = [("secret of ann", SECRET), ("Repeat for confirmation", SECRET)]
    code, shown = screen("operators", "add", "ann", keys=prompts)
    assert code == 0, shown
    retry = ("inbox", "retry", item, "--as", "ann", "--why", "the bank is back")
    code, shown = screen(*retry, keys=[("secret of ann", "wrong-horse")])
    assert (code, "the name or the secret is wrong" in shown) == (1, True)
    code, shown = screen(*retry, keys=[("secret of ann", SECRET)])
    assert (code, "is reset" in shown) == (0, True), shown
    assert screen("inbox")[1].endswith("\nno item is open\n")
    (decided,) = of_type(logged("charge"), "inbox_decided")
    assert (decided["operator"], decided["why"]) == ("ann", "the bank is back")
    assert of_type(logged("operators"), "operator_refused")


@pytest.mark.req("UVS-3")
def test_scenario_3_a_final_error_is_not_retried(screen, logged, store):
    """No retry attempted, an immediate end, the category logged, a clear error."""
    script = "echo permission denied >&2; exit 77"
    code, shown = screen("exec", "--operation", "read", "--never-on-exit", "77", *sh(script))
    assert (code, shown) == (77, "permission denied\n")
    failed, final = logged("read")
    assert (failed["event_type"], failed["kind"]) == ("attempt_failed", "permanent")
    assert (final["event_type"], final["reason"]) == (
        "call_failed",
        "not retryable; never_retry_on: 'exit:77'",
    )
    assert final["total_attempts"] == 1
    code, shown = screen("exec", "--", "./no-such-tool")
    assert code == 127
    assert "no-such-tool" in shown
    assert "attempt 1 of" not in shown


@pytest.mark.req("UVS-4", "AG-01.loop")
def test_scenario_4_the_circuit_opens(screen, logged, store):
    """Failures counted over several commands, the circuit opens, fast failures, state logged."""
    command = ("exec", "--operation", "api", *QUICK, *sh("echo asked >> asked; exit 1"))
    codes = [screen(*command)[0] for _ in range(2)]
    asked = Path("asked").read_text(encoding="utf-8")
    assert (codes, asked) == ([1, 1], "asked\n" * 5), "the fifth failure in a row opens it"
    code, shown = screen(*command)
    assert code == 75
    assert "mainstay: not run: " in shown
    assert re.search(r"try again in \d+ s", shown)
    assert Path("asked").read_text(encoding="utf-8") == asked, "it was not asked again"
    assert re.search(r"api +open", screen("circuits")[1])
    assert "api" in screen("status")[1]
    opened, heard = of_type(logged("api"), "circuit_state_changed")
    assert (opened["from_state"], opened["to_state"]) == ("closed", "open")
    assert opened["reason"] == heard["reason"] == "5 failures in a row"


@pytest.mark.req("UVS-5")
def test_scenario_5_the_circuit_recovers(screen, logged, store):
    """Half-open triggered, the probe executed, the circuit closes, normal operation."""
    once = ("--set", "retry.policies.standard.maxAttempts=1")  # a retry would be one more probe
    soon = (
        "--set",
        "circuitBreaker.failureThreshold=1",
        "--set",
        "circuitBreaker.openDurationMs=500",
    )
    command = ("exec", "--operation", "api", *once, *soon, *sh("test -e back && echo answered"))

    def when_it_is_over():
        """Again and again, until the circuit lets it through."""
        return next(end for end in (screen(*command) for _ in range(100)) if end[0] != 75)

    assert screen(*command)[0] == 1
    assert when_it_is_over()[0] == 1, "a probe that failed"
    Path("back").touch()
    assert when_it_is_over() == (0, "answered\n")
    assert re.search(r"api +closed", screen("circuits")[1])
    assert screen(*command) == (0, "answered\n")
    states = [each["to_state"] for each in of_type(logged("api"), "circuit_state_changed")]
    told = [
        state for state, before in zip(states, [None, *states], strict=False) if state != before
    ]
    assert told == ["open", "half_open", "open", "half_open", "closed"], "by one process or another"


@pytest.mark.req("UVS-6")
def test_scenario_6_ctrl_c_cancels_what_is_in_progress(terminal, logged, store):
    """Cancellation detected, an immediate stop, no resource leak, logged."""
    slow = ("--set", "retry.policies.standard.initialDelayMs=60000")
    more = ("--set", "retry.policies.standard.maxDelayMs=60000")
    script = "echo run; exit 1"
    shown = terminal("exec", "--operation", "sync", *slow, *more, *sh(script))
    shown.wait_for("next in")
    shown.press(CTRL_C)
    assert shown.wait() == 130
    assert_nobody_is_left(shown.process.pid)
    assert shown.text.count("run\n") == 1
    assert "Traceback" not in shown.text
    assert [each["event_type"] for each in logged("sync")][-1] == "call_interrupted"
