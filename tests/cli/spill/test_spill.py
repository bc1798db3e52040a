"""`mainstay spill`: what waits on disk, and adopting what this user's key has not sealed."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from mainstay.cli.app import app
from mainstay.core.events.codec import encode
from mainstay.events import CallSucceeded
from mainstay.sinks.delivery.spill import Spill


@pytest.fixture(autouse=True)
def places(monkeypatch, tmp_path):
    """A user's state and temporary folder of their own, and a project."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def run(*arguments):
    return CliRunner().invoke(app, ["spill", *arguments], catch_exceptions=False)


def left_behind(name="audit", folder=None, *, is_sealed=True):
    spill = Spill(name, folder)
    path, _ = spill.write([CallSucceeded(operation="pay"), CallSucceeded(operation="ship")], 1)
    spill.forget()
    if not is_sealed:
        lines = [encode(CallSucceeded(operation=each)) for each in ("pay", "\x1b[2Jship")]
        path.write_bytes(b"".join(each + b"\n" for each in lines))
    return path


def test_nothing_waits():
    """The usual state of things, in a sentence."""
    assert run("list").output == "nothing waits on disk\n"
    assert json.loads(run("list", "--json").output) == {"files": []}
    done = run("adopt")
    assert (done.exit_code, done.output) == (0, "nothing waits to be adopted\n")


def test_the_list_has_every_file_with_its_state():
    """Sealed files are delivered without anybody's doing; the others need a person."""
    left_behind()
    path = left_behind("webhook", is_sealed=False)
    done = run("list")
    assert done.exit_code == 0
    assert "not sealed" in done.output
    assert "\x1b" not in done.output
    files = json.loads(run("list", "--json").output)["files"]
    found = {each["state"]: each for each in files}
    assert set(found) == {"sealed", "not sealed"}
    assert found["not sealed"]["path"] == str(path)
    assert found["not sealed"]["destination"] == str(path.parent.parent)
    assert found["not sealed"]["records"] == 2
    assert found["not sealed"]["operations"] == ["pay", "\x1b[2Jship"]


def test_adopting_shows_what_there_is_and_changes_nothing_without_yes():
    """A person looks first; the exit code is that of something that waits."""
    path = left_behind(is_sealed=False)
    before = path.read_bytes()
    done = run("adopt")
    assert done.exit_code == 1
    assert "not sealed" in done.output
    assert "nothing was changed; --yes adopts" in done.output
    assert path.read_bytes() == before


def test_adopting_seals_what_has_no_seal():
    """After that the next process reads it."""
    path = left_behind(is_sealed=False)
    done = run("adopt", "--yes")
    assert done.exit_code == 0
    assert "1 file sealed (2 events)" in done.output
    assert [each.operation for each in Spill("audit").read(path)] == ["pay", "\x1b[2Jship"]


def test_adopting_as_json():
    """What was adopted, and what is left."""
    left_behind(is_sealed=False)
    broken = left_behind("webhook")
    broken.write_bytes(b"no event\n")
    done = run("adopt", "--yes", "--json")
    assert done.exit_code == 1
    document = json.loads(done.output)
    assert [each["records"] for each in document["adopted"]] == [2]
    assert [each["path"] for each in document["left"]] == [str(broken)]


def test_a_file_of_a_running_process_is_left():
    """Its folder is locked; nothing is sealed behind its back."""
    spill = Spill("audit")
    path, _ = spill.write([CallSucceeded(operation="pay")], 1)
    path.write_bytes(encode(CallSucceeded(operation="pay")) + b"\n")
    done = run("adopt", "--yes")
    assert done.exit_code == 1
    assert "a process that runs has its folder" in done.output
    spill.forget()


def test_folders_of_the_configuration_and_of_the_command_line(tmp_path):
    """Whoever has named a spill folder in the configuration need not name it again."""
    path = left_behind(folder=tmp_path / "waiting", is_sealed=False)
    assert run("list").output == "nothing waits on disk\n"
    assert str(path) in run("list", "--folder", str(tmp_path / "waiting"), "--json").output
    config = tmp_path / "named.yml"
    config.write_text(f"audit: {{where: log.jsonl, spill: {tmp_path}/waiting}}\n")
    assert str(path) in run("list", "--config", str(config), "--json").output


def test_the_group_alone_shows_its_help():
    """As every group does."""
    assert run().exit_code == 2
