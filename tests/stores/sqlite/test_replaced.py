"""A file of SQLite that is deleted or replaced while it is in use is noticed before an answer."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from mainstay import Engine
from mainstay.core.audit.chain import Entry, seal
from mainstay.core.base.change import Change
from mainstay.errors import StoreUnavailable
from mainstay.stores.sqlite.store import SqliteStore
from tests.processes import wait_until


@pytest.fixture
def folder(tmp_path):
    return tmp_path


@pytest.fixture
def store(folder):
    store = SqliteStore(f"sqlite:///{folder}/kept.db")
    yield store
    store.close()


def delete(folder):
    """As `rm kept.db*` does."""
    for each in folder.glob("kept.db*"):
        each.unlink(missing_ok=True)  # the last connection to close removes the WAL


def replace(folder):
    """As a restore does: another file takes the name, and the log of the old one is removed."""
    SqliteStore(f"sqlite:///{folder}/copy.db").close()
    for each in folder.glob("kept.db-*"):
        each.unlink()
    (folder / "copy.db").replace(folder / "kept.db")


def put(data):
    return lambda value, now: (Change(data), value)


def asynchronously(store):
    return asyncio.run(store.atransact("s", "k", put(b"1")))


USES = {
    "a step": lambda store: store.transact("s", "k", put(b"1")),
    "a hint": lambda store: store.transact("s", os.urandom(4).hex(), put(b"1"), None),
    "a batch": asynchronously,
    "a purge": lambda store: store.purge(),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(("do", "reason"), [(delete, "was deleted"), (replace, "was replaced")])
def test_what_is_written_to_a_file_that_is_gone_is_not_called_written(
    store, folder, use, do, reason
):
    """The caller receives StoreUnavailable with the reason; the next use has the new file."""
    USES[use](store)
    store.transact("s", "old", put(b"old"))
    do(folder)
    with pytest.raises(StoreUnavailable, match=reason):
        USES[use](store)
    USES[use](store)
    assert store.read("s", "old")[0] is None
    store.transact("s", "new", put(b"new"))
    with_another = SqliteStore(store.url)
    assert with_another.read("s", "new")[0] == b"new"
    with_another.close()


def test_a_call_after_the_file_was_deleted_is_recorded_where_others_see_it(folder):
    """Its claim on the old file is not counted; before, the call ran again in another process."""
    ran = []
    with Engine(f"sqlite:///{folder}/kept.db", audit=False) as engine:
        operation = engine.operation("pay", key="a")
        engine.operation("pay", key="first").call(ran.append, 0)
        delete(folder)
        operation.call(ran.append, 1)
        with Engine(f"sqlite:///{folder}/kept.db", audit=False) as other:
            other.operation("pay", key="a").call(ran.append, 1)
    assert ran == [0, 1]


OTHER = """
import sys
from mainstay import Engine
with Engine(sys.argv[1], sinks=[], audit=False) as engine:
    engine.operation("pay", key="a").call(lambda: "of another process")
"""


@pytest.mark.parametrize("do", [delete, replace])
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_process_that_only_replays_goes_over_to_the_file_that_others_see(folder, do, colour):
    """It writes nothing, and before, it answered from the file that is gone as long as it lived."""
    url, number = f"sqlite:///{folder}/kept.db", itertools.count(1)

    async def anext_number():
        return next(number)

    def pay(engine):
        operation = engine.operation("pay", key="a")
        if colour == "sync":
            return operation.call(lambda: next(number))
        return asyncio.run(operation.acall(anext_number))

    with Engine(url, sinks=[], audit=False, purge=None) as engine:
        assert [pay(engine), pay(engine)] == [1, 1]
        do(folder)
        command = [sys.executable, "-c", OTHER, url]
        subprocess.run(command, timeout=60, check=True)
        wait_until(lambda: pay(engine) == "of another process", "the other file")
    assert next(number) == 2


def test_every_thread_opens_the_new_file_after_one_has_noticed(store, folder):
    """A thread that has not written meanwhile does not write to the old one first."""
    first, second, errors = threading.Event(), threading.Event(), []

    def other():
        store.transact("s", "a", put(b"1"))
        first.set()
        second.wait(10.0)
        try:
            store.transact("s", "b", put(b"1"))
        except StoreUnavailable as error:
            errors.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    first.wait(10.0)
    delete(folder)
    with suppress(StoreUnavailable):
        store.transact("s", "c", put(b"1"))
    second.set()
    thread.join()
    assert errors == []
    assert store.read("s", "b")[0] == b"1"


def test_a_journal_does_not_append_to_a_deleted_file(store, folder):
    """The block is appended again, to the new file, where the tables are made."""
    journal = store.journal()

    def make(tail, _):
        return Entry(seal(tail, [b"{}"], writer="w", time="now", log="log", batch=1))

    assert journal.append(make).block == 1
    assert journal.append(make).block == 2
    delete(folder)
    with pytest.raises(StoreUnavailable, match="was deleted"):
        journal.append(make)
    assert journal.append(make).block == 1
    assert len(list(journal.blocks())) == 1
    journal.close()


def test_another_working_directory_is_no_other_file(folder, monkeypatch):
    """A relative path is that of the directory in which the store was opened."""
    monkeypatch.chdir(folder)
    store = SqliteStore("sqlite:///kept.db")
    (folder / "elsewhere").mkdir()
    os.chdir(folder / "elsewhere")
    store.transact("s", "k", put(b"1"))
    thread = threading.Thread(target=store.transact, args=("s", "other", put(b"2")))
    thread.start()
    thread.join()
    assert store.read("s", "other")[0] == b"2"
    store.close()
    assert not list((folder / "elsewhere").iterdir())


def test_a_file_that_was_moved_aside_is_noticed(folder):
    """Its connections would go on writing to it under the other name."""
    store = SqliteStore(f"sqlite:///{folder}/kept.db")
    store.transact("s", "k", put(b"1"))
    (folder / "kept.db").rename(folder / "aside.db")
    with pytest.raises(StoreUnavailable, match="was deleted"):
        store.transact("s", "k", put(b"3"))
    store.close()


def restore(folder):
    """As `rsync -a` does from a backup: the folder has its earlier time of change again."""
    before = folder.stat()
    shutil.copy(folder / "kept.db", folder / "copy.db")
    (folder / "copy.db").replace(folder / "kept.db")
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))


def exchange(folder):
    """As a release does: the folder is moved aside, and another one takes its name."""
    folder.rename(folder.with_name("aside"))
    shutil.copytree(folder.with_name("aside"), folder)


@pytest.mark.parametrize("do", [restore, exchange])
def test_a_file_that_was_replaced_with_its_folder_is_noticed(folder, do):
    """The next step looks the path up, whatever time of change the folder was given."""
    (folder / "data").mkdir()
    store = SqliteStore(f"sqlite:///{folder}/data/kept.db")
    store.transact("s", "k", put(b"1"))
    do(folder / "data")
    with pytest.raises(StoreUnavailable, match="was replaced"):
        store.transact("s", "k", put(b"2"))
    store.close()


def test_a_folder_further_up_that_was_renamed_is_noticed(folder):
    """The path is looked up after every write: no folder of it is trusted."""
    (folder / "app" / "data").mkdir(parents=True)
    store = SqliteStore(f"sqlite:///{folder}/app/data/kept.db")
    store.transact("s", "k", put(b"1"))
    exchange(folder / "app")
    with pytest.raises(StoreUnavailable, match="was replaced"):
        store.transact("s", "k", put(b"2"))
    store.close()


def test_a_file_behind_a_symbolic_link_is_looked_up_each_time(folder):
    """The link may lead elsewhere without a change of the folder that the file is in."""
    for name in ("one", "two"):
        (folder / name).mkdir()
    (folder / "current").symlink_to(folder / "one")
    store = SqliteStore(f"sqlite:///{folder}/current/kept.db")
    store.transact("s", "k", put(b"1"))
    (folder / "current").unlink()
    (folder / "current").symlink_to(folder / "two")
    with pytest.raises(StoreUnavailable, match="was deleted"):
        store.transact("s", "k", put(b"2"))
    store.transact("s", "k", put(b"3"))
    store.close()
    assert (folder / "two" / "kept.db").exists()


# --- the write-ahead log alone --------------------------------------------------------------------


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("suffixes", [("-wal",), ("-wal", "-shm")])
def test_a_log_that_is_deleted_alone_is_noticed(store, folder, use, suffixes):
    """What is written to it is seen by no process that opens the file from then on."""
    USES[use](store)
    store.transact("s", "old", put(b"old"))
    for suffix in suffixes:
        (folder / f"kept.db{suffix}").unlink()
    with pytest.raises(StoreUnavailable, match="write-ahead log was deleted"):
        USES[use](store)
    USES[use](store)
    store.transact("s", "new", put(b"new"))
    other = SqliteStore(store.url)
    assert (other.read("s", "old")[0], other.read("s", "new")[0]) == (b"old", b"new")
    other.close()


def test_a_call_after_the_log_was_deleted_is_recorded_where_others_see_it(folder):
    """Before, it was answered as recorded, and ran again in the next process."""
    ran = []
    url = f"sqlite:///{folder}/kept.db"
    program = """
import sys
from mainstay import Engine
with Engine(sys.argv[1], sinks=[], audit=False) as engine:
    engine.operation("pay", key="k", idempotency="idempotent").call(lambda: print("ran again"))
"""
    with Engine(url, sinks=[], audit=False) as engine:
        engine.operation("pay", key="before", idempotency="idempotent").call(lambda: ran.append(1))
        for each in folder.glob("kept.db-*"):
            each.unlink()
        engine.operation("pay", key="k", idempotency="idempotent").call(lambda: ran.append(2))
        command = [sys.executable, "-c", program, url]
        other = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (ran, other.stdout) == ([1, 2], "")


def test_a_journal_notices_that_the_log_was_deleted(store, folder):
    """The block is appended again, and the chain goes on."""
    journal = store.journal()

    def make(tail, _):
        return Entry(seal(tail, [b"{}"], writer="w", time="now", log="log", batch=1))

    assert journal.append(make).block == 1
    for each in folder.glob("kept.db-*"):
        each.unlink()
    with pytest.raises(StoreUnavailable, match="write-ahead log was deleted"):
        journal.append(make)
    count = journal.append(make).block
    assert len(list(journal.blocks())) == count
    journal.close()


# --- a copy that is renamed over the file, with the log of the old one beside it ------------------


def restore_beside_log(folder, records=300, value=200):
    """As `mv backup.db kept.db` does: nobody has removed the log of the file before."""
    url = f"sqlite:///{folder}/backup.db"
    with Engine(url, sinks=[], audit=False, purge=None) as engine:
        store = engine.store
        store.transact_many([("s", f"bak{n}", put(b"z" * value)) for n in range(records)])
    (folder / "backup.db").replace(folder / "kept.db")


def asides(folder):
    return list(folder.glob("kept.db-wal.replaced.*"))


@pytest.mark.parametrize("count", [20, 1500])
@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
def test_a_copy_is_not_opened_with_the_log_of_the_file_before(folder, count, synchronous, caplog):
    """Before, the old pages took the place of the copy's: all of its keys ran again, or worse."""
    store = SqliteStore(f"sqlite:///{folder}/kept.db?synchronous={synchronous}")
    for number in range(0, count, 100):
        batch = range(number, min(count, number + 100))
        store.transact_many([("s", f"cur{each}", put(b"y" * 300)) for each in batch])
    restore_beside_log(folder)
    with pytest.raises(StoreUnavailable, match="was replaced"):
        store.transact("s", "new", put(b"1"))
    assert [store.read("s", f"bak{n}")[0] for n in range(300)] == [b"z" * 200] * 300
    assert store.read("s", "cur1")[0] is None
    store.transact("s", "new", put(b"1"))
    store.close()
    with contextlib.closing(sqlite3.connect(folder / "kept.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT count(*) FROM mainstay_kept").fetchone() == (301,)
    (aside,) = asides(folder)
    assert str(aside) in caplog.text


HOLDER = """
import sys
from mainstay.core.base.change import Change
from mainstay.errors import StoreUnavailable
from mainstay.stores.sqlite.store import SqliteStore
store = SqliteStore(sys.argv[1])
def put(key):
    try:
        return store.transact("s", key, lambda value, now: (Change(b"1"), value))
    except StoreUnavailable as error:
        return error
put(f"old {sys.argv[2]}")
print("ready", flush=True)
for line in sys.stdin:
    for number in range(20):
        put(f"new {sys.argv[2]} {number}")
        store.read("s", "bak1")
    put(f"last {sys.argv[2]}")
    found = sum(store.read("s", f"bak{n}")[0] is not None for n in range(300))
    print(found, store.read("s", f"last {sys.argv[2]}")[0], flush=True)
store.close()
"""


def test_two_processes_that_go_over_to_a_copy_at_once_rename_no_log_but_the_old_one(folder):
    """Each knows the old log; who is second finds the log of the new file, and leaves it."""
    url = f"sqlite:///{folder}/kept.db"
    for round_number in range(3):
        holders = [
            subprocess.Popen(
                [sys.executable, "-c", HOLDER, url, f"{round_number} {n}"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for n in range(2)
        ]  # fmt: skip
        try:
            for each in holders:
                assert each.stdout.readline() == "ready\n"
            restore_beside_log(folder)
            for each in holders:
                each.stdin.write("go\n")
                each.stdin.flush()
            for each in holders:
                assert each.stdout.readline() == "300 b'1'\n"
            for each in holders:
                each.stdin.close()
                assert each.wait(30) == 0
        finally:
            for each in holders:
                each.kill()
                each.wait()
                each.stdin.close()
                each.stdout.close()
        assert len(asides(folder)) == round_number + 1
        with contextlib.closing(sqlite3.connect(folder / "kept.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            lasts = connection.execute("SELECT count(*) FROM mainstay_kept WHERE key LIKE 'last%'")
            assert lasts.fetchone() == (2,)


def test_a_copy_that_another_process_has_opened_with_the_old_log_is_refused(store, folder):
    """It may have written to it: nothing is renamed under its hands, and a person is told."""
    store.transact("s", "old", put(b"old"))
    restore_beside_log(folder)
    program = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]);"
        " c.execute('SELECT count(*) FROM mainstay_kept').fetchall();"
        " print('open', flush=True); sys.stdin.readline()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, folder / "kept.db"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert other.stdout.readline() == "open\n"
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match=r"replaced.*"):
            store.transact("s", "new", put(b"1"))
    with pytest.raises(StoreUnavailable, match="remove its -wal and -shm, put the copy in place"):
        store.transact("s", "new", put(b"1"))
    other.communicate("\n", timeout=30)
    assert asides(folder) == []


def test_a_deleted_file_leaves_no_log_to_the_one_that_takes_its_place(store, folder):
    """`rm kept.db` alone: the log holds what was written last, and is kept beside."""
    store.transact("s", "old", put(b"old"))
    (folder / "kept.db").unlink()
    with pytest.raises(StoreUnavailable, match="was deleted"):
        store.transact("s", "new", put(b"1"))
    store.transact("s", "new", put(b"2"))
    assert store.read("s", "old")[0] is None
    assert len(asides(folder)) == 1


@pytest.mark.parametrize("plant", ["pipe", "link"])
def test_a_planted_log_beside_a_replaced_file_stops_nobody(store, folder, plant):
    """Its name is computed: to open a pipe there waited for ever for the other side."""
    store.transact("s", "k", put(b"1"))
    SqliteStore(f"sqlite:///{folder}/copy.db").close()
    log, elsewhere = folder / "kept.db-wal", folder / "elsewhere"
    log.rename(elsewhere)
    (folder / "copy.db").replace(folder / "kept.db")
    if plant == "pipe":
        os.mkfifo(log)
    else:
        log.symlink_to(elsewhere)
    watch = threading.Timer(5.0, release, [log])
    watch.start()
    with pytest.raises(StoreUnavailable, match="was replaced"):
        store.transact("s", "k", put(b"2"))
    before = elsewhere.read_bytes()
    for _ in range(2):  # each opens the new file, and none opens it with that log
        with pytest.raises(StoreUnavailable, match=r"kept\.db-wal is (a link|no regular file)"):
            store.transact("s", "k", put(b"2"))
    assert watch.is_alive(), "waited for the other side of the pipe"
    watch.cancel()
    assert elsewhere.read_bytes() == before
    log.unlink()
    store.transact("s", "k", put(b"3"))
    assert store.read("s", "k")[0] == b"3"


def release(pipe):
    """Ends the wait of a process that opens a pipe."""
    if not pipe.is_symlink():
        os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))
