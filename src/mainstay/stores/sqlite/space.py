"""The space of a SQLite file: what is free in it, and how it is given back to the disk.

A file in incremental mode gives back free pages some at a time, in short transactions. Any other
file is rewritten as a whole once (VACUUM), and is in incremental mode from then on.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from typing import Any, TypeAlias

    Progress: TypeAlias = Callable[[int, int], object]
    """Called with the bytes that are done, and all of them."""

_INCREMENTAL = 2
_STEP = 1000
"""Pages that one step of `compact` gives back: some ten milliseconds."""
_LEAST = 256
"""Free pages that are not worth giving back: the next records use them."""
_EVERY = 20_000
"""Instructions of SQLite between two reports of a VACUUM."""


class Space(NamedTuple):
    """The pages of a file."""

    pages: int
    free: int
    page_size: int
    mode: int

    @property
    def is_incremental(self) -> bool:
        """Whether free pages can be given back a few at a time."""
        return self.mode == _INCREMENTAL

    @property
    def used(self) -> int:
        """Bytes that hold something."""
        return (self.pages - self.free) * self.page_size


def space_of(connection: sqlite3.Connection) -> Space:
    """The pages of a file, as its last transaction has left them."""
    names = ("page_count", "freelist_count", "page_size", "auto_vacuum")
    return Space(*(int(connection.execute(f"PRAGMA {name}").fetchone()[0]) for name in names))


def shrink(connection: sqlite3.Connection, pages: int) -> int:
    """Gives back some free pages if more than a quarter of the file is free; how many."""
    space = space_of(connection)
    spare = space.free - max(_LEAST, space.pages // 4)
    if not space.is_incremental or spare <= 0:
        return 0
    return _give_back(connection, min(pages, spare))


def compact(use: Callable[..., Any], path: str, progress: Progress) -> None:
    """Gives back every free page; each step by itself waits for the lock, as a write does.

    Args:
        use: carries out a function of the connection, with its other arguments.
        path: the file.
        progress: is called with the bytes done, and all of them.
    """
    space: Space = use(space_of)
    if space.is_incremental:
        total = space.free * space.page_size
        while use(_give_back, _STEP):
            left = use(space_of).free * space.page_size  # others may have freed some meanwhile
            progress(max(0, total - left), total)
    else:
        use(_rewrite, path, space.used, progress)
    use(_empty_log)


def _empty_log(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _give_back(connection: sqlite3.Connection, pages: int) -> int:
    """In a transaction of its own; each row that is fetched is a page."""
    before = space_of(connection).pages
    connection.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()
    return before - space_of(connection).pages


def _rewrite(connection: sqlite3.Connection, path: str, used: int, progress: Progress) -> None:
    """Writes the whole file anew; how much is done shows in the size of its log."""

    def report() -> int:
        with suppress(OSError):
            progress(min(used, os.stat(f"{path}-wal").st_size), used)  # noqa: PTH116  pathlib loads slowly
        return 0

    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.set_progress_handler(report, _EVERY)
    try:
        connection.execute("VACUUM")
    finally:
        connection.set_progress_handler(None, 0)
