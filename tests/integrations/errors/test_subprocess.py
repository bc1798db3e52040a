"""subprocess: commands that really run, and exit as the table expects."""

import subprocess
import sys

import pytest

import mainstay
from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.testing import virtual_time
from tests.integrations.errors.recipe import run_recipe

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the commands are those of POSIX")

EXITS = [
    # script, kind, ambiguous, runs
    ("exit 75", Kind.TRANSIENT, False, 3),
    ("exit 69", Kind.TRANSIENT, False, 3),
    ("exit 71", Kind.OVERLOAD, False, 3),
    ("exit 64", Kind.PERMANENT, False, 1),
    ("exit 65", Kind.PERMANENT, False, 1),
    ("exit 66", Kind.PERMANENT, False, 1),
    ("exit 67", Kind.PERMANENT, False, 1),
    ("exit 68", Kind.PERMANENT, False, 1),
    ("exit 77", Kind.AUTH, False, 1),
    ("exit 78", Kind.PERMANENT, False, 1),
    ("timeout 0.05 sleep 9", Kind.TIMEOUT, True, 3),
    ("./not-executable", Kind.PERMANENT, False, 1),
    ("no-such-command-anywhere", Kind.PERMANENT, False, 1),
    ("kill -9 $$", Kind.UNKNOWN, False, 1),
    ("kill -15 $$", Kind.UNKNOWN, False, 1),
    ("exit 1", Kind.UNKNOWN, False, 1),
    ("exit 137", Kind.UNKNOWN, False, 1),
]


@pytest.mark.parametrize(("script", "kind", "ambiguous", "runs"), EXITS)
def test_an_exit_code_is_judged_where_it_means_one_thing(tmp_path, script, kind, ambiguous, runs):
    """The command writes a line for each run, so that runs are counted by what it did."""
    (tmp_path / "not-executable").touch()

    @mainstay.retry(on=mainstay.transient, attempts=3)
    def run():
        counted = f"echo run >> runs; {script}"
        subprocess.run(["/bin/sh", "-c", counted], cwd=tmp_path, check=True, capture_output=True)

    with virtual_time(), pytest.raises(subprocess.CalledProcessError) as caught:
        run()
    known = kind_of(caught.value)
    assert (known.kind, known.is_ambiguous, known.table) == (kind, ambiguous, "subprocess")
    assert (tmp_path / "runs").read_text().count("run") == runs


def test_a_command_that_is_cut_by_its_timeout_may_have_done_its_work():
    """It ran, and nobody knows how far."""
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        subprocess.run(["sleep", "9"], timeout=0.05, check=True)
    known = kind_of(caught.value)
    assert (known.kind, known.is_ambiguous) == (Kind.TIMEOUT, True)


def test_a_child_that_cannot_be_prepared_is_final():
    """The function that runs in the child raises each time."""

    def fail():
        raise ValueError

    with pytest.raises(subprocess.SubprocessError) as caught:
        subprocess.run(["true"], preexec_fn=fail, check=True)
    assert kind_of(caught.value).kind is Kind.PERMANENT


def test_a_program_that_is_not_there_is_known_without_a_table():
    """An OSError is raised then, which its errno tells."""
    with pytest.raises(FileNotFoundError) as caught:
        subprocess.run(["no-such-command-anywhere"], check=True)
    assert kind_of(caught.value).kind is Kind.PERMANENT


def test_a_rule_that_names_the_class_repeats_codes_of_a_programs_own():
    """`exit 1` is repeated if the program asks for it; a command that does not exist is not."""
    tries = []

    @mainstay.retry(on=subprocess.CalledProcessError, attempts=3)
    def run(code):
        tries.append(code)
        subprocess.run(["/bin/sh", "-c", f"exit {code}"], check=True)

    with virtual_time():
        for code in (1, 127):
            with pytest.raises(subprocess.CalledProcessError):
                run(code)
    assert tries == [1, 1, 1, 127]


def test_the_recipe_runs(tmp_path, monkeypatch):
    """The code of the page runs a command until it succeeds."""
    monkeypatch.chdir(tmp_path)
    assert run_recipe("subprocess")["output"] == "done\n"
