"""SQLAlchemy: a whole transaction, again if it failed before its COMMIT or was rolled back.

`run_transaction`, `arun_transaction` and `attach` are for users. The time that is left for the call
becomes PostgreSQL's `statement_timeout` in the transaction, or SQLite's `busy_timeout`. A
connection to PostgreSQL that an attempt needs is made in that time, or not at all, and the wait for
each answer is limited to it. Other databases have the limits of their engine.
"""

from __future__ import annotations

from contextlib import (
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from typing import TYPE_CHECKING, Any

import sqlalchemy
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, UnboundExecutionError
from sqlalchemy.orm import Session, sessionmaker

import mainstay.deadline as deadline
from mainstay.core.base.attributes import add_note
from mainstay.core.known.codes import codes_of
from mainstay.core.retry.kinds import kind_of
from mainstay.errors import UsageError
from mainstay.integrations.autocommit import sqlalchemy_commits
from mainstay.integrations.sqlalchemy_connect import ConnectTimeout, bounded, limit_connecting
from mainstay.integrations.transactions import (
    Runs,
    limit_statement,
    milliseconds,
    named,
    shown_milliseconds,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from typing import TypeAlias, TypeVar

    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine import ExceptionContext
    from sqlalchemy.ext.asyncio import (
        AsyncConnection,
        AsyncEngine,
        AsyncSession,
        async_sessionmaker,
    )

    from mainstay.integrations.transactions import Caller

    R = TypeVar("R")
    Source: TypeAlias = sessionmaker[Any] | Engine | Session | Connection
    AsyncSource: TypeAlias = async_sessionmaker[Any] | AsyncEngine | AsyncSession | AsyncConnection

__all__ = ["arun_transaction", "attach", "run_transaction"]

_FAILURES = (DBAPIError, OSError)
_SESSION = "mainstay_statement_timeout"
"""Where the pool keeps the statement_timeout of a session, in milliseconds."""
_STANDBY = "25006"
"""The SQLSTATE of a server that is read-only."""


def run_transaction(
    source: Source, function: Callable[[Any], R], *, policy: Caller, idempotent: bool = False
) -> R:
    """Runs the function in a transaction, and the whole transaction again as the policy allows.

    After a serialization failure, a deadlock, a locked database or a connection that was lost
    before COMMIT nothing is left of the transaction, and it is run again with objects that are read
    anew. If COMMIT fails and its outcome is not known, OutcomeUnknown is raised. The function may
    not commit or roll back; what it does elsewhere is done again with each attempt.

    Args:
        source: a sessionmaker or an Engine, which give each attempt a session or a connection of
            its own; or a Session or a Connection that is in no transaction.
        function: called with the session or the connection.
        policy: a RetryPolicy or an engine's operation.
        idempotent: whether the transaction may be applied twice; then it is also run again if the
            outcome of COMMIT is not known.

    >>> from mainstay import RetryPolicy, transient
    >>> from sqlalchemy import create_engine, text
    >>> engine = create_engine("sqlite://")
    >>> def double(connection):
    ...     return connection.execute(text("SELECT 21 * 2")).scalar()
    >>> run_transaction(engine, double, policy=RetryPolicy(on=transient))
    42
    >>> engine.dispose()
    """
    lend, runs = _lender(source), Runs(function, idempotent=idempotent)

    def attempt() -> R:
        number = runs.begin()
        with lend() as used:
            return _once(used, function, runs, number)

    with runs:
        return policy.call(named(attempt, function))


async def arun_transaction(
    source: AsyncSource,
    function: Callable[[Any], Awaitable[R]],
    *,
    policy: Caller,
    idempotent: bool = False,
) -> R:
    """Like `run_transaction`, for what `sqlalchemy.ext.asyncio` has, and async functions.

    >>> import asyncio
    >>> from mainstay import RetryPolicy
    >>> asyncio.run(arun_transaction("shop.db", print, policy=RetryPolicy(attempts=1)))
    Traceback (most recent call last):
    mainstay.errors.UsageError: str is no async_sessionmaker, AsyncEngine, AsyncSession or ...
    """
    lend, runs = _alender(source), Runs(function, idempotent=idempotent)

    async def attempt() -> R:
        number = runs.begin()
        async with lend() as used:
            return await _aonce(used, function, runs, number)

    with runs:
        return await policy.acall(named(attempt, function))


def attach(engine: Engine | AsyncEngine) -> None:
    """Lets an engine act on what is known of its errors and of the deadline; once for an engine.

    A server that answers "read-only" is a standby: a failover has moved the primary elsewhere. Its
    connections are dropped from the pool, so that the next attempt connects anew; a transaction
    that was opened read-only (`postgresql_readonly`) keeps its connection. Each error of the driver
    carries a note with its kind, and whether the statement may have been applied. And the time that
    is left limits the wait for the pool and connecting to PostgreSQL, as it does inside
    `run_transaction` in any case.

    >>> from sqlalchemy import create_engine, text
    >>> engine = create_engine("sqlite://")
    >>> attach(engine)
    >>> with engine.connect() as connection:
    ...     try:
    ...         connection.execute(text("SELECT * FROM nowhere"))
    ...     except sqlalchemy.exc.OperationalError as error:
    ...         error.__notes__
    ['mainstay: permanent: a statement that is wrong, or names what is not there']
    >>> engine.dispose()
    """
    listened: Any = getattr(engine, "sync_engine", engine)
    event.listen(listened, "handle_error", _on_error)
    event.listen(listened, "do_connect", ConnectTimeout())
    event.listen(listened, "engine_disposed", limit_connecting)  # it has another pool then
    limit_connecting(listened)


def _on_error(context: ExceptionContext) -> None:
    raised = context.sqlalchemy_exception
    if raised is None:
        return
    known = kind_of(raised)
    doubt = ", may have been applied" if known.is_ambiguous else ""
    add_note(raised, f"mainstay: {known.kind.value}{doubt}: {known.reason}")
    connection = context.connection
    if connection is not None and _STANDBY in codes_of(raised):
        options = connection.get_execution_options()
        context.is_disconnect = not options.get("postgresql_readonly", False)


# --- one attempt ----------------------------------------------------------------------------------


def _once(used: Any, function: Callable[[Any], R], runs: Runs, number: int) -> R:
    _refuse_autocommit(used)
    own = _Own()
    try:
        with ExitStack() as bounds, used.begin() as transaction:
            _refuse_autocommit_of_driver(used)
            bounds.enter_context(_bounded(used))  # and limits a rollback too
            with own:
                value = function(used)
                if isinstance(used, Session):
                    used.flush()  # its statements are not those of COMMIT
            if transaction.is_active:  # of one that the function has ended COMMIT is never sent
                runs.commits(number)
            transaction.commit()
    except _FAILURES as error:
        own.reraise()
        runs.failed(number, error)
        raise
    runs.committed()
    return value


async def _aonce(used: Any, function: Callable[[Any], Awaitable[R]], runs: Runs, number: int) -> R:
    _refuse_autocommit(getattr(used, "sync_session", None) or used.sync_connection)
    own = _Own()
    try:
        async with AsyncExitStack() as bounds, used.begin() as transaction:
            await used.run_sync(_refuse_autocommit_of_driver)
            await bounds.enter_async_context(_abounded(used))
            with own:
                value = await function(used)
                if hasattr(used, "flush"):
                    await used.flush()
            if transaction.is_active:
                runs.commits(number)
            await transaction.commit()
    except _FAILURES as error:
        own.reraise()
        runs.failed(number, error)
        raise
    runs.committed()
    return value


def _refuse_autocommit(used: Session | Connection) -> None:
    """Refuses what would leave the statements of a failed attempt applied: nothing is rolled back.

    SQLAlchemy knows what it was asked for, before it connects.
    """
    try:
        bind = used.get_bind() if isinstance(used, Session) else used
    except UnboundExecutionError:  # a session that has several, and chooses by the statement
        return
    on_connect = getattr(bind.dialect, "_on_connect_isolation_level", None)
    if bind.get_execution_options().get("isolation_level", on_connect) == "AUTOCOMMIT":
        raise _in_autocommit()


def _refuse_autocommit_of_driver(used: Session | Connection) -> None:
    """The same for what a driver was asked for, which only its connection knows."""
    connection = _connection(used)
    if connection is not None and sqlalchemy_commits(connection):
        raise _in_autocommit()


def _in_autocommit() -> UsageError:
    return UsageError(
        "the engine or connection is in autocommit: each statement would be a transaction of"
        " its own, and stay applied if a later one fails",
        hint="hand over one without isolation_level='AUTOCOMMIT', such as"
        " engine.execution_options(isolation_level='READ COMMITTED'), whose driver was not asked"
        " for autocommit either",
    )


class _Own:
    """What the function itself has failed with.

    SQLAlchemy raises the failure of a rollback in its place, and a lost connection would have a
    mistake run again.
    """

    __slots__ = ("_error",)

    def __init__(self) -> None:
        self._error: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._error = error

    def reraise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


def _lender(source: Any) -> Callable[[], AbstractContextManager[Any]]:
    """Gives each attempt its session or connection."""
    if isinstance(source, sessionmaker):
        limit_connecting(source.kw.get("bind"))
        return source
    if isinstance(source, sqlalchemy.Engine):
        limit_connecting(source)
        return source.connect
    if isinstance(source, Session | sqlalchemy.Connection):
        limit_connecting(getattr(source, "bind", None))
        return lambda: nullcontext(source)
    raise _no_source(source, "sessionmaker, Engine, Session or Connection")


def _alender(source: Any) -> Callable[[], AbstractAsyncContextManager[Any]]:
    import sqlalchemy.ext.asyncio as aio

    if isinstance(source, aio.async_sessionmaker):
        limit_connecting(source.kw.get("bind"))
        return source
    if isinstance(source, aio.AsyncEngine):
        limit_connecting(source)
        return source.connect
    if isinstance(source, aio.AsyncSession | aio.AsyncConnection):
        limit_connecting(getattr(source, "bind", None))
        return lambda: nullcontext(source)
    raise _no_source(source, "async_sessionmaker, AsyncEngine, AsyncSession or AsyncConnection")


def _no_source(source: Any, allowed: str) -> UsageError:
    return UsageError(
        f"{type(source).__qualname__} is no {allowed}",
        hint="run_transaction is for the sync ones, arun_transaction for the async ones",
    )


# --- the time that is left ------------------------------------------------------------------------


@contextmanager
def _bounded(used: Session | Connection) -> Iterator[None]:
    left = deadline.remaining()
    connection = None if left is None else _connection(used)
    if left is None or connection is None:
        yield
        return
    name = connection.dialect.name
    with _busy(connection, left) if name == "sqlite" else _waits(connection, left):
        if name == "postgresql":
            _limit(connection, left)
        yield


@asynccontextmanager
async def _abounded(used: Any) -> AsyncIterator[None]:
    left = deadline.remaining()
    connection = None if left is None else await used.run_sync(_connection)
    if left is None or connection is None:
        yield
        return
    with _waits(connection, left):
        if connection.dialect.name == "postgresql":
            await used.run_sync(lambda _: _limit(connection, left))
        yield


def _connection(used: Session | Connection) -> Connection | None:
    """The connection; None of a session that has several, and chooses by the statement."""
    if not isinstance(used, Session):
        return used
    try:
        return used.connection()
    except UnboundExecutionError:
        return None


def _limit(connection: Connection, left: float) -> None:
    """Limits the statements of the transaction, never to more than the session does."""
    session = connection.info.get(_SESSION)
    if session is None:
        shown = connection.exec_driver_sql("SHOW statement_timeout").scalar()
        session = connection.info[_SESSION] = shown_milliseconds(shown or "0")
    statement = limit_statement(left, session)
    if statement:
        connection.exec_driver_sql(statement)


def _waits(connection: Connection, left: float) -> AbstractContextManager[None]:
    """Limits the wait for an answer."""
    return bounded(connection.dialect, connection.connection.driver_connection, left)


@contextmanager
def _busy(connection: Connection, left: float) -> Iterator[None]:
    """Limits the wait for a lock of SQLite, never to more than the connection does."""
    raw: Any = connection.connection.driver_connection
    (before,) = raw.execute("PRAGMA busy_timeout").fetchone()
    raw.execute(f"PRAGMA busy_timeout = {min(before, milliseconds(left))}")
    try:
        yield
    finally:
        raw.execute(f"PRAGMA busy_timeout = {before}")
