"""Whether the tables and the view of an audit log in SQLite are those that mainstay has made.

The chain covers what is read from the tables. A view that was replaced, a trigger, or a table that
is a view now shows readers something else than what the chain covers, or keeps records out of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.stores.migrations import scripts, statements

if TYPE_CHECKING:
    import sqlite3

_OURS = (
    "SELECT type, name, tbl_name, sql FROM sqlite_master"
    " WHERE instr(lower(name), 'mainstay_audit') = 1"
    " OR instr(lower(tbl_name), 'mainstay_audit') = 1"
    " OR (type = 'trigger' AND instr(lower(sql), 'mainstay_audit') > 0)"
)
"""A trigger has the name of its table as the user wrote it, in any letters; one of another table
may change the log too."""
_INDEXES = (
    "SELECT DISTINCT tbl_name FROM sqlite_master"
    " WHERE type = 'index' AND instr(lower(tbl_name), 'mainstay_audit') = 1"
)
_IN_PLACE = "SELECT name FROM sqlite_master WHERE lower(name) = 'json_each'"
"""A table of this name is what the view reads in the place of SQLite's function."""
_NO_NUMBER = "SELECT block FROM mainstay_audit_blocks WHERE block < 1 LIMIT 1"
"""Such a row is in the view, and a reader of the log begins with block 1."""
_NO_TEXT = (
    "SELECT block FROM mainstay_audit_blocks"
    " WHERE typeof(header) <> 'text' OR typeof(body) <> 'text' OR typeof(links) <> 'blob' LIMIT 1"
)


def schema_flaws(connection: sqlite3.Connection) -> list[str]:
    """What is not as it was made; nothing if there is no audit log at all."""
    made = {_words(each)[2]: each for each in _made()}
    there = connection.execute(_OURS).fetchall()
    found = {str(name): str(text) for _, name, _, text in there if name in made}
    if not found:
        return []
    flaws = [
        f"the {_words(text)[1].lower()} {name} is missing"
        for name, text in made.items()
        if name not in found
    ]
    flaws += [
        f"the {_words(made[name])[1].lower()} {name} is not the one that was made"
        for name, text in found.items()
        if _words(text) != _words(made[name])
    ]
    flaws += [
        f"the trigger {name} on {table} was added"
        for kind, name, table, _ in there
        if kind == "trigger"
    ]
    return flaws or _flaws_of_indexes(connection) or _flaws_of_rows(connection)


def _flaws_of_indexes(connection: sqlite3.Connection) -> list[str]:
    """What an index shows in the place of its table: SQLite reads from it what it has columns of.

    Tables without an index, such as that of the blocks as it was made, are not looked through.
    """
    flaws = [
        f"{name} is read by the view in the place of SQLite's function"
        for (name,) in connection.execute(_IN_PLACE)
    ]
    for (table,) in connection.execute(_INDEXES).fetchall():
        quoted = table.replace("'", "''")
        found = connection.execute(f"PRAGMA integrity_check('{quoted}')").fetchone()[0]
        if found != "ok":
            flaws.append(f"an index of {table} is not what its table has: {found}")
    return flaws


def _flaws_of_rows(connection: sqlite3.Connection) -> list[str]:
    """What the view shows and verification does not: JSON in a BLOB is read in another way."""
    found = {
        "the table of blocks has a row {}, and begins with 1": _NO_NUMBER,
        "the columns of block {} are of another type": _NO_TEXT,
    }
    rows = [(text, connection.execute(query).fetchone()) for text, query in found.items()]
    return [text.format(row[0]) for text, row in rows if row is not None]


def _made() -> list[str]:
    """The statements of the script that makes an audit log."""
    return [
        each
        for script in scripts("sqlite").values()
        for each in statements(script)
        if "mainstay_audit" in each
    ]


def _words(statement: str) -> list[str]:
    """A statement word by word: however its lines are broken."""
    return statement.replace("(", " ( ").replace(")", " ) ").split()
