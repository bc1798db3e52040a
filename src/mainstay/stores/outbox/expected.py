"""Whether the connection of a caller leads to the database that the engine's relay reads.

A message that is added elsewhere would never be published, and nothing would report it.

A table of PostgreSQL is compared by what identifies it without a table of our own: when its server
was started, and the numbers of database and table. The answer is kept for as long as the connection
exists, or its engine of SQLAlchemy: a message costs a look into a set. A search_path may be set at
any time: the INSERT itself is for the table of that number (insert.py). A file of SQLite is
compared by its device and number. Its path is asked for each time, and those found to be right are
kept: a connection of sqlite3 has no weak references, the number of an object is used again, and a
database can be attached to any connection.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from weakref import WeakSet

from mainstay.errors import StoreError
from mainstay.stores.outbox.connections import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, TypeAlias

    from mainstay.stores.outbox.connections import CallerConnection, Rows

    Identity: TypeAlias = tuple[Any, ...]
    Asking: TypeAlias = Generator[str, Rows, bool]

IDENTITY = (
    "SELECT extract(epoch FROM pg_postmaster_start_time())::text, d.oid::text,"
    " to_regclass('mainstay_outbox')::oid::text"
    " FROM pg_database AS d WHERE d.datname = current_database()"
)
_PATHS = "PRAGMA database_list"
_FILES = (
    "SELECT CAST(name AS BLOB), CAST(file AS BLOB) FROM pragma_database_list"
    " ORDER BY CASE seq WHEN 1 THEN 0 WHEN 0 THEN 1 ELSE seq END"
)
"""The files of a connection, in the order in which it looks for a table: its temporary tables, its
own, and those that are attached."""


class ExpectedDatabase:
    """The database of an outbox, and the connections that are known to lead to it.

    Args:
        dialect: that of the database.
        shown: its URL, without secrets.
        identity: finds out what identifies it: the path of a file, or the row of IDENTITY.
    """

    def __init__(self, dialect: str, shown: str, identity: Callable[[], Identity]) -> None:
        self._dialect, self._shown, self._find = dialect, shown, identity
        self._own: Identity | None = None
        self._known: WeakSet[Any] = WeakSet()
        self._paths: set[Any] = set()
        """Paths that lead to our file."""

    def is_known(self, theirs: CallerConnection) -> bool:
        """Whether it was checked."""
        return theirs.dialect != "sqlite" and theirs.anchor in self._known

    @property
    def table(self) -> int | None:
        """The number of our table on PostgreSQL; an INSERT is for that one alone."""
        if self._own is None or self._dialect != "postgresql" or self._own[2] is None:
            return None
        return int(self._own[2])

    def moved(self, theirs: CallerConnection) -> StoreError:
        """The error for a connection that leads to another table than when it was checked."""
        self._known.discard(theirs.anchor)
        return StoreError(
            f"the connection leads to another table mainstay_outbox than that of {self._shown},"
            " which the relay of this engine reads: the message would not be published",
            hint="its search_path was changed, or the table was created anew: roll back, and add"
            " on a connection whose search_path is that of Engine(outbox=URL)",
        )

    def check(self, theirs: CallerConnection) -> None:
        """Raises StoreError if a connection leads elsewhere."""
        asking = self._asking(theirs)
        try:
            question = next(asking)
            while True:
                question = asking.send(theirs.execute(question, {}))
        except StopIteration as done:
            self._judge(theirs, is_same=done.value)

    async def acheck(self, theirs: CallerConnection) -> None:
        """The same, awaited."""
        asking = self._asking(theirs)
        try:
            question = next(asking)
            while True:
                question = asking.send(await theirs.aexecute(question, {}))
        except StopIteration as done:
            self._judge(theirs, is_same=done.value)

    def _asking(self, theirs: CallerConnection) -> Asking:
        """Whether a connection leads to our database; yields what to ask it."""
        if theirs.dialect != self._dialect:
            return False
        if self._dialect == "sqlite":
            return (yield from self._asking_sqlite())
        rows = yield IDENTITY
        if self._own is None or self._own not in rows:
            self._own = self._find()  # the server may have been started anew since
        return self._own in rows

    def _asking_sqlite(self) -> Asking:
        rows = yield _PATHS
        if len(rows) == 1 and isinstance(rows[0][2], str) and rows[0][2] in self._paths:
            return True
        found = plain((yield from _file_of_table()))
        if not is_same_file(found, str(self._find()[0])):
            return False
        self._paths.add(found)
        return True

    def _judge(self, theirs: CallerConnection, *, is_same: bool) -> None:
        if not is_same:
            raise StoreError(
                f"the connection leads to another database than {self._shown}, which the relay of"
                " this engine reads: the message would not be published",
                hint="give a connection to that database, or name the one of the connection:"
                " Engine(outbox=URL)",
            )
        if theirs.dialect != "sqlite":
            self._known.add(theirs.anchor)


def _file_of_table() -> Generator[str, Rows, Any]:
    """The file that an INSERT writes to: that of the table, or the own one."""
    files = yield _FILES
    if len(files) == 1:
        return files[0][1]
    for name, file in files:
        quoted = plain(name).replace('"', '""')
        if (yield f"SELECT 1 FROM \"{quoted}\".sqlite_master WHERE name = 'mainstay_outbox'"):
            return file
    return next(file for name, file in files if plain(name) == "main")


def is_same_file(file: str, path: str) -> bool:
    """Whether two paths lead to one file."""
    try:
        return os.path.samefile(file, path)  # noqa: PTH121  pathlib loads slowly
    except OSError:
        return False
