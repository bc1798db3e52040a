"""`mainstay explain-error`: what is known of an exception class, and why."""

import json

import pytest
from click.testing import CliRunner

from mainstay import Kind
from mainstay.cli.app import app
from mainstay.integrations.errors import Row, Table, register, unregister


def explained(*arguments, code=0):
    done = CliRunner().invoke(app, ["explain-error", *arguments])
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["httpx.PoolTimeout"], ("timeout", True, False, "")),
        (["httpx.ReadTimeout"], ("timeout", True, True, "")),
        (["httpx.NetworkError"], ("transient", True, True, "httpx.TransportError")),
        (["httpx.HTTPStatusError", "--status", "404"], ("permanent", False, False, "")),
        (["httpx.HTTPStatusError", "--status", "429"], ("throttled", True, False, "")),
        (["ConnectionError"], ("transient", True, False, "")),
        (["json.JSONDecodeError"], ("permanent", False, False, "")),
        (["urllib.error.HTTPError", "--status", "503"], ("overload", True, False, "")),
    ],
)
def test_one_answer_for_a_class_and_what_it_carries(arguments, expected):
    """Kind, retried, ambiguous, and the ancestor whose entry it is."""
    (row,) = json.loads(explained(*arguments, "--json"))["rows"]
    assert (row["kind"], row["retried"], row["ambiguous"], row["ancestor"]) == expected
    assert row["why"]
    assert row["kind"] in explained(*arguments)


def test_a_class_that_derives_from_a_known_one_has_its_answer():
    """Its library is imported for that, since only the class knows its ancestors."""
    (row,) = json.loads(explained("tests.cli.test_explain_error.Derived", "--json"))["rows"]
    assert (row["kind"], row["ancestor"]) == ("overload", "acme.Busy")
    assert "by its ancestor acme.Busy" in explained("tests.cli.test_explain_error.Derived")


def test_cases_are_a_table():
    """A class whose status decides shows all of them, JSON too."""
    shown = explained("httpx.HTTPStatusError")
    assert "status 429" in shown
    assert "otherwise" in shown
    assert len(json.loads(explained("httpx.HTTPStatusError", "--json"))["rows"]) == 13


def test_many_cases_are_cut_and_the_rest_is_named(monkeypatch):
    """A screen is not filled with codes."""
    monkeypatch.setattr("mainstay.cli.explain_error.MAX_SHOWN", 2)
    assert "11 more; --json has all" in explained("httpx.HTTPStatusError")


def test_a_name_that_is_no_class_is_refused():
    """Nothing is guessed."""
    for name in ("nope.Nothing", "json.dumps", "Nonsense"):
        assert f"no exception class is named '{name}'" in explained(name, code=1)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("httpx.ReadTimeou", "httpx.ReadTimeout"),
        ("httpx.readtimeout", "httpx.ReadTimeout"),
        ("acme.Bussy", "acme.Busy"),
        ("ConectionError", "ConnectionError"),
    ],
)
def test_a_misspelt_class_gets_the_nearest_one(name, meant):
    """Of the tables of its library, or of Python's own classes."""
    assert f"did you mean {meant}?" in explained(name, code=1)


class Busy(Exception):
    __module__, __qualname__ = "acme", "Busy"


class Derived(Busy):
    """Of the user's own."""


@pytest.fixture(autouse=True)
def _registered():
    """A library that does not exist."""
    register(Table("acme", {"acme.Busy": Row(Kind.OVERLOAD, "the queue is full")}))
    yield
    unregister("acme")
