"""`mainstay policies`: what it shows is what the engine does."""

import json

import pytest
from click.testing import CliRunner

from mainstay import Backoff, Engine, Jitter, RetryPolicy, testing
from mainstay.cli.app import app
from mainstay.cli.config import policies
from mainstay.events import RetryAttempt

STANDARD = Engine(sinks=[]).policies["standard"]


def invoke(*arguments):
    """The output of `mainstay policies` with these arguments, for a pipe."""
    done = CliRunner().invoke(app, ["policies", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_the_table_names_every_built_in_policy():
    out = invoke()
    assert "standard" in out
    assert "exponential 0.1 s × 2 up to 5 s" in out
    assert "±10 %" in out
    assert "0.1 s, 0.2 s" in out


def test_the_json_is_the_policy():
    """A program can build the same policy from it."""
    (found,) = json.loads(invoke("--json"))
    assert found.pop("delays") == [0.1, 0.2]
    assert RetryPolicy.from_dict(found) == STANDARD


@pytest.mark.parametrize("words", [["show", "standard", "--json"], ["--json", "show", "standard"]])
def test_json_may_stand_on_either_side(words):
    assert json.loads(invoke(*words))["name"] == "standard"


def test_a_seed_shows_the_delays_that_are_waited():
    """An engine with that seed waits exactly what the command has shown, to the bit."""
    shown = json.loads(invoke("show", "standard", "--seed", "7", "--json"))["delays"]
    heard = []
    with testing.virtual_time():
        Engine(seed=7, sinks=[heard.append]).run("x", broken)
    assert shown == [e.delay_seconds for e in heard if isinstance(e, RetryAttempt)]
    assert shown == STANDARD.delays(seed=7)


def broken():
    raise ConnectionError("down")


def test_a_person_sees_the_delays_too():
    out = invoke("show", "standard", "--seed", "7")
    for delay in STANDARD.delays(seed=7):
        assert f"{delay:.6f} s" in out


def test_without_a_seed_the_delays_are_those_before_jitter():
    out = invoke("show", "standard")
    assert "delay before jitter" in out
    assert "0.100 s" in out


@pytest.mark.parametrize(
    ("backoff", "text"),
    [
        (Backoff.constant(2), "constant 2 s"),
        (Backoff.linear(1, step=0.5), "linear 1 s + 0.5 s up to 60 s"),
        (Backoff.exponential(0.1, factor=3), "exponential 0.1 s × 3 up to 60 s"),
        (Backoff.custom(lambda n: n), "a function, up to 60 s"),
        (Backoff.chain(1, 2, Backoff.linear(3)), "a chain of 2 delays up to 60 s"),
    ],
)
def test_each_backoff_is_said(backoff, text):
    assert policies.backoff_text(backoff) == text


@pytest.mark.parametrize(
    ("jitter", "text"),
    [
        (Jitter.percent(0.25), "±25 %"),
        (Jitter.additive(1.5), "up to 1.5 s more"),
        (Jitter.full(), "full"),
        (Jitter.none(), "none"),
    ],
)
def test_each_jitter_is_said(jitter, text):
    assert policies.jitter_text(jitter) == text


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (RetryPolicy(max_attempts=500, jitter=Jitter.none()), ["479 more with --json", "retry"]),
        (RetryPolicy(retry_on=(OSError, "SlowDown"), deadline=3.0), ["OSError, SlowDown", "3 s"]),
    ],
)
def test_other_policies_can_be_shown(policy, words, monkeypatch):
    """Configuration will bring policies of every shape."""
    monkeypatch.setattr(policies, "_find", lambda _: policy)
    monkeypatch.setattr(policies, "_registry", lambda: [policy])
    out = invoke("show", "any")
    assert all(word in out for word in words)
    assert ("…" in invoke()) == (policy.max_attempts > 6)
