"""The one owner of SQLite connections in this process: stores, journals and readers open here.

SQLite keeps the locks of a file in a table of the process, by device and inode. A fork copies that
table, and the copy is wrong: the child would believe that it holds the locks of its parent. So all
connections are closed before a fork, and both sides open again at their next use. A file that could
not be closed, or that is open in another way, is refused in the child (`StoreUnavailable`).

A step takes the lock of a connection that is its own process's (`HeldConnection.pid`). Before a
fork, that number becomes 0; so steps that begin now wait at the gate, under which connections are
opened, until the fork is over.

A free-threaded Python leaves the last reference to an object to the thread that made it, and a
thread that waits does not look. The statements that a connection has prepared are such objects, and
SQLite keeps its files open as long as there is one. What is closed for other threads is therefore
collected (`free`): the new log of a file must not meet the old one, nor a fork an open file.
"""

from __future__ import annotations

import gc
import os
import re
import sqlite3
import stat
import sys
import threading
import time
from contextlib import suppress
from os import getpid
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote
from weakref import WeakSet

import mainstay.runtime.clock as clock
from mainstay.errors import StoreUnavailable
from mainstay.runtime.fork import (
    PROCESS,
    around_fork,
    leave_to_parent,
    make_rlock,
    reset_in_child,
)
from mainstay.runtime.reports.logs import logger
from mainstay.stores.sqlite.set_aside import LogInUseError, set_log_aside
from mainstay.stores.sqlite.waiting import SLICE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Inode = tuple[int, int]
    Connect = Callable[[], sqlite3.Connection]

_log = logger()
_LONGEST = 1.0
"""Seconds for which a fork waits for steps under way, all together."""
_DESCRIPTORS = "/dev/fd"
"""The open files of this process, on Linux and macOS."""
_LEAVES_REFERENCES = "free-threading" in sys.version
_COLLECTIONS = 3
"""One may have begun before; one frees the cache of prepared statements, one the statements."""


class FileReplacedError(Exception):
    """The file of a connection was deleted or replaced; the message has the reason."""


class HeldConnection:
    """A connection, and the lock of the thread that uses or closes it.

    SQLite's own locks do not cover a connection that is closed under a running statement: the
    process would crash.
    """

    __slots__ = (
        "__weakref__",
        "connection",
        "device",
        "execute",
        "file",
        "inode",
        "is_closed",
        "is_stale",
        "lock",
        "log",
        "log_inode",
        "looked",
        "pid",
        "refusal",
        "rows",
        "thread",
    )

    def __init__(self, connection: sqlite3.Connection, file: str | None) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.lock = make_rlock()
        self.thread = threading.current_thread()
        self.is_closed = False
        self.refusal = ""
        self.rows: sqlite3.Cursor | None = None
        """A reading that lasts longer than its step."""
        self.file = file
        """The file as an absolute path; None for a database in memory."""
        self.device, self.inode = (0, 0) if file is None else inode_of(file)
        self.log = f"{file}-wal"
        self.log_inode = 0
        """Of the write-ahead log, once it is open; 0 if there is none."""
        self.looked = 0.0
        """When a reading has looked at it last, on the store's clock."""
        self.is_stale = False
        """Whether the file, or its log, was deleted or replaced."""
        self.pid = getpid()
        """The process that may use it; 0 if it must be opened again."""

    def note_log(self) -> None:
        """Notes which write-ahead log SQLite has open, as it has while there is a connection.

        Called after a first reading, which opens it.
        """
        found = None if self.file is None else _inode_or_none(self.log)
        self.log_inode = 0 if found is None else found[1]

    def check_file(self) -> None:
        """Raises FileReplacedError if the path, or that of its log, names another file, or none."""
        if self.file is None:
            return
        try:
            found = os.stat(self.file)  # noqa: PTH116 -- a reading asks, too
            log = self.log_inode and os.stat(self.log).st_ino  # noqa: PTH116
        except OSError:
            self._check_names()
        else:
            if (found.st_dev, found.st_ino, log) != (self.device, self.inode, self.log_inode):
                self._check_names()

    def _check_names(self) -> None:
        """The same, with the reason."""
        reason, found = "", _inode_or_none(str(self.file))
        if found is None:
            reason = _DELETED
        elif found != (self.device, self.inode):
            reason = _REPLACED
        elif self.log_inode and _inode_or_none(self.log) != (self.device, self.log_inode):
            reason = _LOG_DELETED
        if reason:
            CONNECTIONS.retire(self, reason)
            raise FileReplacedError(reason)

    def close(self, patience: float) -> bool:
        """Closes it once it is free; False if it is still in use, or a parent process's."""
        if not PROCESS.is_known:
            _ = PROCESS.pid
        if self.refusal or not self.lock.acquire(timeout=patience):
            return False
        try:
            self.close_locked()
        finally:
            self.lock.release()
        return True

    def close_locked(self) -> None:
        """Closes it; the lock is held."""
        self.pid = 0
        if not self.is_closed:
            self.is_closed = True
            if self.rows is not None:  # SQLite keeps the file open until a reading has ended
                self.rows.close()
            self.connection.close()


class ThreadConnection(threading.local):
    """The connection of a thread."""

    held: HeldConnection | None = None


_DELETED = (
    "the file was deleted while it was in use, so what was written is not kept; the next use"
    " creates a new file"
)
_REPLACED = (
    "the file was replaced while it was in use, so what was written is not kept; the next use"
    " opens the new file"
)


_LOG_DELETED = (
    "its write-ahead log was deleted while it was in use, so what was written may not be kept; the"
    " next use begins another log"
)


class SqliteConnections:
    """Every connection to SQLite that this process has opened.

    Attributes:
        refused: the files that a forked child must not use, by device and inode, with the reason.
    """

    def __init__(self) -> None:
        self._gate = make_rlock()
        self._all: WeakSet[HeldConnection] = WeakSet()
        self.refused: dict[Inode, str] = {}
        self._has_gate = False
        self._taken: list[HeldConnection] = []
        """Whose locks the thread that forks has."""
        self._busy: list[HeldConnection] = []
        """What could not be closed in time."""
        around_fork(self, SqliteConnections._before, SqliteConnections._after_in_parent)
        reset_in_child(self, SqliteConnections._reset)

    # --- for stores and journals -----------------------------------------------------------------

    def open(
        self, path: str, url: str, connect: Connect, old: HeldConnection | None = None
    ) -> HeldConnection:
        """A new connection to a file; or the old one, if a fork has only interrupted it.

        It raises StoreUnavailable for a file that this process must not use.
        """
        file = file_of(path)
        _ = PROCESS.pid  # finds out whether this is a child that was forked without hooks
        with self._gate:
            if old is not None and old.pid == getpid():
                return old
            if old is not None and old.refusal:
                raise self._refusal(url, old.refusal)
            if file is not None:
                if self.refused:
                    self._check(file, url)
                try:
                    self._close_replaced_locked(file)
                except LogInUseError as error:
                    raise StoreUnavailable(url, "use", str(error)) from None
            held = _opened(connect, file)
            self._all.add(held)
        return held

    def check(self, path: str, url: str) -> None:
        """Raises StoreUnavailable if this process must not use a file."""
        _ = PROCESS.pid
        file = file_of(path) if self.refused else None
        if file is not None:
            self._check(file, url)

    def retire(self, held: HeldConnection, reason: str) -> None:
        """Has every connection to the same file opened again: it was deleted or replaced."""
        if not held.is_stale:  # else another connection has reported it
            PROCESS.replaced += 1
            _log.warning("sqlite:///%s: %s", held.file, reason)
        for each in list(self._all):
            if (each.device, each.inode) == (held.device, held.inode):
                each.pid, each.is_stale = 0, True

    def _check(self, file: str, url: str) -> None:
        for name in (file, f"{file}-wal", f"{file}-shm"):
            try:
                reason = self.refused.get(inode_of(name))
            except OSError:
                continue
            if reason is not None:
                raise self._refusal(url, reason)

    def _refusal(self, url: str, reason: str) -> StoreUnavailable:
        PROCESS.refusals += 1
        return StoreUnavailable(url, "use", reason)

    def _close_replaced_locked(self, file: str) -> None:
        """Closes what is open of another file of that name, or of another log of the file.

        Both would share one -shm file, and the new file would be read with the log of the old one.
        """
        try:
            now = inode_of(file)
        except OSError:
            now = (0, 0)
        replaced = [
            held
            for held in list(self._all)
            if held.file == file and (held.is_stale or (held.device, held.inode) != now)
        ]
        for log in {
            (held.device, held.log_inode)
            for held in replaced
            if held.log_inode and not held.is_closed and (held.device, held.inode) != now
        }:
            set_log_aside(file, log, set(_open_files()))
        if not all(held.close(_LONGEST) for held in replaced):
            raise sqlite3.OperationalError(
                "the file was replaced, and a step on the one before is still under way"
            )
        free(replaced)

    # --- around a fork ---------------------------------------------------------------------------

    def _before(self) -> None:
        """Closes all connections; what is in use for more than a second is left alone."""
        end = clock.SYSTEM.monotonic() + _LONGEST
        self._taken, self._busy = [], []
        self._has_gate = not is_mine(self._gate) and self._gate.acquire(timeout=_LONGEST)
        there = list(self._all)  # also what is marked as closed: a thread may be closing it
        for held in there:
            held.pid = 0  # from here on no step begins
        for held in there:
            patience = max(0.0, end - clock.SYSTEM.monotonic())
            is_free = not is_mine(held.lock) and held.lock.acquire(timeout=patience)
            (self._taken if is_free else self._busy).append(held)
        in_use = {(held.device, held.inode) for held in self._busy}
        closed = [
            held
            for held in self._taken
            if held.file is not None and (held.device, held.inode) not in in_use
        ]
        for held in closed:
            held.close_locked()
        free(closed)

    def _after_in_parent(self) -> None:
        for held in [*self._taken, *self._busy]:
            if not held.is_closed and not held.is_stale:
                held.pid = getpid()
        for held in self._taken:
            held.lock.release()
        self._taken, self._busy = [], []
        if self._has_gate:
            self._has_gate = False
            self._gate.release()

    def _reset(self) -> None:
        """In a child: refuses every file that is open, and leaves its connections alone."""
        has_hooks = PROCESS.had_hooks and self._has_gate
        quiet = set(self._taken) if has_hooks else set()
        reason = _BUSY if PROCESS.had_hooks else _NO_HOOKS
        for held in list(self._all):
            if held.is_closed:
                continue
            if held.file is None and held in quiet:
                held.pid = getpid()  # its memory was copied whole
                continue
            held.pid, held.refusal = 0, reason
            leave_to_parent(held.connection)
            if held.file is not None:
                self.refused[held.device, held.inode] = reason
        self._all = WeakSet(held for held in self._all if held.pid)
        for inode in _open_files():
            self.refused.setdefault(inode, _OTHERS if has_hooks else _NO_HOOKS)
        self._taken, self._busy, self._has_gate = [], [], False


_HINT = "; open the store after the fork, or start the process by spawn instead of fork"
_BUSY = (
    f"a step on this file was under way for more than {_LONGEST:g} s in the parent process when it"
    f" forked{_HINT}"
)
_OTHERS = (
    "the parent process had the file open when it forked, by a connection or file object that is"
    " not mainstay's; close that before the fork, or start the process by spawn instead of fork"
)
_NO_HOOKS = (
    "this process was forked by C code, without Python's hooks, while the file was open" + _HINT
)


def free(closed: Iterable[HeldConnection]) -> None:
    """Has SQLite close the files of closed connections that other threads have used."""
    if not _LEAVES_REFERENCES or threading.active_count() == 1:
        return
    files = {(held.device, held.inode) for held in closed if held.file is not None}
    done, end = _collections() + _COLLECTIONS, clock.SYSTEM.monotonic() + _LONGEST
    while not files.isdisjoint(_open_files()):
        if _collections() >= done or clock.SYSTEM.monotonic() >= end:
            return  # other code has them open
        if not gc.collect():
            time.sleep(0.001)  # perhaps another thread collects, and none began here


def _collections() -> int:
    """How many collections have ended in this process."""
    return sum(each["collections"] for each in gc.get_stats())


def _opened(connect: Connect, file: str | None) -> HeldConnection:
    """A connection to the file that has the name before and after it was opened."""
    while True:
        before = None if file is None else _inode_or_none(file)
        connection = connect()
        try:
            held = HeldConnection(connection, file)
        except BaseException:
            connection.close()
            raise
        if before is None or before == (held.device, held.inode):
            return held
        connection.close()


def connected(path: str, *, uri: bool, synchronous: str, timeout: float) -> sqlite3.Connection:
    """A connection of SQLite as we use it: no transaction of its own, and a short wait for locks.

    While it is opened it does not wait at all: it is opened under the gate.
    """
    _create_private(path)
    connection = sqlite3.connect(
        path, timeout=0.0, isolation_level=None, check_same_thread=False, uri=uri
    )
    try:
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute(f"PRAGMA busy_timeout = {int(min(SLICE, timeout) * 1000)}")
    except BaseException:  # no other code could close it
        connection.close()
        raise
    return connection


def _create_private(path: str) -> None:
    """Creates the file of a new database, for this user alone; its -wal and -shm get its mode.

    A file that is there is not opened: to close it would drop SQLite's locks. Behind a link that
    leads nowhere the file is created where it leads, as SQLite does.
    """
    file = None if re.search(_CREATES_NONE, path) else file_of(path)
    if file is not None:
        with suppress(OSError):  # it is there; or SQLite reports why it cannot be created
            os.close(os.open(os.path.realpath(file), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


_CREATES_NONE = r"^file:.*[?&]mode=(ro|rw)(&|#|$)"
"""A URI by which SQLite opens only what is there."""


def file_of(path: str) -> str | None:
    """The absolute path of a database's file; None if it is in memory.

    >>> file_of(":memory:") is None, file_of("file:/a/b%20c.db?mode=ro"), file_of("/a/b.db")
    (True, '/a/b c.db', '/a/b.db')
    """
    if path in ("", ":memory:") or path.startswith("file::memory:") or "mode=memory" in path:
        return None
    if path.startswith("file:"):
        path = unquote(path.removeprefix("file:").partition("?")[0].partition("#")[0])
        path = "/" + path.lstrip("/") if path.startswith("//") else path
    return absolute(path)


def absolute(path: str) -> str:
    """The same path from any working directory; a URI or a database in memory as it is."""
    is_plain = path not in ("", ":memory:") and not path.startswith("file:")
    return str(Path(path).absolute()) if is_plain else path


def inode_of(file: str) -> Inode:
    """The device and inode that a path leads to."""
    found = os.stat(file)  # noqa: PTH116 -- a step may ask
    return found.st_dev, found.st_ino


def _inode_or_none(file: str) -> Inode | None:
    try:
        return inode_of(file)
    except OSError:
        return None


def _open_files() -> Iterator[Inode]:
    """The regular files that this process has open."""
    try:
        numbers = os.listdir(_DESCRIPTORS)  # noqa: PTH208 -- numbers, not paths
    except OSError:  # a system that does not list them
        return
    for number in numbers:
        try:
            found = os.fstat(int(number))
        except (OSError, ValueError):  # the descriptor of the list itself
            continue
        if stat.S_ISREG(found.st_mode):
            yield found.st_dev, found.st_ino


def is_mine(lock: threading.RLock) -> bool:
    """Whether this very thread is in the code that the lock guards."""
    return lock._is_owned()  # type: ignore[attr-defined, no-any-return]  # noqa: SLF001 -- as Condition asks


CONNECTIONS = SqliteConnections()
