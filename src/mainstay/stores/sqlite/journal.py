"""An audit log in SQLite: one row for each block, on a connection of its own.

The tables come with the store's other ones (`sql/0002_audit.sql`). A block is one short
transaction; `synchronous=NORMAL` outlives a kill, `FULL` a power cut too. A reader opens the file
read-only.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from mainstay.core.audit.chain import encode_head, header_of, tail_of
from mainstay.errors import StoreError, StoreUnavailable
from mainstay.runtime.fork import PROCESS
from mainstay.stores.journal_rows import (
    MOST_PRUNED,
    anchor_after,
    anchor_of,
    block_of,
    body_of,
    heads_of,
    is_older,
    tail_of_row,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mainstay.core.audit.chain import Anchor, Block, Entry, Head, Tail

_TAIL = "SELECT header, links FROM mainstay_audit_blocks ORDER BY block DESC LIMIT 1"
_NEWEST = "SELECT max(block) FROM mainstay_audit_blocks"
_INSERT = (
    "INSERT INTO mainstay_audit_blocks (block, header, links, body)"
    " VALUES (?, CAST(? AS TEXT), ?, CAST(? AS TEXT))"
)
_HEAD = "INSERT INTO mainstay_audit_heads (block, head) VALUES (?, CAST(? AS TEXT))"
_BLOCKS = (
    "SELECT CAST(header AS BLOB), CAST(links AS BLOB), CAST(body AS BLOB), block"
    " FROM mainstay_audit_blocks WHERE block > ? ORDER BY block LIMIT ?"
)
_HEADS = "SELECT CAST(head AS BLOB) FROM mainstay_audit_heads ORDER BY block"
_ANCHOR = "SELECT log, block, number, link, CAST(carried AS BLOB) FROM mainstay_audit_anchor"
_SET_ANCHOR = "INSERT INTO mainstay_audit_anchor VALUES (?, ?, ?, ?, CAST(? AS TEXT))"
_OLD = "SELECT block, header FROM mainstay_audit_blocks ORDER BY block LIMIT ?"

_MAPPED = 1 << 30
"""Bytes of a file that are memory-mapped, without a copy of each page."""


class SqliteJournal:
    """The audit log of a SQLite file.

    Args:
        path: the file; its tables are there already.
        timeout: seconds to wait for a lock.
        synchronous: NORMAL or FULL.
        reads_only: whether the file must stay as it is.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        timeout: float = 5.0,
        synchronous: str = "NORMAL",
        reads_only: bool = False,
    ) -> None:
        self.path = os.fspath(path)
        self.url = f"sqlite:///{self.path}"
        self._timeout = timeout
        self._synchronous = synchronous
        self._reads_only = reads_only
        self._lock = threading.RLock()
        self._pid = 0
        self._connection: sqlite3.Connection | None = None
        self._last: Tail | None = None
        """Where the log ended after this journal wrote; another process may have written since."""

    def tail(self) -> Tail:
        """Where the log ends."""
        with self._reading() as connection:
            return _tail(connection)

    def append(self, make: Callable[[Tail, Sequence[bytes]], Entry]) -> Tail:
        """Seals and keeps what comes next, as one step; where the log ends then."""
        with self._writing("append") as connection:
            tail = self._last
            if tail is None or connection.execute(_NEWEST).fetchone()[0] != tail.block:
                tail = _tail(connection)
            self._last = None
            tail = _put(connection, tail, make(tail, ()))
        self._last = tail
        return tail

    def blocks(self, after: int = 0) -> Iterator[Block]:
        """The blocks after a number, in order, as they are when this begins."""
        with self._translated("read"), closing(self._connected()) as connection:
            yield from map(block_of, connection.execute(_BLOCKS, (after, -1)))

    def heads(self) -> list[Head]:
        """The heads that are kept in the log."""
        with self._reading() as connection:
            return heads_of(connection.execute(_HEADS))

    def anchor(self) -> Anchor | None:
        """Where the log begins, if older blocks were dropped."""
        with self._reading() as connection:
            return _anchor(connection)

    def prune(self, before: str, make: Callable[[Tail, Anchor], Entry]) -> int:
        """Drops blocks written before a time, but never the last; how many records.

        It drops a bounded number, so that other writers wait briefly; call it again for more.
        """
        with self._writing("prune") as connection:
            tail, old = _tail(connection), _anchor(connection)
            upto = _last_before(connection, before, tail.block)
            if upto is None:
                return 0
            rows = connection.execute(_BLOCKS, (0, MOST_PRUNED))
            anchor = anchor_after(old, (block_of(row) for row in rows if row[3] <= upto))
            _put(connection, tail, make(tail, anchor))
            connection.execute("DELETE FROM mainstay_audit_blocks WHERE block <= ?", (upto,))
            connection.execute("DELETE FROM mainstay_audit_heads WHERE block <= ?", (upto,))
            connection.execute("DELETE FROM mainstay_audit_anchor")
            kept = body_of(anchor.carried)
            connection.execute(_SET_ANCHOR, (*anchor[:4], kept))
            return anchor.number - (old.number if old is not None else 0)

    def close(self) -> None:
        """Closes the connection; the next use opens another."""
        with self._lock:
            self._leave_inherited()
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def __del__(self) -> None:
        self.close()

    # --- connections -----------------------------------------------------------------------------

    @contextmanager
    def _writing(self, what: str) -> Iterator[sqlite3.Connection]:
        """One transaction, which takes the write lock from the start."""
        with self._lock, self._translated(what):
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._translated("read"):
            yield self._open()

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if "no such table" in str(error):
                raise StoreError(f"{self.url} holds no audit log") from error
            raise StoreUnavailable(self.url, what, str(error)) from error

    def _open(self) -> sqlite3.Connection:
        """The connection of this process; a forked child opens its own."""
        self._leave_inherited()
        if self._connection is None:
            self._connection = self._connected()
            self._pid = PROCESS.pid
        return self._connection

    def _leave_inherited(self) -> None:
        """Lets go of the connection of a parent process, without ending it."""
        if self._connection is not None and self._pid != PROCESS.pid:
            _inherited.append(self._connection)
            self._connection = None

    def _connected(self) -> sqlite3.Connection:
        return self._connect_to_read() if self._reads_only else self._connect()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=self._timeout, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute(f"PRAGMA busy_timeout = {int(self._timeout * 1000)}")
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        except BaseException:  # no other code could close it
            connection.close()
            raise
        return connection

    def _connect_to_read(self) -> sqlite3.Connection:
        """Read-only; a file in a folder that cannot be written is taken as immutable."""
        where = f"file:{quote(str(Path(self.path).absolute()))}?mode=ro"
        try:
            return _opened_to_read(where)
        except sqlite3.OperationalError:
            return _opened_to_read(f"{where}&immutable=1")


_inherited: list[sqlite3.Connection] = []
"""What a forked child never closes: closing it would act on the parent's files."""


def _opened_to_read(where: str) -> sqlite3.Connection:
    connection = sqlite3.connect(where, uri=True, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        connection.execute(f"PRAGMA mmap_size = {_MAPPED}")
    except BaseException:
        connection.close()
        raise
    return connection


def _tail(connection: sqlite3.Connection) -> Tail:
    with closing(connection.execute(_TAIL)) as found:
        row = found.fetchone()
    return tail_of_row(row, _anchor(connection) if row is None else None)


def _anchor(connection: sqlite3.Connection) -> Anchor | None:
    return anchor_of(connection.execute(_ANCHOR).fetchone())


def _put(connection: sqlite3.Connection, tail: Tail, entry: Entry) -> Tail:
    block, head = entry
    if block is not None:
        number = header_of(block).block
        values = (number, block.header, block.links, body_of(block.records))
        connection.execute(_INSERT, values)
        tail = tail_of(block)
    if head is not None:
        connection.execute(_HEAD, (head.block, encode_head(head)))
    return tail


def _last_before(connection: sqlite3.Connection, before: str, newest: int) -> int | None:
    """The last of the blocks that are all older than a time, from the first on."""
    last = None
    with closing(connection.execute(_OLD, (MOST_PRUNED,))) as rows:
        for block, header in rows:
            if block >= newest or not is_older(header, before):
                break
            last = int(block)
    return last
