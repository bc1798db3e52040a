"""The PostgreSQL store: records in one table, shared by all processes that reach the server.

A step is two round trips: one reads the record and the server's clock, one writes on the condition
that the record is unchanged. The statements are in statements.py, the connections in pool.py; here
the statements are executed, and errors are translated.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from mainstay.errors import MissingExtraError, StoreError, StoreUnavailable, ValueTooLarge
from mainstay.runtime.clock import SYSTEM
from mainstay.runtime.store_clock import StoreClock

try:
    import psycopg
except ImportError:
    raise MissingExtraError("psycopg", "postgres") from None
from mainstay.stores.options import without_secrets
from mainstay.stores.postgres import statements as steps
from mainstay.stores.postgres.batch import many
from mainstay.stores.postgres.pool import Pools, TimedOutError
from mainstay.stores.postgres.url import PostgresUrl
from mainstay.stores.time_left import LEAST, shown, time_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, TypeVar

    from mainstay.core.base.change import Decide, Reply
    from mainstay.ports import Journal, Statement, Step
    from mainstay.stores.postgres.statements import RoundTrip, Rows, Steps

    Answer = TypeVar("Answer")


class PostgresStore:
    """Keeps records in a PostgreSQL database, safe between machines.

    Opening it creates or updates its tables. `within(connection)` gives a view of it that takes
    part in a transaction of the caller's own.

    Args:
        url: `postgresql://user:password@host:port/database`, with `?timeout=5` seconds for each
            operation (a new connection may take 2 at least), `&pool=10` connections for threads
            and as many for each event loop; all other parameters are libpq's own.
    """

    abilities = frozenset(
        {"records", "circuits", "budgets", "inbox", "durable", "transactions", "audit"}
    )
    locks = False
    max_value: int | None = steps.LARGEST

    def __init__(self, url: str) -> None:
        address = PostgresUrl(url)
        self.url = address.shown
        self.timeout = address.timeout
        self.address = address
        self._clock = StoreClock(self.url)
        self._pools = Pools(address.params, address.pool, address.timeout)
        try:
            self._run("open", lambda: steps.migrate(self.url))
        except BaseException:
            self.close()
            raise

    # --- steps -----------------------------------------------------------------------------------

    def transact(self, space: str, key: str, decide: Decide[Reply]) -> Reply:
        """Reads, decides and writes as one step."""
        return self._run("write", lambda: self._step(space, key, decide))

    def transact_many(self, batch: Sequence[Step]) -> list[Any]:
        """Many steps in two round trips; one that loses the race for its record makes its own.

        A step of its own may fail alone, and has the time that the others have left.
        """
        answers: list[Any] = [None] * len(batch)
        seconds = time_for(self.timeout)
        until = SYSTEM.monotonic() + seconds
        for number in self._run("write", lambda: many(batch, answers), seconds):
            alone, left = partial(self._step, *batch[number]), until - SYSTEM.monotonic()
            try:
                answers[number] = self._run("write", alone, max(left, LEAST))
            except Exception as error:
                answers[number] = error
        return answers

    def transact_also(
        self, space: str, key: str, decide: Decide[Reply], also: Sequence[Statement]
    ) -> Reply:
        """A step with other statements in its transaction, which only a change executes."""
        return self._run("write", lambda: steps.step_also(space, key, decide, also))

    async def atransact(self, space: str, key: str, decide: Decide[Reply]) -> Reply:
        """The same, on a connection of the running event loop."""
        return await self._arun("write", lambda: self._step(space, key, decide))

    def read(self, space: str, key: str) -> tuple[bytes | None, float]:
        """The record and the server's clock, without a lock."""
        return self._run("read", lambda: steps.read(space, key))

    async def aread(self, space: str, key: str) -> tuple[bytes | None, float]:
        """The same, on a connection of the running event loop."""
        return await self._arun("read", lambda: steps.read(space, key))

    def scan(self, space: str, after: str = "", limit: int = 100) -> list[tuple[str, bytes]]:
        """The records of a space in the order of their keys, page by page."""
        return self._run("scan", lambda: steps.scan(space, after, limit))

    def purge(self, limit: int = 1000) -> int:
        """Drops records that have expired; how many."""
        return self._run("purge", lambda: steps.purge(limit, self._clock.before_jumps))

    def _step(self, space: str, key: str, decide: Decide[Reply]) -> Steps[Reply]:
        return steps.step(space, key, decide)

    # --- the store itself ------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """What there is to know: version, schema, and how long a reading took."""
        version, _ = self._run("describe", steps.server)
        started = SYSTEM.monotonic()
        self.read("", "")
        latency = SYSTEM.monotonic() - started
        return {
            "store": "postgresql",
            "url": self.url,
            "version": version,
            "schema": self._run("describe", steps.version),
            "max_value": self.max_value,
            "latency_ms": round(latency * 1000, 3),
        }

    def within(self, connection: Any) -> PostgresStore:
        """This store on a connection of the caller's own: its steps commit with the caller's.

        If two transactions change the same record, the second waits for the end of the first, for
        `timeout` at most, and then reads what it has committed. The pool is not used; if the server
        does not answer, the connection's own settings bound the wait.

        Args:
            connection: psycopg's Connection or AsyncConnection, or a Connection of SQLAlchemy on
                top of one.
        """
        return _Within(self, connection)

    def journal(self, *, closes: bool = False, synchronous: str = "") -> Journal:  # noqa: ARG002
        """The audit log of this database; the server's settings decide how durable a commit is."""
        from mainstay.stores.postgres.journal import PostgresJournal

        return PostgresJournal(self, closes=closes)

    def drive(self, what: str, make: Callable[[], Steps[Answer]]) -> Answer:
        """Drives steps of another module on a connection for threads."""
        return self._run(what, make)

    def close(self) -> None:
        """Closes every connection; those in use when they come back."""
        self._pools.close()

    # --- driving the steps -----------------------------------------------------------------------

    def _run(
        self, what: str, make: Callable[[], Steps[Answer]], seconds: float | None = None
    ) -> Answer:
        """Drives steps on a connection for threads."""
        self._check_open(what)
        seconds = time_for(self.timeout) if seconds is None else seconds
        until = SYSTEM.monotonic() + seconds
        while True:
            pool = self._pools.of_threads()
            try:
                connection, is_new = pool.take(until)
            except psycopg.Error as error:
                raise self._translated(what, error, seconds) from error
            try:
                return self._drive(connection, make(), what, seconds, may_be_stale=not is_new)
            except _Stale:
                pool.idle.clear()
            finally:
                pool.give(connection)

    async def _arun(self, what: str, make: Callable[[], Steps[Answer]]) -> Answer:
        """Drives steps on a connection of the running loop; under trio, in a thread."""
        trio = sys.modules.get("trio")
        if trio is not None and trio.lowlevel.in_trio_task():
            seconds = time_for(self.timeout)  # read here: what encloses a call is on this stack
            return await trio.to_thread.run_sync(self._run, what, make, seconds)  # type: ignore[no-any-return]
        self._check_open(what)
        seconds = time_for(self.timeout)
        until = SYSTEM.monotonic() + seconds
        while True:
            pool = self._pools.of_loop()
            try:
                connection, is_new = await pool.take(until)
            except psycopg.Error as error:
                raise self._translated(what, error, seconds) from error
            try:
                return await self._adrive(
                    connection, make(), what, seconds, may_be_stale=not is_new
                )
            except _Stale:
                pool.idle.clear()
            finally:
                pool.give(connection)

    def _drive(
        self,
        connection: Any,
        round_trips: Steps[Answer],
        what: str,
        seconds: float,
        *,
        may_be_stale: bool = False,
    ) -> Answer:
        """Drives the round trips; only errors of the server are translated, not of a decision."""
        try:
            round_trip = next(round_trips)
            while True:
                try:
                    rows = _execute(connection, round_trip)
                except psycopg.Error as error:
                    raised = self._translated(what, error, seconds, may_be_stale=may_be_stale)
                    raise raised from error
                may_be_stale = False  # from here on something may have been written
                round_trip = round_trips.send(rows)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    async def _adrive(
        self,
        connection: Any,
        round_trips: Steps[Answer],
        what: str,
        seconds: float,
        *,
        may_be_stale: bool = False,
    ) -> Answer:
        """The same, awaiting."""
        try:
            round_trip = next(round_trips)
            while True:
                try:
                    rows = await _aexecute(connection, round_trip)
                except psycopg.Error as error:
                    raised = self._translated(what, error, seconds, may_be_stale=may_be_stale)
                    raise raised from error
                may_be_stale = False
                round_trip = round_trips.send(rows)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    def _translated(
        self, what: str, error: psycopg.Error, seconds: float, *, may_be_stale: bool = False
    ) -> _Stale | StoreUnavailable | ValueTooLarge:
        """The error for the caller: StoreUnavailable with the server's reason, as a rule."""
        if may_be_stale and _is_lost(error):
            return _Stale()
        if isinstance(error, psycopg.errors.ProgramLimitExceeded):
            return ValueTooLarge(self.url, None, self.max_value)
        limit = shown(seconds, self.timeout)
        reason = without_secrets(self.address.hide(_reason(error, limit)))
        return StoreUnavailable(self.url, what, reason)

    def _check_open(self, what: str) -> None:
        if self._pools.is_closed:
            raise StoreUnavailable(self.url, what, "the store was closed")


class _Within(PostgresStore):
    """A store on a connection of the caller's, in the caller's transaction."""

    def __init__(self, store: PostgresStore, connection: Any) -> None:
        self.url = store.url
        self.timeout = store.timeout
        self.address = store.address
        self._clock = store._clock  # noqa: SLF001 -- of the same store
        self._theirs = _driver_connection(connection)
        self._is_async = isinstance(self._theirs, psycopg.AsyncConnection)

    def close(self) -> None:
        """Does nothing: the connection is the caller's."""

    def _step(self, space: str, key: str, decide: Decide[Reply]) -> Steps[Reply]:
        return steps.step_within(space, key, decide, time_for(self.timeout))

    def _run(
        self, what: str, make: Callable[[], Steps[Answer]], seconds: float | None = None
    ) -> Answer:
        if self._is_async:
            raise StoreError("the connection is async", hint="await atransact() or aread()")
        self._check_transaction()
        seconds = time_for(self.timeout) if seconds is None else seconds
        return self._drive(self._theirs, make(), what, seconds)

    async def _arun(self, what: str, make: Callable[[], Steps[Answer]]) -> Answer:
        if not self._is_async:
            return await asyncio.to_thread(self._run, what, make, time_for(self.timeout))
        self._check_transaction()
        return await self._adrive(self._theirs, make(), what, time_for(self.timeout))

    def _check_transaction(self) -> None:
        idle = psycopg.pq.TransactionStatus.IDLE
        if self._theirs.autocommit and self._theirs.pgconn.transaction_status == idle:
            raise StoreError(
                "the connection commits by itself, and no transaction is under way",
                hint="use `with connection.transaction():` around it",
            )


def _driver_connection(connection: Any) -> Any:
    """The connection of psycopg; a Connection of SQLAlchemy has one inside."""
    found = connection
    for name in ("sync_connection", "connection", "driver_connection"):
        if not isinstance(found, psycopg.Connection | psycopg.AsyncConnection):
            found = getattr(found, name, found)
    if not isinstance(found, psycopg.Connection | psycopg.AsyncConnection):
        raise StoreError(
            f"a {type(connection).__qualname__} is no connection of psycopg",
            hint="give psycopg's Connection or AsyncConnection, or SQLAlchemy's Connection",
        )
    return found


# --- one round trip -------------------------------------------------------------------------------


def _execute(connection: Any, round_trip: RoundTrip) -> Rows:
    """One round trip."""
    kept = getattr(connection, "own_cursor", None) if "key" in round_trip.values else None
    cursor = kept or _cursor(connection)
    if not round_trip.before and not round_trip.after:
        cursor.execute(round_trip.text, round_trip.values, binary=True)
    else:
        failures: list[BaseException] = []
        try:
            with connection.pipeline(), _kept(failures):
                for text, values in round_trip.before:
                    _cursor(connection).execute(text, values)
                cursor.execute(round_trip.text, round_trip.values, binary=True)
                for text, values in round_trip.after:
                    _cursor(connection).execute(text, values)
        finally:
            if failures:
                raise failures.pop()
    rows = cursor.fetchall() if _has_rows(cursor) else []
    if kept is not None and _is_large(round_trip, rows):
        connection.own_cursor = _cursor(connection)
    return rows


async def _aexecute(connection: Any, round_trip: RoundTrip) -> Rows:
    """The same, awaiting."""
    kept = getattr(connection, "own_cursor", None) if "key" in round_trip.values else None
    cursor = kept or _acursor(connection)
    if not round_trip.before and not round_trip.after:
        await cursor.execute(round_trip.text, round_trip.values, binary=True)
    else:
        failures: list[BaseException] = []
        try:
            async with connection.pipeline():
                with _kept(failures):
                    for text, values in round_trip.before:
                        await _acursor(connection).execute(text, values)
                    await cursor.execute(round_trip.text, round_trip.values, binary=True)
                    for text, values in round_trip.after:
                        await _acursor(connection).execute(text, values)
        finally:
            if failures:
                raise failures.pop()
    rows = await cursor.fetchall() if _has_rows(cursor) else []
    if kept is not None and _is_large(round_trip, rows):
        connection.own_cursor = _acursor(connection)
    return rows


@contextmanager
def _kept(failures: list[BaseException]) -> Iterator[None]:
    """Keeps what is raised, to be raised when the pipeline has ended.

    If an error leaves the block of a pipeline and the connection is gone, psycopg logs that the
    pipeline could not be ended either: a warning for each step during an outage.
    """
    try:
        yield
    except BaseException as error:
        failures.append(error)


def _is_large(round_trip: RoundTrip, rows: Rows) -> bool:
    """Whether a cursor would hold much until its next statement: what it sent, or what it got."""
    sent = round_trip.values.get("value")
    got = rows[0][1] if rows and len(rows[0]) > 1 else None
    return (sent is not None and len(sent) > _LARGE) or (got is not None and len(got) > _LARGE)


_LARGE = 65_536
"""Bytes."""


def _cursor(connection: Any) -> psycopg.Cursor[tuple[Any, ...]]:
    """A plain cursor, whatever factories the connection has."""
    return psycopg.Cursor(connection, row_factory=psycopg.rows.tuple_row)


def _acursor(connection: Any) -> psycopg.AsyncCursor[tuple[Any, ...]]:
    return psycopg.AsyncCursor(connection, row_factory=psycopg.rows.tuple_row)


def _has_rows(cursor: Any) -> bool:
    """As `description` shows too, at ten times the cost."""
    return bool(cursor.pgresult and cursor.pgresult.nfields)


# --- errors ---------------------------------------------------------------------------------------


class _Stale(Exception):
    """An idle connection turned out to be dead before anything was written."""


def _is_lost(error: psycopg.Error) -> bool:
    """Whether the connection is gone, and not just late."""
    return (
        isinstance(error, psycopg.OperationalError)
        and not isinstance(error, TimedOutError)
        and (error.pgconn is None or error.pgconn.status != psycopg.pq.ConnStatus.OK)
    )


_ADVICE = {
    "password authentication failed": "check the user and the password in the URL",
    "no password supplied": "put a password into the URL, or into a password file",
    "role": "check the user in the URL",
    "database": "create it, or check its name in the URL",
    "could not translate host name": "check the host in the URL",
    "starting up": "try again in a moment",
    "too many": "raise max_connections, or use a smaller ?pool=",
    "permission denied for schema": "the owner has to open the store once, or GRANT CREATE on it",
    "permission denied for table": "GRANT SELECT, INSERT, UPDATE, DELETE on the mainstay_ tables",
    'mainstay_kept" does not exist': "its tables are gone; open the store again to create them",
}
"""What to do about an error, by a part of its text."""


def _reason(error: psycopg.Error, limit: str) -> str:
    """The reason of an error, and what to do about it."""
    text = " ".join((error.diag.message_primary or str(error)).split())
    if isinstance(error, TimedOutError | psycopg.errors.ConnectionTimeout):
        return f"{text} (timeout {limit})"
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return f"another transaction held the record for more than {limit}"
    if isinstance(error, psycopg.errors.SerializationFailure):
        return f"{text}: run your transaction again"
    found = [advice for words, advice in _ADVICE.items() if words in text]
    return f"{text}: {found[0]}" if found else text
