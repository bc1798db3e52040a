"""The store of one process: records in a dictionary, gone with it."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any

import mainstay.runtime.clock as clock
from mainstay.core.base.change import KEEP
from mainstay.runtime.fork import make_lock

if TYPE_CHECKING:
    from mainstay.core.base.change import Change, Decide, Reply


class MemoryStore:
    """Keeps records in this process.

    >>> from mainstay.core.base.change import Change
    >>> store = MemoryStore()
    >>> store.transact("seen", "a", lambda value, now: (Change(b"new"), value))
    >>> store.read("seen", "a")[0]
    b'new'
    """

    abilities = frozenset({"records", "circuits", "budgets", "inbox"})
    locks = True

    def __init__(self, url: str = "memory://") -> None:
        self.url = url
        self._records: dict[tuple[str, str], Change] = {}
        self._lock = make_lock()

    def transact(self, space: str, key: str, decide: Decide[Reply]) -> Reply:
        """Reads, decides and writes as one step."""
        with self._lock:
            at = (space, key)
            kept = self._records.get(at)
            change, reply = decide(None if kept is None else kept.value, clock.current.wall())
            if change is KEEP:
                return reply
            if change.value is None:
                self._records.pop(at, None)
            else:
                self._records[at] = change
            return reply

    async def atransact(self, space: str, key: str, decide: Decide[Reply]) -> Reply:
        """The same: nothing here waits."""
        return self.transact(space, key, decide)

    def read(self, space: str, key: str) -> tuple[bytes | None, float]:
        """The record and the clock."""
        kept = self._records.get((space, key))
        return (None if kept is None else kept.value), clock.current.wall()

    async def aread(self, space: str, key: str) -> tuple[bytes | None, float]:
        """The same: nothing here waits."""
        return self.read(space, key)

    def scan(self, space: str, after: str = "", limit: int = 100) -> list[tuple[str, bytes]]:
        """The records of a space in the order of their keys, page by page."""
        with self._lock:
            keys = sorted(key for where, key in self._records if where == space)
            page = keys[bisect.bisect_right(keys, after) :][:limit]
            return [(key, self._records[space, key].value or b"") for key in page]

    def purge(self, limit: int = 1000) -> int:
        """Drops records that have expired; how many."""
        now = clock.current.wall()
        with self._lock:
            over = [
                at
                for at, kept in self._records.items()
                if kept.expires is not None and kept.expires <= now
            ][:limit]
            for at in over:
                del self._records[at]
        return len(over)

    def describe(self) -> dict[str, Any]:
        """What there is to know."""
        return {"store": "memory", "url": self.url, "records": len(self._records)}

    def close(self) -> None:
        """Forgets everything."""
        self._records.clear()
