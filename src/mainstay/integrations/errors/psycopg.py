"""psycopg (3) and psycopg_pool: an SQLSTATE decides; without one, what libpq wrote.

An error of connecting carries the connection (`pgconn`); one of a statement does not.
"""

from __future__ import annotations

from mainstay.core.base.attributes import attribute
from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Row, Table
from mainstay.integrations.errors.sqlstate import by_sqlstate, connecting, lost

_WRONG = Row(Kind.PERMANENT, "a mistake in the call")
_BASE = Row(Kind.UNKNOWN, "a base class, which psycopg itself does not raise")
_NO_NAME = ("failed to resolve host", "no host found", "[Errno -")


def _sqlstate(exception: BaseException) -> tuple[str | None]:
    return (attribute(exception, "sqlstate"),)


def _sqlstate_or_phase(exception: BaseException) -> tuple[str]:
    """The SQLSTATE, or the one for what happened to the connection."""
    sqlstate: str | None = attribute(exception, "sqlstate")
    if sqlstate:
        return (sqlstate,)
    text = str(exception)
    starts = text.startswith(("connection failed", "connection is bad", *_NO_NAME))
    if starts or attribute(exception, "pgconn") is not None:
        return (connecting(text),)
    return (lost(text),)


_PERMANENT = by_sqlstate(_sqlstate, _WRONG)

TABLE = Table(
    "psycopg",
    {
        "psycopg.Error": by_sqlstate(_sqlstate, _BASE),
        "psycopg.Warning": Row(Kind.UNKNOWN, "a warning, which psycopg does not raise"),
        "psycopg.InterfaceError": _PERMANENT,
        "psycopg.DatabaseError": by_sqlstate(_sqlstate),
        "psycopg.DataError": _PERMANENT,
        "psycopg.OperationalError": by_sqlstate(_sqlstate_or_phase),
        "psycopg.IntegrityError": _PERMANENT,
        "psycopg.InternalError": by_sqlstate(
            _sqlstate, Row(Kind.UNKNOWN, "libpq is in a state that psycopg does not expect")
        ),
        "psycopg.ProgrammingError": _PERMANENT,
        "psycopg.NotSupportedError": _PERMANENT,
        "psycopg.Rollback": Row(Kind.PERMANENT, "the program leaves its transaction on purpose"),
        "psycopg.transaction.OutOfOrderTransactionNesting": _WRONG,
        "psycopg.errors.*": by_sqlstate(_sqlstate),
        "psycopg.errors.ConnectionTimeout": Row(
            Kind.TIMEOUT, "no connection was made in time, so nothing was sent"
        ),
        "psycopg.errors.CancellationTimeout": Row(
            Kind.TIMEOUT, "the request to cancel was not answered in time"
        ),
        "psycopg.errors._WaitTimeout": Row(
            Kind.TIMEOUT, "sent, and no answer in time", ambiguous=True
        ),
        "psycopg.errors.PipelineAborted": Row(
            Kind.PERMANENT, "an earlier statement of the pipeline failed"
        ),
        "psycopg_pool.PoolClosed": Row(Kind.PERMANENT, "the pool is closed"),
        "psycopg_pool.PoolTimeout": Row(
            Kind.TIMEOUT, "no connection of the pool was free in time, so nothing was sent"
        ),
        "psycopg_pool.TooManyRequests": Row(
            Kind.OVERLOAD, "too many wait for a connection of the pool"
        ),
    },
    packages=("psycopg", "psycopg_pool"),
    retries="none; psycopg_pool repeats connecting for `reconnect_timeout`",
)
