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


NAMED = {
    "the store": ("store: {url: 'sqlite:///FILE'}", "FILE"),
    "the store in short": ("store: sqlite:///FILE?timeout=2", "FILE"),
    "what is not in the store yet": ("store: sqlite:///FILE", "FILE-wal"),
    "its shared memory": ("store: sqlite:///FILE", "FILE-shm"),
    "a part of the path after a sign": ("store: sqlite:///my%20FILE", "my FILE"),
    "the audit log": ("audit: sqlite:///FILE", "FILE"),
    "the audit log as a path": ("audit: {where: FILE.jsonl}", "FILE.jsonl"),
    "an audit log of before": ("audit: FILE.jsonl", "FILE.000001.jsonl"),
    "its WAL": ("audit: FILE", "FILE-wal"),
    "the audit log of a sink": ("sinks: {audit: {where: FILE.jsonl}}", "FILE.jsonl"),
    "the key that signs": ("audit: {where: a.jsonl, key: FILE}", "FILE"),
    "a copy of heads": ("audit: {where: a.jsonl, heads: ['log:x', FILE]}", "FILE"),
    "the outbox": ("outbox: {url: 'sqlite:///FILE'}", "FILE"),
    "events": ("sinks: {jsonl: {path: FILE}}", "FILE"),
    "events of before": ("sinks: {jsonl: {path: FILE}}", "FILE.1"),
    "the key of spilled events": ("sinks: {jsonl: {path: a, spill: spilled}}", "spilled/spill.key"),
    "beside options that are none": ("sinks: {audit: {where: FILE, heads: 5, key: [x]}}", "FILE"),
    "by the environment": ("store: ${STORE}", "FILE"),
}


@pytest.mark.parametrize(("text", "name"), NAMED.values(), ids=NAMED)
def test_a_wide_file_that_the_configuration_names_is_warned_of(tmp_path, monkeypatch, text, name):
    """As text and as JSON; a file that is private is not mentioned."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STORE", f"sqlite:///{tmp_path}/FILE")
    (tmp_path / "c.yml").write_text(text, encoding="utf-8")
    monkeypatch.setenv("MAINSTAY_CONFIG", str(tmp_path / "c.yml"))
    path = tmp_path / name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.touch(mode=0o600)
    assert json.loads(CliRunner().invoke(app, ["doctor", "--json"]).output)["warnings"] == []
    path.chmod(0o644)
    [warning] = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).output)["warnings"]
    assert f"{name}: other users can read it (mode 0644)" in warning
    assert "warning: " + warning in CliRunner().invoke(app, ["doctor"]).output


def test_a_folder_for_spilled_events_that_is_wide_has_its_own_command(tmp_path, monkeypatch):
    """0600 would close it to its owner, too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yml").write_text("audit: {spill: spilled}", encoding="utf-8")
    monkeypatch.setenv("MAINSTAY_CONFIG", "c.yml")
    (tmp_path / "spilled").mkdir(mode=0o700)
    (tmp_path / "spilled").chmod(0o755)
    [warning] = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).output)["warnings"]
    assert warning.endswith("can read it (mode 0755); chmod 700 spilled")


def test_a_file_is_warned_of_once(tmp_path, monkeypatch):
    """However often it is named."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yml").write_text("{store: 'sqlite:///a.db', audit: 'sqlite:///a.db'}")
    monkeypatch.setenv("MAINSTAY_CONFIG", "c.yml")
    (tmp_path / "a.db").touch()
    (tmp_path / "a.db").chmod(0o644)
    out = CliRunner().invoke(app, ["doctor", "--json", "--file", "a.db"]).output
    assert len(json.loads(out)["warnings"]) == 1


def test_a_configuration_that_is_not_trusted_names_no_file(tmp_path, monkeypatch):
    """Nothing of it is used."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mainstay.yml").write_text("store: sqlite:///a.db", encoding="utf-8")
    (tmp_path / "a.db").touch()
    (tmp_path / "a.db").chmod(0o644)
    found = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).output)
    assert (found["warnings"], len(found["problems"])) == ([], 1)
