"""A file beside one that a user has named is not opened through a link, nor waited for."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mainstay.audit.keys import make_key
from mainstay.core.audit.chain import Tail
from mainstay.core.telemetry.record import Telemetry
from mainstay.errors import StoreUnavailable, UsageError
from mainstay.events import CallSucceeded
from mainstay.runtime.private_files import NotPrivateError
from mainstay.sinks.jsonl import JsonlSink
from mainstay.sinks.telemetry.file import add_to_file, read_telemetry
from mainstay.stores.jsonl.files import JournalFile, Snapshot
from mainstay.stores.jsonl.journal import JsonlJournal


@pytest.fixture
def mine(tmp_path):
    """A file of this user's elsewhere, to which a planted link leads."""
    path = tmp_path / "mine"
    path.write_text("mine")
    return path


@pytest.fixture(autouse=True)
def usual_umask():
    """With the umask of most systems a plain `open` creates files that everybody can read."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def plant_link(path, mine):
    path.symlink_to(mine)


def plant_dangling(path, mine):
    path.symlink_to(mine.with_name("created"))


def plant_pipe(path, mine):
    os.mkfifo(path)


def add(folder):
    add_to_file(folder / "t.json", Telemetry(), most=10)


def deliver(folder):
    sink = JsonlSink(folder / "t.json", spill=False)
    sink._deliver([CallSucceeded(operation="pay")])


def append(folder):
    with JsonlJournal(folder / "t.json")._writing("append"):
        pass


@pytest.mark.parametrize("writes", [add, deliver, append])
@pytest.mark.parametrize("plant", [plant_link, plant_dangling, plant_pipe])
def test_a_planted_lock_is_not_opened(tmp_path, mine, writes, plant):
    """Telemetry, events and audit logs: the error names the lock, and nothing is created."""
    plant(tmp_path / "t.json.lock", mine)
    with pytest.raises((NotPrivateError, StoreUnavailable), match=r"t\.json\.lock is "):
        writes(tmp_path)
    assert mine.read_text() == "mine"
    assert not (tmp_path / "created").exists()


@pytest.mark.parametrize("plant", [plant_link, plant_dangling, plant_pipe])
def test_a_planted_draft_of_telemetry_is_replaced(tmp_path, mine, plant):
    """A link at `.new` had its target overwritten."""
    plant(tmp_path / "t.json.new", mine)
    add(tmp_path)
    assert mine.read_text() == "mine"
    assert not (tmp_path / "created").exists()
    assert read_telemetry(tmp_path / "t.json").records == []
    assert not (tmp_path / "t.json").is_symlink()


@pytest.mark.parametrize("plant", [plant_link, plant_dangling, plant_pipe])
def test_a_planted_draft_of_the_next_log_is_replaced(tmp_path, mine, plant):
    """When a log goes on in a new file, a link at `.new` had its target emptied."""
    plant(tmp_path / "t.json.new", mine)
    journal = JournalFile()
    journal.open(tmp_path / "t.json", ends=Tail("log", 1, 1, b"\0" * 32))
    journal.forget()
    assert mine.read_text() == "mine"
    assert not (tmp_path / "created").exists()
    assert not (tmp_path / "t.json").is_symlink()


def test_a_pipe_in_place_of_an_older_file_of_a_log_stops_no_reader(tmp_path):
    """Its name can be computed: whoever waits for it waits for ever."""
    os.mkfifo(tmp_path / "audit.000001.jsonl")
    with pytest.raises(NotPrivateError, match="is no regular file"):
        JsonlJournal(tmp_path / "audit.jsonl").tail()


def test_a_log_may_be_behind_a_link(tmp_path):
    """The user has named it."""
    (tmp_path / "real.jsonl").touch()
    (tmp_path / "audit.jsonl").symlink_to(tmp_path / "real.jsonl")
    with Snapshot(tmp_path / "audit.jsonl") as file:
        assert file.size == 0


def test_telemetry_is_created_for_its_user_alone(tmp_path):
    """With its lock, whatever the umask is."""
    add(tmp_path)
    assert {path.name: mode_of(path) for path in tmp_path.iterdir()} == {
        "t.json": 0o600,
        "t.json.lock": 0o600,
    }


def test_telemetry_that_others_may_read_stays_so(tmp_path):
    """A dashboard of another user keeps working; `doctor` warns of it."""
    add(tmp_path)
    (tmp_path / "t.json").chmod(0o644)
    add(tmp_path)
    assert mode_of(tmp_path / "t.json") == 0o644


@pytest.mark.parametrize("name", ["key.pem", "key.pub.pem"])
def test_a_key_is_not_written_through_a_link(tmp_path, mine, name):
    """Neither the private one nor the public one, whose name is computed."""
    pytest.importorskip("cryptography")
    (tmp_path / name).symlink_to(Path(mine).with_name("created"))
    with pytest.raises(UsageError, match="is there already"):
        make_key(tmp_path / "key.pem")
    assert not (tmp_path / "created").exists()
