"""Connections to SQLite as they are held: one for each thread, none of a parent process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from mainstay.runtime.fork import PROCESS

if TYPE_CHECKING:
    import sqlite3


class HeldConnection:
    """A connection, and the lock of the thread that uses or closes it.

    SQLite's own locks do not cover a connection that is closed under a running statement: the
    process would crash.
    """

    __slots__ = ("connection", "execute", "lock", "pid", "thread")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.lock = threading.RLock()
        self.pid = PROCESS.pid
        self.thread = threading.current_thread()

    def close(self, patience: float) -> None:
        """Closes it once it is free; the connections of a parent process are not a child's."""
        if self.pid != PROCESS.pid:
            _inherited.append(self.connection)
            return
        if not self.lock.acquire(timeout=patience):
            return
        try:
            self.connection.close()
        finally:
            self.lock.release()


_inherited: list[sqlite3.Connection] = []
"""What a forked child never closes: closing it would act on the parent's files."""


class ThreadConnection(threading.local):
    """The connection of a thread."""

    held: HeldConnection | None = None
