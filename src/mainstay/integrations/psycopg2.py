"""psycopg2: a whole transaction, again if it failed before its COMMIT or was rolled back.

`run_transaction` is for users. The time that is left for the call becomes the server's
`statement_timeout` in the transaction, and limits the wait for a connection and for each answer: a
server that never answers is given up in time as well.
"""

from __future__ import annotations

from contextlib import closing, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import psycopg2  # type: ignore[import-untyped]  # psycopg2 has no types
import psycopg2.extensions as extensions  # type: ignore[import-untyped]  # as above
from psycopg2 import errors

import mainstay.deadline as deadline
from mainstay.errors import UsageError
from mainstay.integrations.connection_deadline import LATE, connect_within, ended_after
from mainstay.integrations.transactions import Runs, limit_statement, named, shown_milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import TypeAlias, TypeVar

    from mainstay.integrations.transactions import Caller

    R = TypeVar("R")
    Connection: TypeAlias = Any
    """Of psycopg2, which has no types; as is a pool of it."""
    Source: TypeAlias = Connection | Callable[[], Connection]

__all__ = ["run_transaction"]

_FAILURES = (psycopg2.Error, OSError)
_SESSIONS: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""The statement_timeout of a session, in milliseconds, as it was when we first looked."""


def run_transaction(
    source: Source, function: Callable[[Connection], R], *, policy: Caller, idempotent: bool = False
) -> R:
    """Runs the function in a transaction, and the whole transaction again as the policy allows.

    After a serialization failure, a deadlock or a connection that was lost before COMMIT nothing is
    left of the transaction, and it is run again. If COMMIT fails and its outcome is not known,
    OutcomeUnknown is raised. The function may use the connection as it likes, except for COMMIT
    and ROLLBACK; what it does elsewhere is done again with each attempt.

    Args:
        source: a function that opens a connection, a pool of `psycopg2.pool`, or a connection that
            is not in autocommit. A connection that is lost stays lost: only the first two survive a
            restart of the server.
        function: called with a connection that is in a transaction.
        policy: a RetryPolicy or an engine's operation.
        idempotent: whether the transaction may be applied twice; then it is also run again if the
            outcome of COMMIT is not known.

    >>> from mainstay import RetryPolicy
    >>> def connect():
    ...     raise psycopg2.OperationalError("could not connect to server: Connection refused")
    >>> run_transaction(connect, print, policy=RetryPolicy(attempts=1))
    Traceback (most recent call last):
    psycopg2.OperationalError: could not connect to server: Connection refused
    """
    runs = Runs(function, idempotent=idempotent)

    def attempt() -> R:
        number = runs.begin()
        with _lent(source) as connection:
            return _once(connection, function, runs, number)

    with runs:
        return policy.call(named(attempt, function))


def _once(
    connection: Connection, function: Callable[[Connection], R], runs: Runs, number: int
) -> R:
    _refuse(connection)
    try:
        with bounded(connection), _rolled_back(connection):
            _limit(connection)
            value = function(connection)
            _refuse_aborted(connection)
            runs.commits(number)
            connection.commit()
    except _FAILURES as error:
        runs.failed(number, error)
        raise
    runs.committed()
    return value


@contextmanager
def _rolled_back(connection: Connection) -> Iterator[None]:
    """Rolls back after a failure, which comes through, also if the connection is lost."""
    try:
        yield
    except BaseException:
        with suppress(psycopg2.Error):
            connection.rollback()
        raise


def _refuse(connection: Connection) -> None:
    if connection.get_transaction_status() in (
        extensions.TRANSACTION_STATUS_INTRANS,
        extensions.TRANSACTION_STATUS_INERROR,
    ):
        raise UsageError(
            "the connection is in a transaction, which run_transaction cannot begin again",
            hint="commit or roll it back first, or hand over a function that connects",
        )
    if connection.autocommit:
        raise UsageError(
            "the connection is in autocommit: each statement would be a transaction of its own",
            hint="set `connection.autocommit = False`",
        )


def _refuse_aborted(connection: Connection) -> None:
    """The server answers COMMIT with a rollback, and no error, if a statement has failed before."""
    if connection.get_transaction_status() == extensions.TRANSACTION_STATUS_INERROR:
        raise errors.InFailedSqlTransaction(
            "a statement has failed, and the function went on: there is nothing to commit"
        )


# --- connections ----------------------------------------------------------------------------------


def _lent(source: Any) -> AbstractContextManager[Connection]:
    if isinstance(source, extensions.connection):
        return nullcontext(source)
    if hasattr(source, "getconn"):
        return _of_pool(source)
    return closing(_within(source, lambda connection: connection.close()))


@contextmanager
def _of_pool(pool: Any) -> Iterator[Connection]:
    def give_back(connection: Connection) -> None:
        pool.putconn(connection, close=bool(connection.closed))

    connection = _within(pool.getconn, give_back)
    try:
        yield connection
    finally:
        give_back(connection)


def _within(connect: Callable[[], Any], discard: Callable[[Any], object]) -> Any:
    """Connects within the time that is left, or not at all."""
    left = deadline.remaining()
    if left is None:
        return connect()
    return connect_within(left, connect, lambda: psycopg2.OperationalError(LATE), discard)


# --- the longest wait -----------------------------------------------------------------------------


def _limit(connection: Connection) -> None:
    """Limits the statements of the transaction to the time that is left, never to more than now."""
    left = deadline.remaining()
    if left is None:
        return
    with connection.cursor() as cursor:
        if connection not in _SESSIONS:
            cursor.execute("SHOW statement_timeout")  # takes no snapshot
            (shown,) = cursor.fetchone() or ("0",)
            _SESSIONS[connection] = shown_milliseconds(shown)
        statement = limit_statement(left, _SESSIONS[connection])
        if statement:
            cursor.execute(statement)


def bounded(connection: Connection) -> AbstractContextManager[None]:
    """Ends the connection when the time that is left is over; psycopg2 would wait on for ever."""
    left = deadline.remaining()
    return nullcontext() if left is None else ended_after(left, connection, connection.close)
