"""`mainstay doctor` names the files that others can read, and the folders that are not used."""

from __future__ import annotations

import json
import os

import pytest
from click.testing import CliRunner

from mainstay.cli.app import app
from mainstay.cli.own_files import files_of_store, problems_of_state, warnings_of, warnings_of_state
from mainstay.events import CallSucceeded
from mainstay.sinks.delivery.spill import Spill


@pytest.fixture(autouse=True)
def state(monkeypatch, tmp_path):
    """A user's state and temporary folder of their own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / "state" / "mainstay"


def test_a_private_file_needs_no_words(tmp_path):
    """0600 is what mainstay creates."""
    (tmp_path / "app.db").touch(mode=0o600)
    assert list(warnings_of(str(tmp_path / "app.db"))) == []


@pytest.mark.parametrize(("mode", "can"), [(0o644, "read"), (0o660, "write"), (0o602, "write")])
def test_a_wider_file_is_warned_of(tmp_path, mode, can):
    """With its mode and the command that closes it."""
    path = tmp_path / "app.db"
    path.touch()
    path.chmod(mode)
    [warning] = warnings_of(str(path))
    assert warning == f"{path}: other users can {can} it (mode {mode:04o}); chmod 600 {path}"


def test_a_file_that_is_not_there_is_named(tmp_path):
    """A misspelt name is no clean bill."""
    assert list(warnings_of(str(tmp_path / "none"))) == [
        f"{tmp_path}/none: No such file or directory"
    ]


def test_the_files_of_a_store_are_three(tmp_path, state):
    """And those of the command line's own store, if they are there."""
    for name in ("my app.db", "my app.db-wal"):
        (tmp_path / name).touch()
    state.mkdir(parents=True)
    (state / "mainstay.db").touch()
    found = [*files_of_store(f"sqlite:///{tmp_path}/my%20app.db?timeout=2")]
    assert found == [f"{tmp_path}/my app.db", f"{tmp_path}/my app.db-wal", f"{state}/mainstay.db"]
    assert [*files_of_store("memory://")] == [f"{state}/mainstay.db"]


def test_a_state_folder_that_is_not_used_is_a_problem(state):
    """With the reason and the way out."""
    assert list(problems_of_state()) == []
    state.mkdir(parents=True)
    state.chmod(0o777)
    [problem] = problems_of_state()
    assert problem.startswith(f"the state folder is not used: {state} can be written")
    assert f"chmod 700 {state}" in problem


def test_a_planted_temporary_folder_and_files_that_were_set_aside_are_warned_of(tmp_path):
    """Both need somebody to look."""
    spill = Spill("audit")
    path, _ = spill.write([CallSucceeded(operation="pay")], 1)
    spill.set_aside(path)
    spill.forget()
    (tmp_path / f"mainstay-{os.geteuid()}").symlink_to(tmp_path)
    planted, aside = warnings_of_state()
    assert "is a link" in planted
    assert aside.endswith("1 files were set aside; mainstay spill list")


def test_doctor_has_warnings_and_problems(tmp_path, state):
    """A warning alone does not change the exit code."""
    path = tmp_path / "telemetry.json"
    path.touch()
    path.chmod(0o644)
    done = CliRunner().invoke(app, ["doctor", "--json", "--file", str(path)])
    assert (done.exit_code, len(json.loads(done.output)["warnings"])) == (0, 1)
    state.mkdir(parents=True)
    state.chmod(0o777)
    done = CliRunner().invoke(app, ["doctor", "--file", str(path)])
    assert done.exit_code == 1
    assert f"warning: {path}: other users can read it" in done.output
    assert "problem: the state folder is not used" in done.output
