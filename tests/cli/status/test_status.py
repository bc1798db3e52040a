"""`mainstay status`: what is waiting, which circuits are open, what needs a person."""

import json
import subprocess
import sys
import threading

import pytest

from mainstay import BreakerSettings, Engine, OutcomeUnknown, RetryPolicy
from mainstay.core.idempotency.record import Begin, reduce
from mainstay.events import CallSucceeded
from mainstay.sinks.delivery.spill import Spill
from tests.config.trusting import trusted
from tests.processes import wait_until

ONCE = RetryPolicy(name="once", max_attempts=1)


def down():
    raise ConnectionError("down")


def in_doubt():
    raise OutcomeUnknown("charge")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user's state of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state" / "mainstay"


def use(engine):
    """One open circuit of three, one matter for a person, one call that its process left."""
    for _ in range(3):
        engine.run("pay", down)
    engine.call("search", int)
    with pytest.raises(OutcomeUnknown):
        engine.operation("charge", idempotency="unsafe", key="order-7").call(in_doubt)
    command = Begin("gone", "abc", lease=-5.0, max_attempts=3)
    address = r'[null,"ship","order-\u001b[2J"]'
    engine.store.transact("records", address, lambda value, now: reduce(value, command, now))
    engine.catch_up()


@pytest.fixture
def url(home, tmp_path):
    """A store in use, and a call that runs as long as the test."""
    url = f"sqlite:///{tmp_path}/app.db"
    settings = BreakerSettings(failure_threshold=3, recovery_timeout=600.0)
    done, begun = threading.Event(), threading.Event()

    def work():
        begun.set()
        done.wait(60)

    with Engine(url, policies=[ONCE], default="once", sinks=[], share=3600.0, audit=False,
                breaker=settings) as engine:  # fmt: skip
        use(engine)
        operation = engine.operation("refund", key="order-8")
        thread = threading.Thread(target=operation.call, args=(work,))
        thread.start()
        try:
            assert begun.wait(60)
            yield url
        finally:
            done.set()
            thread.join(60)


@pytest.mark.req("AG-08.circuits", "AG-08.person")
def test_what_waits_what_is_open_and_what_needs_a_person(run, url):
    """All of it at one look."""
    done = run("status", "--store", url)
    assert (done.returncode, done.stderr) == (0, "")
    facts = dict(line.split("  ", 1) for line in done.stdout.splitlines()[:6])
    assert facts["circuits"].strip().endswith("not closed")
    assert facts["needs a person"].strip() == "1, the worst high"
    assert facts["running"].strip() == "1 keyed call, 1 left by a process that is gone"
    assert facts["undelivered"].strip() == "0 files of events"
    for told in ("3 failures in a row", "charge", "refund", "order-8", "over, "):
        assert told in done.stdout
    assert "\x1b" not in done.stdout, "a key is not obeyed by a terminal"


@pytest.mark.req("AG-08.circuits", "AG-08.person", "IT-041-09")
def test_the_same_for_programs(run, url):
    """One document; times are of the store's clock."""
    found = json.loads(run("status", "--json", "--store", url).stdout)
    assert [each["name"] for each in found["circuits"]["open"]] == ["pay"]
    assert [(each["operation"], each["kind"]) for each in found["needs_a_person"]] == [
        ("charge", "unknown_outcome")
    ]
    running = {each["operation"]: each for each in found["running"]}
    assert (running["refund"]["key"], running["refund"]["is_left"]) == ("order-8", False)
    assert running["ship"]["is_left"] is True
    assert found["undelivered"] == []


def test_looking_changes_nothing(run, url):
    """Neither a seat at a table nor a line in the audit log."""
    import sqlite3

    path = url.removeprefix("sqlite:///")

    def content():
        connection = sqlite3.connect(path)
        try:
            tables = connection.execute("select name from sqlite_master where type = 'table'")
            names = sorted(name for (name,) in tables)
            return {name: connection.execute(f"select * from {name}").fetchall() for name in names}
        finally:
            connection.close()

    before = content()
    assert any(before.values())
    assert run("status", "--store", url).returncode == 0
    assert content() == before


def test_events_that_wait_on_disk_are_told(run, url, home):
    """And those that nobody can read, which need a person too."""
    spill = Spill("nats://events", home / "spill")
    spill.write([CallSucceeded(operation="pay")], 1)
    path, _ = spill.write([CallSucceeded(operation="pay")], 2)
    spill.set_aside(path)
    (found,) = json.loads(run("status", "--json", "--store", url).stdout)["undelivered"]
    assert (found["files"], found["aside"]) == (1, 1)
    assert found["size"] > 0
    assert "1 file of events, 1 unreadable" in run("status", "--store", url).stdout
    spill.forget()


def test_events_that_wait_in_a_folder_of_the_configuration_are_told(run, url, tmp_path):
    """Whoever says where they wait need not say it again."""
    spill = Spill("audit", tmp_path / "waiting")
    spill.write([CallSucceeded(operation="pay")], 1)
    text = f"store: {url}\naudit: {{where: log.jsonl, spill: {tmp_path}/waiting}}\n"
    (tmp_path / "mainstay.yml").write_text(text, encoding="utf-8")
    trusted(tmp_path / "mainstay.yml")
    (found,) = json.loads(run("status", "--json").stdout)["undelivered"]
    assert found["where"].startswith(str(tmp_path / "waiting"))
    spill.forget()


ALERTING = """
store: sqlite:///alerts.db
audit: false
sinks: {logging: {enabled: false}}
alerts:
  rules:
    - {name: too-many, metric: exhausted_per_minute, above: 1}
"""


@pytest.mark.req("CP-17.alert")
def test_an_alert_that_fires_is_shown(run, home, tmp_path):
    """In the status and in the inbox, where somebody says that it was seen to."""
    (tmp_path / "mainstay.yml").write_text(ALERTING, encoding="utf-8")
    trusted(tmp_path / "mainstay.yml")
    with Engine.from_config() as engine:
        for _ in range(4):
            engine.run("pay", down)
        wait_until(lambda: list(engine.inbox.all()), "the alert")
    for words in (["status"], ["inbox"]):
        shown = " ".join(run(*words, COLUMNS="200").stdout.split())
        assert "alert" in shown
        assert "too-many" in shown
    assert "1, the worst high" in run("status").stdout


@pytest.mark.parametrize("given", ["environment", "file"])
def test_the_store_of_the_configuration(run, url, given, tmp_path):
    """No option is needed where it is named there."""
    env = {"MAINSTAY_STORE": url} if given == "environment" else {}
    if given == "file":
        (tmp_path / "mainstay.yml").write_text(f"store: {url}\n", encoding="utf-8")
        trusted(tmp_path / "mainstay.yml")
    assert "3 failures in a row" in run("status", **env).stdout


def test_what_exec_keeps_is_looked_at_where_no_store_is_named(run, home):
    """A user of `mainstay exec` names none."""
    once = ("--set", "retry.policies.standard.maxAttempts=1", "--operation", "job")
    run("exec", *once, "--", "false")
    done = run("status")
    assert done.returncode == 0, done.stderr
    assert str(home) in done.stdout
    assert json.loads(run("circuits", "--json").stdout)[0]["name"] == "job"


def test_a_long_table_is_cut_and_says_so(run, home, tmp_path):
    """A screen has an end; --json has all of them."""
    url = f"sqlite:///{tmp_path}/many.db"
    with Engine(url, sinks=[], share=None) as engine:
        for number in range(25):
            command = Begin("gone", "abc", lease=60.0, max_attempts=3)
            engine.store.transact(
                "records", f'[null,"ship","{number}"]', lambda v, now, c=command: reduce(v, c, now)
            )
    assert "5 more calls; --json has them all" in run("status", "--store", url).stdout
    assert len(json.loads(run("status", "--json", "--store", url).stdout)["running"]) == 25


def test_a_record_that_somebody_else_named_is_shown_by_its_name(home, tmp_path):
    """Stores are shared with what we do not know."""
    from mainstay.cli.status.read import _named

    assert _named("their-key") == ("", "their-key")
    assert _named('["tenant","pay",{"id":7}]') == ("pay", '{"id":7}')


WAITER = """
import sys
from mainstay import Backoff, Engine, Jitter, RetryPolicy

def fetch():
    raise ConnectionError("down")

policy = RetryPolicy(
    name="long", retry_on=ConnectionError, backoff=Backoff.constant(90.0), jitter=Jitter.none()
)
with Engine(sys.argv[1], policies=[policy], default="long", sinks=[]) as engine:
    engine.call("fetch prices", fetch)
"""


@pytest.mark.req("AG-08.waiting")
def test_waits_of_calls_without_a_key_are_shown_in_another_terminal(run, home, tmp_path):
    """What failed, how, and when it is tried again; not those of a process that was killed."""
    url = f"sqlite:///{tmp_path}/waits.db"
    waiter = subprocess.Popen([sys.executable, "-c", WAITER, url])
    try:
        wait_until(lambda: waiting(run, url), "the wait")
        (found,) = waiting(run, url)
        assert (found["operation"], found["attempt"], found["max_attempts"]) == (
            "fetch prices", 1, 3
        )  # fmt: skip
        assert found["error"] == "ConnectionError"
        lines = run("status", "--store", url).stdout.splitlines()
        assert ["waiting", "1", "call", "to", "be", "retried"] in [line.split() for line in lines]
        (row,) = [line for line in lines if line.startswith("fetch prices")]
        assert "1 of 3" in row
        assert "ConnectionError" in row
    finally:
        waiter.kill()
        waiter.wait(60)
    if sys.platform == "linux":  # elsewhere it counts as gone when the wait is over
        assert waiting(run, url) == []


def waiting(run, url):
    done = run("status", "--json", "--store", url)
    return json.loads(done.stdout)["waiting"] if done.returncode == 0 else []
