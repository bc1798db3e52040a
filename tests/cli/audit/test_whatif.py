"""`mainstay audit whatif`: both policies side by side, as a table, as JSON and as a picture."""

import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner

from mainstay import Backoff, Engine, Jitter, RetryPolicy, testing
from mainstay.cli.app import app
from mainstay.cli.audit import chart_svg
from mainstay.cli.audit.policy_file import PolicyFile
from mainstay.cli.errors import CommandError
from mainstay.errors import MissingExtraError, PolicyError
from mainstay.events import CallInterrupted, CallSucceeded, decode, encode
from mainstay.runtime.plan_registry import plan_before

POLICIES = [
    RetryPolicy(name=name, max_attempts=3, backoff=Backoff.constant(1), jitter=Jitter.none())
    for name in ("search", "charge")
]


class Log:
    """A sink that keeps records as a log does."""

    wants_evidence = hears_successes = True

    def __init__(self):
        self.lines, self.known = [], set()

    def __call__(self, event):
        self.lines += [encode(e) for e in (plan_before(event, self.known), event) if e]


@pytest.fixture
def log(tmp_path):
    """Four calls: one at once, two after retries, one in vain; over two minutes."""
    sink = Log()
    with testing.virtual_time(start=1769380000) as time:
        engine = Engine(policies=POLICIES, sinks=[sink], seed=1)
        for name, failures in (("search", 0), ("search", 1), ("charge", 2), ("charge", 3)):
            engine.run(name, testing.scripted(*[ConnectionError] * failures, 1))
            time.advance(40)
    return write(tmp_path, sink.lines)


def write(folder, lines):
    path = folder / "log.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return str(path)


@pytest.fixture
def policy(tmp_path):
    """Writes a file with a policy, or several."""

    def make(text="max_attempts: 2"):
        path = tmp_path / "policy.yml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return make


def invoke(*arguments, code=0):
    done = CliRunner().invoke(app, ["audit", "whatif", *arguments])
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.req("CP-19")
def test_the_json_has_both_sides(log, policy):
    told = json.loads(invoke(log, "--policy", policy(), "--json"))
    total = told["total"]
    assert (total["calls"], total["attempts_saved"], total["assumed_outcomes"]) == (4, 2, 0)
    assert (total["recorded"]["attempts"], total["new"]["attempts"]) == (9, 7)
    assert (total["recorded"]["given_up"], total["new"]["given_up"]) == (1, 2)
    assert [row["operation"] for row in told["operations"]] == ["charge", "search"]
    assert told["load"]["span_seconds"] == 60.0
    assert (told["left_out"], told["chart"]) == ({}, None)


@pytest.mark.req("CP-19")
def test_a_person_sees_them_side_by_side(log, policy):
    out = invoke(log, "--policy", policy())
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "attempts 9 7 -2" in lines
    assert "success 75.0 % 50.0 %" in lines
    assert any(line.startswith("charge 2 6 → 4 2 50.0 % → 0.0 %") for line in lines)
    assert "No outcome is assumed: the record holds every attempt." in lines


@pytest.mark.req("CP-19")
def test_what_is_assumed_is_said_with_the_rule(log, policy):
    words = (log, "--policy", policy("max_attempts: 6"))
    out = " ".join(invoke(*words, "--assume", "fail").split())
    assert "3 outcomes are assumed, in 1 of 4 calls" in out
    assert "an attempt that was never made fails as the last one did (fail)" in out
    told = json.loads(invoke(*words, "--assume", "succeed", "--json"))
    assert told["total"]["new"]["succeeded"] == 4
    assert told["assumption"]["rule"] == "succeed"
    assert "(rate)" in invoke(*words)


@pytest.fixture
def failures_only(log):
    """The same calls in a log that does not record what succeeded at once."""
    path = Path(log)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if not is_at_once(decode(line))))
    return log


def is_at_once(event):
    return isinstance(event, CallSucceeded) and event.total_attempts == 1


SEEN = "* of calls that met a failure: those that succeeded at once are not in the log."


@pytest.mark.req("CP-19")
def test_it_is_labelled_which_calls_the_log_has(failures_only, policy):
    """A log without first successes has no share of all calls, and neither table pretends to."""
    out = invoke(failures_only, "--policy", policy())
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "calls that met a failure recorded new change" in lines
    assert "calls 3 3" in lines
    assert any(line.startswith("charge 2 6 → 4 2 50.0 % → 0.0 %*") for line in lines)
    assert SEEN in lines
    assert "all calls" not in out


@pytest.mark.req("CP-19")
def test_the_json_has_the_label_of_each_row(failures_only, policy):
    """By the name and in the words that `mainstay audit stats --json` has."""
    told = json.loads(invoke(failures_only, "--policy", policy(), "--json"))
    stats = CliRunner().invoke(app, ["audit", "stats", failures_only, "--json"]).output
    assert told["total"]["success_rate_of"] == "calls that met a failure"
    assert told["total"]["success_rate_of"] == json.loads(stats)["total"]["success_rate_of"]
    assert {row["success_rate_of"] for row in told["operations"]} == {"calls that met a failure"}


@pytest.mark.req("CP-19")
def test_a_row_without_first_successes_is_labelled_alone(log, policy):
    """Only one of the operations had a call that succeeded at once."""
    out = invoke(log, "--policy", policy())
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "all calls recorded new change" in lines
    assert any(line.startswith("charge") and "%*" in line for line in lines)
    assert not any(line.startswith("search") and "%*" in line for line in lines)
    assert SEEN in lines
    told = json.loads(invoke(log, "--policy", policy(), "--json"))
    assert [row["success_rate_of"] for row in told["operations"]] == [
        "calls that met a failure", "calls",
    ]  # fmt: skip
    assert told["total"]["success_rate_of"] == "calls"


def test_a_picture_has_the_label_too(failures_only, policy, tmp_path):
    """A picture is passed on without the table."""
    invoke(failures_only, "--policy", policy(), "--chart", str(tmp_path / "c.svg"))
    assert "of 3 calls that met a failure;" in (tmp_path / "c.svg").read_text("utf-8")


def test_one_operation_alone(log, policy):
    told = json.loads(invoke(log, "--policy", policy(), "--operation", "search", "--json"))
    assert [row["operation"] for row in told["operations"]] == ["search"]
    assert told["total"]["calls"] == 2


def test_a_policy_for_some_operations(log, policy):
    """The others keep theirs, and that is said."""
    file = policy("policies: {hasty: {max_attempts: 1}}\noperations: {charge: hasty}")
    out = invoke(log, "--policy", file)
    assert "2 calls keep their policy" in out
    told = json.loads(invoke(log, "--policy", file, "--json"))
    rows = {row["operation"]: row for row in told["operations"]}
    assert rows["charge"]["new"]["attempts"] == 2
    assert rows["search"]["new"] == rows["search"]["recorded"]


def test_what_is_left_out_is_said(tmp_path, policy):
    lines = [
        encode(CallInterrupted(operation="x", call_id="7f", total_attempts=1)),
        encode(CallSucceeded(operation="x", total_attempts=1, total_seconds=9.0)),
        b"{broken",
    ]
    out = invoke(write(tmp_path, lines), "--policy", policy("attempt_timeout: 2"))
    assert "1 calls are left out on both sides: it was interrupted." in out
    assert "1 records could not be read" in out
    assert "1 calls succeeded at once, in more time than an attempt has now" in out


def test_operations_beyond_the_first_rows_are_summed_up(log, policy):
    out = invoke(log, "--policy", policy(), "--top", "1")
    assert "(other)" in out
    assert "search" not in out


# --- pictures -------------------------------------------------------------------------------------


def test_an_svg_needs_no_library(log, policy, tmp_path, monkeypatch):
    """It is well-formed, has a title, both lines and the words of the bars."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    out = invoke(log, "--policy", policy(), "--chart", str(tmp_path / "c.svg"))
    assert "c.svg" in out
    root = ET.fromstring((tmp_path / "c.svg").read_text("utf-8"))
    space = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{space}title").text == "What if: log.jsonl"
    assert len(root.findall(f"{space}polyline")) == 2
    words = {element.text for element in root.iter(f"{space}text")}
    assert {"recorded", "new", "attempts", "given up", "peak load", "9", "7"} <= words


def test_a_picture_of_nothing_can_be_drawn(tmp_path, policy):
    lines = [encode(CallSucceeded(operation="<&>", total_attempts=1))]
    invoke(write(tmp_path, lines), "--policy", policy(), "--chart", str(tmp_path / "c.SVG"))
    picture = ET.fromstring((tmp_path / "c.SVG").read_text("utf-8"))
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"


def test_one_minute_is_a_line_too():
    points = [
        element.get("points")
        for element in ET.fromstring(chart_svg.chart("t", "s", [], [(60.0, 1.0, 2.0)])).iter()
        if element.tag.endswith("polyline")
    ]
    assert [len(each.split()) for each in points] == [2, 2]


@pytest.mark.parametrize("most", [0.0, 1e-6, 0.3, 1.0, 7.0, 83.0, 99_999.0])
def test_ticks_are_few_and_reach_the_top(most):
    ticks = chart_svg.nice_ticks(most)
    assert 2 <= len(ticks) <= 7
    assert ticks[0] == 0
    assert ticks[-1] >= most


def test_a_png_is_drawn_by_matplotlib(log, policy, tmp_path):
    pytest.importorskip("matplotlib", reason="pip install 'mainstay[charts]'")
    invoke(log, "--policy", policy(), "--chart", str(tmp_path / "c.png"))
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG\r\n")


def test_without_matplotlib_a_png_names_the_extra(log, policy, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    arguments = [log, "--policy", policy(), "--chart", str(tmp_path / "c.png")]
    done = CliRunner().invoke(app, ["audit", "whatif", *arguments])
    assert isinstance(done.exception, MissingExtraError)
    assert done.exception.hint == "pip install 'mainstay[charts]'"


def test_another_sort_of_picture_is_a_mistake(log, policy):
    assert "neither .svg nor .png" in invoke(log, "--policy", policy(), "--chart", "c.gif", code=1)


# --- the file -------------------------------------------------------------------------------------


def test_one_policy_is_for_every_operation(policy):
    """YAML and JSON alike."""
    for text in ("max_attempts: 7\nname: patient", '{"max_attempts": 7, "name": "patient"}'):
        chosen = PolicyFile(policy(text)).choose("any", "standard")
        assert (chosen.max_attempts, chosen.name) == (7, "patient")


def test_several_are_for_the_operations_that_are_named_or_the_policies_they_replace(policy):
    text = "policies: {a: {max_attempts: 7}, b: {max_attempts: 8}}\noperations: {x: a}"
    file = PolicyFile(policy(text))
    assert file.choose("x", "b").max_attempts == 7
    assert file.choose("y", "b").max_attempts == 8
    assert file.choose("y", "c") is None
    assert PolicyFile(policy("policies: {a: {}}")).choose("x", "a").name == "a"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- 1", "must be a mapping of a policy's fields"),
        ("{", "is not YAML"),
        ("policies: [a]", "policies: must be a mapping of names"),
        ("policies: {a: 3}", "policies: a: must be a mapping of fields"),
        ("policies: {}\noperations: [x]", "operations: must be a mapping of names"),
        ("policies: {}\noperations: {x: a}", "operations: x: no policy is named 'a'"),
        ("policies: {}\nbreakers: {}", "breakers: there are policies and operations"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(policy, text, problem):
    with pytest.raises(CommandError, match=problem):
        PolicyFile(policy(text))


def test_what_is_wrong_with_a_policy_is_told(policy):
    with pytest.raises(PolicyError, match="max_attempts"):
        PolicyFile(policy("max_attempts: none"))
