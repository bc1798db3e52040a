"""`mainstay audit stats`: what it shows is what the log holds; what it cannot know, it says."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from mainstay import Engine, context, testing
from mainstay.cli.app import app
from mainstay.core.analytics.stats import Stats
from mainstay.events import CallSucceeded, CircuitStateChanged, RetryAttempt, encode

START = datetime(2026, 1, 25, 21, tzinfo=UTC)


@pytest.fixture
def log(tmp_path):
    """A log of five calls: of two tenants, at once, after a retry, and in vain."""
    events = []
    with testing.virtual_time(start=START.timestamp()):
        engine = Engine(sinks=[events.append], seed=1)
        for tenant, outcomes in (
            ("t1", (1,)),
            ("t1", (ConnectionError, 1)),
            ("t1", (ConnectionError,) * 3),
            ("t2", (ValueError,)),
            ("t2", (ConnectionError, ConnectionError, 1)),
        ):
            with context(tenant_id=tenant):
                engine.run("fetch", testing.scripted(*outcomes))
    events.append(
        CircuitStateChanged(
            operation="db", from_state="closed", to_state="open", timestamp="2026-01-25T21:00:01Z"
        )
    )
    return write(tmp_path, events)


def write(folder, events):
    path = folder / "log.jsonl"
    path.write_bytes(b"".join(encode(event) + b"\n" for event in events))
    return str(path)


def invoke(*arguments, code=0, **env):
    """The output of `mainstay audit stats` with these arguments, for a pipe."""
    done = CliRunner().invoke(app, ["audit", "stats", *arguments], env=env)
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.req("CP-18")
def test_the_json_has_every_figure(log):
    told = json.loads(invoke(log, "--json"))
    total = told["total"]
    assert (total["calls"], total["attempts"], total["mean_attempts"]) == (5, 10, 2.0)
    assert (total["success_rate"], total["success_rate_of"]) == (0.6, "calls")
    assert (total["recovery_rate"], total["retry_success_rate"]) == (0.5, 0.4)
    assert (total["failed_before_success"], total["failed_in_vain"]) == (3, 4)
    assert total["reasons"] == {"no attempt left": 1, "not retryable": 1}
    assert told["circuits_opened"] == {"db": 1}
    assert [row["tenant"] for row in told["by"]["tenant"]["rows"]] == ["t1", "t2"]
    assert set(told["by"]) == {"operation", "category", "tenant"}
    assert (told["log"], told["since"], told["first"][:13]) == (log, None, "2026-01-25T21")


def test_a_person_sees_the_same(log):
    out = " ".join(invoke(log).split())
    assert (
        "5: 1 succeeded at once, 2 succeeded after retries, 1 exhausted, 1 failed for good" in out
    )
    assert "60.0 % of calls, 50.0 % of calls that met a failure" in out
    assert "40.0 % of them succeeded" in out
    assert "3 attempts and" in out
    assert "given up because no attempt left 1, not retryable 1" in out
    assert "circuits opened db 1" in out
    assert "(no category) 5" in out


def test_a_log_of_failing_calls_says_of_what_its_rates_are(tmp_path):
    """What succeeded at once was not heard: no rate pretends otherwise."""
    events = []
    with testing.virtual_time(), testing.record() as trace:
        Engine(sinks=()).run("fetch", testing.scripted(ConnectionError, 1))
        events = trace.events
    out = invoke(write(tmp_path, events))
    assert "100.0 %*" in out
    assert "* of calls that met a failure: those that succeeded at once are not in the log" in out
    assert " of calls, " not in out


def test_a_range_is_from_since_to_before_until(tmp_path):
    events = [
        CallSucceeded(total_attempts=2, timestamp=f"2026-01-25T{hour}:00:00Z")
        for hour in (10, 11, 12)
    ]
    log = write(tmp_path, [*events, CallSucceeded(total_attempts=2)])
    words = (log, "--since", "2026-01-25T11:00", "--until", "2026-01-25T12:00:00Z")
    told = json.loads(invoke(*words, "--json"))
    assert (told["total"]["calls"], told["outside_range"], told["without_time"]) == (1, 2, 1)
    assert "1 events have no time and are in no range" in invoke(*words)
    with testing.virtual_time(start=START.timestamp() - 8.5 * 3600):
        assert json.loads(invoke(log, "--since", "2h", "--json"))["total"]["calls"] == 2


def test_what_is_no_moment_is_a_mistake_of_the_callers(log):
    assert "'never' is no moment" in " ".join(invoke(log, "--since", "never", code=2).split())


def test_one_table_and_its_first_rows(log):
    """The rest is summed up, not left out."""
    out = invoke(log, "--by", "tenant", "--top", "1")
    assert "t1" in out
    assert "(other)" in out
    assert "t2" not in out
    assert "category" not in out


@pytest.mark.parametrize(("width", "columns"), [("70", 6), ("100", 8), ("140", 12)])
def test_a_table_has_the_columns_that_fit(log, width, columns):
    out = invoke(log, "--by", "tenant", COLUMNS=width)
    (header,) = [line for line in out.splitlines() if line.startswith("tenant")]
    assert len([word for word in header.split("  ") if word.strip()]) == columns + 1
    assert max(len(line) for line in out.splitlines() if line.startswith("t1")) <= int(width)


def test_what_the_figures_do_not_know_is_told(tmp_path, monkeypatch):
    """Tables that were full, calls that were not followed, records that could not be read."""
    monkeypatch.setattr(Stats.__init__, "__kwdefaults__", SMALL)
    events = [
        RetryAttempt(call_id=f"{n:x}", tenant_id=f"t{n}", attempt_number=1) for n in range(50)
    ]
    log = write(tmp_path, events)
    with Path(log).open("a", encoding="utf-8") as more:
        more.write("{broken\n")
    out = invoke(log, "--by", "tenant", "--top", "1")
    assert "† came late into a full table: up to" in out
    assert "46 calls were too many to follow" in out
    assert "1 records could not be read" in out


SMALL = {
    "by": ("tenant",), "top": 1, "since": "", "until": "", "open_calls": 4, "names": 4,
}  # fmt: skip


def test_a_name_cannot_write_over_the_screen(tmp_path):
    """Names in a log may come from anybody."""
    events = [CallSucceeded(operation="\x1b[2Jgone", total_attempts=2)]
    out = invoke(write(tmp_path, events))
    assert "\x1b" not in out
    assert "\\x1b[2Jgone" in out


def test_an_empty_log_has_no_rates(tmp_path):
    out = invoke(write(tmp_path, []))
    assert "–" in out
    assert json.loads(invoke(write(tmp_path, []), "--json"))["total"]["success_rate"] is None
