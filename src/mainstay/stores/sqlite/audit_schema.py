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
    " WHERE instr(name, 'mainstay_audit') = 1 OR instr(tbl_name, 'mainstay_audit') = 1"
)
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
    return flaws or _of_another_type(connection)


def _of_another_type(connection: sqlite3.Connection) -> list[str]:
    """JSON in a BLOB is read by the view in another way than as text."""
    row = connection.execute(_NO_TEXT).fetchone()
    return [] if row is None else [f"the columns of block {row[0]} are of another type"]


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
