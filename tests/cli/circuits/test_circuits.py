"""`mainstay circuits`: what processes share, as people and programs see it, and orders."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from mainstay import BreakerSettings, Engine, RetryPolicy

SECRET = "correct-horse-9f3kqz"
RUN = [sys.executable, "-m", "mainstay"]
ONCE = RetryPolicy(name="once", max_attempts=1)


def down():
    raise ConnectionError("down")


@pytest.fixture
def engine(tmp_path):
    """A process at the store, with an open circuit and a closed one, and an operator."""
    settings = BreakerSettings(failure_threshold=3, recovery_timeout=600.0)
    options = {"policies": [ONCE], "default": "once", "sinks": [], "share": 3600.0}
    url = f"sqlite:///{tmp_path}/app.db"
    with Engine(url, breaker=settings, **options) as engine:
        engine.operators.add("ann", secret=SECRET)
        for _ in range(3):
            engine.run("pay", down)
        engine.call("search", int)
        engine.catch_up()
        yield engine


@pytest.fixture
def url(engine):
    return engine.store.url


@pytest.mark.req("AG-08.circuits")
@pytest.mark.parametrize("words", [["circuits"], ["circuits", "list"]])
def test_the_list_has_the_open_ones_first(run, url, words):
    """With how long and why."""
    done = run(*words, "--store", url)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()[2:]]
    assert [row[:3] for row in rows] == [["pay", "open", "1"], ["search", "closed", "1"]]
    assert "3 failures in a row" in done.stdout
    found = json.loads(run(*words, "--json", "--store", url).stdout)
    assert [(each["name"], each["state"], each["nodes"]) for each in found] == [
        ("pay", "open", 1),
        ("search", "closed", 1),
    ]


def test_one_circuit_is_shown_process_by_process(run, url, engine):
    """Which one has seen what."""
    done = run("circuits", "show", "pay", "--store", url)
    assert done.returncode == 0, done.stderr
    assert engine._sharing.node in done.stdout
    shown = json.loads(run("circuits", "show", "pay", "--json", "--store", url).stdout)
    assert [each["failures"] for each in shown["places"]] == [3]
    assert 500 < shown["retry_after"] <= 600


def test_a_misspelt_name_is_told_with_the_nearest(run, url):
    """Nobody opens a circuit that is not there."""
    for words in (["show", "pey"], ["open", "pey", "--as", "ann", "--why", "x"]):
        done = run("circuits", *words, "--store", url, MAINSTAY_OPERATOR_SECRET=SECRET)
        assert (done.returncode, done.stdout) == (1, "")
        assert "no process has shared a circuit 'pey'" in done.stderr
        assert "did you mean 'pay'?" in done.stderr


@pytest.mark.req("IT-041-09")
@pytest.mark.parametrize(
    ("word", "state"), [("reset", "closed"), ("open", "forced_open"), ("close", "forced_closed")]
)
def test_an_order_reaches_the_process(run, url, engine, word, state):
    """It follows at its next step; the list says before that somebody has yet to."""
    words = ["circuits", word, "pay", "--as", "ann", "--why", "the bank says so", "--store", url]
    done = run(*words, MAINSTAY_OPERATOR_SECRET=SECRET)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 process is running" in done.stdout
    assert "by ann: 1 yet to follow" in run("circuits", "--store", url).stdout
    engine.catch_up()
    assert engine.breaker("pay").state.value == state
    engine.catch_up()
    shown = run("circuits", "show", "pay", "--store", url).stdout
    assert "yet to follow" not in shown
    assert re.search(r"its reason +the bank says so", shown)
    again = json.loads(run(*words, "--json", MAINSTAY_OPERATOR_SECRET=SECRET).stdout)
    assert (again["order"]["number"], again["order"]["by"]) == (2, "ann")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--as", "ann", "--why", "x"], 1, "the name or the secret is wrong"),
        (["--why", "x"], 2, "no operator is named"),
        (["--as", "ann"], 2, "Missing option '--why'"),
    ],
)
def test_an_order_needs_somebody_and_a_reason(run, url, engine, words, code, told):
    """Without them the circuit stays as it is."""
    done = run(
        "circuits", "reset", "pay", *words, "--store", url, MAINSTAY_OPERATOR_SECRET="a guess"
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr
    engine.catch_up()
    assert engine.breaker("pay").state.value == "open"


@pytest.mark.req("IT-041-09")
def test_an_order_holds_for_commands_that_are_run_later(run, tmp_path, monkeypatch):
    """Nobody is there when it is given; in the store that `exec` keeps, which need not be named."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("MAINSTAY_OPERATOR_SECRET", SECRET)
    monkeypatch.chdir(tmp_path)
    command = ["exec", "--operation", "job", "--", sys.executable, "-c", ""]
    assert run(*command).returncode == 0
    assert run("operators", "add", "ann", "--store", "sqlite:///mainstay/mainstay.db").stdout
    opened = run("circuits", "open", "job", "--as", "ann", "--why", "maintenance")
    assert "no process is running" in opened.stdout, opened.stderr
    assert [run(*command).returncode for _ in range(2)] == [75, 75]
    assert run("circuits", "reset", "job", "--as", "ann", "--why", "done").returncode == 0
    assert [run(*command).returncode for _ in range(2)] == [0, 0]


def test_nothing_is_shared_yet(run, tmp_path):
    """An empty store is no error; a store that is not there is one."""
    url = f"sqlite:///{tmp_path}/empty.db"
    with Engine(url, sinks=[], share=None):
        pass
    assert run("circuits", "--store", url).stdout.startswith("no process has shared a circuit")
    assert json.loads(run("circuits", "--json", "--store", url).stdout) == []
    missing = run("circuits", "--store", f"sqlite:///{tmp_path}/missing.db")
    assert (missing.returncode, missing.stdout) == (2, "")


# --- watching -------------------------------------------------------------------------------------


@pytest.mark.req("AG-08.circuits")
def test_the_live_screen_is_drawn_in_its_place(terminal, url, engine):
    """Changes show without a new table below; Ctrl+C ends it at once, and the cursor is back."""
    watch = terminal("circuits", "watch", "--every", "0.1", "--store", url)
    watch.wait_for("1 not closed")
    engine.breaker("pay").reset()
    engine.catch_up()
    watch.wait_for("0 not closed")
    watch.press(b"\x03")
    assert watch.wait() == 130
    assert "\x1b[1A" in watch.text, "it goes up to draw over what is there"
    assert watch.text.rindex("\x1b[?25h") > watch.text.rindex("\x1b[?25l")
    assert "Traceback" not in watch.text


def test_the_live_screen_has_no_colour_where_none_is_wanted(terminal, url):
    """NO_COLOR leaves only what moves the cursor."""
    plain, styled = (
        terminal("circuits", "watch", "--store", url, **env) for env in ({"NO_COLOR": "1"}, {})
    )
    for each in (plain, styled):
        each.wait_for("Ctrl+C ends")
        each.press(b"\x03")
        assert each.wait() == 130
    assert re.search(r"\x1b\[[0-9;]*m", styled.text)
    assert not re.search(r"\x1b\[[0-9;]*m", plain.text)


def line_of(process, seconds=30.0):
    """The next line it writes."""
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    assert ready, "it wrote nothing"
    return process.stdout.readline().decode()


@pytest.mark.skipif(os.name != "posix", reason="sends a signal as a POSIX shell does")
@pytest.mark.parametrize("as_json", [False, True])
def test_without_a_terminal_there_is_a_line_for_each_change(url, engine, as_json):
    """And none while nothing changes."""
    words = [*RUN, "circuits", "watch", "--every", "0.1", "--store", url]
    watch = subprocess.Popen(
        [*words, "--json"] if as_json else words,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
    )  # fmt: skip
    try:
        first = [line_of(watch), line_of(watch)]
        time.sleep(0.4)  # several looks, at nothing new
        engine.breaker("pay").reset("by hand")
        engine.catch_up()
        changed = line_of(watch)
        watch.send_signal(signal.SIGINT)
        rest, errors = watch.communicate(timeout=60)
    finally:
        watch.kill()
        watch.wait(60)
    assert (watch.returncode, rest, errors) == (130, b"", b"")
    if as_json:
        assert [json.loads(each)["state"] for each in first] == ["open", "closed"]
        assert [json.loads(changed)[each] for each in ("name", "from", "state")] == [
            "pay", "open", "closed",
        ]  # fmt: skip
    else:
        assert "pay: open (1) 3 failures in a row" in first[0]
        assert changed.endswith("pay: open -> closed (1) by hand\n")


def test_an_unavailable_store_is_reported_once_and_watched_on(monkeypatch, capsys):
    """A live screen that ended with the store would be of little use when it is wanted."""
    from mainstay.cli.circuits import watch as circuit_watch
    from mainstay.core.circuit.cluster_status import Standing
    from mainstay.errors import StoreUnavailable

    unavailable = StoreUnavailable("sqlite:///app.db", "scan", "locked")
    looks = [unavailable, unavailable, [Standing("pay")], [Standing("pay")], unavailable]
    monkeypatch.setattr(circuit_watch, "_looks", lambda *_: iter(looks))
    circuit_watch.watch_lines(None, 1.0, as_json=False)
    said = capsys.readouterr().out.splitlines()
    assert ["the store is unavailable" in line for line in said] == [True, False, True]
    assert "the store is unavailable" in str(circuit_watch._picture(unavailable))
