"""Kills at every write boundary of SQLite; of the other stores where their servers are."""

import subprocess
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from mainstay.stores.sqlite.store import SqliteStore
from tests.crash.campaign import (
    SCENARIOS,
    Trial,
    Workers,
    at_random_moments,
    enumerated,
    place,
)
from tests.processes import wait_until

URL = "sqlite:///{folder}/kept.db"


@pytest.fixture(scope="module")
def workers():
    made = Workers(4)
    yield made
    made.close()


def check(workers, trials):
    """No trial violates a property, and each of them had its kill; how many there were."""
    reports = list(workers.run(trials))
    assert [each for report in reports for each in report.violations] == []
    return sum(report.kills for report in reports)


@pytest.mark.req("CP-07.sqlite", "AG-05", "EF-14")
@pytest.mark.parametrize("scenario", SCENARIOS[:-1])
def test_killed_at_any_boundary_a_call_has_one_outcome_and_no_effect_after_it(workers, scenario):
    """Before and after each statement, effect and return; enumerated, not sampled."""
    trials = enumerated(workers, URL, scenario, "sync")
    assert check(workers, trials) == len(trials) > 0


@pytest.mark.parametrize(
    ("scenario", "commands"),
    [("flaky", ("begin", "attempt", "settle")), ("released", ("release",))],
)
def test_killed_at_any_boundary_of_a_step_that_came_too_late_the_same_holds(
    workers, scenario, commands
):
    """A step that waited for its turn is made again, in a transaction."""
    trials = enumerated(workers, URL, scenario, "sync", commands, is_late=True)
    assert check(workers, trials) == len(trials) > 0


@pytest.mark.parametrize(
    ("scenario", "commands"),
    [
        ("flaky", ("begin", "attempt")),
        ("plain", ("settle", "before", "after")),
        ("released", ("release",)),
        ("unsafe", ("doubt", "inbox")),
    ],
)
def test_the_writer_thread_of_async_callers_keeps_the_same_promises(workers, scenario, commands):
    """Its steps are in transactions shared by many; a kill there is a kill of all of them."""
    trials = enumerated(workers, URL, scenario, "asyncio", commands)
    assert check(workers, trials) == len(trials) > 0


def test_a_call_that_was_held_up_does_not_decide_which_boundaries_there_are(monkeypatch):
    """It passes more than the trials will: one of those would have no kill."""
    passed = iter(["a b c d e", "a b c", "a b c d", "a b c", "none"])
    workers = Workers.__new__(Workers)
    one = lambda _: SimpleNamespace(violations=[], labels=next(passed).split())  # noqa: E731
    monkeypatch.setattr(workers, "one", one)
    assert workers.labels(URL, "plain", "sync") == ["a", "b", "c"]
    assert list(passed) == ["none"]


def test_every_command_has_its_boundaries(workers):
    """Begin, attempt, renew, settle, release, doubt and the inbox: none is left out."""
    labels = {
        label.split()[0]
        for scenario in SCENARIOS[:-1]
        for label in workers.labels(URL, scenario, "sync")
    }
    assert labels >= {"begin", "attempt", "renew", "settle", "release", "doubt", "inbox"}


@pytest.mark.parametrize("colour", ["sync", "asyncio"])
def test_a_call_that_always_kills_its_process_is_given_up_for_a_person(workers, colour):
    """As often as its policy allows attempts, and not once more: SIGKILL bypasses no limit."""
    assert check(workers, [Trial(URL, "given_up", colour)]) == 5


def test_several_processes_killed_one_after_another_change_nothing(workers):
    """A kill while a key is taken over, and another during that."""
    trials = [Trial(URL, "flaky", "sync", (at, at - 22, at - 18)) for at in range(36, 47, 2)]
    assert check(workers, trials) == len(trials) * 3


# --- stores that are servers ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def served():
    """The URL of a store of a kind, with a server of its own."""
    with ExitStack() as stack:

        def url(name, module, folder):
            if find_spec(f"mainstay.stores.{module}") is None:
                pytest.skip(f"there is no mainstay.stores.{module} yet")
            if find_spec(f"tests.servers.{name}") is None:
                pytest.skip(f"there is no tests/servers/{name}.py yet")
            return place(name, folder, stack)

        yield url


@pytest.fixture
def folder(tmp_path_factory):
    import shutil
    import tempfile
    from pathlib import Path

    made = Path(tempfile.mkdtemp(prefix="crash-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def test_killed_at_any_boundary_of_postgresql_the_same_holds(workers, served, folder):
    """Before and after each trip to the server."""
    url = served("postgres", "postgres", folder)
    trials = [
        trial
        for scenario, commands in (("plain", ("begin", "settle")), ("released", ("release",)))
        for trial in enumerated(workers, url, scenario, "sync", commands)
    ]
    assert check(workers, trials) == len(trials) > 0


@pytest.mark.parametrize(
    ("name", "module"),
    [("valkey", "redis"), pytest.param("nats", "nats", marks=pytest.mark.req("CP-07.nats"))],
)
def test_killed_at_random_moments_the_same_holds_on_other_servers(
    workers, served, folder, name, module
):
    """The moments come from a seed; the parent kills."""
    url = served(name, module, folder)
    assert check(workers, at_random_moments(url, 10, seed=11)) > 0


COUNTING = """
import os, sys, threading
from mainstay.core.base.change import Change
from mainstay.stores.sqlite.store import SqliteStore

folder = sys.argv[1]
store = SqliteStore(f"sqlite:///{folder}/kept.db")

def count(value, now):
    number = int(value or 0) + 1
    return Change(str(number).encode()), number

def work(name):
    answers = os.open(f"{folder}/answers-{name}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for turn in range(10**9):
        if turn % 4:
            number = store.transact("a", name, count)
        else:
            number, other = store.transact_together([("a", name, count), ("b", name, count)])
        os.write(answers, f"{number}\\n".encode())

for number in range(8):
    threading.Thread(target=work, args=(str(number),), daemon=True).start()
print("begun", flush=True)
threading.Event().wait(300)
"""


def test_what_threads_that_share_commits_were_answered_outlives_a_kill(tmp_path):
    """Each step is there once, in the order of the answers; the last may be without its answer."""
    store = SqliteStore(URL.format(folder=tmp_path))
    for _ in range(5):
        command = [sys.executable, "-c", COUNTING, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout.readline() == b"begun\n"
            paths = [tmp_path / f"answers-{number}" for number in range(8)]
            before = [path.stat().st_size if path.exists() else 0 for path in paths]
            wait_until(
                lambda paths=paths, before=before: all(
                    path.exists() and path.stat().st_size > size + 20
                    for path, size in zip(paths, before, strict=True)
                ),
                "answers of all threads",
            )
            child.kill()
        for number, path in enumerate(paths):
            answers = [int(line) for line in path.read_text().split()]
            kept = int(store.read("a", str(number))[0])
            assert answers == list(range(1, len(answers) + 1))
            assert len(answers) <= kept <= len(answers) + 1
            with path.open("a") as file:  # the next child goes on behind it
                file.write(f"{kept}\n" * (kept - len(answers)))
    store.close()
