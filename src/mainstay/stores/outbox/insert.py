"""Adds a message in a caller's transaction, or notes that a consumer has one: one INSERT."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from mainstay.stores.outbox import schema
from mainstay.stores.outbox.connections import caller_connection, percent, plain

if TYPE_CHECKING:
    from typing import Any

    from mainstay.stores.outbox.connections import CallerConnection
    from mainstay.stores.outbox.expected import ExpectedDatabase
    from mainstay.stores.outbox.rows import NewRow

_LEAN = ("id", "topic", "payload", "content_type", "aggregate_type", "aggregate_id", "aggregate")
"""The columns of most messages; the others have defaults."""
_ALL = (*_LEAN, "dedupe_key", "attributes", "phase", "next_at")
_TYPES = {"payload": "bytea", "next_at": "float8"}
_NEXT = "(SELECT coalesce(max(position), 0) + 1 FROM mainstay_outbox)"


def _insert(dialect: str, names: tuple[str, ...]) -> str:
    if dialect == "sqlite":
        values = ", ".join([*(f":{name}" for name in names), _NEXT])
        return f"INSERT INTO mainstay_outbox ({', '.join(names)}, position) VALUES ({values})"
    values = ", ".join(f"CAST(:{name} AS {_TYPES.get(name, 'text')})" for name in names)
    return f"INSERT INTO mainstay_outbox ({', '.join(names)}) VALUES ({values})"


_INSERT_LEAN = {dialect: _insert(dialect, _LEAN) for dialect in schema.DIALECTS}
_INSERT = {dialect: _insert(dialect, _ALL) for dialect in schema.DIALECTS}
_INSERT_ONCE = {
    "postgresql": _INSERT["postgresql"]
    + " ON CONFLICT (dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING RETURNING id",
    "sqlite": f"{_INSERT['sqlite']} RETURNING id",  # a trigger ignores the second
}
_FIND = {
    "postgresql": "SELECT id FROM mainstay_outbox WHERE dedupe_key = :dedupe_key",
    "sqlite": "SELECT CAST(id AS BLOB) FROM mainstay_outbox WHERE dedupe_key = :dedupe_key",
}
_UNDEFINED_TABLE, _NOT_NULL_VIOLATION = "42P01", "23502"
_TO = "CAST(:id AS text)"
_CHECKED = {
    each: each.replace(
        _TO,
        "CASE WHEN CAST(CAST('mainstay_outbox' AS regclass) AS bigint) = CAST(:table AS bigint)"
        f" THEN {_TO} END",
    )
    for each in (_INSERT_LEAN["postgresql"], _INSERT["postgresql"], _INSERT_ONCE["postgresql"])
}
"""The same, with an id only in one table: in another, which a search_path that was set since leads
to, PostgreSQL refuses the row. A statement of its own would be a round trip for each message."""
_CONSUME = (
    "INSERT INTO mainstay_consumed (consumer, message_id) VALUES (:consumer, :message_id)"
    " ON CONFLICT (consumer, message_id) DO NOTHING RETURNING 1"
)


def add(
    connection: Any, row: NewRow, *, creates: bool, expected: ExpectedDatabase | None = None
) -> str:
    """Inserts a row in the transaction of a connection; the id of the entry.

    It is another's id if there is an entry with the dedupe key of the row. A connection that leads
    to another database than the expected one is refused.
    """
    theirs = caller_connection(connection)
    if expected is not None and not expected.is_known(theirs):
        expected.check(theirs)
    statement, values = _statement(theirs.dialect, row)
    if expected is not None:
        statement = _to_table(statement, values, expected)
    try:
        rows = _execute(theirs, statement, values, creates=creates)
    except Exception as error:
        if expected is not None and _is_elsewhere(error):
            raise expected.moved(theirs) from error
        raise
    if row.dedupe_key is None or rows:
        return row.id
    return plain(theirs.execute(_FIND[theirs.dialect], {"dedupe_key": row.dedupe_key})[0][0])


async def aadd(
    connection: Any, row: NewRow, *, creates: bool, expected: ExpectedDatabase | None = None
) -> str:
    """The same, awaited."""
    theirs = caller_connection(connection)
    if expected is not None and not expected.is_known(theirs):
        await expected.acheck(theirs)
    statement, values = _statement(theirs.dialect, row)
    if expected is not None:
        statement = _to_table(statement, values, expected)
    try:
        rows = await _aexecute(theirs, statement, values, creates=creates)
    except Exception as error:
        if expected is not None and _is_elsewhere(error):
            raise expected.moved(theirs) from error
        raise
    if row.dedupe_key is None or rows:
        return row.id
    found = await theirs.aexecute(_FIND[theirs.dialect], {"dedupe_key": row.dedupe_key})
    return plain(found[0][0])


def adding(dialect: str, row: NewRow) -> tuple[str, dict[str, Any]]:
    """The statement that inserts a row, as the driver of our own connections takes it."""
    text, values = _statement(dialect, row)
    return (text if dialect == "sqlite" else percent(text)), values


def _statement(dialect: str, row: NewRow) -> tuple[str, dict[str, Any]]:
    """The shortest statement that inserts a row, and its values."""
    if row.dedupe_key is not None:
        return _INSERT_ONCE[dialect], asdict(row)
    if row.attributes or row.next_at is not None:
        return _INSERT[dialect], asdict(row)
    values = {
        "id": row.id,
        "topic": row.topic,
        "payload": row.payload,
        "content_type": row.content_type,
        "aggregate_type": row.aggregate_type,
        "aggregate_id": row.aggregate_id,
        "aggregate": row.aggregate,
    }
    return _INSERT_LEAN[dialect], values


def _to_table(statement: str, values: dict[str, Any], expected: ExpectedDatabase) -> str:
    """The statement that inserts into the expected table alone, if that has a number."""
    table = expected.table
    if table is None:
        return statement
    values["table"] = table
    return _CHECKED[statement]


def consume(connection: Any, consumer: str, message_id: str, *, creates: bool) -> bool:
    """Notes a message of a consumer in the transaction of a connection; whether it is the first."""
    values = {"consumer": consumer, "message_id": message_id}
    return bool(_execute(caller_connection(connection), _CONSUME, values, creates=creates))


async def aconsume(connection: Any, consumer: str, message_id: str, *, creates: bool) -> bool:
    """The same, awaited."""
    values = {"consumer": consumer, "message_id": message_id}
    return bool(await _aexecute(caller_connection(connection), _CONSUME, values, creates=creates))


def _execute(
    theirs: CallerConnection, statement: str, values: dict[str, Any], *, creates: bool
) -> list[tuple[Any, ...]]:
    try:
        return theirs.execute(statement, values)
    except Exception as error:
        if not _is_missing(error):
            raise
        if theirs.dialect != "sqlite" or not creates:
            raise schema.missing("the database", theirs.dialect, error) from error
    for each in _creating():
        theirs.execute(each, {})
    return theirs.execute(statement, values)


async def _aexecute(
    theirs: CallerConnection, statement: str, values: dict[str, Any], *, creates: bool
) -> list[tuple[Any, ...]]:
    try:
        return await theirs.aexecute(statement, values)
    except Exception as error:
        if not _is_missing(error):
            raise
        if theirs.dialect != "sqlite" or not creates:
            raise schema.missing("the database", theirs.dialect, error) from error
    for each in _creating():
        await theirs.aexecute(each, {})
    return await theirs.aexecute(statement, values)


def _creating() -> list[str]:
    """Creates the tables of SQLite, as one: if a transaction is under way, as a part of it."""
    scripts = schema.scripts("sqlite").values()
    found = [each for script in scripts for each in schema.statements("sqlite", script)]
    return ["SAVEPOINT mainstay_outbox", *found, "RELEASE mainstay_outbox"]


def _is_missing(error: Exception) -> bool:
    """Whether a library's error is about our tables, which are not there."""
    text, state = str(error), _sqlstate(error)
    if state is not None:
        return state == _UNDEFINED_TABLE and "mainstay_" in text
    return "mainstay_" in text and ("no such table" in text or "does not exist" in text)


def _is_elsewhere(error: Exception) -> bool:
    """Whether PostgreSQL has refused a row because it was for another table: it has no id then.

    The first line names column and table in every language; further down, what a trigger of the
    application was refused has our statement.
    """
    words = re.findall(r"\w+", str(error).partition("\n")[0])
    return _sqlstate(error) == _NOT_NULL_VIOLATION and {"id", "mainstay_outbox"} <= set(words)


def _sqlstate(error: BaseException) -> str | None:
    """The code of PostgreSQL, whatever has wrapped it; a message is in the server's language."""
    for each in (error, getattr(error, "orig", None), error.__cause__):
        state = getattr(each, "sqlstate", None) or getattr(each, "pgcode", None)
        if isinstance(state, str):
            return state
    return None
