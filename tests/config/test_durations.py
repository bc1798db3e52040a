"""Lengths of time with their units, in files and in options."""

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.cli import guard
from mainstay.cli.options import Seconds
from mainstay.config.durations import seconds_in
from mainstay.config.load import load
from mainstay.config.schema import schema

UNITS = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("5s", 5.0),
        ("2m", 120.0),
        ("2min", 120.0),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        ("1.5h", 5400.0),
        ("30 s", 30.0),
        ("1d", 86_400.0),
        ("1m5ms", 60.005),
        ("0s", 0.0),
    ],
)
def test_a_length_of_time_has_units(text, seconds):
    assert seconds_in(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "5", "s", "-5s", "5 sec", "1m1h", "5s5s", "1e3s", "soon", "5S", "٣s", "1" * 101 + "s"],
)
def test_what_is_no_length_of_time(text):
    """A number alone is none: what it counts is the field's own."""
    assert seconds_in(text) is None


@given(st.integers(0, 10**10))
def test_every_length_is_read_as_it_was_written(total):
    """In milliseconds, over all units."""
    left, text = total, ""
    for unit, size in UNITS:
        count, left = divmod(left, size)
        text += f"{count}{unit}" if count else ""
    assert seconds_in(text or "0s") == pytest.approx(total / 1000, abs=1e-6)


WRITTEN = """\
retry:
  policies:
    a:
      deadline: 1m30s
      attemptTimeout: 2s
      initialDelay: 250ms
      maxDelayMs: 9s
      jitter: {kind: additive, amount: 100ms}
      perKind: {throttled: {maxDelay: 1m}}
    b: {backoff: {kind: chain, delays: [100ms, 1, 5s]}}
circuitBreaker: {openDuration: 1m, slowAfter: 2s, slowRate: 0.5, window: {seconds: 30s}}
budgets: {retries: {window: 10s}, rate: {perSecond: 5, maxWait: 1s}}
store: {url: "memory://", share: 500ms, purge: 1h}
alerts: {interval: 2s, rules: [{name: a, metric: failure_rate, above: 0.5, window: 5m}]}
"""


def test_every_time_of_a_file_may_have_units(tmp_path):
    """Under each of its names, and in place of a section that a number stands for."""
    path = tmp_path / "mainstay.yml"
    path.write_text(WRITTEN, encoding="utf-8")
    loaded = load(path, env={"MAINSTAY_STORE__WAIT": "3s"}, overrides=["alerts.interval=1500ms"])
    assert loaded.report.problems == []
    settings = loaded.settings
    policy, chain = settings.policies
    assert (policy.deadline, policy.attempt_timeout) == (90.0, 2.0)
    assert (policy.backoff.initial, policy.backoff.max_delay) == (0.25, 9.0)
    assert policy.jitter.amount == 0.1
    assert chain.backoff.delays == (0.1, 1.0, 5.0)
    assert settings.breaker.recovery_timeout.initial == 60.0
    assert settings.breaker.slow_after == 2.0
    assert settings.budgets["retries"]["window"] == 10.0
    assert (settings.store["share"], settings.store["purge"]) == (0.5, 3600.0)
    assert (settings.store["wait"], settings.alerts["interval"]) == (3.0, 1.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "retry: {policies: {a: {deadline: 5 sec}}}",
            "a number of seconds above 0 and up to 31622400, or a duration such as 500ms, 30s or",
        ),
        ("retry: {policies: {a: {deadline: 400d}}}", "up to 31622400"),
        ("retry: {policies: {a: {deadline: 0s}}}", "above 0"),
        ("retry: {policies: {a: {factor: 5s}}}", "must be a number from 1 to 1000"),
        ("circuitBreaker: {openDuration: soon}", "or a number or a duration such as 30s"),
        (
            "retry: {policies: {a: {jitter: {kind: percent, amount: 500ms}}}}",
            "is a share here: a duration is for additive alone",
        ),
    ],
)
def test_what_is_no_time_of_a_field_is_told(tmp_path, text, message):
    """One message, with both ways to write it and the limits; what is no time takes no unit."""
    path = tmp_path / "mainstay.yml"
    path.write_text(text, encoding="utf-8")
    (problem,) = load(path, env={}).report.problems
    assert message in str(problem)


def test_the_schema_knows_units():
    """So that an editor takes what mainstay takes."""
    validator = jsonschema.Draft202012Validator(json.loads(json.dumps(schema())))
    for text, is_right in (("1h30m", True), ("5", False), ("5 sec", False), ("1m1h", False)):
        document = {"retry": {"policies": {"a": {"deadline": text}}}}
        assert validator.is_valid(document) is is_right, text
    assert validator.is_valid({"circuitBreaker": {"openDuration": "30s"}})
    assert not validator.is_valid({"retry": {"policies": {"a": {"factor": "5s"}}}})


@pytest.mark.parametrize("value", ["30", "30s", "30000ms", "0.5m", " 30s "])
def test_an_option_takes_units_too(value):
    assert Seconds(0.0, 60.0).convert(value, None, None) == 30.0


@pytest.mark.parametrize(
    "arguments",
    [
        ["exec", "--timeout", "5 sec", "--", "true"],
        ["exec", "--deadline", "nan", "--", "true"],
        ["exec", "--grace", "2h", "--", "true"],
        ["exec", "--lease", "10ms", "--", "true"],
        ["circuits", "watch", "--every", "1ms"],
    ],
    ids=lambda words: words[-3] if words[-1] == "true" else words[-1],
)
def test_a_wrong_option_has_the_same_message(arguments, capsys):
    """As the files'."""
    assert guard.run(arguments) == 2
    told = capsys.readouterr().err
    assert "must be a number of seconds" in told
    assert "or a duration such as 500ms, 30s or 1h30m" in told
