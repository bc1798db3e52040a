"""Waiting for SQLite's lock, in short slices: a fork and a deadline can end the wait.

SQLite's own wait cannot be interrupted. So a connection waits for one slice, and the step is tried
again until its end. Nothing was changed by a step that did not get the lock.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.base.deadline import NEVER
from mainstay.deadline import moment
from mainstay.stores.time_left import time_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    Done = TypeVar("Done")

SLICE = 0.05
"""Seconds for which SQLite itself waits."""
_PAUSE = 0.002
"""Seconds between two tries, in which no lock of ours is held."""


_CUT = "another connection held the lock until the deadline of the call"


class ReopenError(Exception):
    """The connection was closed before the step had its lock: the step takes another one."""


class LockTimeoutError(sqlite3.OperationalError):
    """The lock was not free in time; the message has the reason."""


def until_free(step: Callable[[], Done], timeout: float) -> Done:
    """The answer of a step, which is tried until SQLite's lock is free or the time is over."""
    wait: LockWait | None = None
    while True:
        try:
            return step()
        except ReopenError:
            continue
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            wait = wait or LockWait(timeout)
            if not wait.goes_on():
                raise LockTimeoutError(f"{error}: {wait.reason()}") from error


class LockWait:
    """The time that a step may wait for SQLite's lock, with the slice in which it was found taken.

    The last try begins a slice before the end, so that both slices are in the time. A step begins
    without a look at a clock; a busy machine prolongs the two slices, and nothing else.

    Args:
        timeout: seconds.
        until: a monotonic moment that ends it earlier; by default the caller's deadline.
    """

    __slots__ = ("_end", "_is_cut", "_timeout")

    def __init__(self, timeout: float, until: float | None = None) -> None:
        self._timeout = timeout
        end, until = clock.SYSTEM.monotonic() + timeout - 2.0 * SLICE, until or deadline()
        self._end, self._is_cut = min(end, until), until < end

    def goes_on(self) -> bool:
        """Pauses, and answers whether to try again."""
        if clock.SYSTEM.monotonic() >= self._end:
            return False
        clock.SYSTEM.sleep(_PAUSE)
        return True

    def reason(self) -> str:
        """Why the step was given up."""
        if self._is_cut:
            return _CUT
        return f"another process held the lock for more than {self._timeout:g} s"


def deadline() -> float:
    """The caller's deadline on the system's clock; never, in virtual time."""
    return moment() if clock.current is clock.SYSTEM else NEVER


def in_time(
    connection: sqlite3.Connection, timeout: float, work: Callable[..., Done], *args: Any
) -> Done:
    """The work on a connection of the caller's own, which waits no longer than the caller may.

    How long it waits otherwise is the caller's to decide, and is put back.

    >>> in_time(sqlite3.connect(":memory:", timeout=60.0), 5.0, _patience)
    60000
    """
    if deadline() == NEVER:
        return work(connection, *args)
    theirs, left = _patience(connection), int(1000 * time_for(timeout))
    if theirs <= left:
        return work(connection, *args)
    connection.execute(f"PRAGMA busy_timeout = {left}")
    try:
        return work(connection, *args)
    except sqlite3.OperationalError as error:
        if not is_busy(error):
            raise
        raise LockTimeoutError(f"{error}: {_CUT}") from error
    finally:
        with suppress(sqlite3.Error):  # the work may have closed it
            connection.execute(f"PRAGMA busy_timeout = {theirs}")


def _patience(connection: sqlite3.Connection) -> int:
    """The milliseconds for which a connection waits for a lock."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return int(cursor.execute("PRAGMA busy_timeout").fetchone()[0])


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection had the lock.

    >>> is_busy(sqlite3.OperationalError("no such table: a"))
    False
    """
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
