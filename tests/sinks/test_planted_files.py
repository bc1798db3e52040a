"""A file beside one that a user has named is not opened through a link, nor waited for."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from mainstay import Engine
from mainstay.audit.external_heads import ExternalHeads
from mainstay.audit.keys import make_key
from mainstay.audit.open import load
from mainstay.audit.stream import read_records
from mainstay.core.audit.chain import Tail, head_of
from mainstay.core.pipeline.ledger import VERSIONING, ledger_of
from mainstay.core.pipeline.ledger_file import encode
from mainstay.core.telemetry.record import Telemetry
from mainstay.drivers.pipeline import ledger_files
from mainstay.drivers.pipeline.ledger_files import LedgerFiles, read_ledger
from mainstay.errors import ConfigError, LedgerError, StoreError, StoreUnavailable, UsageError
from mainstay.events import CallSucceeded
from mainstay.profiles.pipelines import Pipeline, Stage
from mainstay.profiles.pipelines.governance import Governance
from mainstay.profiles.pipelines.pipeline import PATHS
from mainstay.runtime import private_files
from mainstay.runtime.private_files import LARGEST, NotPrivateError
from mainstay.sinks.jsonl import JsonlSink
from mainstay.sinks.telemetry.file import add_to_file, read_telemetry
from mainstay.sinks.telemetry.sink import TelemetrySink
from mainstay.stores.jsonl.files import JournalFile, Snapshot
from mainstay.stores.jsonl.journal import JsonlJournal

STRANGER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


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


@pytest.mark.parametrize(
    ("uses", "name"),
    [
        (add, "t.json"),
        (lambda folder: read_telemetry(folder / "t.json"), "t.json"),
        (ledger, "versioning_ledger.json"),
        (lambda folder: read_ledger(folder / "versioning_ledger.json"), "versioning_ledger.json"),
    ],
    ids=["telemetry", "telemetry read", "ledgers", "ledger read"],
)
def test_a_huge_file_is_not_read(tmp_path, uses, name):
    """A sparse file takes no room on the disk, and filled the memory: 40 GB were a MemoryError."""
    plant_huge(tmp_path / name)
    with pytest.raises((OSError, LedgerError)) as refused:
        uses(tmp_path)
    assert f"{name}" in str(refused.value)
    assert f"has {LARGEST + 1} bytes, more than {LARGEST}" in str(refused.value)
    assert (tmp_path / name).stat().st_size == LARGEST + 1


def test_a_huge_governance_file_is_refused(tmp_path):
    """It is compared with what was read before: no more of it than of a configuration."""
    (tmp_path / "g.yml").write_text("datasets: {d-7: {status: blocked}}")
    found = Governance(tmp_path / "g.yml")
    plant_huge(tmp_path / "g.yml")
    with pytest.raises(ConfigError, match="larger than 10 MB"):
        found.rules  # noqa: B018


def plant_huge(path):
    with path.open("wb") as file:
        file.truncate(LARGEST + 1)


def without_memory(*_args, **_options):
    raise MemoryError


@pytest.mark.parametrize("fails", ["memory", "size"])
def test_the_warning_about_telemetry_has_a_reason(tmp_path, monkeypatch, caplog, fails):
    """The text of a MemoryError is empty."""
    sink = TelemetrySink(tmp_path / "t.json", pipeline_id="etl", every=3600.0)
    if fails == "memory":
        monkeypatch.setattr("mainstay.sinks.telemetry.sink.add_to_file", without_memory)
    else:
        plant_huge(tmp_path / "t.json")
    sink(CallSucceeded(operation="pay", call_id="c-1"))
    assert not sink.flush()
    has = "MemoryError" if fails == "memory" else f"t.json has {LARGEST + 1} bytes"
    assert f"kept in memory for now, as totals: {has}" in caplog.text.replace(f"{tmp_path}/", "")
    sink._reset()


def test_the_warning_about_a_head_has_a_reason(caplog):
    """So has that of any destination that fails without a text."""
    head = head_of(Tail("log", 1, 1, bytes(32)), "now")
    ExternalHeads(without_memory).keep(head)
    assert caplog.messages[0].endswith(": MemoryError")


def test_every_reason_in_a_log_line_of_sinks_and_audit_logs_has_a_text():
    """`describe(error)[1]` is empty for an exception without a text; `reason_of` is not."""
    root = Path(__file__).parents[2] / "src/mainstay"
    for room in ("sinks", "audit"):
        for path in (root / room).rglob("*.py"):
            assert "describe(error)[1]" not in path.read_text("utf-8"), path
            assert "describe(each)[1]" not in path.read_text("utf-8"), path


def test_a_ledger_that_could_not_be_read_again_is_not_written(tmp_path, monkeypatch):
    """Or the next run would be refused for a file that mainstay has written."""
    ledger(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.glob("*.json")}
    monkeypatch.setattr(private_files, "LARGEST", 10)
    (tmp_path / "versioning_ledger.json").unlink()
    with pytest.raises(LedgerError, match=r"versioning_ledger.json: it would have \d+ bytes"):
        ledger(tmp_path)
    assert [path for path in before if path.exists()] == [tmp_path / "pipeline_retry_log.json"]


def pipeline(engine, **options):
    stage = Stage("poll", lambda ctx: 7, idempotency="idempotent")
    return Pipeline("etl", [stage], engine=engine, **options)


@as_root
@pytest.mark.parametrize("name", ["versioning_ledger.json", "pipeline_retry_log.json"])
def test_a_ledger_of_another_user_at_the_default_place_is_refused(tmp_path, monkeypatch, name):
    """In a shared folder another user could decide what a run has done. No stage is called."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / PATHS["ledgers"]
    folder.mkdir(parents=True)
    ledger(folder)
    os.chown(folder / name, STRANGER, STRANGER)
    with Engine(sinks=[]) as engine:
        with pytest.raises(LedgerError, match=f"{name}.*belongs to user {STRANGER}"):
            pipeline(engine).run()
        pipeline(engine, ledgers=folder).run()  # what a user names is the user's decision


@as_root
def test_telemetry_of_another_user_at_the_default_place_is_refused(tmp_path, monkeypatch, caplog):
    """It is neither added to nor read; the warning has the reason."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / PATHS["telemetry"]
    path.parent.mkdir(parents=True)
    add_to_file(path, Telemetry(), most=10)
    os.chown(path, STRANGER, STRANGER)
    before = path.read_bytes()
    with Engine(sinks=[]) as engine:
        found = pipeline(engine)
        found.run()
        assert f"focus-telemetry.json belongs to user {STRANGER}" in caplog.text
        with pytest.raises(NotPrivateError, match="belongs to user"):
            found.compliance()
        assert path.read_bytes() == before
        os.chown(path, os.geteuid(), -1)
        assert [each.stage for each in found.compliance()] == ["poll"]


def test_a_link_in_place_of_telemetry_at_the_default_place_is_refused(tmp_path, monkeypatch, mine):
    """What it leads to would be copied into the file; a path that a user names may be a link."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / PATHS["telemetry"]
    path.parent.mkdir(parents=True)
    add_to_file(tmp_path / "real.json", Telemetry(), most=10)
    path.symlink_to(tmp_path / "real.json")
    with Engine(sinks=[]) as engine:
        found = pipeline(engine)
        found.run()
        with pytest.raises(NotPrivateError, match="is a link"):
            found.compliance()
        path.unlink()
        assert [each.stage for each in found.compliance()] == ["poll"]
    assert read_telemetry(tmp_path / "real.json").totals == []


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
