"""Purges a SQLite file: what a read would call expired, and nothing else.

A clock that was set ahead makes every record look expired. So each record whose time has come is
read and judged (`may_purge`), by the uptime of the machine in it and by the jumps that were seen
since the machine has started, by this process or by those before. Records that stay are passed
over: a step looks at `limit` records at most, and the next one goes on after them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from mainstay.core.base.change import KEEP
from mainstay.core.base.spaces import Space
from mainstay.core.idempotency.purge import CLOCK, gone_on, may_purge
from mainstay.stores.sqlite import statements as steps
from mainstay.stores.sqlite.batch import DROP, WRITE, row_of

if TYPE_CHECKING:
    import sqlite3

    Position = tuple[float, str, str]

_PURGES = Space.PURGES.value
_EXPIRED = (
    "SELECT expires, space, key, value FROM mainstay_kept"
    " WHERE expires <= ? AND (expires, space, key) > (?, ?, ?)"
    " ORDER BY expires, space, key LIMIT ?"
)
BEGINNING: Position = (-math.inf, "", "")


class Purged(NamedTuple):
    """What one step has done."""

    dropped: int
    position: Position
    """Where the next one goes on; the beginning, if this one came to the end."""


def purge(connection: sqlite3.Connection, limit: int, after: Position = BEGINNING) -> Purged:
    """Drops what has expired of the next `limit` records whose time has come, in a transaction."""
    now = steps.now()
    view = steps.CLOCK.look(now)
    if view.boot:
        row = connection.execute(steps.READ, (_PURGES, CLOCK)).fetchone()
        jumps, change = gone_on(None if row is None else row[0], now, view)
        view = replace(view, jumps=jumps)
        if change is not KEEP:
            assert change.value is not None
            connection.execute(WRITE, row_of(_PURGES, CLOCK, change.value, None))
    seen, last, dropped = 0, after, []
    for expires, space, key, value in connection.execute(_EXPIRED, (now, *after, limit)):
        seen, last = seen + 1, (expires, space, key)
        if may_purge(space, value, expires, now, view):
            dropped.append((space, key))
    connection.executemany(DROP, dropped)
    return Purged(len(dropped), last if seen == limit else BEGINNING)
