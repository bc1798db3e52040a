"""What somebody may do to a log, and what verify says to it: in all three places."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
from msgspec.structs import replace

from mainstay.audit import AuditLog, make_key, read_log, verify_log
from mainstay.audit.keys import Signer
from mainstay.core.audit.chain import (
    Entry,
    Tail,
    checked,
    encode_head,
    head_of,
    header_of,
    seal,
    tail_of,
)
from mainstay.errors import StoreError, UsageError
from mainstay.events import AttemptFailed, CallSucceeded
from mainstay.stores.jsonl.journal import JsonlJournal
from mainstay.stores.sqlite.journal import SqliteJournal


def event(number):
    return AttemptFailed(operation=f"op-{number}", attempt_number=number, kind="transient")


class Log:
    """A log of twenty events in four blocks, and ways to meddle with it.

    The first block opens the log, the last one closes it: the events are in blocks 2 to 5.
    """

    kind = ""

    def __init__(self, where):
        self.where = where

    def write(self, count=20, block=5, **options):
        log = AuditLog(self.where, **options)
        for number in range(1, count + 1):
            log(event(number))
            if number % block == 0:
                assert log.flush(30)
        log.close()

    def verify(self, **options):
        return verify_log(self.where, **options)


class Sqlite(Log):
    def run(self, *statement):
        with closing(sqlite3.connect(self.where.removeprefix("sqlite:///"))) as connection:
            connection.execute(*statement)
            connection.commit()

    def change(self, old, new):
        self.run("UPDATE mainstay_audit_blocks SET body = replace(body, ?, ?)", (old, new))

    def body(self, block, edit):
        with closing(sqlite3.connect(self.where.removeprefix("sqlite:///"))) as connection:
            found = "SELECT body FROM mainstay_audit_blocks WHERE block = ?"
            records = connection.execute(found, (block,)).fetchone()[0].split("\n")[1::2]
        edited = "[\n" + "\n,\n".join(edit(records)) + "\n]"
        self.run("UPDATE mainstay_audit_blocks SET body = ? WHERE block = ?", (edited, block))

    def drop(self, block):
        self.run("DELETE FROM mainstay_audit_blocks WHERE block = ?", (block,))

    def cut(self):
        self.run("DELETE FROM mainstay_audit_blocks WHERE block >= 5")
        self.run("DELETE FROM mainstay_audit_heads WHERE block >= 5")

    def forget(self):
        for table in ("blocks", "heads", "anchor"):
            self.run(f"DELETE FROM mainstay_audit_{table}")

    def drop_heads(self):
        self.run("DELETE FROM mainstay_audit_heads")

    def journal(self):
        return SqliteJournal(self.where.removeprefix("sqlite:///"))


class Postgres(Log):
    def run(self, statement, values=()):
        import psycopg

        with psycopg.connect(self.where) as connection:
            return connection.execute(statement, values)

    def change(self, old, new):
        self.run(
            "UPDATE mainstay_audit_blocks SET body ="
            " convert_to(replace(convert_from(body, 'UTF8'), %s, %s), 'UTF8')",
            (old, new),
        )

    def body(self, block, edit):
        import psycopg

        with psycopg.connect(self.where) as connection:
            found = "SELECT convert_from(body, 'UTF8') FROM mainstay_audit_blocks WHERE block = %s"
            records = connection.execute(found, (block,)).fetchone()[0].split("\n")[1::2]
            edited = ("[\n" + "\n,\n".join(edit(records)) + "\n]").encode()
            connection.execute(
                "UPDATE mainstay_audit_blocks SET body = %s WHERE block = %s", (edited, block)
            )

    def drop(self, block):
        self.run("DELETE FROM mainstay_audit_blocks WHERE block = %s", (block,))

    def cut(self):
        self.run("DELETE FROM mainstay_audit_blocks WHERE block >= 5")
        self.run("DELETE FROM mainstay_audit_heads WHERE block >= 5")

    def forget(self):
        for table in ("blocks", "heads", "anchor"):
            self.run(f"DELETE FROM mainstay_audit_{table}")

    def drop_heads(self):
        self.run("DELETE FROM mainstay_audit_heads")

    def journal(self):
        from mainstay.stores.postgres.store import PostgresStore

        return PostgresStore(self.where).journal(closes=True)


_HEADER = b" " * 73 + b'","block":'


class Jsonl(Log):
    def lines(self):
        return self.where.read_bytes().splitlines(keepends=True)

    def change(self, old, new):
        self.where.write_bytes(self.where.read_bytes().replace(old.encode(), new.encode()))

    def body(self, block, edit):
        lines = self.lines()
        first = self.start(lines, block)
        last = self.start([*lines, _HEADER], block + 1)
        heads = [line for line in lines[first + 1 : last] if line.startswith(b'{"head"')]
        records = [line for line in lines[first + 1 : last] if line not in heads]
        edited = edit(records)
        self.where.write_bytes(b"".join([*lines[: first + 1], *edited, *heads, *lines[last:]]))

    def start(self, lines, block):
        headers = [n for n, line in enumerate(lines) if line[73:83] == _HEADER[73:83]]
        return headers[block - 1]

    def drop(self, block):
        self.body(block, lambda _: [])
        lines = self.lines()
        del lines[self.start(lines, block)]
        self.where.write_bytes(b"".join(lines))

    def cut(self):
        lines = self.lines()
        self.where.write_bytes(b"".join(lines[: self.start(lines, 5)]))

    def forget(self):
        self.where.unlink()

    def drop_heads(self):
        kept = [line for line in self.lines() if not line.startswith(b'{"head"')]
        self.where.write_bytes(b"".join(kept))

    def journal(self):
        return JsonlJournal(self.where)


@pytest.fixture(params=["sqlite", "postgres", "jsonl"])
def log(request, tmp_path):
    if request.param == "sqlite":
        return Sqlite(f"sqlite:///{tmp_path}/audit.db")
    if request.param == "postgres":
        return Postgres(request.getfixturevalue("postgres_database"))
    return Jsonl(tmp_path / "audit.jsonl")


@pytest.fixture
def keys(tmp_path):
    return make_key(tmp_path / "key.pem")


def test_a_log_nobody_touched_verifies(log, tmp_path, keys):
    """Records, heads and signatures agree, inside and outside."""
    log.write(heads=tmp_path / "heads", key=keys[0])
    verdict = log.verify(heads=tmp_path / "heads", public_key=keys[1])
    assert verdict.ok, verdict.problem
    assert (verdict.records, verdict.blocks, verdict.ends_with) == (20, 6, 20)
    assert (verdict.signed_until, verdict.heads) == (20, 2)
    records = list(read_log(log.where))
    assert [record.number for record in records] == list(range(1, 21))
    assert [record.event.operation for record in records] == [f"op-{n}" for n in range(1, 21)]


def test_one_changed_field_names_its_record(log):
    """One field of one record, and verify says which."""
    log.write()
    log.change('"operation":"op-13"', '"operation":"op-12"')
    verdict = log.verify()
    assert not verdict.ok
    assert verdict.first_bad == 13
    assert verdict.problem == "record 13 (block 4): the record is not what was written"
    assert verdict.records == 10


@pytest.mark.parametrize("how", ["removed", "inserted", "exchanged", "removed from the end"])
def test_a_record_out_of_its_place_is_named(log, how):
    """Removed, inserted, exchanged: the first record that is not in its place."""
    log.write()
    edits = {
        "removed": (4, lambda records: records[:2] + records[3:], 13),
        "inserted": (3, lambda records: [records[0], records[0], *records[1:]], 7),
        "exchanged": (4, lambda records: [*records[:3], records[4], records[3]], 14),
        "removed from the end": (4, lambda records: records[:-1], 15),
    }
    block, edit, number = edits[how]
    log.body(block, edit)
    assert log.verify().first_bad == number


def test_a_removed_block_is_named(log):
    """The blocks are counted, too."""
    log.write()
    log.drop(3)
    verdict = log.verify()
    assert verdict.first_bad == 6
    assert "block 4 stands where block 3 should" in verdict.problem


def test_a_cut_tail_shows_by_the_heads_outside(log, tmp_path):
    """Whoever cuts the tail and the heads in the log does not reach those outside it."""
    log.write(heads=tmp_path / "heads")
    log.cut()
    alone = log.verify()
    assert alone.ok, "the log alone cannot tell"
    assert len(alone.unclosed) == 1, "as if its writer had been killed"
    verdict = log.verify(heads=tmp_path / "heads")
    assert (verdict.ok, verdict.truncated, verdict.first_bad) == (False, True, 16)
    assert "ends with record 15, and had 20" in verdict.problem


def test_a_cut_tail_shows_by_the_heads_inside_where_they_were_left(log):
    """Where only the records were cut, the log's own heads say so."""
    log.write()
    log.drop(6)
    log.drop(5)
    verdict = log.verify()
    assert (verdict.ok, verdict.truncated) == (False, True)


def rewrite(log, change, signer=None):
    """All of the log anew, with links that are right."""
    tail, blocks = Tail(), []
    with closing(log.journal()) as journal:
        old = list(journal.blocks())
    for block in old:
        header = header_of(block)
        records = [change(record) for record in block.records]
        same = {"writer": header.writer, "time": header.time, "log": header.log}
        made = seal(tail, records, note=header.note, head=block is old[-1], **same)
        tail = tail_of(made)
        blocks.append(made)
    log.forget()
    head = head_of(tail, "2026-01-01T00:00:00Z")
    head = checked(signer.sign(head) if signer else head)
    with closing(log.journal()) as journal:
        for block in blocks:
            entry = Entry(block, head if block is blocks[-1] else None)
            journal.append(lambda *_, made=entry: made)


def swap(record):
    return record.replace(b'"op-7"', b'"op-8"')


def test_a_rewritten_log_shows_by_the_heads_outside(log, tmp_path):
    """With links computed anew the chain is whole, and is not the one that was."""
    log.write(heads=tmp_path / "heads", every=10)
    rewrite(log, swap)
    assert log.verify().ok, "the log alone cannot tell"
    verdict = log.verify(heads=tmp_path / "heads")
    assert (verdict.ok, verdict.rewritten) == (False, True)
    assert verdict.first_bad == 1
    assert "from record 1 to 10" in verdict.problem


def test_a_rewritten_log_shows_by_the_signatures(log, tmp_path, keys):
    """Who lacks the key cannot sign: what is left is a log that nobody speaks for."""
    log.write(key=keys[0])
    rewrite(log, swap)
    verdict = log.verify(public_key=keys[1])
    assert (verdict.ok, verdict.unsigned) == (False, True)
    other, _ = make_key(tmp_path / "other.pem")
    rewrite(log, swap, Signer(other))
    assert log.verify(public_key=keys[1]).unsigned


def test_a_forged_signature_is_named(log, tmp_path, keys):
    """A head that claims to be signed, and is not, with a checksum that is right."""
    log.write(key=keys[0])
    with closing(log.journal()) as journal:
        head = journal.heads()[-1]
    other = head.signature[:-1] + ("0" if head.signature[-1] != "0" else "1")
    forged = encode_head(checked(replace(head, signature=other))).decode()
    signature = encode_head(head).decode()
    if isinstance(log, Jsonl):
        log.change(signature, forged)
    elif isinstance(log, Sqlite):
        log.run("UPDATE mainstay_audit_heads SET head = replace(head, ?, ?)", (signature, forged))
    else:
        log.run(
            "UPDATE mainstay_audit_heads SET head ="
            " convert_to(replace(convert_from(head, 'UTF8'), %s, %s), 'UTF8')",
            (signature, forged),
        )
    verdict = log.verify(public_key=keys[1])
    assert not verdict.ok
    assert "has a wrong signature" in verdict.problem


def test_a_log_in_the_place_of_another_shows(log, tmp_path):
    """An honest log of something else, or none at all, is not the one the heads speak of."""
    log.write(heads=tmp_path / "heads")
    log.forget()
    log.write(count=30)
    verdict = log.verify(heads=tmp_path / "heads")
    assert (verdict.ok, verdict.rewritten) == (False, True)
    assert "none of the heads is of this log" in verdict.problem


def test_heads_of_a_log_that_stood_here_before_are_told_of(log, tmp_path):
    """Whoever deletes a log has its writers begin another, which bring heads to the same place."""
    log.write(heads=tmp_path / "heads")
    before = len((tmp_path / "heads").read_bytes().splitlines())
    assert log.verify(heads=tmp_path / "heads").other_heads == 0
    log.forget()
    log.write(heads=tmp_path / "heads")
    assert log.verify(heads=tmp_path / "heads").other_heads == before


def test_a_head_that_cannot_be_read_shows(log):
    """The block that it is of announces it."""
    log.write()
    if isinstance(log, Jsonl):
        log.where.write_bytes(log.where.read_bytes().replace(b'{"head":{"', b'{"head":{'))
    else:
        log.run("UPDATE mainstay_audit_heads SET head = 'junk'")
    verdict = log.verify()
    assert (verdict.ok, verdict.heads) == (False, 0)
    assert "head" in verdict.problem


def test_an_emptied_log_shows(log, tmp_path):
    """Nothing is there, and the heads say that something was."""
    log.write(heads=tmp_path / "heads")
    if isinstance(log, Jsonl):
        log.where.write_bytes(b"")
    else:
        log.forget()
    verdict = log.verify(heads=tmp_path / "heads")
    assert (verdict.ok, verdict.truncated, verdict.first_bad) == (False, True, 1)


def test_a_pruned_front_that_nobody_speaks_for_shows(log):
    """Who drops the first records must say so in the chain."""
    log.write()
    with closing(log.journal()) as journal:
        first = tail_of(list(journal.blocks())[1])
    if isinstance(log, Jsonl):
        from mainstay.stores.jsonl.lines import anchor_line

        lines = log.lines()
        log.where.write_bytes(anchor_line(first) + b"".join(lines[log.start(lines, 3) :]))
    else:
        log.drop(1)
        log.drop(2)
        mark = "?" if isinstance(log, Sqlite) else "%s"
        values = (first.log, first.block, first.number, first.link, b"[]")
        insert = f"INSERT INTO mainstay_audit_anchor VALUES ({', '.join([mark] * 5)})"
        log.run(insert, values)
    verdict = log.verify()
    assert not verdict.ok
    assert "begins with record 6, and no record states" in verdict.problem


def test_whatever_is_put_into_a_row_is_a_flaw_and_no_crash(log):
    """Somebody may leave anything there."""
    log.write()
    if isinstance(log, Jsonl):
        lines = log.lines()
        for junk in (b"junk\n", b"\x00\xff\n", b'{"link":"zz","block":{}}\n', b"\n", b"{}\n"):
            log.where.write_bytes(b"".join([*lines[:4], junk, *lines[4:]]))
            assert log.verify().first_bad == 3
        for junk in (b"junk\n", b'{"link":"' + b"0" * 64 + b'","block":{}}\n'):
            at = log.start(lines, 3)
            log.where.write_bytes(b"".join([*lines[:at], junk, *lines[at:]]))
            assert log.verify().first_bad == 6
        return
    for column, junk in (
        ("body", b""),
        ("body", b"[]"),
        ("body", b"[\n{}\n;\n{}\n]"),
        ("links", b"1"),
        ("header", b"{}"),
        ("header", b"\xff"),
    ):
        mark = "?" if isinstance(log, Sqlite) else "%s"
        if isinstance(log, Sqlite) and column != "links":
            mark = "CAST(? AS TEXT)"
        log.run(f"UPDATE mainstay_audit_blocks SET {column} = {mark} WHERE block = 3", (junk,))
        assert log.verify().first_bad == 6


def test_the_heads_of_a_logger_are_found_in_its_lines(log, tmp_path, caplog):
    """A log line has something before the head, and other lines none at all."""
    caplog.set_level("INFO", "audit.heads")
    log.write(heads="log:audit.heads")
    lines = ["12:00 INFO started", *(f"12:01 INFO {r.getMessage()}" for r in caplog.records)]
    (tmp_path / "app.log").write_text("\n".join(lines) + "\n{broken\n", "utf-8")
    assert log.verify(heads=tmp_path / "app.log").heads == 2


def test_heads_may_come_from_a_function(log):
    """A function of yours brings them where you like, as plain data."""
    heads = []
    log.write(heads=heads.append, every=10)
    assert [head["number"] for head in heads] == [10, 20, 20]
    assert log.verify(heads=json.loads(json.dumps(heads))).ok
    heads[0]["link"] = "00" * 32
    assert log.verify(heads=heads).rewritten


def test_there_must_be_a_log(tmp_path):
    """Nothing is made where nothing is."""
    with pytest.raises(StoreError, match="there is no audit log"):
        verify_log(tmp_path / "no.jsonl")
    with pytest.raises(StoreError, match="there is no audit log"):
        verify_log(f"sqlite:///{tmp_path}/no.db")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="heads"):
        verify_log(tmp_path / "no.jsonl", heads=tmp_path / "no-heads")


def test_progress_is_told_block_by_block(tmp_path):
    """For those who wait for a long log."""
    log = Jsonl(tmp_path / "audit.jsonl")
    log.write()
    told = []
    log.verify(progress=told.append)
    assert told == [0, 5, 10, 15, 20, 20]


def test_a_success_is_recorded_where_asked(tmp_path):
    """successes=True hears of every call; else only of those that failed."""
    from mainstay import Engine

    for successes, count in ((False, 0), (True, 1)):
        where = tmp_path / f"{successes}.jsonl"
        with Engine(sinks=[AuditLog(where, successes=successes)]) as engine:
            engine.call("parse", int, "1")
            engine.operation("parse")
        found = [r for r in read_log(where) if isinstance(r.event, CallSucceeded)] if count else []
        assert len(found) == count
