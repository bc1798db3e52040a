"""What `mainstay config check` finds besides problems: slips that an engine would start with."""

import sys

import pytest

from mainstay import Engine
from mainstay.config.doubts import doubts_of
from mainstay.config.load import load
from mainstay.core.retry.classify import Rules, classify


@pytest.fixture
def doubts(tmp_path):
    """The warnings and notes of a configuration, each without its file."""

    def doubts(text):
        path = tmp_path / "mainstay.yml"
        path.write_text(text, encoding="utf-8")
        loaded = load(path, env={})
        assert loaded.report.problems == []
        found = doubts_of(loaded)
        return [[str(p).removeprefix(f"{path}:") for p in s] for s in (found.warnings, found.notes)]

    return doubts


def policy(**fields):
    shown = ", ".join(f"{key}: {value}" for key, value in fields.items())
    return f"retry: {{policies: {{a: {{{shown}}}}}}}\n"


@pytest.mark.parametrize(
    ("rule", "meant"),
    [
        ("ConectionError", "ConnectionError"),
        ("connectionerror", "ConnectionError"),
        ("TimeOutError", "TimeoutError"),
        ("CommandFaild", "CommandFailed"),
        ("throtled", "kind:throttled"),
        ("IOError", "OSError"),
        ("socket.timeout", "TimeoutError"),
        ("asyncio.TimeoutError", "TimeoutError"),
        ("json.JSONDecodeError", "json.decoder.JSONDecodeError"),
        ("json.decoder.JSONDecodError", "json.decoder.JSONDecodeError"),
        ("builtins.ConectionError", "builtins.ConnectionError"),
        ("urllib.error.UrlError", "urllib.error.URLError"),
        ("httpx.ConnectTimeut", "httpx.ConnectTimeout"),
        ("requests.exceptions.ConectionError", "requests.exceptions.ConnectionError"),
    ],
)
def test_a_name_that_is_a_slip_is_a_warning_with_what_was_meant(doubts, rule, meant):
    """A misspelt name, and another name of a class, never match: nothing would be retried."""
    (warning,), notes = doubts(policy(retryOn=f"[OSError, {rule}]"))
    assert warning.startswith("1: retry.policies.a.retryOn[1]: ")
    assert warning.endswith(f"; did you mean {meant}?")
    assert notes == []


@pytest.mark.parametrize(
    "rule",
    [
        "ConnectionError",
        "builtins.OSError",
        "json.decoder.JSONDecodeError",
        "PaymentDeclined",
        "ConnectError",
        "HTTPError",
        "shop.errors.ConectionError",
        "'kind:throttled'",
        "'exit:75'",
        "'503'",
        "SlowDown",
        "mainstay.errors.CommandFailed",
        "antigravity.Error",
        "httpx.ConnectTimeout",
        "requests.ConnectTimeout",
        "redis.MyOwnError",
        "not a name",
    ],
)
def test_a_name_that_may_be_right_is_no_warning(doubts, rule):
    """One's own class, a library's, a code, a kind."""
    assert doubts(policy(retryOn=f"[{rule}]"))[0] == []


def test_every_place_of_a_rule_is_looked_at(doubts):
    """Lists, single texts, keys of `classify`, policies and circuits."""
    warnings, _ = doubts(
        policy(neverRetryOn="ValueEror", classify="{TimoutError: timeout}")
        + "circuitBreaker: {countOn: ConectionError}\n"
        "breakers: {named: {pay: {ignore: [KeyEror]}}}\n"
    )
    places = [warning.split(": ")[1] for warning in warnings]
    assert places == [
        "retry.policies.a.neverRetryOn",
        "retry.policies.a.classify.TimoutError",
        "circuitBreaker.countOn",
        "breakers.named.pay.ignore[0]",
    ]


def test_a_library_that_is_not_there_is_a_note(doubts):
    """It need not be wrong: the file may be checked where the program does not run."""
    warnings, (note,) = doubts(policy(retryOn="[nosuchlib.errors.Down]"))
    assert warnings == []
    assert "the module nosuchlib, which is not installed here" in note


def test_no_module_of_the_users_is_imported(doubts, tmp_path, monkeypatch):
    """Importing it would run its code, for a check."""
    (tmp_path / "shopping.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert doubts(policy(retryOn="[shopping.Down]")) == [[], []]
    assert "shopping" not in sys.modules


def test_an_attempt_that_may_outlast_the_call_is_a_warning(doubts):
    """Also if one of the two is inherited; not if they are equal."""
    text = (
        "retry:\n"
        "  policies:\n"
        "    a: {attemptTimeout: 30s}\n"
        "    b: {extends: a, deadline: 10}\n"
        "    c: {extends: a, deadline: 30}\n"
        "    d: {extends: b}\n"
    )
    warnings, _ = doubts(text)
    assert [warning.partition(": an")[0] for warning in warnings] == [
        "4: retry.policies.b.deadline",
        "6: retry.policies.d",
    ]
    assert "an attempt may take 30 s (attemptTimeout), and the whole call 10 s" in warnings[0]


def test_an_engine_starts_with_a_doubt(tmp_path):
    """A class of that name may exist: only the check has an opinion."""
    path = tmp_path / "mainstay.yml"
    path.write_text(policy(retryOn="[ConectionError]"), encoding="utf-8")
    with Engine.from_config(path, env={}) as engine:
        assert engine.policies["a"].retry_on == ("ConectionError",)


def test_the_other_name_of_a_class_indeed_never_matches():
    """What the warning states of rules."""
    assert not classify(TimeoutError(), Rules(("socket.timeout",))).retryable
    assert classify(TimeoutError(), Rules(("TimeoutError",))).retryable
