"""SQLSTATE: the five characters by which PostgreSQL names a failure, judged once for its drivers.

Not a library's table: psycopg.py, psycopg2.py and asyncpg.py use it. libpq hands on the SQLSTATE of
a statement and not that of a connection that was refused; `connecting` reads that from its text.

An error that the server itself reports for a statement is not ambiguous: it has rolled back. If the
connection was lost, nobody knows.
"""

from __future__ import annotations

from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from mainstay.core.known.table import Entry

CONNECT_TIMEOUT = "connect timeout"
"""The case of a connection that was not made in time; the standard has no SQLSTATE for it."""

_WRONG = Row(Kind.PERMANENT, "a mistake in the statement, or in the order of statements")
_ROLLED_BACK = "and the server rolled the transaction back"

ROWS: dict[str | int, Row] = {
    "00*": Row(Kind.UNKNOWN, "successful completion, which is no failure"),
    "01*": Row(Kind.UNKNOWN, "a warning, which the server does not raise"),
    "02*": Row(Kind.PERMANENT, "there is no data"),
    "03*": _WRONG,
    "08*": Row(Kind.TRANSIENT, "the connection was lost during a statement", ambiguous=True),
    "08001": Row(Kind.TRANSIENT, "no connection was made, so nothing was sent"),
    "08003": Row(Kind.TRANSIENT, "the connection was closed before, so nothing was sent"),
    "08004": Row(Kind.TRANSIENT, "the server refused the connection, so nothing was sent"),
    CONNECT_TIMEOUT: Row(Kind.TIMEOUT, "no connection was made in time, so nothing was sent"),
    "09*": Row(Kind.PERMANENT, "a trigger failed"),
    "0A*": Row(Kind.PERMANENT, "the server does not have this feature"),
    "0B*": _WRONG,
    "0F*": _WRONG,
    "0L*": Row(Kind.PERMANENT, "who grants it may not"),
    "0P*": Row(Kind.PERMANENT, "there is no such role"),
    "0Z*": _WRONG,
    "10*": _WRONG,
    "20*": Row(Kind.PERMANENT, "no branch of a CASE matches"),
    "21*": Row(Kind.PERMANENT, "more rows than one, or another number of columns"),
    "22*": Row(Kind.PERMANENT, "the data cannot be taken as they are"),
    "23*": Row(Kind.PERMANENT, "a constraint refuses the data"),
    "24*": _WRONG,
    "25*": Row(Kind.PERMANENT, "the transaction is not in a state for this statement"),
    "25006": Row(Kind.TRANSIENT, "the server is read-only, as a standby is until a failover ends"),
    "25P03": Row(Kind.TRANSIENT, f"the transaction was idle for too long, {_ROLLED_BACK}"),
    "25P04": Row(Kind.TIMEOUT, f"the transaction took too long, {_ROLLED_BACK}"),
    "26*": Row(Kind.PERMANENT, "there is no such prepared statement"),
    "27*": _WRONG,
    "28*": Row(Kind.AUTH, "the user or the password was refused"),
    "2B*": Row(Kind.PERMANENT, "other objects depend on it"),
    "2D*": _WRONG,
    "2F*": Row(Kind.PERMANENT, "a function did what it is not declared to do"),
    "34*": _WRONG,
    "38*": Row(Kind.PERMANENT, "a function did what it is not declared to do"),
    "39*": Row(Kind.PERMANENT, "a function was called, or answered, in a wrong way"),
    "3B*": _WRONG,
    "3D*": Row(Kind.PERMANENT, "there is no such database"),
    "3F*": Row(Kind.PERMANENT, "there is no such schema"),
    "40*": Row(Kind.TRANSIENT, f"it conflicted with another transaction, {_ROLLED_BACK}"),
    "40001": Row(Kind.TRANSIENT, f"it conflicted with another transaction, {_ROLLED_BACK}"),
    "40002": Row(Kind.PERMANENT, "a constraint refuses the data"),
    "40003": Row(
        Kind.TRANSIENT, "whether the statement was completed is not known", ambiguous=True
    ),
    "40P01": Row(Kind.TRANSIENT, f"a deadlock, {_ROLLED_BACK}"),
    "42*": Row(Kind.PERMANENT, "a statement that is wrong, or names what is not there"),
    "42501": Row(Kind.AUTH, "the user lacks a privilege"),
    "44*": Row(Kind.PERMANENT, "a view's WITH CHECK OPTION refuses the data"),
    "53*": Row(Kind.OVERLOAD, "the server lacks a resource"),
    "53100": Row(Kind.PERMANENT, "the server's disk is full until space is freed"),
    "53200": Row(Kind.OVERLOAD, "the server is out of memory"),
    "53300": Row(Kind.OVERLOAD, "the server has too many connections"),
    "53400": Row(Kind.PERMANENT, "the statement needs more than a setting of the server allows"),
    "54*": Row(Kind.PERMANENT, "the statement is beyond a limit of the server"),
    "55*": Row(Kind.PERMANENT, "the object is not in a state for this statement"),
    "55006": Row(Kind.TRANSIENT, "the object is in use by others"),
    "55P03": Row(Kind.TRANSIENT, "another transaction holds the lock"),
    "57*": Row(Kind.TRANSIENT, "an operator intervened"),
    "57014": Row(Kind.TIMEOUT, "cancelled, by a timeout or on request, before it was completed"),
    # A session that is terminated during COMMIT first finishes it, or breaks off without a reply
    # (while it waits for a standby): if this code arrives, the transaction has been undone.
    "57P01": Row(Kind.TRANSIENT, f"the server ended the session, {_ROLLED_BACK}"),
    # The sessions of a server that crashes end wherever they are, in a COMMIT too.
    "57P02": Row(Kind.TRANSIENT, "the server crashed during the statement", ambiguous=True),
    "57P03": Row(Kind.OVERLOAD, "the server is starting, stopping or recovering"),
    "57P04": Row(Kind.PERMANENT, "the database was dropped"),
    "57P05": Row(Kind.TRANSIENT, "the server ended the session, which was idle for too long"),
    "58*": Row(Kind.TRANSIENT, "the system that the server runs on failed"),
    "58P01": Row(Kind.PERMANENT, "a file that the server needs is missing"),
    "58P02": Row(Kind.PERMANENT, "a file that the server makes is there already"),
    "58P03": Row(Kind.PERMANENT, "a file name is too long for the server"),
    "72*": Row(Kind.TRANSIENT, "the snapshot is too old; a new transaction has a new one"),
    "F0*": Row(Kind.PERMANENT, "the server's configuration is wrong"),
    "HV*": Row(Kind.PERMANENT, "a foreign data wrapper refused the statement"),
    "HV000": Row(Kind.UNKNOWN, "a foreign server failed, in a way that only the text has"),
    "HV001": Row(Kind.OVERLOAD, "a foreign data wrapper is out of memory"),
    "HV00N": Row(Kind.TRANSIENT, "the foreign server could not be reached"),
    "P0*": Row(Kind.PERMANENT, "a function of the database raised it"),
    "XX*": Row(Kind.PERMANENT, "the data or an index of the server is damaged"),
    "XX000": Row(Kind.UNKNOWN, "an internal error, which may be a race with DDL or a damage"),
}
"""Every class of SQLSTATE, and the codes that differ from their class."""

_NOT_LISTED = Row(Kind.UNKNOWN, "an SQLSTATE that is not known")


def by_sqlstate(
    read: Callable[[Any], Iterable[str | None]], otherwise: Entry = _NOT_LISTED
) -> Cases:
    """Cases of SQLSTATEs; `otherwise` if the exception has none.

    >>> error = RuntimeError()
    >>> error.sqlstate = "40P01"
    >>> by_sqlstate(lambda error: [error.sqlstate]).row(error)
    Row(transient, 'a deadlock, and the server rolled the transaction back')
    """
    return Cases(read, ROWS, otherwise=otherwise, of="SQLSTATE")


# The server's words, and libpq's, in the order in which they decide: if several hosts were tried,
# one that may take the connection later counts more than one that will not.
_CONNECTING = (
    ("57P03", ("the database system is ",)),
    ("53300", ("too many clients already", "too many connections", "connection slots are")),
    (CONNECT_TIMEOUT, ("timeout expired", "timed out")),
    ("08001", ("Connection refused", "closed the connection", "Connection reset")),
    ("28P01", ("password authentication failed", "no password supplied")),
    ("28000", ("no pg_hba.conf entry", "authentication failed", 'FATAL:  role "')),
    ("3D000", ('FATAL:  database "',)),
)


def connecting(text: str) -> str:
    """The SQLSTATE of a connection that libpq could not make, by its text.

    It is the last resort: the server's part of the text is in the server's language.

    >>> connecting('connection failed: FATAL:  database "shop" does not exist')
    '3D000'
    >>> connecting("connection failed: No route to host")
    '08001'
    """
    found = (code for code, words in _CONNECTING if any(word in text for word in words))
    return next(found, "08001")


def lost(text: str) -> str:
    """The SQLSTATE of an established connection that failed: nothing was sent if it was closed.

    >>> lost("the connection is closed"), lost("server closed the connection unexpectedly")
    ('08003', '08006')
    """
    return "08003" if text.strip() in _CLOSED else "08006"


_CLOSED = ("the connection is closed", "connection already closed")
