"""Every byte of a file is under the chain, or a finding: nothing stands there unnoticed."""

from __future__ import annotations

import os
import shutil
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from mainstay.audit import AuditLog, read_log, replay_log, verify_log
from mainstay.core.audit.chain import Block, Entry, Head, Tail, checked, head_of, seal, tail_of
from mainstay.events import CallSucceeded
from mainstay.stores.jsonl.journal import JsonlJournal

STORED = Path(__file__).parents[1] / "stored"


def writer(path, name="host:7:a1"):
    """Appends blocks by the name of a writer."""
    journal, batch = JsonlJournal(path), 0

    def add(*records, note=None, head=False):
        nonlocal batch
        batch += 1

        def make(tail, _):
            block = seal(
                tail, records, writer=name, time="now", log="a1", batch=batch, note=note, head=head
            )
            return Entry(block, checked(head_of(tail_of(block), "now")) if head else None)

        journal.append(make)

    return add


def whole(path):
    """A log of all kinds of lines: opened, records, a head, closed."""
    add = writer(path)
    add(note={"opened": {}})
    add(b'{"a":1}', b'{"a":22}', head=True)
    add(b'{"a":3}')
    add(note={"closed": {}}, head=True)


def torn(path):
    """The same, and a writer was killed within a write; the next one has marked that."""
    add = writer(path)
    add(note={"opened": {}})
    add(b'{"a":1}', head=True)
    before = path.read_bytes()
    add(b'{"a":2}', b'{"a":3}')
    path.write_bytes(path.read_bytes()[: len(before) + 300])
    other = writer(path, "host:8:b2")
    other(b'{"a":4}')
    other(note={"closed": {}}, head=True)
    writer(path)(note={"closed": {}}, head=True)


def findings(path):
    """What verify finds: whether it is bad, and what may be missing."""
    verdict = verify_log(path)
    return (not verdict.ok, verdict.torn, len(verdict.unclosed), verdict.lost)


def changes(data):
    """Every small change of a file: of each byte, and of each line."""
    for at in range(len(data)):
        for bit in (0x01, 0x20):
            yield f"bit {bit} of byte {at}", _with(data, at, bytes([data[at] ^ bit]))
        yield f"byte {at} gone", data[:at] + data[at + 1 :]
        more = (b" ", b"\n", data[at : at + 1])[at % 3]
        yield f"{more} before byte {at}", data[:at] + more + data[at:]
    lines = data.splitlines(keepends=True)
    for at, line in enumerate(lines):
        yield f"line {at} gone", b"".join(lines[:at] + lines[at + 1 :])
        yield f"line {at} twice", b"".join([*lines[:at], line, *lines[at:]])
        yield (
            f"lines {at} and next",
            b"".join([*lines[:at], *lines[at : at + 2][::-1], *lines[at + 2 :]]),
        )
    for more in (b"\n", b" ", b"x", b"{}\n", b'{"torn":{"bytes":0}}\n', b'{"torn":{"bytes":1}}\n'):
        yield f"{more} at the end", data + more


def put(path, data):
    """Writes a file over; to truncate it first has some file systems wait for the disk."""
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


def _with(data, at, new):
    return data[:at] + new + data[at + 1 :]


@pytest.mark.parametrize("fill", [whole, torn])
def test_no_change_of_a_byte_or_line_goes_unnoticed(tmp_path, fill):
    """Changed, removed, inserted, doubled: the log is bad, or something may be missing."""
    path = tmp_path / "audit.jsonl"
    fill(path)
    data, before = path.read_bytes(), findings(path)
    assert not before[0]
    assert before[1:] == ((0, 0, 0) if fill is whole else (1, 0, 0))
    unnoticed = []
    for what, changed in changes(data):
        put(path, changed)
        after = findings(path)
        if changed != data and not after[0] and after <= before:
            unnoticed.append(what)
    assert unnoticed == []


def test_no_change_of_the_first_line_of_a_later_file_goes_unnoticed(tmp_path):
    """It repeats where the file before it ended, and is compared with that."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, rotate=1, spill=False)
    for number in range(3):
        log(CallSucceeded(operation=str(number), total_attempts=2))
        assert log.flush(30)
    log.close()
    assert verify_log(path).is_complete
    data = path.read_bytes()
    first = data.index(b"\n") + 1
    assert b'"anchor"' in data[:first]
    for at in range(first):
        put(path, _with(data, at, bytes([data[at] ^ 0x01])))
        assert not verify_log(path).is_complete, at
    path.write_bytes(data[first:])
    assert not verify_log(path).ok


def test_a_head_that_was_never_written_is_marked_by_the_next_writer(tmp_path):
    """A kill between a block and the head it announces is a torn write, and no change."""
    path = tmp_path / "audit.jsonl"
    add = writer(path)
    add(b'{"a":1}', head=True)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    assert findings(path) == (False, 1, 1, 0)
    other = writer(path, "host:8:b2")
    other(b'{"a":2}')
    assert b'{"torn":{"bytes":0}}\n' in path.read_bytes()
    assert findings(path) == (False, 1, 2, 0)
    other(b'{"a":3}')
    assert findings(path) == (False, 1, 2, 0)


# --- versions -------------------------------------------------------------------------------------


def old_block(tail, *records):
    """A block as version 1 wrote it."""
    header = msgspec.json.encode(
        {
            "batch": 1,
            "block": tail.block + 1,
            "count": len(records),
            "first": tail.number + 1,
            "log": tail.log,
            "time": "now",
            "writer": "old:9:c3",
        },
        order="sorted",
    )
    links, link = b"", tail.link
    for part in (header, *records):
        link = sha256(link + part).digest()
        links += link
    return Block(header, records, links)


def old_head(tail):
    return Head(
        log=tail.log, block=tail.block, number=tail.number, link=tail.link.hex(), time="now"
    )


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_log_of_format_1_is_continued_in_format_2(tmp_path, version):
    """From one block to the next; both parts verify by their own rule, and verify names both."""
    place = tmp_path / "log"
    shutil.copytree(STORED / version / "jsonl", place)
    path = place / "audit.jsonl"
    before = verify_log(path)
    assert (before.ok, before.versions) == (True, (1,))
    log = AuditLog(path)
    log(CallSucceeded(operation="new", total_attempts=2))
    log.close()
    verdict = verify_log(path)
    assert (verdict.ok, verdict.versions, verdict.is_complete) == (True, (1, 2), True)
    assert verdict.records == before.records + 1
    assert replay_log(path).ok
    data = path.read_bytes()
    at = data.index(b'{"head"', data.rindex(b'"version":2') - 2000)  # the head of the old writer
    path.write_bytes(_with(data, data.index(b'"time":"2', at) + 8, b"3"))
    assert not verify_log(path).ok, "what stands before a block of version 2 is under the chain"


def test_an_old_process_may_append_after_a_new_one(tmp_path):
    """It continues the chain; its blocks state neither losses nor whether it closed."""
    path = tmp_path / "audit.jsonl"
    whole(path)
    journal = JsonlJournal(path)
    tail = journal.append(lambda tail, _: Entry(old_block(tail, b'{"a":9}')))
    journal.append(lambda tail, _: Entry(None, old_head(tail)))
    verdict = verify_log(path)
    assert (verdict.ok, verdict.versions, verdict.is_complete) == (True, (1, 2), True)
    assert tail.number == verdict.records
    writer(path)(note={"closed": {}}, head=True)
    assert verify_log(path).is_complete
    assert [record.number for record in read_log(path)] == [1, 2, 3, 4]


def test_a_later_version_of_the_format_is_verified_by_its_chain(tmp_path):
    """The links are the same; verify names the version."""
    path = tmp_path / "audit.jsonl"
    JsonlJournal(path).append(lambda tail, _: Entry(later_block(tail)))
    verdict = verify_log(path)
    assert (verdict.ok, verdict.versions) == (True, (3,))


def later_block(tail):
    block = seal(Tail(), [b"{}"], writer="w", time="now", log="a1")
    header = block.header.replace(b'"version":2', b'"version":3')
    links = sha256(tail.link + header).digest()
    return Block(header, [b"{}"], links + sha256(links + b"{}").digest())


@pytest.mark.parametrize("at", [1, 2])
def test_an_announced_head_cannot_be_replaced_by_that_of_another_block(tmp_path, at):
    """A head is of the block it stands behind; a copy of an earlier one is a finding."""
    path = tmp_path / "audit.jsonl"
    add = writer(path)
    for number in range(3):
        add(b'{"a":%d}' % number, head=True)
    lines = path.read_bytes().splitlines(keepends=True)
    heads = [index for index, line in enumerate(lines) if line.startswith(b'{"head":')]
    lines[heads[at]] = lines[heads[0]]
    path.write_bytes(b"".join(lines))
    verdict = verify_log(path)
    assert not verdict.ok
    assert "not the one that the block announces" in verdict.problem


def test_an_announced_head_cannot_be_replaced_by_one_without_a_checksum(tmp_path):
    """A block of version 2 announces a head of version 2: another time cannot be put in."""
    path = tmp_path / "audit.jsonl"
    writer(path)(b'{"a":1}', head=True)
    *lines, last = path.read_bytes().splitlines(keepends=True)
    head = msgspec.json.decode(last)["head"]
    del head["version"], head["check"]
    head["time"] = "1999"
    changed = b'{"head":%b}\n' % msgspec.json.encode(head, order="sorted")
    path.write_bytes(b"".join([*lines, changed]))
    assert not verify_log(path).ok


@pytest.mark.parametrize("kills", [1, 2])
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_kill_at_any_byte_of_a_file_is_no_finding(tmp_path, goes_on, kills):
    """In a block, in a head, and right after the mark of it: the next writer goes on."""
    path, begins = tmp_path / "audit.jsonl", 0
    add = writer(path)
    if goes_on:
        add(b'{"a":0}', head=True)
        other = JsonlJournal(path, rotate=1)
        other.append(lambda tail, _: Entry(seal(tail, [b"{}"], writer="host:7:a1", time="now")))
        begins = path.read_bytes().index(b"\n") + 1
    else:
        add(b'{"a":0}')
    add(b'{"a":1}', b'{"a":2}', head=True)
    data = path.read_bytes()
    for cut in range(begins, len(data) + 1):
        path.write_bytes(data[:cut])
        if kills > 1:
            with pytest.raises(KeyboardInterrupt):
                JsonlJournal(path).append(_killed)
        writer(path, "host:8:b2")(b'{"a":3}', head=True)
        verdict = verify_log(path)
        assert verdict.ok, (cut, verdict.problem)


def _killed(*_):
    raise KeyboardInterrupt


def test_a_disk_that_refuses_the_beginning_of_a_file_leaves_none(tmp_path, monkeypatch):
    """A file that goes on from another is there with its first line, or not at all."""
    path = tmp_path / "audit.jsonl"
    writer(path)(b'{"a":1}')

    def add():
        journal = JsonlJournal(path, rotate=1)
        journal.append(lambda tail, _: Entry(seal(tail, [b"{}"], writer="host:7:a1", time="now")))

    with monkeypatch.context() as full:
        full.setattr("mainstay.stores.jsonl.files.anchor_line", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            add()
    assert not path.exists()
    add()
    assert verify_log(path).ok
    assert verify_log(path).records == 2


def test_a_mark_that_a_full_disk_cut_off_is_written_again(tmp_path, monkeypatch):
    """As a whole: nothing is appended to the beginning of one."""
    path = tmp_path / "audit.jsonl"
    journal = JsonlJournal(path)
    entry = {"writer": "host:7:a1", "time": "now", "log": "a1"}
    journal.append(lambda tail, _: Entry(seal(tail, [b"{}"], **entry)))
    with path.open("ab") as file:
        file.write(b'{"link":"ab')
    write, left = os.write, [5]

    def short(number, data):
        if not left[0]:
            raise OSError(28, "No space left on device")
        done = write(number, bytes(data)[: left[0]])
        left[0] -= done
        return done

    with monkeypatch.context() as full:
        full.setattr(os, "write", short)
        with pytest.raises(Exception, match="No space"):
            journal.append(lambda tail, _: Entry(seal(tail, [b"{}"], **entry)))
    journal.append(lambda tail, _: Entry(seal(tail, [b"{}"], **entry)))
    assert verify_log(path).ok
    assert verify_log(path).records == 2
