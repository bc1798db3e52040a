"""An audit log in SQLite: one row for each block, on a connection of its own.

The tables come with the store's other ones (`sql/0002_audit.sql`). A block is one short
transaction; `synchronous=NORMAL` outlives a kill, `FULL` a power cut too. A reader opens the file
read-only.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, contextmanager
from os import getpid
from typing import TYPE_CHECKING
from urllib.parse import quote

from mainstay.core.audit.chain import encode_head, header_of, tail_of
from mainstay.errors import StoreError, StoreUnavailable
from mainstay.runtime.fork import make_rlock
from mainstay.stores.journal_rows import (
    MOST_PRUNED,
    anchor_after,
    anchor_of,
    block_of,
    body_of,
    heads_of,
    is_older,
    page_after,
    tail_of_row,
)
from mainstay.stores.sqlite import audit_schema, statements
from mainstay.stores.sqlite.connections import (
    CONNECTIONS,
    FileReplacedError,
    HeldConnection,
    absolute,
    connected,
    free,
)
from mainstay.stores.sqlite.waiting import SLICE, ReopenError, until_free

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, TypeVar

    from mainstay.core.audit.chain import Anchor, Block, Entry, Head, Tail

    Done = TypeVar("Done")

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
        self._place = absolute(self.path)
        self._timeout = timeout
        self._synchronous = synchronous
        self._reads_only = reads_only
        self._lock = make_rlock()
        self._held: HeldConnection | None = None
        self._version = 0
        """That of the schema, once the file was opened."""
        self._last: Tail | None = None
        """Where the log ended after this journal wrote; another process may have written since."""

    def tail(self) -> Tail:
        """Where the log ends."""
        return self._read(_tail)

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
        reader = _BlockReader(self, after)
        try:
            while page := self._persist("read", reader.next_page):
                yield from map(block_of, page)
        finally:
            reader.close()

    def heads(self) -> list[Head]:
        """The heads that are kept in the log."""
        return self._read(lambda connection: heads_of(connection.execute(_HEADS)))

    def anchor(self) -> Anchor | None:
        """Where the log begins, if older blocks were dropped."""
        return self._read(_anchor)

    def schema_flaws(self) -> list[str]:
        """What of the tables and the view is not as it was made."""
        return self._read(audit_schema.schema_flaws)

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
            held, self._held = self._held, None
            if held is not None:
                held.close(self._timeout)
                free([held])

    def __del__(self) -> None:
        self.close()

    # --- connections -----------------------------------------------------------------------------

    @contextmanager
    def _writing(self, what: str) -> Iterator[sqlite3.Connection]:
        """One transaction, which takes the write lock from the start."""
        with self._lock:
            held = self._persist(what, self._begin)
            connection = held.connection
            try:
                with self._translated(what):
                    yield connection
                    connection.execute("COMMIT")
                    held.check_file()
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            finally:
                held.lock.release()

    def _begin(self) -> HeldConnection:
        """The connection with a transaction begun; its lock is held."""
        held = self._hold()
        held.lock.acquire()
        try:
            if not held.pid:  # it was closed meanwhile
                raise ReopenError
            held.execute("BEGIN IMMEDIATE")
        except BaseException:
            held.lock.release()
            raise
        return held

    def _read(self, work: Callable[[sqlite3.Connection], Done]) -> Done:
        def step() -> Done:
            held = self._hold()
            with held.lock:
                if not held.pid:
                    raise ReopenError
                return work(held.connection)

        with self._lock:
            return self._persist("read", step)

    def _persist(self, what: str, step: Callable[[], Done]) -> Done:
        """The step, once SQLite's lock is free."""
        with self._translated(what):
            return until_free(step, self._timeout)

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if "no such table" in str(error):
                raise StoreError(f"{self.url} holds no audit log") from error
            raise StoreUnavailable(self.url, what, str(error)) from error
        except FileReplacedError as error:
            self._last = None
            raise StoreUnavailable(self.url, what, str(error)) from None

    def _hold(self) -> HeldConnection:
        """The connection; opened again after a fork, and if the file was replaced."""
        held = self._held
        if held is None or held.pid != getpid():
            held = self.open(held)
            if not self._reads_only:
                self._prepare(held)
            self._held = held
        return held

    def open(self, old: HeldConnection | None = None) -> HeldConnection:
        """A connection to the log's file; the old one if it is open still."""
        return CONNECTIONS.open(self._place, self.url, self._connected, old)

    def _prepare(self, held: HeldConnection) -> None:
        """Makes the tables in a file that has taken the place of the one before."""
        self._last = None
        try:
            with held.lock:
                if not held.pid:  # a fork has closed it already
                    raise ReopenError
                connection = held.connection
                self._version = statements.prepare(connection, self.url, self._version)
                self._version = self._version or statements.version_of(connection)
                held.note_log()
        except BaseException:
            held.close(0.0)
            raise

    def _connected(self) -> sqlite3.Connection:
        if self._reads_only:
            return self._connect_to_read()
        return connected(
            self._place, uri=False, synchronous=self._synchronous, timeout=self._timeout
        )

    def _connect_to_read(self) -> sqlite3.Connection:
        """Read-only; a file in a folder that cannot be written is taken as immutable."""
        where = f"file:{quote(self._place)}?mode=ro"
        try:
            return _opened_to_read(where)
        except sqlite3.OperationalError:
            return _opened_to_read(f"{where}&immutable=1")


class _BlockReader:
    """Reads blocks on a connection of its own, page by page; a fork may close it in between."""

    def __init__(self, journal: SqliteJournal, after: int) -> None:
        self._journal = journal
        self._after = after
        self._most = 1
        """Blocks that are read at once, under the connection's lock."""
        self._held: HeldConnection | None = None

    def next_page(self) -> list[Any]:
        """The next rows; none at the end."""
        held = self._held
        if held is None or held.pid != getpid():
            held = self._held = self._journal.open(held)
        with held.lock:
            if not held.pid:
                raise ReopenError
            if held.rows is None:
                held.rows = held.execute(_BLOCKS, (self._after, -1))
            page = held.rows.fetchmany(self._most)
        if page:
            self._after, self._most = page[-1][3], page_after(page)
        return page

    def close(self) -> None:
        if self._held is not None:
            self._held.close(1.0)


def _opened_to_read(where: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        where, timeout=SLICE, uri=True, isolation_level=None, check_same_thread=False
    )
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
