"""`mainstay store`: what has expired goes, and the file becomes smaller."""

import json
import os
import sqlite3

import pytest

from mainstay import Engine
from mainstay.cli.app import app
from mainstay.core.base.change import Change
from mainstay.stores.sqlite.store import SqliteStore


@pytest.fixture
def url(tmp_path):
    """A file of an earlier version, with 2,500 expired records and one that is not."""
    path = tmp_path / "app.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute("CREATE TABLE other (a)")
    connection.close()
    store = SqliteStore(f"sqlite:///{path}")

    def expired(_value, now):
        return Change(os.urandom(1000), now - 1.0), None

    for number in range(2500):
        store.transact("s", str(number), expired)
    store.transact("s", "stays", lambda *_: (Change(b"1"), None))
    store.close()
    return store.url


def run(runner, *arguments):
    result = runner(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.fixture
def runner():
    from click.testing import CliRunner

    return lambda *arguments: CliRunner().invoke(app, arguments)


def test_expired_records_are_purged_at_once(url, runner):
    """All of them, and how many is printed."""
    assert run(runner, "store", "purge", "--store", url) == f"{url}: 2,500 expired records purged\n"
    assert json.loads(run(runner, "store", "purge", "--json", "--store", url)) == {
        "store": url, "purged": 0,
    }  # fmt: skip
    store = SqliteStore(url)
    assert store.read("s", "stays")[0] == b"1"
    store.close()


def test_a_file_is_compacted(url, runner, tmp_path):
    """The sizes before and after are printed, and are those of the file."""
    done = json.loads(run(runner, "store", "compact", "--json", "--store", url))
    assert done["purged"] == 2500
    assert done["before"] > 2_500_000
    assert done["after"] == (tmp_path / "app.db").stat().st_size < 200_000
    text = run(runner, "store", "compact", "--store", url)
    assert text.startswith(f"{url}: 0 expired records purged; ")
    assert text.endswith(f"{done['after']:,} bytes now\n")


def test_a_store_that_frees_space_by_itself_is_purged_only(runner):
    """There is no file to compact."""
    text = run(runner, "store", "compact", "--store", "memory://")
    assert text == "memory://: 0 expired records purged; this store frees space by itself\n"


def test_without_a_verb_the_help_is_shown(runner):
    """With the exit code of a wrong command line."""
    result = runner("store")
    assert result.exit_code == 2
    assert "compact" in result.stderr


def test_a_copy_of_a_store_gets_an_identity_of_its_own(runner, tmp_path):
    """Without an account while there is no operator; then by an operator alone."""
    url = f"sqlite:///{tmp_path}/copy.db"
    with Engine(url, sinks=[], audit=False) as engine:
        first = engine.operators.store_identity
    shown = run(runner, "store", "identity", "--store", url)
    assert shown == f"{url}: its identity is {first}\n"
    renewed = json.loads(run(runner, "store", "renew-identity", "--json", "--store", url))
    assert renewed["store"] == url
    assert renewed["identity"] != first
    with Engine(url, sinks=[], audit=False) as engine:
        engine.operators.add("ann", secret="correct horse")
    refused = runner("store", "renew-identity", "--store", url)
    assert refused.exit_code != 0
    (tmp_path / "secret").write_text("correct horse")
    (tmp_path / "secret").chmod(0o600)
    who = ("--as", "ann", "--secret-file", str(tmp_path / "secret"))
    done = json.loads(run(runner, "store", "renew-identity", "--json", *who, "--store", url))
    assert done["identity"] not in (first, renewed["identity"])
