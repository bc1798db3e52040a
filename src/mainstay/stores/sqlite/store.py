"""The embedded store: one SQLite file, shared by threads and processes.

A step is BEGIN IMMEDIATE, one SELECT, the decision, one write, COMMIT; or one statement, if the
caller has given a hint that is right. Sync callers do that on a connection of their thread, one at
a time. Async callers, and threads that find another one writing, hand it to one writer thread,
which makes one transaction of all waiting steps: they share one commit. The store's clock is the
machine's, as it is SQLite's own; it ignores virtual time.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from functools import partial
from os import getpid, stat
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import mainstay.runtime.clock as clock
from mainstay.core.base.change import KEEP
from mainstay.errors import StoreError, StoreUnavailable, ValueTooLarge
from mainstay.runtime.fork import fork_mark, load_before_fork, make_rlock
from mainstay.stores.group_commit import Writer, answer_of
from mainstay.stores.options import options_of, without_secrets
from mainstay.stores.sqlite import statements as steps
from mainstay.stores.sqlite.batch import NEVER, carry_out
from mainstay.stores.sqlite.connections import (
    CONNECTIONS,
    FileReplacedError,
    HeldConnection,
    ThreadConnection,
    absolute,
    connected,
    free,
    is_mine,
)
from mainstay.stores.sqlite.waiting import SLICE, LockTimeoutError, LockWait, in_time, is_busy

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any, TypeVar

    from mainstay.core.base.change import Decide, Reply
    from mainstay.ports import Journal, Statement, Step
    from mainstay.stores.sqlite.purging import Position

    Done = TypeVar("Done")

load_before_fork("mainstay.stores.sqlite.purging")  # loaded by a background thread
load_before_fork("mainstay.stores.sqlite.space")
_HERE = fork_mark()
_LOOK_EVERY = 0.1
"""Seconds after which a reading looks again at which file has the name, as each write does."""
_NO_HINT = b"no hint"
"""Compared by identity."""
_OPTIONS = {"timeout": 5.0, "synchronous": "FULL"}


class SqliteStore:
    """Keeps records in a file, safe between threads and processes.

    Args:
        url: `sqlite:///relative.db`, `sqlite:////absolute.db` or `sqlite:///:memory:`; with
            `?timeout=5` seconds to wait for a lock, and `&synchronous=FULL` (the default: safe
            against power loss) or `NORMAL` (safe against a crash of the process).

    >>> store = SqliteStore("sqlite:///:memory:")
    >>> from mainstay.core.base.change import Change
    >>> store.transact("seen", "a", lambda value, now: (Change(b"1"), value))
    >>> store.transact("seen", "a", lambda value, now: (Change(b"2"), value))
    b'1'
    >>> store.close()
    """

    abilities = frozenset(
        {"records", "circuits", "budgets", "inbox", "transactions", "durable", "audit"}
    )
    locks = True
    takes_hints = True
    is_swept = True
    """Whether the last purge has come to the end of what may have expired."""
    _position: Position | None = None
    """Where the next one goes on."""

    def __init__(self, url: str) -> None:
        self.url = url
        found = options_of(url, _OPTIONS)
        self.timeout: float = found["timeout"]
        if found["synchronous"] not in ("FULL", "NORMAL", "EXTRA"):
            raise StoreError(
                f"synchronous = {found['synchronous']!r}: must be FULL, NORMAL or EXTRA"
            )
        self.synchronous: str = found["synchronous"]
        self.path = path_of(url)
        self._place = absolute(self.path)
        if self.path == ":memory:":  # there is only one connection to it
            self.abilities = self.abilities - {"audit"}
        self._is_closed = False
        self._opened: list[HeldConnection] = []
        self._version = 0
        """That of the schema, once this store has migrated it."""
        self._memory = self._open(None) if self.path == ":memory:" else None
        self._mine = ThreadConnection()
        self._turn = make_rlock()
        """Of the one thread that writes. Waiting for SQLite's lock instead would be polling."""
        # Where a commit is no sync of the disk, a change of threads costs more than it saves.
        self._shares = self._memory is None and self.synchronous != "NORMAL"
        self._writer = Writer(self._write_in_turn, "mainstay-sqlite", url)
        try:
            self._migrate()
            self.max_value: int | None = self._use("open", steps.longest)
        except BaseException:  # no other code could close what is open by now
            self.close()
            raise

    # --- steps -----------------------------------------------------------------------------------

    def transact(
        self, space: str, key: str, decide: Decide[Reply], hint: bytes | None = _NO_HINT
    ) -> Reply:
        """Reads, decides and writes as one step; a hint that is right makes it one statement."""
        shares = self._shares and clock.current is clock.SYSTEM
        if shares and (  # _takes_turn, without a frame
            (self._writer.is_crowded and not is_mine(self._turn))
            or not self._turn.acquire(blocking=False)
        ):
            return answer_of(self._share([(space, key, decide)]))  # type: ignore[no-any-return]
        try:
            if hint is not _NO_HINT and self.takes_hints:
                now = steps.now()
                try:
                    change, reply = decide(hint, now)
                except Exception:  # noqa: S110 -- the hint may be its cause
                    pass
                else:
                    if (
                        change is not KEEP
                        and change.value is not None
                        and self._use("write", steps.exchange, space, key, hint, change, now)
                    ):
                        return reply
            done: Reply = self._step("write", steps.apply, space, key, decide)
            return done
        finally:
            if shares:
                self._turn.release()

    def _takes_turn(self) -> bool:
        """Whether this thread writes by itself, because no other one does."""
        if self._writer.is_crowded and not is_mine(self._turn):
            return False
        return self._turn.acquire(
            blocking=False
        )  # also in a signal handler of the thread that has it

    def _share(self, steps: list[Step]) -> list[Any]:
        """The answers of steps that are carried out with those of other threads."""
        return self._writer.share(steps, self.timeout * 2)

    def transact_many(self, steps: Sequence[Step]) -> list[Any]:
        """Many steps in one transaction, after those of async callers that came before."""
        return self._writer.carry_out(list(steps), self.timeout * 2)

    def transact_together(self, steps: Sequence[Step]) -> list[Any]:
        """A few steps in one transaction, of this thread's own if no other thread writes."""
        shares = self._shares and clock.current is clock.SYSTEM
        if shares and not self._takes_turn():
            return self._share(list(steps))
        try:
            return self._write_batch(list(steps))
        finally:
            if shares:
                self._turn.release()

    def transact_new(self, new: Sequence[Step]) -> list[Any] | None:
        """Steps on records that are not there, as one statement.

        None if one is there, or other threads write.
        """
        shares = self._shares and clock.current is clock.SYSTEM
        if shares and not self._takes_turn():
            return None
        try:
            now, replies = steps.now(), []
            values: list[Any] = []
            for space, key, decide in new:
                change, reply = decide(None, now)
                if change is KEEP or change.value is None:
                    return None
                expires = NEVER if change.expires is None else change.expires
                values += (space, key, bytearray(change.value), expires, now)
                replies.append(reply)
            return replies if self._use("write", steps.insert_all, values) else None
        finally:
            if shares:
                self._turn.release()

    def transact_also(
        self, space: str, key: str, decide: Decide[Reply], also: Sequence[Statement]
    ) -> Reply:
        """A step with other statements in its transaction, which only a change executes."""
        has_turn = self._shares and self._turn.acquire(timeout=SLICE)
        try:
            done: Reply = self._step("write", steps.apply_also, space, key, decide, also)
            return done
        finally:
            if has_turn:
                self._turn.release()

    def atransact(self, space: str, key: str, decide: Decide[Reply]) -> Coroutine[Any, Any, Reply]:
        """The same; steps that wait at the same time share one commit."""
        return self._writer.submit((space, key, decide), self.timeout * 2)

    def read(self, space: str, key: str) -> tuple[bytes | None, float]:
        """The record and the store's clock, without a lock."""
        try:
            held = self._mine.held
            if held is None:
                held = self._hold()
            if held.pid and _HERE[0]:  # as in _use
                with held.lock:
                    if not held.connection.in_transaction:  # the short path: none to end
                        row = held.execute(steps.READ, (space, key)).fetchone()
                        now = steps.now()
                        if not 0.0 <= now - held.looked < _LOOK_EVERY:
                            held.check_file()
                            held.looked = now
                        return (None if row is None else row[0]), now
        except (sqlite3.Error, FileReplacedError):
            pass  # it is read again: from the new file, or that translates the error
        return self._use("read", steps.read, space, key)

    async def aread(self, space: str, key: str) -> tuple[bytes | None, float]:
        """The same; reading never waits for a writer, and takes microseconds."""
        return self.read(space, key)

    def scan(self, space: str, after: str = "", limit: int = 100) -> list[tuple[str, bytes]]:
        """The records of a space in the order of their keys, page by page."""
        return self._use("scan", steps.scan, space, after, limit)

    def purge(self, limit: int = 1000) -> int:
        """Drops records that have expired; how many. It looks at `limit` of them at most."""
        from mainstay.stores.sqlite.purging import BEGINNING, purge

        count, position = self._step("purge", purge, limit, self._position or BEGINNING)
        self.is_swept = position == BEGINNING
        self._position = position
        return count

    def shrink(self, pages: int = 500) -> int:
        """Gives free pages back to the disk if many are free; how many."""
        from mainstay.stores.sqlite.space import shrink

        return self._use("shrink", shrink, pages)

    def compact(self, progress: Callable[[int, int], object]) -> None:
        """Gives all free pages back; `progress` is called with the bytes done, and all of them."""
        from mainstay.stores.sqlite.space import compact

        compact(partial(self._use, "compact"), self.path, progress)

    def _write_in_turn(self, batch: list[Step]) -> list[Any]:
        """Several steps in one transaction, once no thread of this process is writing."""
        has_turn = self._turn.acquire(timeout=SLICE)  # or SQLite's lock is waited for
        try:
            return self._write_batch(batch)
        finally:
            if has_turn:
                self._turn.release()

    def _write_batch(self, batch: list[Step]) -> list[Any]:
        """Several steps in one transaction; a decision that raises fails alone."""
        return self._step("write", carry_out, batch, steps.now, self.max_value, self.url)

    # --- looking ---------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """What there is to know: version, schema, settings and how long a reading took."""
        schema, latency = self._use("describe", steps.measured)
        return {
            "store": "sqlite",
            "url": self.url,
            "version": sqlite3.sqlite_version,
            "schema": schema,
            "synchronous": self.synchronous,
            "max_value": self.max_value,
            "latency_ms": round(latency * 1000, 3),
        }

    def within(self, connection: sqlite3.Connection) -> SqliteStore:
        """This store on a connection of the caller's own: its steps commit with the caller's."""
        return _Bound(self, connection)

    def journal(self, *, closes: bool = False, synchronous: str = "NORMAL") -> Journal:
        """The audit log of this file, on a connection of its own."""
        from mainstay.stores.sqlite.journal import SqliteJournal

        if closes:
            self.close()
        return SqliteJournal(self.path, timeout=self.timeout, synchronous=synchronous)

    def close(self) -> None:
        """Ends the writer and closes every connection, each after the step it is in."""
        self._is_closed = True
        self._writer.close()
        closed = []
        while self._opened:
            closed.append(self._opened.pop())
            closed[-1].close(self.timeout)
        free(closed)

    # --- connections -----------------------------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        uri = self.path.startswith("file:")
        return connected(self._place, uri=uri, synchronous=self.synchronous, timeout=self.timeout)

    def _hold(self) -> HeldConnection:
        """The connection of this thread, or the only one there is of a store in memory."""
        held = self._memory or self._mine.held
        if held is None or held.pid != getpid():  # or it was closed, for a fork or for good
            if self._is_closed:
                raise self._closed()
            held = self._open(held)
            if self._memory is None:
                self._mine.held = held
        return held

    def _open(self, old: HeldConnection | None) -> HeldConnection:
        """A connection that `close` will find; raises if the store was closed meanwhile."""
        held = CONNECTIONS.open(self._place, self.url, self._connect, old)
        if held is old:
            return held
        self._drop_idle()
        self._opened.append(held)
        if self._is_closed:
            held.close(0.0)
            raise self._closed()
        try:
            with held.lock:
                if held.pid:  # or a fork has closed it already, and it is opened again
                    self._version = steps.prepare(held.connection, self.url, self._version)
                    if self._version:
                        held.note_log()
        except BaseException:
            held.close(0.0)
            raise
        return held

    def _closed(self) -> StoreUnavailable:
        return StoreUnavailable(self.url, "use", "it was closed")

    def _drop_idle(self) -> None:
        """Closes the connections of threads that have ended: a server may have one per request."""
        for held in [each for each in self._opened if each.is_closed or not each.thread.is_alive()]:
            with suppress(ValueError):  # another thread was first
                self._opened.remove(held)
            held.close(0.0)

    def _use(self, what: str, work: Callable[..., Done], *args: Any) -> Done:
        """The work on this thread's connection; waits for SQLite's lock, and translates errors."""
        wait: LockWait | None = None
        while True:
            try:
                held = self._mine.held
                if held is None or not held.pid or not _HERE[0]:  # or it may be a parent's
                    held = self._hold()
                with held.lock:
                    if held.pid:  # or it was closed meanwhile, and is opened again
                        connection = held.connection
                        if connection.in_transaction:
                            steps.undo(connection)  # what was interrupted has not happened
                        done = work(connection, *args)
                        if what != "read" and held.file is not None:
                            try:  # check_file, without a frame
                                found = stat(held.file)  # noqa: PTH116 -- after every write
                                log = held.log_inode and stat(held.log).st_ino  # noqa: PTH116
                            except OSError:
                                held.check_file()
                            else:
                                if (
                                    found.st_ino != held.inode
                                    or log != held.log_inode
                                    or found.st_dev != held.device
                                ):
                                    held.check_file()
                        return done
            except sqlite3.Error as error:
                wait = self._go_on_after(error, what, wait)
            except FileReplacedError as error:
                raise StoreUnavailable(self.url, what, str(error)) from None

    def _go_on_after(self, error: sqlite3.Error, what: str, wait: LockWait | None) -> LockWait:
        """Waits a moment if another connection had the lock; raises any other error."""
        if not is_busy(error):
            raise _failure(error, self, what) from error
        wait = wait or LockWait(self.timeout)
        if not wait.goes_on():
            late = LockTimeoutError(f"{error}: {wait.reason()}")
            raise _failure(late, self, what) from error
        return wait

    def _step(self, what: str, work: Callable[..., Done], *args: Any) -> Done:
        """The work as one transaction, or nothing of it."""
        done: Done = self._use(what, steps.whole, work, *args)
        return done

    def _migrate(self) -> None:
        """Brings the schema up to date; of several processes that start, one does it."""
        if self._memory is None:
            self._use("open", steps.into_wal)
        self._step("migrate", steps.migrated, self.url)
        self._version = self._use("open", steps.version_of)
        self._hold().note_log()


class _Bound(SqliteStore):
    """A store on a connection of the caller's, in the caller's transaction."""

    takes_hints = False

    def __init__(self, store: SqliteStore, connection: sqlite3.Connection) -> None:
        self.url = store.url
        self.timeout = store.timeout
        self.synchronous = store.synchronous
        self.path, self._place = store.path, absolute(store.path)
        self._theirs = connection
        self._shares = False
        self.max_value = steps.longest(connection)

    def transact_many(self, steps: Sequence[Step]) -> list[Any]:
        return self._write_batch(list(steps))

    def transact_new(self, new: Sequence[Step]) -> None:
        """Nothing: a statement of its own would be committed by itself."""

    async def atransact(self, space: str, key: str, decide: Decide[Reply]) -> Reply:
        return self.transact(space, key, decide)

    def read(self, space: str, key: str) -> tuple[bytes | None, float]:
        return self._use("read", steps.read, space, key)

    def _use(self, what: str, work: Callable[..., Done], *args: Any) -> Done:
        CONNECTIONS.check(self._place, self.url)
        try:
            return in_time(self._theirs, self.timeout, work, *args)
        except sqlite3.Error as error:
            raise _failure(error, self, what) from error

    def _step(self, what: str, work: Callable[..., Done], *args: Any) -> Done:
        if not self._theirs.in_transaction:
            self._use(what, steps.begin)
        return self._use(what, work, *args)

    def close(self) -> None:
        """Does nothing: the connection is the caller's."""


def path_of(url: str) -> str:
    """The file a URL names."""
    rest = urlsplit(url).path
    path = unquote(rest.removeprefix("/"))
    if not path:
        raise StoreError(
            f"{without_secrets(url)} names no file",
            hint="sqlite:///mainstay.db, or sqlite:////var/lib/app.db",
        )
    return path


def _failure(error: sqlite3.Error, store: SqliteStore, what: str) -> Exception:
    """The error for the caller."""
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_TOOBIG:
        return ValueTooLarge(store.url, None, store.max_value)
    return StoreUnavailable(store.url, what, _translated(error))


def _translated(error: sqlite3.Error) -> str:
    """The reason of an error, and what to do about it."""
    text = without_secrets(str(error))
    if isinstance(error, LockTimeoutError):
        return text
    hints = {
        "locked": "another connection held the lock",
        "readonly": "the file or its folder cannot be written",
        "full": "the disk is full",
        "malformed": "the file is damaged; restore a copy, or move it aside to start a new one",
        "not a database": "the file is damaged or no database; move it aside to start a new one",
        "unable to open": "the file cannot be opened; does its folder exist?",
        "no such table": "its tables are gone; was the file replaced while it was in use?",
    }
    found = [hint for word, hint in hints.items() if word in text]
    return f"{text}: {found[0]}" if found else text
