"""`mainstay outbox`, as people and programs use it."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from mainstay import Backoff, Engine, RetryPolicy

SECRET = "correct-horse-9f3kqz"
QUICK = RetryPolicy(max_attempts=1, backoff=Backoff.constant(0.0))


@pytest.fixture
def place(tmp_path):
    """A database with a message that was sent, two dead ones, and one that waits."""
    path = tmp_path / "app.db"
    url = f"sqlite:///{path}"
    with Engine(url, sinks=[], share=None) as engine:

        def add(name, topic):
            connection = sqlite3.connect(path)
            with connection:
                engine.outbox.add(
                    connection, topic=topic, payload={"secret": "hunter2"}, id=name,
                    aggregate_type="User", aggregate_id=name,
                )  # fmt: skip
            connection.close()

        def fail(message):
            raise ConnectionError("no route")

        add("sent", "user.created.v1")
        engine.outbox.relay(lambda message: None).drain()
        add("dead-1", "user.created.v1")
        add("dead-2", "user.deleted.v1")
        engine.outbox.relay(fail, policy=QUICK).drain()
        add("waits", "user.created.v1")
    return url


def data(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def states(url):
    with Engine(url, sinks=[], audit=False, share=None) as engine:
        return {entry.id: entry.state for entry in engine.outbox.entries()}


def test_status(run, place):
    found = data(run("outbox", "status", "--store", place, "--json"))
    assert found["counts"] == {"DEAD": 2, "PENDING": 1, "SENT": 1}
    assert found["oldest_age_seconds"] >= 0.0
    assert "DEAD" in run("outbox", "status", "--store", place).stdout


def test_list_has_filters_and_no_payload(run, place):
    done = run("outbox", "list", "--state", "pending", "--store", place, "--json")
    assert [each["id"] for each in data(done)] == ["waits"]
    assert "hunter2" not in done.stdout
    done = run("outbox", "list", "--topic", "user.created.v1", "--limit", "2", "--store", place)
    assert "sent" in done.stdout
    assert "waits" not in done.stdout
    assert run("outbox", "list", "--topic", "none", "--store", place).stdout == "no message\n"


def test_dead_letters_are_listed_and_shown(run, place):
    found = data(run("outbox", "dead", "list", "--error", "no route", "--store", place, "--json"))
    assert [each["id"] for each in found] == ["dead-1", "dead-2"]
    assert data(run("outbox", "dead", "list", "--error", "other", "--store", place, "--json")) == []
    assert "no route" in run("outbox", "dead", "list", "--store", place).stdout
    one = data(run("outbox", "dead", "show", "dead-1", "--store", place, "--json"))
    assert one["history"][0]["text"] == "ConnectionError: no route"
    assert (one["retry_count"], one["event_type"]) == (0, "user.created.v1")
    assert "no route" in run("outbox", "dead", "show", "dead-1", "--store", place).stdout
    missing = run("outbox", "dead", "show", "none", "--store", place)
    assert (missing.returncode, "no dead message" in missing.stderr) == (1, True)


def test_replay_has_a_dry_run_a_filter_and_a_rate(run, place):
    words = ["outbox", "dead", "replay", "--all", "--topic", "user.deleted.v1", "--store", place]
    assert "would be replayed" in run(*words, "--dry-run").stdout
    assert states(place)["dead-2"] == "DEAD"
    assert data(run(*words, "--rate", "1000", "--json")) == {
        "replayed": ["dead-2"], "dry_run": False
    }  # fmt: skip
    assert states(place) == {
        "sent": "SENT", "dead-1": "DEAD", "dead-2": "PENDING", "waits": "PENDING"
    }  # fmt: skip
    assert run("outbox", "dead", "replay", "--store", place).returncode == 2
    assert run("outbox", "dead", "replay", "dead-2", "--store", place).returncode == 1


def test_without_operators_the_item_is_closed_too(run, place):
    """By the owner of the private file; the command of the inbox has nothing left to show."""
    assert run("outbox", "dead", "replay", "dead-1", "--store", place).returncode == 0
    done = run("outbox", "dead", "discard", "dead-2", "--why", "a test", "--store", place)
    assert done.returncode == 0, done.stderr
    with Engine(place, sinks=[], audit=False, share=None) as engine:
        assert list(engine.inbox) == []
        results = sorted(item.result for item in engine.inbox.all())
        assert [text.partition(" by ")[0] for text in results] == [
            "the message was discarded", "the message was replayed"
        ]  # fmt: skip
        assert all(" by os:" in text for text in results)


@pytest.mark.parametrize("rate", ["nan", "0", "-1", "1e-300", "inf", "many"])
def test_a_rate_that_is_none_is_refused_before_anything_is_replayed(run, place, rate):
    done = run("outbox", "dead", "replay", "--all", "--rate", rate, "--store", place)
    assert (done.returncode, "--rate" in done.stderr) == (2, True)
    assert [states(place)[name] for name in ("dead-1", "dead-2")] == ["DEAD", "DEAD"]


def test_an_id_that_is_named_twice_is_replayed_once(run, place):
    done = run("outbox", "dead", "replay", "dead-1", "dead-1", "--json", "--store", place)
    assert data(done)["replayed"] == ["dead-1"]


def test_discard_needs_a_reason_and_an_operator_if_there_is_one(run, place):
    words = ["outbox", "dead", "discard", "dead-1", "--store", place]
    assert run(*words).returncode == 2
    with Engine(place, sinks=[], share=None) as engine:
        engine.operators.add("ann", secret=SECRET)
    assert run(*words, "--why", "a test").returncode != 0
    assert states(place)["dead-1"] == "DEAD"
    done = run(*words, "--why", "a test", "--as", "ann", MAINSTAY_OPERATOR_SECRET=SECRET)
    assert done.returncode == 0, done.stderr
    assert states(place)["dead-1"] == "DISCARDED"
    with Engine(place, sinks=[], audit=False, share=None) as engine:
        assert [item.subject for item in engine.inbox] == ["dead-2"]  # its item is closed


def test_purge_is_explicit_and_has_a_dry_run(run, place):
    assert run("outbox", "purge", "--store", place).returncode == 2
    words = ["outbox", "purge", "--store", place, "--older-than"]
    assert "0 messages were deleted" in run(*words, "7d").stdout
    assert data(run(*words, "0", "--dry-run", "--json"))["found"] == 1
    assert data(run(*words, "0", "--json"))["purged"] == 1
    assert "sent" not in states(place)


@pytest.mark.parametrize("dialect", ["postgresql", "sqlite"])
def test_the_schema_is_printed_for_migrations(run, dialect, tmp_path):
    script = run("outbox", "schema", "--dialect", dialect).stdout
    assert "CREATE TABLE mainstay_outbox (" in script
    version = data(run("outbox", "schema", "--dialect", dialect, "--json"))["version"]
    words = ["outbox", "schema", "--dialect", dialect, "--after"]
    assert "CREATE TABLE" not in data(run(*words, "1", "--json"))["sql"]
    assert data(run(*words, str(version), "--json"))["sql"] == ""
    done = run(*words, "99")
    assert (done.returncode, f"the newest is {version}" in done.stderr) == (2, True)
    if dialect == "sqlite":
        connection = sqlite3.connect(tmp_path / "exported.db")
        connection.executescript(script)
        connection.close()
        url = f"sqlite:///{tmp_path}/exported.db"
        assert data(run("outbox", "status", "--store", url, "--json"))["counts"] == {}


def test_an_outbox_of_its_own(run, place):
    done = run("outbox", "status", "--store", "memory://", "--outbox", place, "--json")
    assert data(done)["counts"]["DEAD"] == 2


def test_the_relay_drains(run, place, tmp_path, monkeypatch):
    (tmp_path / "shop.py").write_text("def publish(message):\n    print(message.id)\n")
    words = ["outbox", "relay", "--publish", "python:shop:publish", "--drain", "--store", place]
    monkeypatch.chdir(tmp_path)
    done = run(*words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["waits", "1 published, 0 retried, 0 dead"]
    assert run("outbox", "relay", "--publish", "nowhere://", "--store", place).returncode == 2


def test_the_configuration_names_the_broker_and_the_database(run, place, tmp_path, monkeypatch):
    """`--publish` and `--outbox` are for others; without any broker the command fails."""
    (tmp_path / "shop.py").write_text("def publish(message): print(message.id)\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.yml").write_text(
        f"store: memory://\noutbox: {{url: '{place}', publish: 'python:shop:publish'}}\n", "utf-8"
    )
    done = run("outbox", "relay", "--drain", "--config", "shop.yml")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["waits", "1 published, 0 retried, 0 dead"]
    assert "python:shop:publish" in done.stderr
    bare = run("outbox", "relay", "--drain", "--store", place)
    assert bare.returncode == 2
    assert "no broker is named" in bare.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_relay_ends_gracefully(place, tmp_path, number):
    """What is being published when the signal comes is finished; the exit code is 0."""
    (tmp_path / "shop.py").write_text(
        "import pathlib, time\n"
        "def publish(message):\n"
        "    pathlib.Path('began').touch()\n"
        "    while not pathlib.Path('go').exists(): time.sleep(0.01)\n"
        "    pathlib.Path('ended').touch()\n"
    )
    command = [sys.executable, "-m", "mainstay", "outbox", "relay", "--publish",
               "python:shop:publish", "--store", place, "--json"]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ
    )
    while not (tmp_path / "began").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(number)
    (tmp_path / "go").touch()
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert (tmp_path / "ended").exists()
    assert json.loads(out)["published"] == 1


def test_the_relay_fails_if_its_table_is_gone(run, place, tmp_path, monkeypatch):
    """A supervisor starts it again only if its exit code is not 0."""
    (tmp_path / "shop.py").write_text(
        "import sqlite3\n"
        "def publish(message):\n"
        "    connection = sqlite3.connect('app.db', timeout=30.0)\n"
        "    connection.execute('DROP TABLE mainstay_outbox')\n"
        "    connection.close()\n"
    )
    monkeypatch.chdir(tmp_path)
    words = ["outbox", "relay", "--publish", "python:shop:publish", "--poll", "0.05"]
    done = run(*words, "--store", place)
    assert done.returncode != 0
    assert "mainstay outbox schema" in done.stderr.splitlines()[-1]
