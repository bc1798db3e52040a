"""psycopg2: an SQLSTATE (`pgcode`) decides; without one, what libpq wrote.

An error of connecting and one of a lost connection are of the same class, and carry the same: only
libpq's text differs. What does not begin as an error of connecting is ambiguous.
"""

from __future__ import annotations

from mainstay.core.base.attributes import attribute
from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Row, Table
from mainstay.integrations.errors.sqlstate import by_sqlstate, connecting, lost

_WRONG = Row(Kind.PERMANENT, "a mistake in the call")
_BASE = Row(Kind.UNKNOWN, "a base class, which psycopg2 itself does not raise")
_CONNECTING = ("connection to server ", "could not connect", "could not translate host name")


def _sqlstate(exception: BaseException) -> tuple[str | None]:
    return (attribute(exception, "pgcode"),)


def _sqlstate_or_phase(exception: BaseException) -> tuple[str]:
    """The SQLSTATE, or the one for what happened to the connection."""
    sqlstate: str | None = attribute(exception, "pgcode")
    if sqlstate:
        return (sqlstate,)
    text = str(exception)
    return (connecting(text) if text.startswith(_CONNECTING) else lost(text),)


def _closed(exception: BaseException) -> tuple[str | None]:
    """The code of a connection that was closed before; other misuse has none."""
    code = attribute(exception, "pgcode")
    return (code or ("08003" if lost(str(exception)) == "08003" else None),)


_PERMANENT = by_sqlstate(_sqlstate, _WRONG)
_LOST = by_sqlstate(_sqlstate_or_phase)

TABLE = Table(
    "psycopg2",
    {
        "psycopg2.Error": by_sqlstate(_sqlstate, _BASE),
        "psycopg2.Warning": Row(Kind.UNKNOWN, "a warning, which psycopg2 does not raise"),
        "psycopg2.InterfaceError": by_sqlstate(_closed, _WRONG),
        "psycopg2.DatabaseError": _LOST,
        "psycopg2.DataError": _PERMANENT,
        "psycopg2.OperationalError": _LOST,
        "psycopg2.IntegrityError": _PERMANENT,
        "psycopg2.InternalError": by_sqlstate(
            _sqlstate,
            Row(Kind.UNKNOWN, "a state that psycopg2 does not expect, or no connection string"),
        ),
        "psycopg2.ProgrammingError": _PERMANENT,
        "psycopg2.NotSupportedError": _PERMANENT,
        "psycopg2.errors.*": by_sqlstate(_sqlstate),
        "psycopg2.extensions.QueryCanceledError": by_sqlstate(
            _sqlstate, Row(Kind.TIMEOUT, "cancelled before it was completed")
        ),
        "psycopg2.extensions.TransactionRollbackError": by_sqlstate(
            _sqlstate, Row(Kind.TRANSIENT, "the server rolled the transaction back")
        ),
        "psycopg2.extras.StopReplication": Row(
            Kind.PERMANENT, "the program ends a replication on purpose"
        ),
        "psycopg2.pool.PoolError": Row(
            Kind.OVERLOAD, "no connection of the pool is free, or the pool is closed"
        ),
    },
)
