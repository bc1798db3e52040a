"""One contract for the three places of an audit log, and what is special about files."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import subprocess
import sys
import threading
import tracemalloc
from contextlib import ExitStack, closing

import pytest

from mainstay.core.audit.chain import (
    Entry,
    Flaw,
    Tail,
    head_of,
    header_of,
    seal,
    tail_of,
    verify_block,
)
from mainstay.errors import StoreError, StoreUnavailable
from mainstay.stores.journal_rows import page_after
from mainstay.stores.jsonl.journal import JsonlJournal
from mainstay.stores.sqlite.journal import SqliteJournal
from mainstay.stores.sqlite.store import SqliteStore
from tests.connections import is_closed
from tests.processes import run_at_once

KINDS = ("sqlite", "postgres", "jsonl")


@pytest.fixture(params=KINDS)
def journals(request, tmp_path):
    """Opens journals of one log: each as another process would."""
    kind, opened = request.param, []
    url = request.getfixturevalue("postgres_database") if kind == "postgres" else None

    def open_one(**options):
        if kind == "jsonl":
            made = JsonlJournal(tmp_path / "audit.jsonl", **options)
        elif kind == "sqlite":
            made = SqliteStore(f"sqlite:///{tmp_path}/audit.db").journal(closes=True)
        else:
            from mainstay.stores.postgres.store import PostgresStore

            made = PostgresStore(url).journal(closes=True)
        opened.append(made)
        return made

    yield open_one
    for each in opened:
        each.close()


def add(journal, *records, time="2026-01-01T00:00:00Z", head=False, note=None):
    """Appends a block; where the log ends then."""

    def make(tail, carried):
        block = seal(tail, [*carried, *records], writer="w", time=time, log="a1", note=note)
        return Entry(block, head_of(tail_of(block), time) if head else None)

    return journal.append(make)


def read(journal, after=0):
    """The records by number, and the tail; everything must verify."""
    anchor = journal.anchor()
    tail = Tail() if anchor is None else anchor.tail
    found = {}
    for block in journal.blocks(after):
        if not after:
            tail = verify_block(tail, block)
            assert not isinstance(tail, Flaw), tail
        first = header_of(block).first
        found.update(dict(enumerate(block.records, first)))
    return found, tail


def test_an_empty_log_ends_nowhere(journals):
    """No block, no head, no anchor."""
    journal = journals()
    assert journal.tail() == Tail()
    assert list(journal.blocks()) == []
    assert journal.heads() == []
    assert journal.anchor() is None


def test_blocks_come_back_as_they_were_appended(journals):
    """Also with what JSON has to escape, and without any record."""
    journal = journals()
    odd = b'{"a":"\\u0000 \xc3\xa9 \\n ,\\n"}'
    add(journal, b'{"a":1}', odd)
    add(journal, note={"why": "because"})
    tail = add(journal, b'{"a":3}')
    assert tail.number == 3
    found, end = read(journals())
    assert found == {1: b'{"a":1}', 2: odd, 3: b'{"a":3}'}
    assert end == tail == journals().tail()


def test_blocks_can_be_had_from_a_number_on(journals):
    """Whoever follows a log reads only what is new."""
    journal = journals()
    for number in range(1, 30):
        add(journal, b"%d" % number)
    assert sorted(read(journal, after=27)[0]) == [28, 29]
    assert read(journal, after=29)[0] == {}
    assert len(read(journal)[0]) == 29


def test_large_blocks_are_not_read_ahead(journals):
    """Reading takes the memory of a few blocks, whatever their size and number."""
    journal, size = journals(), 1 << 20
    for number in range(20):
        add(journal, b'{"n":%d,"text":"%b"}' % (number, b"x" * size))
    tracemalloc.start()
    try:
        for number, block in enumerate(journal.blocks(), 1):
            assert header_of(block).first == number
            del block
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert number == 20
    assert peak < 8 * size


def test_small_blocks_are_read_many_at_once():
    """A page has some megabytes, at most sixteen blocks and at least one."""

    def after(*sizes):
        return page_after([(b"", b"", b"x" * size, 1) for size in sizes])

    assert after(100) == after(*[1_000] * 16) == 16
    assert after(1 << 20) == 2
    assert after(1 << 19, 1 << 19) == 4
    assert after(1 << 23) == 1
    assert page_after([(b"", b"", None, 1)]) == 16


def test_heads_are_kept_beside_the_blocks(journals):
    """With the block they speak of, in order, also without one."""
    journal = journals()
    first = add(journal, b"1", head=True)
    last = add(journal, b"2")
    journal.append(lambda tail, _: Entry(None, head_of(tail, "later")))
    heads = journals().heads()
    assert [(h.block, h.number, h.link) for h in heads] == [
        (1, 1, first.link.hex()),
        (2, 2, last.link.hex()),
    ]
    assert read(journal)[1] == last


def test_several_writers_keep_one_chain(journals):
    """Each sees what the others have appended, in turns and at once."""
    several = [journals() for _ in range(3)]
    for turn in range(4):
        for journal in several:
            add(journal, b"%d" % turn)

    def write(journal):
        for _ in range(10):
            add(journal, b"{}")

    threads = [threading.Thread(target=write, args=(each,)) for each in several]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    found, tail = read(journals())
    assert len(found) == tail.number == 42


def test_what_the_seal_raises_leaves_nothing(journals):
    """A step that fails is no step, and the next one works."""
    journal = journals()
    add(journal, b"1")

    def make(tail, carried):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        journal.append(make)
    add(journal, b"2")
    assert sorted(read(journal)[0]) == [1, 2]


def test_a_pruned_log_begins_at_its_anchor(journals):
    """Old blocks go, plans stay, and the chain verifies from the anchor on."""
    journal = journals(rotate=1)
    plan = b'{"event_type":"plan_declared","plan":"p1"}'
    add(journal, plan, b"2", time="2026-01-01", head=True)
    add(journal, b"3", time="2026-01-02")
    add(journal, b"4", time="2026-01-03")
    add(journal, b"5", time="2026-01-04")
    asked = []

    def make(tail, anchor):
        asked.append(anchor)
        note = {"pruned": {"number": anchor.number, "link": anchor.link.hex()}}
        return Entry(seal(tail, [], writer="w", time="2026-01-05", note=note))

    dropped = journal.prune("2026-01-03", make)
    assert dropped >= 3
    anchor = journals().anchor()
    assert anchor.number == dropped
    assert anchor[:4] == asked[0][:4]
    found, tail = read(journals())
    records = [*anchor.carried, *found.values()]
    assert plan in records
    assert [r for r in records if r != plan][-2:] == [b"4", b"5"]
    assert b"3" not in records
    assert not [head for head in journal.heads() if head.block <= anchor.block]
    assert journal.prune("2026-01-03", make) == 0
    assert add(journal, b"6").number == tail.number + (2 if plan in found.values() else 1)


def test_nothing_is_pruned_where_nothing_is_old(journals):
    """And the last block always stays, so that the log goes on from something."""
    journal = journals(rotate=1)
    make = pytest.fail
    assert journal.prune("2026-01-03", make) == 0
    add(journal, b"1", time="2026-01-01")
    assert journal.prune("2020-01-01", make) == 0
    assert journal.prune("2027-01-01", make) == 0


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_single_events_can_be_read_with_sql(kind, request, tmp_path):
    """The view mainstay_audit has a row for each event."""
    event = {"event_type": "call_failed", "operation": "pay", "timestamp": "t", "version": 1}
    records = [json.dumps(event).encode(), b'{"event_type":"x","operation":"other"}']
    question = "SELECT number, event_type, operation, writer, event FROM mainstay_audit"
    if kind == "sqlite":
        journal = SqliteStore(f"sqlite:///{tmp_path}/a.db").journal(closes=True)
        add(journal, b"{}")
        add(journal, *records)
        with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            rows = connection.execute(f"{question} ORDER BY 1").fetchall()
    else:
        import psycopg

        from mainstay.stores.postgres.store import PostgresStore

        url = request.getfixturevalue("postgres_database")
        journal = PostgresStore(url).journal(closes=True)
        add(journal, b"{}")
        add(journal, *records)
        with psycopg.connect(url) as connection:
            rows = connection.execute(f"{question} ORDER BY 1").fetchall()
    journal.close()
    assert [row[:4] for row in rows] == [
        (1, None, None, "w"),
        (2, "call_failed", "pay", "w"),
        (3, "x", "other", "w"),
    ]
    shown = rows[1][4]
    assert (json.loads(shown) if isinstance(shown, str) else shown) == event


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "jsonl"])
def test_ten_processes_may_create_the_log_at_once(kind, request, tmp_path):
    """Tables and files are made once, and every process has its block in the one chain."""
    where = {
        "sqlite": f"sqlite:///{tmp_path}/a.db",
        "jsonl": str(tmp_path / "a.jsonl"),
    }.get(kind) or request.getfixturevalue("postgres_database")
    imports = """
        import mainstay.stores.postgres.journal, mainstay.stores.sqlite.journal
        from mainstay.audit import AuditLog
        from mainstay.events import CallSucceeded
    """
    body = """
        log = AuditLog(sys.argv[1])
        log(CallSucceeded(operation=str(number)))
        assert log.flush(60)
        log.close()
    """
    assert run_at_once(10, imports, body, where) == (0, "")
    from mainstay.audit import read_log, verify_log

    assert verify_log(where).ok
    assert {record.event.operation for record in read_log(where)} == set(map(str, range(10)))


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    return tmp_path / "audit.jsonl"


@pytest.fixture
def lines():
    """Opens journals in files, and closes them."""
    with ExitStack() as opened:
        yield lambda *given, **options: opened.enter_context(
            closing(JsonlJournal(*given, **options))
        )


def cuts(size):
    """Every place in a block where a kill can cut it."""
    return range(1, size)


def test_a_torn_write_is_marked_and_passed_over(path, lines):
    """Wherever a writer was killed: the next one marks what is left, and the log verifies."""
    add(lines(path), b'{"a":1}')
    good = path.read_bytes()
    add(lines(path), b'{"a":2}', b'{"a":3}')
    last = path.read_bytes()[len(good) :]
    for cut in cuts(len(last)):
        path.write_bytes(good + last[:cut])
        journal = lines(path)
        assert read(journal)[0] == {1: b'{"a":1}'}, cut
        assert journal.torn == 1
        add(journal, b'{"a":"new"}')
        add(journal, b'{"a":"newer"}')
        again = lines(path)
        assert read(again)[0] == {1: b'{"a":1}', 2: b'{"a":"new"}', 3: b'{"a":"newer"}'}, cut
        assert again.torn == 1
        assert path.read_bytes().startswith(good + last[:cut]), "what was torn stays visible"
        assert again.tail().number == 3


def test_a_mark_that_is_torn_itself_is_marked_again(path, lines):
    """A writer may be killed while it marks what another has left."""
    add(lines(path), b'{"a":1}')
    good = path.read_bytes()
    add(lines(path), b'{"a":2}')
    torn = path.read_bytes()[:-5]
    path.write_bytes(torn)
    add(lines(path), b'{"a":"x"}')
    mark = path.read_bytes()[len(torn) :].split(b"}}\n")[0] + b"}}\n"
    for cut in range(1, len(mark)):
        path.write_bytes(torn + mark[:cut])
        add(lines(path), b'{"a":"new"}')
        found, _ = read(lines(path))
        assert found == {1: b'{"a":1}', 2: b'{"a":"new"}'}, cut
        assert path.read_bytes().startswith(good)


def test_a_removed_line_is_no_torn_write(path, lines):
    """Only the beginning of a block can be left by a killed writer."""
    journal = lines(path)
    add(journal, b"1", b"2", b"3")
    kept = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*kept[:2], *kept[3:]]))
    (block,) = lines(path).blocks()
    assert verify_block(Tail(), block).number == 2


def test_a_file_is_ended_at_its_size_and_the_next_goes_on(path, lines):
    """The chain goes from file to file, the plans come along, and each file says where from."""
    plan = b'{"event_type":"plan_declared","plan":"p1"}'
    journal, other = lines(path, rotate=1000), lines(path, rotate=1000)
    add(journal, plan)
    for number in range(30):
        add(journal if number % 2 else other, b'{"number":%d}' % number)
    files = sorted(each.name for each in path.parent.iterdir() if each.suffix == ".jsonl")
    assert files[:2] == ["audit.000001.jsonl", "audit.000002.jsonl"]
    assert files[-1] == "audit.jsonl"
    found, tail = read(lines(path))
    assert [r for r in found.values() if r != plan] == [b'{"number":%d}' % n for n in range(30)]
    assert list(found.values()).count(plan) == len(files)
    for name in files[1:]:
        first, _, second = (path.parent / name).read_bytes().splitlines()[:3]
        assert json.loads(first)["anchor"]["log"] == "a1"
        assert json.loads(second)["record"]["plan"] == "p1"
    assert lines(path).tail() == tail


def test_a_missing_file_in_the_middle_shows(path, lines):
    """Numbered files belong together: one that is gone is a gap in the chain."""
    journal = lines(path, rotate=1)
    for number in range(4):
        add(journal, b"%d" % number)
    (path.parent / "audit.000002.jsonl").unlink()
    tail = Tail()
    for block in lines(path).blocks():
        tail = verify_block(tail, block)
        if isinstance(tail, Flaw):
            break
    assert tail == Flaw(3, 2, "block 3 stands where block 2 should")


def test_a_writer_killed_between_two_files_costs_nothing(path, lines):
    """The file was ended and no other begun, or an empty one: the next writer goes on."""
    for is_there in (False, True):
        add(lines(path, rotate=1), b"1")
        path.rename(path.with_name("audit.000001.jsonl"))
        if is_there:
            path.write_bytes(b"")
        add(lines(path, rotate=1), b"2")
        found, tail = read(lines(path))
        assert (found, tail.number) == ({1: b"1", 2: b"2"}, 2)
        for each in path.parent.iterdir():
            each.unlink()


def test_a_long_file_is_read_from_near_its_end(path, lines):
    """Opening, following and appending to a log of megabytes does not read all of it."""
    journal = lines(path)
    record = b'{"a":"%b"}' % (b"x" * 5000)
    for _ in range(60):
        add(journal, *[record] * 10)
    assert path.stat().st_size > 3_000_000
    fresh = lines(path)
    assert fresh.tail().number == 600
    assert add(fresh, b"601").number == 601
    assert len(read(fresh, after=59)[0]) == 11
    assert len(read(fresh)[0]) == 601


def test_a_block_longer_than_the_look_from_the_end_is_found(path, lines):
    """A single block may be longer than what is read first."""
    record = b'{"a":"%b"}' % (b"x" * 5000)
    add(lines(path), *[record] * 600)
    assert lines(path).tail().number == 600
    assert add(lines(path), b"1").number == 601


def test_a_full_disk_is_an_error_and_leaves_the_log_whole(path, lines):
    """What does not fit is refused with a reason, and nothing of it stays."""
    journal = lines(path)
    add(journal, b"1")
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
    try:
        with pytest.raises(StoreUnavailable, match="File too large"):
            add(journal, b"x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert add(journal, b"2").number == 2


def test_a_lock_that_is_not_given_back_is_an_error(path, lines):
    """A writer that stands still does not make others wait for ever."""
    from mainstay.runtime.filelock import try_lock

    add(lines(path), b"1")
    held = os.open(path.with_name("audit.jsonl.lock"), os.O_RDWR)
    try:
        assert try_lock(held)
        with pytest.raises(StoreUnavailable, match=r"for 0\.05 s"):
            add(lines(path, timeout=0.05), b"2")
    finally:
        os.close(held)


def test_what_is_no_log_is_left_alone(path, lines):
    """A file of something else is not written to, and not read as a log."""
    path.write_text("dear diary\n" * 3, "utf-8")
    with pytest.raises(StoreUnavailable, match="something else than an audit log"):
        add(lines(path), b"1")
    assert lines(path).tail() == Tail()
    assert path.read_text("utf-8") == "dear diary\n" * 3


def test_a_log_with_a_flaw_goes_on_from_its_end(path, lines):
    """Who meddles with a block does not keep others from writing; verify names it."""
    journal = lines(path)
    add(journal, b'{"a":1}')
    add(journal, b'{"a":2}')
    path.write_bytes(path.read_bytes().replace(b'"first":1', b'"first":x'))
    assert add(lines(path), b'{"a":3}').number == 3


def test_who_only_reads_changes_nothing(path, lines, tmp_path):
    """Not even a file that is not there is made."""
    with pytest.raises(StoreError, match="there is no audit log"):
        list(lines(path, reads_only=True).blocks())
    with pytest.raises(StoreError, match="opened to be read"):
        add(lines(path, reads_only=True), b"1")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreUnavailable):
        SqliteJournal(tmp_path / "no.db", reads_only=True).tail()
    with closing(sqlite3.connect(tmp_path / "empty.db")) as connection:
        connection.execute("CREATE TABLE t (a)")
    with (
        closing(SqliteJournal(tmp_path / "empty.db", reads_only=True)) as empty,
        pytest.raises(StoreError, match="holds no audit log"),
    ):
        empty.tail()


def test_reading_leaves_a_sqlite_file_as_it_was(tmp_path):
    """As evidence that was put away: not a byte of it changes."""
    with closing(SqliteStore(f"sqlite:///{tmp_path}/a.db").journal(closes=True)) as journal:
        add(journal, b"1")
    before = (tmp_path / "a.db").read_bytes()
    with closing(SqliteJournal(tmp_path / "a.db", reads_only=True)) as journal:
        assert journal.tail().number == 1
        with pytest.raises(StoreUnavailable, match="readonly"):
            add(journal, b"2")
    assert (tmp_path / "a.db").read_bytes() == before


@pytest.fixture
def connections(monkeypatch):
    """Every connection to SQLite that is opened."""
    made, connect = [], sqlite3.connect

    def opened(*args, **options):
        made.append(connect(*args, **options))
        return made[-1]

    monkeypatch.setattr(sqlite3, "connect", opened)
    yield made
    for each in made:
        each.close()


@pytest.mark.parametrize("reads_only", [False, True])
@pytest.mark.parametrize("use", ["tail", "blocks"])
def test_a_file_that_is_no_database_leaves_no_connection(tmp_path, connections, use, reads_only):
    """It cannot be set up, and there is nobody else who could close it."""
    (tmp_path / "audit.db").write_bytes(b"no database at all, and long enough to show it" * 9)
    journal = SqliteJournal(tmp_path / "audit.db", reads_only=reads_only)
    with pytest.raises(StoreUnavailable, match="not a database"):
        list(getattr(journal, use)() or ())
    assert connections
    assert all(is_closed(each) for each in connections)


FORKED_WHILE_APPENDING = """
import os, sys, threading
from mainstay.core.audit.chain import Entry, seal
from mainstay.stores.journal_rows import page_after
from mainstay.stores.jsonl.journal import JsonlJournal

journal = JsonlJournal(sys.argv[1])
began, over = threading.Event(), threading.Event()

def block(tail):
    return Entry(seal(tail, [b"{}"], writer="w", time="now", log="log", batch=1))

def slow(tail, _):
    began.set()
    over.wait()
    return block(tail)

thread = threading.Thread(target=journal.append, args=(slow,))
thread.start()
began.wait()
child = os.fork()
if not child:
    own = JsonlJournal(sys.argv[1], timeout=20.0)
    os._exit(0 if own.append(lambda tail, _: block(tail)).block == 2 else 1)
over.set()
thread.join()
print(os.waitpid(child, 0)[1], journal.tail().block)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_during_an_append_to_a_file_leaves_no_lock_behind(tmp_path):
    """The child has the lock's file open too: it is free when the parent frees it, not before."""
    command = [sys.executable, "-c", FORKED_WHILE_APPENDING, str(tmp_path / "audit.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["0", "2"], done.stderr
