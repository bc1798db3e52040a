"""sqlite3 of the standard library: SQLite's own code decides, by its name.

A statement that failed has been undone, so none is ambiguous but a failure of the disk. The text is
the last resort, for an exception that has lost its code.
"""

from __future__ import annotations

from mainstay.core.base.attributes import attribute
from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Row, Same, Table

_WRONG = Row(Kind.PERMANENT, "a mistake in the call")
_DAMAGED = Row(Kind.PERMANENT, "the file is damaged, or is no database")
_REFUSED = Row(Kind.PERMANENT, "a constraint refuses the data")

_ROWS: dict[str | int, Row] = {
    "SQLITE_ABORT*": Row(Kind.PERMANENT, "rolled back while the statement was being read"),
    "SQLITE_AUTH*": Row(Kind.AUTH, "the program's authorizer refused it"),
    "SQLITE_BUSY*": Row(Kind.TRANSIENT, "another connection has locked the database"),
    "SQLITE_BUSY_SNAPSHOT": Row(
        Kind.TRANSIENT, "another connection has written since the transaction read"
    ),
    "SQLITE_CANTOPEN*": Row(Kind.PERMANENT, "the file cannot be opened"),
    "SQLITE_CONSTRAINT*": _REFUSED,
    "SQLITE_CORRUPT*": _DAMAGED,
    "SQLITE_ERROR*": Row(Kind.PERMANENT, "a statement that is wrong, or names what is not there"),
    "SQLITE_ERROR_SNAPSHOT": Row(Kind.TRANSIENT, "the snapshot is gone"),
    "SQLITE_FULL": Row(Kind.PERMANENT, "the disk, or the database's limit, is full"),
    "SQLITE_INTERNAL*": Row(Kind.UNKNOWN, "SQLite is in a state that it does not expect"),
    "SQLITE_INTERRUPT": Row(Kind.PERMANENT, "the program interrupted it"),
    "SQLITE_IOERR*": Row(Kind.TRANSIENT, "the disk failed, a commit included", ambiguous=True),
    "SQLITE_LOCKED*": Row(Kind.TRANSIENT, "another statement has locked the table"),
    "SQLITE_MISMATCH": Row(Kind.PERMANENT, "a value of another type"),
    "SQLITE_MISUSE": _WRONG,
    "SQLITE_NOLFS": Row(Kind.PERMANENT, "the file is too large for the system"),
    "SQLITE_NOMEM": Row(Kind.OVERLOAD, "there is no memory left"),
    "SQLITE_NOTADB": _DAMAGED,
    "SQLITE_PERM": Row(Kind.AUTH, "access to the file is refused"),
    "SQLITE_PROTOCOL": Row(Kind.TRANSIENT, "the locks of the write-ahead log were contended"),
    "SQLITE_RANGE": _WRONG,
    "SQLITE_READONLY*": Row(Kind.PERMANENT, "the database is read-only"),
    "SQLITE_SCHEMA": Row(Kind.TRANSIENT, "the schema has changed; the statement is prepared again"),
    "SQLITE_TOOBIG": Row(Kind.PERMANENT, "a value is too large"),
}
_TEXTS = (
    ("SQLITE_BUSY", "database is locked"),
    ("SQLITE_LOCKED", "table is locked"),
    ("SQLITE_FULL", "is full"),
    ("SQLITE_CORRUPT", "is malformed"),
    ("SQLITE_NOTADB", "is not a database"),
    ("SQLITE_READONLY", "readonly database"),
)


_PRIMARY = {
    5: "SQLITE_BUSY", 6: "SQLITE_LOCKED", 8: "SQLITE_READONLY", 10: "SQLITE_IOERR",
    11: "SQLITE_CORRUPT", 13: "SQLITE_FULL", 14: "SQLITE_CANTOPEN", 19: "SQLITE_CONSTRAINT",
    26: "SQLITE_NOTADB",
}  # fmt: skip


def _code(exception: BaseException) -> tuple[str | None]:
    name = attribute(exception, "sqlite_errorname")
    if isinstance(name, str) and name.startswith("SQLITE_"):
        return (name,)
    number = attribute(exception, "sqlite_errorcode")
    if isinstance(number, int):  # of an SQLite that is newer than Python's list of names
        return (_PRIMARY.get(number & 0xFF),)
    text = str(exception)
    return (next((code for code, words in _TEXTS if words in text), None),)


_UNKNOWN = Row(Kind.UNKNOWN, "an exception without SQLite's code")
_WRONG_OR_CODE = Cases(_code, _ROWS, otherwise=_WRONG)

TABLE = Table(
    "sqlite3",
    {
        "sqlite3.Error": Cases(_code, _ROWS, otherwise=_UNKNOWN),
        "sqlite3.Warning": Row(Kind.PERMANENT, "more than one statement at once"),
        "sqlite3.InterfaceError": _WRONG_OR_CODE,
        "sqlite3.DatabaseError": Same("sqlite3.Error"),
        "sqlite3.DataError": _WRONG_OR_CODE,
        "sqlite3.IntegrityError": Cases(_code, _ROWS, otherwise=_REFUSED),
        "sqlite3.InternalError": Same("sqlite3.Error"),
        "sqlite3.NotSupportedError": _WRONG_OR_CODE,
        "sqlite3.OperationalError": Same("sqlite3.Error"),
        "sqlite3.ProgrammingError": _WRONG_OR_CODE,
    },
    retries="a locked database, for the seconds of `connect(timeout=5.0)`",
)
