"""The space of a SQLite file: given back in steps, or at once by a file of earlier versions."""

import os
import sqlite3
import threading

import pytest

from mainstay.core.base.change import DROP, Change
from mainstay.stores.sqlite.space import compact, space_of
from mainstay.stores.sqlite.store import SqliteStore
from mainstay.testing.stores import StoreContract
from tests.processes import wait_until

MANY = 400


def write(store, count=MANY, size=8000):
    for number in range(count):
        store.transact("s", str(number), lambda *_: (Change(os.urandom(size)), None))


def drop(store, first=0, last=MANY):
    for number in range(first, last):
        store.transact("s", str(number), lambda *_: (DROP, None))


def space(path):
    connection = sqlite3.connect(path)
    try:
        return space_of(connection)
    finally:
        connection.close()


def size(path):
    """As `ls` shows it, once the log is in the file."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    return path.stat().st_size


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.db"


@pytest.fixture
def old(path):
    """A file as earlier versions made it."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute("CREATE TABLE other (a)")
    connection.close()
    return path


def opened(path):
    return SqliteStore(f"sqlite:///{path}?timeout=60&synchronous=NORMAL")


def test_a_new_file_gives_pages_back_when_many_are_free(path):
    """Some at a time, down to a quarter of the file; with few free pages, none."""
    store = opened(path)
    write(store)
    full = size(path)
    assert store.shrink(100) == 0
    drop(store)
    given = 0
    while pages := store.shrink(100):
        assert pages <= 101, "a page of SQLite's own map may come with the hundred"
        given += pages
    assert given > 400
    assert size(path) < full / 2
    assert space(path).free <= 260
    store.close()


def test_an_old_file_is_left_as_it_is_until_it_is_compacted(old):
    """It has no list of where its pages are used: only rewriting it gives space back."""
    store = opened(old)
    write(store)
    drop(store, 0, 300)
    before = size(old)
    assert store.shrink(100) == 0
    seen = []
    store.compact(lambda done, total: seen.append((done, total)))
    assert old.stat().st_size < before / 2
    assert space(old).is_incremental
    assert all(0 <= done <= total for done, total in seen)
    assert len(store.scan("s", limit=1000)) == 100
    drop(store, 300, MANY)
    store.compact(lambda done, total: seen.append((done, total)))
    assert space(old).free == 0
    store.close()


def test_compacting_a_new_file_lets_others_write_in_between(path):
    """It works in short steps."""
    store = opened(path)
    write(store, 3000)
    drop(store, 0, 3000)
    other, written, stop = opened(path), [], threading.Event()

    def busy():
        while not stop.is_set():
            other.transact("t", "k", lambda *_: (Change(b"1"), None))
            written.append(1)

    worker = threading.Thread(target=busy)
    worker.start()

    waited = iter(range(3))

    def let_the_other_write(*_):
        """Between two steps no lock is held, so the other comes to its turn."""
        before = len(written)
        if next(waited, None) is not None:
            wait_until(lambda: len(written) > before, "a write between two steps")

    store.compact(let_the_other_write)
    stop.set()
    worker.join()
    assert space(path).free < 10
    store.close()
    other.close()


def test_each_step_of_a_compaction_waits_for_the_lock_by_itself(path):
    """What one step has waited is not taken from the next: a long compaction may wait often."""
    store, uses = opened(path), []
    write(store, 2000)
    drop(store, 0, 2000)
    store.close()
    connection = sqlite3.connect(path, isolation_level=None)

    def use(work, *args):
        uses.append(work.__name__)
        return work(connection, *args)

    compact(use, str(path), lambda *_: None)
    connection.close()
    assert uses.count("_give_back") > 2
    assert space(path).free == 0


class TestCompacted(StoreContract):
    """A file that was rewritten is a store as any other."""

    @pytest.fixture(autouse=True)
    def _file(self, old):
        store = opened(old)
        store.compact(lambda *_: None)
        store.close()
        self.path = old

    def open(self):
        return opened(self.path)
