"""A log that others write to, rotate and prune meanwhile verifies: nothing was tampered with."""

from __future__ import annotations

import pytest

from mainstay.audit import AuditLog, verify_log
from mainstay.core.audit.chain import Entry, Flaw, Tail, seal, verify_block
from mainstay.events import CallFailed
from mainstay.stores.jsonl.journal import JsonlJournal
from mainstay.stores.sqlite.journal import SqliteJournal


def write(where, **options):
    """A writer that opens the log, appends a record, and closes it with a head."""
    log = AuditLog(where, spill=False, **options)
    log(CallFailed(operation="fetch"))
    log.close()


class Between:
    """A journal that lets something happen once, after a reading of one kind."""

    def __init__(self, journal, after, happens):
        self._journal, self._after, self._happens = journal, after, happens
        self.url = journal.url
        for name in ("passed", "flaws"):
            if hasattr(journal, name):
                setattr(self, name, getattr(journal, name))

    def __getattr__(self, name):
        read = getattr(self._journal, name)
        if name != self._after or self._happens is None:
            return read

        def then(*args):
            answer = read(*args)
            happens, self._happens = self._happens, None
            happens()
            return answer

        return then


def place(tmp_path, kind):
    """A log of one kind with a few records: where it is, and a journal that reads it."""
    path = tmp_path / ("audit.db" if kind == "sqlite" else "audit.jsonl")
    where = f"sqlite:///{path}" if kind == "sqlite" else str(path)
    options = {} if kind == "sqlite" else {"rotate": 1}
    write(where, **options)
    made = SqliteJournal if kind == "sqlite" else JsonlJournal
    return where, made(path, reads_only=True), options


@pytest.mark.parametrize("after", ["heads", "anchor"])
def test_a_block_and_its_head_may_come_while_a_database_is_verified(tmp_path, after):
    """Heads are read before blocks: one that came between them is there all the same."""
    where, journal, _ = place(tmp_path, "sqlite")
    verdict = verify_log(Between(journal, after, lambda: write(where)))
    assert verdict.ok, verdict.problem
    assert verdict.is_complete
    assert verdict.heads == 2


def test_a_head_that_an_announcing_block_lacks_is_still_a_finding(tmp_path):
    """A block that was appended meanwhile, and whose head was removed, is a finding."""
    where, journal, _ = place(tmp_path, "sqlite")

    def appended_without_head():
        write(where)
        with SqliteJournal(tmp_path / "audit.db")._writing("test") as connection:
            newest = "(SELECT max(block) FROM mainstay_audit_heads)"
            connection.execute(f"DELETE FROM mainstay_audit_heads WHERE block = {newest}")

    verdict = verify_log(Between(journal, "heads", appended_without_head))
    assert not verdict.ok
    assert "announces is missing" in verdict.problem


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_a_log_may_be_pruned_while_it_is_verified(tmp_path, kind):
    """What is dropped between the reading of the anchor and of the blocks is no gap."""
    where, journal, options = place(tmp_path, kind)
    for _ in range(3):
        write(where, **options)
    verdict = verify_log(Between(journal, "anchor", lambda: write(where, keep=0.000001, **options)))
    assert verdict.ok, verdict.problem
    assert verdict.begins_after > 0


def test_a_missing_beginning_is_a_finding_although_it_is_read_again(tmp_path):
    """An anchor that nobody changes meanwhile is compared once, and shows the gap."""
    place(tmp_path, "jsonl")
    write(str(tmp_path / "audit.jsonl"), rotate=1)
    (tmp_path / "audit.000001.jsonl").unlink()
    assert not verify_log(tmp_path / "audit.jsonl").ok


@pytest.mark.parametrize("rotations", [1, 2])
def test_a_file_may_be_ended_while_files_are_listed(tmp_path, monkeypatch, rotations):
    """Each file is read once and in order, if the newest is ended after or before the listing."""
    where, journal, options = place(tmp_path, "jsonl")
    write(where, **options)
    listed = JsonlJournal._older
    left = [None] * rotations

    def older(self):
        found = listed(self)
        if left and self is journal:
            left.pop()
            write(where, **options)
        return found

    monkeypatch.setattr(JsonlJournal, "_older", older)
    verdict = verify_log(journal)
    assert verdict.ok, verdict.problem
    assert verdict.is_complete


def test_a_block_may_be_half_written_while_a_file_is_read(tmp_path):
    """A reader that met the beginning of a write as the end of the file sees no more of it."""
    path = tmp_path / "audit.jsonl"
    journal, ends = JsonlJournal(path), []
    records = [b'{"a":"%b"}' % (b"x" * 1000)] * 500

    for _ in range(3):
        journal.append(lambda tail, _: Entry(seal(tail, records, writer="w", time="t", log="a1")))
        ends.append(path.stat().st_size)
    data = path.read_bytes()
    path.write_bytes(data[: ends[0] + 100_000])
    tail: Tail | Flaw = Tail()
    for index, block in enumerate(JsonlJournal(path).blocks()):
        if not index:
            with path.open("ab") as file:
                file.write(data[ends[0] + 100_000 :])
        assert isinstance(tail, Tail)
        tail = verify_block(tail, block)
    assert isinstance(tail, Tail), tail
    assert tail.block == 1
    assert verify_log(path).ok
