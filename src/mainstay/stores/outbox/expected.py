"""Whether the connection of a caller leads to the database that the engine's relay reads.

A message that is added elsewhere would never be published, and nothing would report it. The answer
is kept for as long as the connection exists, or its engine of SQLAlchemy: a message costs a look
into a set. A file of SQLite is compared by its device and number; a table of PostgreSQL by what
identifies it without a table of our own: when its server was started, and the numbers of database
and table.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from weakref import WeakSet

from mainstay.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from mainstay.stores.outbox.connections import CallerConnection, Rows

    Identity: TypeAlias = tuple[Any, ...]

IDENTITY = (
    "SELECT extract(epoch FROM pg_postmaster_start_time())::text, d.oid::text,"
    " to_regclass('mainstay_outbox')::oid::text"
    " FROM pg_database AS d WHERE d.datname = current_database()"
)
_FILES = "SELECT file FROM pragma_database_list"
_QUESTIONS = {"postgresql": IDENTITY, "sqlite": _FILES}


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
        self._counted: dict[int, int] = {}
        """Connections of sqlite3, which have no weak references: the changes that each has made.
        A number of an object is used again; a new connection has made fewer changes."""

    def is_known(self, theirs: CallerConnection) -> bool:
        """Whether it was checked."""
        anchor = theirs.anchor
        is_sqlite = theirs.dialect == "sqlite"
        changes = getattr(anchor, "total_changes", None) if is_sqlite else None
        if changes is None:
            return anchor in self._known
        seen = self._counted.get(id(anchor))
        return seen is not None and 0 < seen <= changes

    def check(self, theirs: CallerConnection) -> None:
        """Raises StoreError if a connection leads elsewhere."""
        rows = [] if self._differs(theirs) else theirs.execute(_QUESTIONS[self._dialect], {})
        self._judge(theirs, rows)

    async def acheck(self, theirs: CallerConnection) -> None:
        """The same, awaited."""
        question, differs = _QUESTIONS[self._dialect], self._differs(theirs)
        self._judge(theirs, [] if differs else await theirs.aexecute(question, {}))

    def _differs(self, theirs: CallerConnection) -> bool:
        return theirs.dialect != self._dialect

    def _judge(self, theirs: CallerConnection, rows: Rows) -> None:
        if not self._is_same(rows):
            raise StoreError(
                f"the connection leads to another database than {self._shown}, which the relay of"
                " this engine reads: the message would not be published",
                hint="give a connection to that database, or name the one of the connection:"
                " Engine(outbox=URL)",
            )
        self._remember(theirs.anchor)

    def _is_same(self, rows: Rows) -> bool:
        if self._dialect == "sqlite":
            path = str(self._find()[0])
            return any(is_same_file(str(file), path) for (file,) in rows if file)
        if self._own is None or self._own not in rows:
            self._own = self._find()  # the server may have been started anew since
        return self._own in rows

    def _remember(self, anchor: Any) -> None:
        changes = getattr(anchor, "total_changes", None)
        if changes is not None:
            if len(self._counted) > 1000:
                self._counted.clear()
            self._counted[id(anchor)] = changes + 1  # what is added now is the next
            return
        try:
            self._known.add(anchor)
        except TypeError:  # it has no weak references: it is checked each time
            return


def is_same_file(file: str, path: str) -> bool:
    """Whether two paths lead to one file."""
    try:
        return os.path.samefile(file, path)  # noqa: PTH121  pathlib loads slowly
    except OSError:
        return False
