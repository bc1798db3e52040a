"""What a command finds out before it asks for a secret, and what it says of a short one."""

import os

import pytest
from click.testing import CliRunner

from mainstay import BreakerSettings, Engine, Item, RetryPolicy
from mainstay.cli.app import app
from mainstay.cli.inbox import identity
from mainstay.core.inbox import operators as core

SECRET = "correct-horse-9f3kqz"


@pytest.fixture
def url(tmp_path):
    """A store with an operator, and items that are open, decided and closed."""
    url = f"sqlite:///{tmp_path}/app.db"
    with Engine(url, sinks=[], audit=False, share=None) as engine:
        engine.operators.add("ann", secret=SECRET)
    return url


@pytest.fixture
def asked(monkeypatch):
    """The secrets that a command asks for; it gets none."""
    found = []

    def secret_of(_file, _variable, asked, *, is_new=False):
        found.append((asked, is_new))
        raise identity.CommandError(f"no {asked} was given", hint="")

    monkeypatch.setattr(identity, "secret_of", secret_of)
    monkeypatch.setattr("mainstay.cli.inbox.operators.secret_of", secret_of)
    return found


def run(*words, **env):
    return CliRunner().invoke(app, words, env=env)


def told_by(done):
    """What was printed, or raised for the guard around the command to print."""
    return f"{done.stderr} {done.exception}"


def put(url, subject="a"):
    with Engine(url, sinks=[], audit=False, share=None) as engine:
        item = Item(kind="governance", subject=subject, operation="fetch", text="too slow")
        return engine.inbox.put(item).id


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["done", "ID"], "needs evidence"),
        (["release", "ID"], "'release' is no action for governance"),
        (["abandon", "ID"], "to abandon needs a reason"),
        (["retry", "0000000000000000"], "there is no item"),
        (["abandon", "ID", "--why", "x", "--revision", "9"], "its revision is 1"),
    ],
)
def test_an_act_that_is_not_legal_asks_for_no_secret(url, asked, words, told):
    """The person would have typed it for nothing."""
    item = put(url)
    given = [item if word == "ID" else word for word in words]
    done = run("inbox", *given, "--as", "ann", "--store", url)
    assert (done.exit_code, asked) == (1, [])
    assert told in told_by(done)


def test_an_act_that_is_legal_asks_for_the_secret(url, asked):
    """Once, and that of the operator."""
    done = run("inbox", "abandon", put(url), "--why", "x", "--as", "ann", "--store", url)
    assert "no secret of ann was given" in told_by(done)
    assert asked == [("secret of ann", False)]


def test_what_was_decided_before_is_carried_out_without_a_secret(url, asked):
    """As any process may; who decided is shown."""
    item = put(url)
    with Engine(url, sinks=[], audit=False, share=None) as engine:
        engine.inbox.carry_out = lambda _: None
        engine.inbox.act(item, "abandon", by="ann", proof=SECRET, why="no use")
    done = run("inbox", "abandon", item, "--why", "x", "--as", "ann", "--store", url)
    assert "ann has decided 'abandon' before" in told_by(done)
    assert asked == []
    with Engine(url, sinks=[], audit=False, share=None) as engine:
        assert engine.inbox.get(item).status == "closed"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["remove", "eve"], "no operator 'eve'"),
        (["remove", "ann"], "last operator"),
        (["passwd", "eve"], "no operator 'eve'"),
        (["add", "ann"], "an operator 'ann' already"),
        (["add", "a b"], "no name for an operator"),
    ],
)
def test_a_change_of_operators_that_is_not_legal_asks_for_no_secret(url, asked, words, told):
    """Neither for one's own nor for a new one."""
    done = run("operators", *words, "--as", "ann", "--store", url)
    assert told in told_by(done)
    assert asked == []


def test_a_further_operator_without_a_name_to_vouch_asks_for_no_secret(url, asked):
    """The refusal comes first."""
    done = run("operators", "add", "bob", "--store", url)
    assert "not the first" in told_by(done)
    assert asked == []


def test_a_short_secret_of_an_earlier_version_is_warned_of_when_it_was_right(url):
    """A wrong one gets no hint of what the right one is like."""
    old = core.hashed("8 chars.", core.Hash(salt="ab" * 16, n=2**4))
    with Engine(url, sinks=[], audit=False, share=None) as engine:
        engine.operators._step("ann", lambda value, now: core.change(value, now, proof=old))
    words = ("--why", "x", "--as", "ann", "--store", url)
    wrong = run("inbox", "abandon", put(url), *words, MAINSTAY_OPERATOR_SECRET="wrong")
    assert "secret is wrong" in told_by(wrong)
    assert "fewer than 12" not in wrong.stderr
    done = run("inbox", "abandon", put(url), *words, MAINSTAY_OPERATOR_SECRET="8 chars.")
    assert (done.exit_code, done.stderr.count("fewer than 12 characters")) == (0, 1)


# --- a circuit, without an account ----------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="files have no owner here")
def test_the_owner_of_a_private_file_resets_a_circuit_without_a_name(tmp_path, asked):
    """A file that others can open needs --as, and so does every other order."""
    tmp_path.chmod(0o755)
    path = tmp_path / "own.db"
    settings = BreakerSettings(failure_threshold=1, recovery_timeout=600.0)
    once = RetryPolicy(name="once", max_attempts=1)
    options = {"policies": [once], "default": "once", "audit": False, "share": 3600.0}
    with Engine(f"sqlite:///{path}", breaker=settings, sinks=[], **options) as engine:
        engine.call("pay", int)
        engine.catch_up()
    words = ("pay", "--why", "it is back", "--store", f"sqlite:///{path}")
    path.chmod(0o644)
    shared = run("circuits", "reset", *words)
    assert "no operator is named: only the owner of a private" in told_by(shared)
    path.chmod(0o600)
    forced = run("circuits", "open", *words)
    assert "no operator is named: force open" in told_by(forced)
    done = run("circuits", "reset", *words)
    assert (done.exit_code, asked) == (0, [])
    assert "pay: reset is ordered" in done.stdout
