"""A file beside one that a user has named is not opened through a link, nor waited for."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from mainstay.audit.external_heads import ExternalHeads
from mainstay.audit.keys import make_key
from mainstay.audit.open import load
from mainstay.audit.stream import read_records
from mainstay.core.audit.chain import Tail, head_of
from mainstay.core.pipeline.ledger import VERSIONING, ledger_of
from mainstay.core.pipeline.ledger_file import encode
from mainstay.core.telemetry.record import Telemetry
from mainstay.drivers.pipeline import ledger_files
from mainstay.drivers.pipeline.ledger_files import LedgerFiles
from mainstay.errors import ConfigError, LedgerError, StoreError, StoreUnavailable, UsageError
from mainstay.events import CallSucceeded
from mainstay.profiles.pipelines.governance import Governance
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


def plant_ledger(path, mine):
    """A ledger of mine elsewhere, with entries, and a link to it."""
    target = path if mine is None else mine
    target.write_bytes(encode(ledger_of(VERSIONING, [])))
    if mine is not None:
        path.symlink_to(mine)


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


def ledger(folder):
    LedgerFiles(folder).write([], list, now=0.0)


@pytest.mark.parametrize(
    ("uses", "name"),
    [
        (add, "t.json"),
        (lambda folder: read_telemetry(folder / "t.json"), "t.json"),
        (lambda folder: load(folder / "t.json"), "t.json"),
        (lambda folder: list(read_records(folder / "t.json")), "t.json"),
        (ledger, "versioning_ledger.json"),
        (lambda folder: Governance(folder / "t.json"), "t.json"),
    ],
    ids=["telemetry", "telemetry read", "log loaded", "log read", "ledger", "governance"],
)
def test_a_pipe_or_a_device_in_place_of_a_file_stops_nobody(tmp_path, uses, name):
    """To open a pipe waits for the other side; to read a device fills memory."""
    os.mkfifo(tmp_path / name)
    with suppress(OSError, StoreError, UsageError, ConfigError):
        uses(tmp_path)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    with suppress(OSError, StoreError, UsageError, ConfigError):
        uses(tmp_path)
    assert (tmp_path / name).is_symlink()


def test_a_pipe_that_nobody_reads_keeps_no_head_and_stops_nobody(tmp_path, caplog):
    """A head may go into a pipe; the end of the process does not wait for a reader."""
    os.mkfifo(tmp_path / "heads")
    head = head_of(Tail("log", 1, 1, bytes(32)), "now")
    ExternalHeads(tmp_path / "heads").keep(head)
    assert "a head could not be written" in caplog.text
    reader = os.open(tmp_path / "heads", os.O_RDONLY | os.O_NONBLOCK)
    ExternalHeads(tmp_path / "heads").keep(head)
    assert b'"now"' in os.read(reader, 1000)
    os.close(reader)


@pytest.mark.parametrize("target", ["a pipe", "/dev/zero", "/dev/null"])
def test_an_audit_log_is_not_written_to_what_is_no_file(tmp_path, target):
    """A pipe that nobody reads would stop the process when it is full, a device keep nothing."""
    if target == "a pipe":
        os.mkfifo(tmp_path / "t.json")
    else:
        (tmp_path / "t.json").symlink_to(target)
    with pytest.raises(StoreUnavailable, match="is no regular file"):
        append(tmp_path)


@pytest.mark.parametrize("name", ["versioning_ledger.json", "pipeline_retry_log.json"])
@pytest.mark.parametrize("plant", [plant_ledger, plant_dangling])
def test_a_ledger_is_not_read_or_written_through_a_link(tmp_path, mine, plant, name):
    """Its name is computed: a link there had another ledger of mine altered, or one created."""
    plant(tmp_path / name, mine)
    before = mine.read_bytes()
    with pytest.raises(LedgerError, match=f"{name}.*is a link"):
        ledger(tmp_path)
    assert mine.read_bytes() == before
    assert not (tmp_path / "created").exists()


def test_a_ledger_that_becomes_a_link_while_it_is_written_is_replaced(tmp_path, mine, monkeypatch):
    """Between look and write a link may come: it is replaced, not followed."""
    plant_ledger(mine, None)
    before, real = mine.read_bytes(), ledger_files.encode

    def encode_late(found):
        for name in ("versioning_ledger.json", "pipeline_retry_log.json"):
            if not (tmp_path / name).exists():
                (tmp_path / name).symlink_to(mine)
        return real(found)

    monkeypatch.setattr(ledger_files, "encode", encode_late)
    ledger(tmp_path)
    assert mine.read_bytes() == before
    assert not (tmp_path / "versioning_ledger.json").is_symlink()


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
