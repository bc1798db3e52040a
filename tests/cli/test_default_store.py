"""Commands on a machine with nothing configured: they look where `mainstay exec` keeps things."""

import json

import pytest
from click.testing import CliRunner

from mainstay import Engine, Item
from mainstay.cli.app import app
from mainstay.engine.user_store import default_store

LOOKS = [["status"], ["circuits"], ["inbox"], ["operators"], ["store", "purge"]]
ids = pytest.mark.parametrize("words", LOOKS, ids=[words[0] for words in LOOKS])


def invoke(*words):
    """Runs `mainstay` with these words."""
    return CliRunner().invoke(app, words)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user without a configuration, whose state folder is not there yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("MAINSTAY_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state" / "mainstay"


@ids
def test_before_anything_ran_there_is_nothing_and_nothing_is_made(home, words):
    """Exit 0, the place where it looked, and no file or folder of ours after it."""
    done = invoke(*words)
    assert done.exit_code == 0, done.output
    joined = done.output.replace("\n", "")
    assert f"{home}/mainstay.db, which does not exist yet" in joined
    assert not home.exists()
    as_json = invoke(*words, "--json")
    assert (as_json.exit_code, as_json.stderr) == (0, "")
    json.loads(as_json.stdout)


@ids
def test_what_exec_kept_is_found_and_its_place_is_printed(home, words):
    """Without --store and without a configuration."""
    with Engine(default_store(), sinks=[]) as engine:
        item = engine.inbox.put(Item(kind="alert", subject="a", operation="pay", text="slow"))
    done = invoke(*words)
    assert done.exit_code == 0, done.output
    assert f"{home}/mainstay.db" in done.output.replace("\n", "")
    assert "does not exist" not in done.output
    assert (item.id in done.output) == (words[0] in ("status", "inbox"))


def test_a_store_that_was_named_is_not_announced(home, tmp_path):
    """The line is for those who named none."""
    url = f"sqlite:///{tmp_path}/app.db"
    Engine(url, sinks=[]).close()
    done = invoke("circuits", "--store", url)
    assert (done.exit_code, done.stderr) == (0, "")


def test_the_first_operator_is_added_to_the_store_of_exec(home, monkeypatch):
    """It is made then, in the user's own folder."""
    monkeypatch.setenv("MAINSTAY_OPERATOR_SECRET", "correct horse battery staple")
    done = invoke("operators", "add", "ann")
    assert done.exit_code == 0, done.output
    assert (home / "mainstay.db").exists()
