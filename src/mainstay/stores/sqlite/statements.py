"""The statements for SQLite, and steps as functions of a connection.

A step that needs a transaction is given to `whole`, or is a part of the caller's own. `exchange`
needs none: one statement is a transaction of its own.

Values are bound as bytearrays, and no expiry as infinity, which the statement turns into NULL: for
bytes and for None, sqlite3 looks for adapters first, which takes as long as twenty lines of
Python. What SQLite is given is the same.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.base.change import KEEP
from mainstay.runtime.store_clock import StoreClock
from mainstay.stores.migrations import pending, statements
from mainstay.stores.sqlite.batch import DROP, EXPIRES, NEVER, WRITE, row_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    from mainstay.core.base.change import Change, Decide, Reply
    from mainstay.ports import Statement

    Done = TypeVar("Done")

_CLOCK = "(julianday() - 2440587.5) * 86400.0"
READ = "SELECT value FROM mainstay_kept WHERE space = ? AND key = ?"
_SCAN = "SELECT key, value FROM mainstay_kept WHERE space = ? AND key > ? ORDER BY key LIMIT ?"
_AT_ONCE = f"abs({_CLOCK} - ?) < 0.01"
"""A step with a hint reads the time before it has the lock. If it waited longer than these seconds
for it, or the clock was set meanwhile, it writes nothing: SQLite's clock is read after that."""
_INSERT = (
    f"INSERT INTO mainstay_kept (space, key, value, expires) SELECT ?, ?, ?, {EXPIRES}"
    f" WHERE {_AT_ONCE} ON CONFLICT (space, key) DO NOTHING"
)
_ROW = f"SELECT ?, ?, ?, {EXPIRES} WHERE {_AT_ONCE}"
_COLUMNS = 5
"""Values of a row that it takes: four columns and the time."""
_UPDATE = (
    f"UPDATE mainstay_kept SET value = ?, expires = {EXPIRES}"
    f" WHERE space = ? AND key = ? AND value = ? AND {_AT_ONCE}"
)
now = clock.SYSTEM.wall
"""The store's clock: the machine's, as it is SQLite's own."""
CLOCK = StoreClock("sqlite:")
CLOCK.look(now())


def begin(connection: sqlite3.Connection) -> None:
    """Begins a transaction that may write."""
    connection.execute("BEGIN IMMEDIATE")


def undo(connection: sqlite3.Connection) -> None:
    """Ends a transaction that is still open."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def whole(connection: sqlite3.Connection, work: Callable[..., Done], *args: Any) -> Done:
    """The work as one transaction, or nothing of it."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        done = work(connection, *args)
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # the next step rolls it back
            undo(connection)
        raise
    return done


def read(connection: sqlite3.Connection, space: str, key: str) -> tuple[bytes | None, float]:
    """The record and the store's clock."""
    row = connection.execute(READ, (space, key)).fetchone()
    return (None if row is None else row[0]), now()


def scan(
    connection: sqlite3.Connection, space: str, after: str, limit: int
) -> list[tuple[str, bytes]]:
    """The records of a space in the order of their keys, from one on."""
    return connection.execute(_SCAN, (space, after, limit)).fetchall()


def measured(connection: sqlite3.Connection) -> tuple[int, float]:
    """The version of the schema, and the seconds that a reading took."""
    started = clock.current.monotonic()
    connection.execute(READ, ("", "")).fetchone()
    return version_of(connection), clock.current.monotonic() - started


def longest(connection: sqlite3.Connection) -> int:
    """The bytes of a row that this connection takes at most."""
    return connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH)


def apply(connection: sqlite3.Connection, space: str, key: str, decide: Decide[Reply]) -> Reply:
    """Reads, decides and writes."""
    execute = connection.execute
    row = execute(READ, (space, key)).fetchone()
    change, reply = decide(None if row is None else row[0], now())
    if change is KEEP:
        return reply
    if change.value is None:
        execute(DROP, (space, key))
    else:
        execute(WRITE, row_of(space, key, change.value, change.expires))
    return reply


def apply_also(
    connection: sqlite3.Connection,
    space: str,
    key: str,
    decide: Decide[Reply],
    also: Sequence[Statement],
) -> Reply:
    """The same, and other statements if the record is changed."""
    is_changed = False

    def noting(value: bytes | None, moment: float) -> tuple[Change, Reply]:
        nonlocal is_changed
        change, reply = decide(value, moment)
        is_changed = change is not KEEP
        return change, reply

    reply = apply(connection, space, key, noting)
    for text, values in also if is_changed else ():
        connection.execute(text, values).fetchall()
    return reply


def exchange(
    connection: sqlite3.Connection,
    space: str,
    key: str,
    hint: bytes | None,
    change: Change,
    moment: float,
) -> bool:
    """Writes a record if it equals the hint and the time is still right; whether it did."""
    assert change.value is not None
    value = bytearray(change.value)  # row_of, without a frame
    expires = NEVER if change.expires is None else change.expires
    if hint is None:
        made = connection.execute(_INSERT, (space, key, value, expires, moment))
    else:
        values = (value, expires, space, key, bytearray(hint), moment)
        made = connection.execute(_UPDATE, values)
    return made.rowcount == 1


def insert_all(connection: sqlite3.Connection, values: Sequence[Any]) -> bool:
    """Writes records if none of them is there and the time is still right; whether it did.

    The values are those of all rows, each as `row_of` binds it, and the time.
    """
    count = len(values) // _COLUMNS
    try:
        return connection.execute(_inserting(count), values).rowcount == count
    except sqlite3.IntegrityError:  # one is there: SQLite has undone the others
        return False


@cache
def _inserting(count: int) -> str:
    rows = " UNION ALL ".join([_ROW] * count)
    return f"INSERT INTO mainstay_kept (space, key, value, expires) {rows}"


# --- the schema -----------------------------------------------------------------------------------


def prepare(connection: sqlite3.Connection, url: str, version: int) -> int:
    """Makes the tables of a file that has taken the place of one with a schema; its version.

    The number of a deleted file is used again, so a new one is not found out by its inode.
    """
    if version and (not _has_schema(connection) or version_of(connection) != version):
        into_wal(connection)
        whole(connection, migrated, url)
        version = version_of(connection)
    return version


def _has_schema(connection: sqlite3.Connection) -> bool:
    question = (
        "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'mainstay_schema'"
    )
    return bool(connection.execute(question).fetchone()[0])


def version_of(connection: sqlite3.Connection) -> int:
    """The version of the schema."""
    return int(connection.execute("SELECT version FROM mainstay_schema").fetchone()[0])


def migrated(connection: sqlite3.Connection, url: str) -> None:
    """Brings the schema up to date."""
    if not _has_schema(connection):
        connection.execute("CREATE TABLE mainstay_schema (version INTEGER NOT NULL)")
        connection.execute("INSERT INTO mainstay_schema VALUES (0)")
    for version, script in pending("sqlite", version_of(connection), url).items():
        for statement in statements(script):
            connection.execute(statement)
        connection.execute("UPDATE mainstay_schema SET version = ?", (version,))


def into_wal(connection: sqlite3.Connection) -> None:
    """Switches to write-ahead logging; SQLite does not wait for a lock here, the caller does."""
    if not connection.execute("PRAGMA page_count").fetchone()[0]:  # the file is new
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
