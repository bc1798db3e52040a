"""A SQLite file that is created can be read by its user alone, with its -wal and -shm."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
from contextlib import suppress

import pytest

from mainstay import AuditLog
from mainstay.core.base.change import Change
from mainstay.events import CallSucceeded
from mainstay.stores.sqlite.connections import connected
from mainstay.stores.sqlite.store import SqliteStore

RESERVED = 0x40000001
"""The byte of a database that SQLite locks for a writer, outside of WAL mode."""


@pytest.fixture(autouse=True)
def usual_umask():
    """With the umask of most systems SQLite itself creates files that everybody can read."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder):
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def put(store):
    store.transact("records", "key", lambda value, now: (Change(b"x"), None))


def test_a_store_is_created_for_its_user_alone(tmp_path):
    """The database, its log and its index."""
    store = SqliteStore(f"sqlite:///{tmp_path}/app.db")
    put(store)
    assert modes(tmp_path) == dict.fromkeys(("app.db", "app.db-wal", "app.db-shm"), 0o600)
    store.close()


@pytest.mark.parametrize("form", ["file:{}", "file:{}?mode=rwc", "file:{}?cache=private#mode=ro"])
def test_a_uri_creates_a_file_for_its_user_alone(tmp_path, form):
    """As a path does."""
    connected(form.format(tmp_path / "a.db"), uri=True, synchronous="FULL", timeout=1.0).close()
    assert modes(tmp_path) == {"a.db": 0o600}


def test_an_audit_log_is_created_for_its_user_alone(tmp_path):
    """It is the same file, opened by another class."""
    log = AuditLog(tmp_path / "audit.db", spill=False)
    log(CallSucceeded(operation="pay"))
    assert log.flush()
    assert set(modes(tmp_path).values()) == {0o600}
    log.close()


def test_a_file_that_is_there_keeps_its_mode(tmp_path):
    """A store that users share by its mode stays theirs; `doctor` warns of it."""
    (tmp_path / "app.db").touch()
    (tmp_path / "app.db").chmod(0o660)
    store = SqliteStore(f"sqlite:///{tmp_path}/app.db")
    put(store)
    assert set(modes(tmp_path).values()) == {0o660}
    store.close()


def test_a_store_may_be_behind_a_link(tmp_path):
    """The user has named it: the file is created where the link leads."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "app.db").symlink_to(tmp_path / "disk" / "real.db")
    store = SqliteStore(f"sqlite:///{tmp_path}/app.db")
    put(store)
    assert modes(tmp_path / "disk")["real.db"] == 0o600
    store.close()


def test_a_file_that_was_deleted_in_use_is_created_for_its_user_alone(tmp_path):
    """The new file has the mode of the first one, not that of the umask."""
    store = SqliteStore(f"sqlite:///{tmp_path}/app.db")
    put(store)
    store.close()
    for path in tmp_path.iterdir():
        path.unlink()
    again = SqliteStore(f"sqlite:///{tmp_path}/app.db")
    put(again)
    assert set(modes(tmp_path).values()) == {0o600}
    again.close()


@pytest.mark.parametrize("mode", ["ro", "rw", "rw&cache=private", "memory"])
def test_a_uri_that_creates_no_file_creates_none(tmp_path, mode):
    """`mode=rw` is for a file that is there."""
    with suppress(sqlite3.OperationalError):
        uri = f"file:{tmp_path}/app.db?mode={mode}"
        connected(uri, uri=True, synchronous="FULL", timeout=1.0).close()
    assert modes(tmp_path) == {}


def test_opening_a_second_connection_drops_no_lock(tmp_path):
    """A file that is there is not opened and closed: POSIX would drop all locks of the process."""
    path = str(tmp_path / "app.db")
    mine = sqlite3.connect(path, isolation_level=None)
    mine.execute("CREATE TABLE t (x)")
    mine.execute("BEGIN IMMEDIATE")
    assert is_reserved(path)
    connected(path, uri=False, synchronous="FULL", timeout=1.0).close()
    assert is_reserved(path)
    mine.close()
    assert not is_reserved(path)


def is_reserved(path):
    """Whether this process has SQLite's lock for a writer, as another process sees it."""
    child = os.fork()
    if not child:
        try:
            file = os.open(path, os.O_RDWR)
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, RESERVED)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0
