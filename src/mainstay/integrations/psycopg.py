"""psycopg (3): a whole transaction, again if it failed before its COMMIT or was rolled back.

`run_transaction`, `arun_transaction` and `limited` are for users. The time that is left for the
call becomes the server's `statement_timeout` in the transaction, the pool's timeout, and the
longest wait for a connection and for an answer: a server that never answers is given up in time as
well. `limited` makes connections with such limits of their own.
"""

from __future__ import annotations

from asyncio import wait_for
from contextlib import asynccontextmanager, closing, contextmanager, nullcontext
from inspect import signature
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import scalar_row

import mainstay.deadline as deadline
from mainstay.core.base.validate import Checker
from mainstay.errors import UsageError
from mainstay.integrations.connection_deadline import LATE, connect_within, ended_after
from mainstay.integrations.transactions import (
    Runs,
    client_limit,
    limit_statement,
    named,
    shown_milliseconds,
)
from mainstay.runtime.clock import SYSTEM

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from typing import TypeAlias, TypeVar

    from psycopg_pool import AsyncConnectionPool, ConnectionPool

    from mainstay.core.base.types import Seconds
    from mainstay.integrations.transactions import Caller

    R = TypeVar("R")
    C = TypeVar("C", bound="psycopg.Connection[Any] | psycopg.AsyncConnection[Any]")
    Sync: TypeAlias = psycopg.Connection[Any]
    Async: TypeAlias = psycopg.AsyncConnection[Any]
    Source: TypeAlias = Sync | ConnectionPool[Any] | Callable[[], Sync]
    AsyncSource: TypeAlias = Async | AsyncConnectionPool[Any] | Callable[[], Awaitable[Async]]

__all__ = ["arun_transaction", "limited", "run_transaction"]

_FAILURES = (psycopg.Error, OSError)
_CAN_WAIT = "timeout" in signature(psycopg.Connection.wait).parameters
"""Whether the wait for an answer can be limited; since psycopg 3.3."""
_NO_ANSWER: type[psycopg.Error] = getattr(psycopg.errors, "_WaitTimeout", psycopg.Error)
_SESSIONS: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""The statement_timeout of a session, in milliseconds, as it was when we first looked."""


def run_transaction(
    source: Source, function: Callable[[Sync], R], *, policy: Caller, idempotent: bool = False
) -> R:
    """Runs the function in a transaction, and the whole transaction again as the policy allows.

    After a serialization failure, a deadlock or a connection that was lost before COMMIT nothing is
    left of the transaction, and it is run again. If COMMIT fails and its outcome is not known,
    OutcomeUnknown is raised. The function may use the connection as it likes, except for COMMIT
    and ROLLBACK; what it does elsewhere is done again with each attempt.

    Args:
        source: a pool, a function that opens a connection, or a connection. A connection that is
            lost stays lost: only the first two survive a restart of the server.
        function: called with a connection that is in a transaction.
        policy: a RetryPolicy or an engine's operation.
        idempotent: whether the transaction may be applied twice; then it is also run again if the
            outcome of COMMIT is not known.

    >>> from mainstay import RetryPolicy
    >>> class Pool:
    ...     def connection(self, timeout=None):
    ...         raise psycopg.errors.ConnectionTimeout("connection timeout expired")
    >>> run_transaction(Pool(), print, policy=RetryPolicy(attempts=1))
    Traceback (most recent call last):
    psycopg.errors.ConnectionTimeout: connection timeout expired
    """
    runs = Runs(function, idempotent=idempotent)

    def attempt() -> R:
        number = runs.begin()
        with _lent(source) as connection:
            return _once(connection, function, runs, number)

    with runs:
        return policy.call(named(attempt, function))


async def arun_transaction(
    source: AsyncSource,
    function: Callable[[Async], Awaitable[R]],
    *,
    policy: Caller,
    idempotent: bool = False,
) -> R:
    """Like `run_transaction`, for an AsyncConnection, an AsyncConnectionPool and async functions.

    >>> import asyncio
    >>> from mainstay import RetryPolicy
    >>> async def connect():
    ...     raise psycopg.errors.ConnectionTimeout("connection timeout expired")
    >>> asyncio.run(arun_transaction(connect, print, policy=RetryPolicy(attempts=1)))
    Traceback (most recent call last):
    psycopg.errors.ConnectionTimeout: connection timeout expired
    """
    runs = Runs(function, idempotent=idempotent)

    async def attempt() -> R:
        number = runs.begin()
        async with _alent(source) as connection:
            return await _aonce(connection, function, runs, number)

    with runs:
        return await policy.acall(named(attempt, function))


def _once(connection: Sync, function: Callable[[Sync], R], runs: Runs, number: int) -> R:
    _refuse_open(connection)
    value: Any = None  # of a function that raises psycopg.Rollback
    try:
        with bounded(connection), connection.transaction():
            _limit(connection)
            value = function(connection)
            _refuse_aborted(connection)
            runs.commits(number)
    except _FAILURES as error:
        runs.failed(number, error)
        raise
    runs.committed()
    return value  # type: ignore[no-any-return]


async def _aonce(
    connection: Async, function: Callable[[Async], Awaitable[R]], runs: Runs, number: int
) -> R:
    _refuse_open(connection)
    value: Any = None
    try:
        with abounded(connection):
            async with connection.transaction():
                await _alimit(connection)
                value = await function(connection)
                _refuse_aborted(connection)
                runs.commits(number)
    except _FAILURES as error:
        runs.failed(number, error)
        raise
    runs.committed()
    return value  # type: ignore[no-any-return]


def _refuse_open(connection: Sync | Async) -> None:
    if connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
        raise UsageError(
            "the connection is in a transaction, which run_transaction cannot begin again",
            hint="commit or roll it back first, or hand over a pool",
        )


def _refuse_aborted(connection: Sync | Async) -> None:
    """The server answers COMMIT with a rollback, and no error, if a statement has failed before."""
    if connection.info.transaction_status is TransactionStatus.INERROR:
        raise psycopg.errors.InFailedSqlTransaction(
            "a statement has failed, and the function went on: there is nothing to commit"
        )


# --- connections ----------------------------------------------------------------------------------


def _lent(source: Source) -> AbstractContextManager[Sync]:
    if isinstance(source, psycopg.Connection):
        return nullcontext(source)
    if hasattr(source, "connection"):
        return source.connection(timeout=deadline.remaining())
    left = deadline.remaining()
    if left is None:
        return closing(source())
    return closing(connect_within(left, source, _late, lambda connection: connection.close()))


@asynccontextmanager
async def _alent(source: AsyncSource) -> AsyncIterator[Async]:
    lent: AbstractAsyncContextManager[Async]
    if isinstance(source, psycopg.AsyncConnection):
        lent = nullcontext(source)
    elif hasattr(source, "connection"):
        lent = source.connection(timeout=deadline.remaining())
    else:
        lent = _aclosing(await _made(source()))
    async with lent as connection:
        yield connection


async def _made(connecting: Awaitable[Async]) -> Async:
    """The connection, if it is made in the time that is left."""
    try:
        return await wait_for(connecting, deadline.remaining())
    except TimeoutError as error:
        raise _late() from error


def _late() -> psycopg.Error:
    return psycopg.errors.ConnectionTimeout(LATE)


@asynccontextmanager
async def _aclosing(connection: Async) -> AsyncIterator[Async]:
    try:
        yield connection
    finally:
        await connection.close()


# --- the longest wait -----------------------------------------------------------------------------

_SHOW = b"SHOW statement_timeout"  # takes no snapshot: SET TRANSACTION is still allowed after it


def _limit(connection: Sync) -> None:
    """Limits the statements of the transaction to the time that is left, never to more than now."""
    left = deadline.remaining()
    if left is None:
        return
    if connection not in _SESSIONS:
        with connection.cursor(row_factory=scalar_row) as cursor:
            _SESSIONS[connection] = shown_milliseconds(cursor.execute(_SHOW).fetchone() or "0")
    statement = limit_statement(left, _SESSIONS[connection])
    if statement:
        connection.execute(statement.encode())


async def _alimit(connection: Async) -> None:
    left = deadline.remaining()
    if left is None:
        return
    if connection not in _SESSIONS:
        async with connection.cursor(row_factory=scalar_row) as cursor:
            shown = await (await cursor.execute(_SHOW)).fetchone()
            _SESSIONS[connection] = shown_milliseconds(shown or "0")
    statement = limit_statement(left, _SESSIONS[connection])
    if statement:
        await connection.execute(statement.encode())


@contextmanager
def bounded(connection: Sync) -> Iterator[None]:
    """Limits each wait for the server to the time that is left; past it, the connection is closed.

    libpq waits for ever on a network that has lost the connection.
    """
    left = deadline.remaining()
    if left is None or not _CAN_WAIT:
        with nullcontext() if left is None else ended_after(left, connection, connection.close):
            yield
        return
    plain = connection.wait

    def wait(gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        left = _shorter(deadline.remaining() or 0.001, timeout)
        try:
            return plain(gen, min(interval, left), left)
        except _NO_ANSWER:
            connection.close()
            raise

    connection.wait = wait  # type: ignore[method-assign]
    try:
        yield
    finally:
        del connection.wait


@contextmanager
def abounded(connection: Async) -> Iterator[None]:
    """The same for an AsyncConnection.

    It must come before the policy cancels the attempt: psycopg then waits for ten seconds more.
    """
    left = deadline.remaining()
    if left is None or not _CAN_WAIT:
        finish = connection.pgconn.finish
        with nullcontext() if left is None else ended_after(client_limit(left), connection, finish):
            yield
        return
    plain = connection.wait

    async def wait(
        gen: Any,
        interval: float = 0.1,
        timeout: float | None = None,  # noqa: ASYNC109 -- as psycopg has it
    ) -> Any:
        left = _shorter(client_limit(deadline.remaining() or 0.0), timeout)
        try:
            return await plain(gen, min(interval, left), left)
        except _NO_ANSWER:
            await connection.close()
            raise

    connection.wait = wait  # type: ignore[method-assign]
    try:
        yield
    finally:
        del connection.wait


def _shorter(left: float, timeout: float | None) -> float:
    return left if timeout is None else min(left, timeout)


# --- connections with limits of their own ---------------------------------------------------------

_TICK = 0.1
"""How often psycopg comes back while it connects: the limit is met to half of that."""
_GRACE = 0.05
"""Seconds by which the server may give up before the client: its answer keeps the connection."""


def limited(base: type[C], *, connect: Seconds, query: Seconds) -> type[C]:
    """A class of connections that wait no longer than this, whatever the network does.

    libpq takes whole seconds for connecting, and has no limit for an answer: on a network that has
    lost the connection it waits for ever. A connection that got no answer is closed. Set the
    server's `statement_timeout` to the same time, so that it gives up the statement itself.

    Args:
        base: `psycopg.Connection` or `psycopg.AsyncConnection`, or a class of yours.
        connect: seconds to establish a connection to one host.
        query: seconds to wait for the answer to a statement; needs psycopg 3.3 or newer.

    >>> Limited = limited(psycopg.Connection, connect=2.5, query=10.0)
    >>> Limited.__name__, issubclass(Limited, psycopg.Connection)
    ('Connection', True)
    """
    check = Checker("limited")
    limits = {
        "connect_limit": check.seconds("connect", connect, zero=False),
        "query_limit": check.seconds("query", query, zero=False),
    }
    check.close()
    mixin = _AsyncLimited if issubclass(base, psycopg.AsyncConnection) else _Limited
    return type(base.__name__, (mixin, base), limits)


class _Connecting:
    """Limits the time for connecting, also to a part of a second."""

    connect_limit: float
    query_limit: float

    @classmethod
    def _connect_gen(cls, conninfo: str = "", **options: Any) -> Any:
        """As psycopg drives it, which comes back at least every tenth of a second."""
        end = SYSTEM.monotonic() + cls.connect_limit - _TICK / 2.0
        inner = super()._connect_gen(conninfo, **options)  # type: ignore[misc]
        try:
            asked = next(inner)
            while True:
                ready = yield asked
                if not ready and SYSTEM.monotonic() >= end:
                    inner.close()
                    raise psycopg.errors.ConnectionTimeout("connection timeout expired")
                asked = inner.send(ready)
        except StopIteration as done:
            return done.value

    def _longest(self, timeout: float | None) -> float:
        return _shorter(self.query_limit + _GRACE, timeout)


class _Limited(_Connecting):
    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """As Connection, for no longer than the limit."""
        if not _CAN_WAIT:
            return super().wait(gen, interval)  # type: ignore[misc]
        left = self._longest(timeout)
        try:
            return super().wait(gen, min(interval, left), left)  # type: ignore[misc]
        except _NO_ANSWER:
            self.close()  # type: ignore[attr-defined]
            raise


class _AsyncLimited(_Connecting):
    async def wait(
        self,
        gen: Any,
        interval: float = 0.1,
        timeout: float | None = None,  # noqa: ASYNC109 -- as psycopg has it
    ) -> Any:
        """As AsyncConnection, for no longer than the limit."""
        if not _CAN_WAIT:
            return await super().wait(gen, interval)  # type: ignore[misc]
        left = self._longest(timeout)
        try:
            return await super().wait(gen, min(interval, left), left)  # type: ignore[misc]
        except _NO_ANSWER:
            await self.close()  # type: ignore[attr-defined]
            raise
