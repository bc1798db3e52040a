"""Statements on a connection of the caller's own, in the caller's transaction.

Which library a connection belongs to is read from the names of its classes, so that none of them is
imported for that. A connection that would commit by itself is refused: an entry and the change that
it is about must be one transaction.
"""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING

from mainstay.errors import StoreError, UsageError
from mainstay.integrations.autocommit import sqlalchemy_commits, sqlite_commits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Rows = list[tuple[Any, ...]]
    Values = Mapping[str, Any]


def plain(value: Any) -> str:
    """A text that was selected as a BLOB, which no factory and no converter of texts changes."""
    return (
        bytes(value).decode() if isinstance(value, bytes | bytearray | memoryview) else str(value)
    )


_TAKES = (
    "a Connection of sqlite3, a Connection or AsyncConnection of psycopg, a Connection, Session,"
    " AsyncConnection or AsyncSession of SQLAlchemy, or a connection of Django"
)


class CallerConnection:
    """A connection of the caller's: its dialect, and how a statement is executed on it.

    Statements have `:name` for values, as SQLAlchemy's text() has them.
    """

    __slots__ = ("_connection", "_execute", "anchor", "dialect", "is_async")

    def __init__(
        self,
        connection: Any,
        dialect: str,
        execute: Callable[..., Any],
        anchor: Any = None,
        *,
        is_async: bool = False,
    ) -> None:
        self._connection = connection
        self.anchor = connection if anchor is None else anchor
        """What leads to the same database as long as it exists, such as an engine of SQLAlchemy."""
        self._execute = execute
        self.dialect = dialect
        self.is_async = is_async

    def execute(self, statement: str, values: Values) -> Rows:
        """The rows of a statement; an empty list if it returns none."""
        if self.is_async:
            raise UsageError("the connection is async", hint="await the method that begins with a")
        found: Rows = self._execute(self._connection, statement, values)
        return found

    async def aexecute(self, statement: str, values: Values) -> Rows:
        """The same, awaited; a sync connection is used as it is."""
        found = self._execute(self._connection, statement, values)
        rows: Rows = await found if inspect.isawaitable(found) else found
        return rows


def caller_connection(connection: Any) -> CallerConnection:
    """What a connection is; refuses one that is not under a transaction, or not known."""
    make = _KNOWN.get(type(connection))
    if make is None:
        make = _known(connection)
        _KNOWN[type(connection)] = make
    return make(connection)


_KNOWN: dict[type, Callable[[Any], CallerConnection]] = {}
"""How connections of a class are used."""


def _known(connection: Any) -> Callable[[Any], CallerConnection]:
    for cls in type(connection).__mro__:
        root = cls.__module__.partition(".")[0]
        make = _BY_CLASS.get((root, cls.__name__))
        if make is not None:
            return make
    raise StoreError(
        f"a {type(connection).__module__}.{type(connection).__qualname__} is no connection that"
        " the outbox knows",
        hint=f"give {_TAKES}",
    )


# --- sqlite3 --------------------------------------------------------------------------------------


def _of_sqlite3(connection: Any) -> CallerConnection:
    if sqlite_commits(connection):
        raise _no_transaction('connection.execute("BEGIN")')
    return CallerConnection(connection, "sqlite", _on_sqlite3)


def _on_sqlite3(connection: Any, statement: str, values: Values) -> Rows:
    # A cursor of our own: those of the connection have the caller's row_factory.
    cursor = sys.modules["sqlite3"].Cursor(connection)
    rows: Rows = cursor.execute(statement, values).fetchall()
    return rows


# --- psycopg --------------------------------------------------------------------------------------

_IDLE, _ACTIVE = 0, 1
"""States of a transaction, as libpq counts them."""


def _of_psycopg(connection: Any) -> CallerConnection:
    if connection.autocommit:
        if _is_queued(connection):
            with connection.pipeline():  # its end waits for what is queued, which may be a BEGIN
                pass
        _check_psycopg(connection)
    return CallerConnection(connection, "postgresql", _on_psycopg)


def _of_async_psycopg(connection: Any) -> CallerConnection:
    if connection.autocommit and not _is_queued(connection):
        _check_psycopg(connection)
    return CallerConnection(connection, "postgresql", _on_async_psycopg, is_async=True)


def _is_queued(connection: Any) -> bool:
    """Whether a pipeline has sent statements whose results are not here yet."""
    found = connection.pgconn
    return bool(found.transaction_status == _ACTIVE and found.pipeline_status)


def _check_psycopg(connection: Any) -> None:
    if connection.pgconn.transaction_status == _IDLE:
        raise _no_transaction("with connection.transaction():")


def _on_psycopg(connection: Any, statement: str, values: Values) -> Rows:
    library = sys.modules["psycopg"]  # the caller may have set factories of its own
    cursor = library.Cursor(connection, row_factory=library.rows.tuple_row)
    cursor.execute(_PERCENT.get(statement) or percent(statement), values)
    rows: Rows = cursor.fetchall() if _returns(statement) else []
    return rows


async def _on_async_psycopg(connection: Any, statement: str, values: Values) -> Rows:
    if connection.autocommit and _is_queued(connection):
        async with connection.pipeline():
            pass
        _check_psycopg(connection)
    library = sys.modules["psycopg"]
    cursor = library.AsyncCursor(connection, row_factory=library.rows.tuple_row)
    await cursor.execute(percent(statement), values)
    rows: Rows = await cursor.fetchall() if _returns(statement) else []
    return rows


def _returns(statement: str) -> bool:
    """Whether a statement has rows; in a pipeline its result is not here yet."""
    return " RETURNING " in statement or statement.startswith("SELECT ")


_PERCENT: dict[str, str] = {}


def percent(statement: str) -> str:
    """The statement with `%(name)s` for values."""
    known = _PERCENT.get(statement)
    if known is None:
        import re

        known = _PERCENT[statement] = re.sub(r"(?<!:):(\w+)", r"%(\1)s", statement)
    return known


# --- SQLAlchemy -----------------------------------------------------------------------------------


def _of_sqlalchemy(connection: Any) -> CallerConnection:
    dialect = _dialect(connection.dialect)
    _check_sqlalchemy(connection)
    return CallerConnection(connection, dialect, _on_sqlalchemy, connection.engine)


def _check_sqlalchemy(connection: Any) -> None:
    """Begins what the first statement would begin, if the driver has no transaction under way."""
    if not sqlalchemy_commits(connection):
        return
    begun = None if connection.in_transaction() else connection.begin()  # an event may send BEGIN
    if begun is None or sqlalchemy_commits(connection):
        if begun is not None:
            begun.rollback()
        raise _no_transaction("with engine.begin() as connection:, without AUTOCOMMIT")


def _of_session(session: Any) -> CallerConnection:
    return _of_sqlalchemy(session.connection())


def _of_async_sqlalchemy(connection: Any) -> CallerConnection:
    dialect, engine = _dialect(connection.dialect), connection.sync_engine
    return CallerConnection(connection, dialect, _on_async_sqlalchemy, engine, is_async=True)


def _of_async_session(session: Any) -> CallerConnection:
    bind = session.get_bind()
    dialect = _dialect(bind.dialect)
    return CallerConnection(session, dialect, _on_async_session, bind, is_async=True)


def _on_sqlalchemy(connection: Any, statement: str, values: Values) -> Rows:
    result = connection.execute(_text(statement), dict(values))
    return [tuple(row) for row in result] if result.returns_rows else []


async def _on_async_sqlalchemy(connection: Any, statement: str, values: Values) -> Rows:
    if sqlalchemy_commits(connection.sync_connection):
        await connection.run_sync(_check_sqlalchemy)
    result = await connection.execute(_text(statement), dict(values))
    return [tuple(row) for row in result] if result.returns_rows else []


async def _on_async_session(session: Any, statement: str, values: Values) -> Rows:
    connection = await session.connection()
    return await _on_async_sqlalchemy(connection, statement, values)


_TEXTS: dict[str, Any] = {}


def _text(statement: str) -> Any:
    known = _TEXTS.get(statement)
    if known is None:
        known = _TEXTS[statement] = sys.modules["sqlalchemy"].text(statement)
    return known


def _dialect(dialect: Any) -> str:
    if dialect.name not in ("postgresql", "sqlite"):
        raise StoreError(
            f"there is no outbox for {dialect.name}", hint="PostgreSQL and SQLite have one"
        )
    return str(dialect.name)


# --- Django ---------------------------------------------------------------------------------------


def _of_django(connection: Any) -> CallerConnection:
    if connection.vendor not in ("postgresql", "sqlite"):
        raise StoreError(
            f"there is no outbox for {connection.vendor}", hint="PostgreSQL and SQLite have one"
        )
    if not connection.in_atomic_block and connection.get_autocommit():
        raise _no_transaction("with transaction.atomic():")
    return CallerConnection(connection, connection.vendor, _on_django)


def _on_django(connection: Any, statement: str, values: Values) -> Rows:
    with connection.cursor() as cursor:
        cursor.execute(percent(statement), dict(values))
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []


def _of_proxy(proxy: Any) -> CallerConnection:
    """`django.db.connection` leads to the connection of the current thread."""
    return _of_django(proxy._connections[proxy._alias])  # noqa: SLF001


def _no_transaction(instead: str) -> StoreError:
    return StoreError(
        "the connection commits by itself, and no transaction is under way: the entry could be"
        " committed without the change that it is about",
        hint=f"begin one: {instead}",
    )


_BY_CLASS: dict[tuple[str, str], Callable[[Any], CallerConnection]] = {
    ("sqlite3", "Connection"): _of_sqlite3,
    ("psycopg", "Connection"): _of_psycopg,
    ("psycopg", "AsyncConnection"): _of_async_psycopg,
    ("sqlalchemy", "Connection"): _of_sqlalchemy,
    ("sqlalchemy", "Session"): _of_session,
    ("sqlalchemy", "scoped_session"): _of_session,
    ("sqlalchemy", "AsyncConnection"): _of_async_sqlalchemy,
    ("sqlalchemy", "AsyncSession"): _of_async_session,
    ("sqlalchemy", "async_scoped_session"): _of_async_session,
    ("django", "BaseDatabaseWrapper"): _of_django,
    ("django", "ConnectionProxy"): _of_proxy,
}
