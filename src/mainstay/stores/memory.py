"""The store of one process: records in a dictionary, gone with it.

Records that have expired are dropped with later writes, some with each: there is no thread, and no
write waits for many of them.
"""

from __future__ import annotations

import bisect
from heapq import heapify, heappop, heappush
from os import getpid
from typing import TYPE_CHECKING, Any

import mainstay.runtime.clock as clock
from mainstay.core.base.change import KEEP
from mainstay.runtime.fork import PROCESS, make_lock
from mainstay.runtime.store_clock import OwnClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainstay.core.base.change import Change, Decide, Reply
    from mainstay.ports import Step


_AT_ONCE = 4
"""Expired records that one write drops at most."""
_GRACE = 60.0
"""Seconds for which a write leaves an expired record to `purge`."""
_SPARE = 1000
"""Entries of the queue beyond two for each record, before those of replaced records are removed."""


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
    max_value: int | None = None

    def __init__(self, url: str = "memory://") -> None:
        self.url = url
        self._records: dict[tuple[str, str], Change] = {}
        self._expiring: list[tuple[float, tuple[str, str]]] = []
        """A heap: when records expire. A record that was replaced since has another entry."""
        self.purged = 0
        """Expired records that were dropped."""
        self._lock = make_lock()
        self._clock = OwnClock("memory://")

    def transact(self, space: str, key: str, decide: Decide[Reply]) -> Reply:
        """Reads, decides and writes as one step."""
        if PROCESS.number != getpid():  # a child without hooks: its leases need a thread of its own
            PROCESS.notice()
        with self._lock:
            at, now = (space, key), clock.current.wall()
            kept = self._records.get(at)
            change, reply = decide(None if kept is None else kept.value, now)
            if change is KEEP:
                return reply
            if change.value is None:
                self._records.pop(at, None)
            else:
                self._records[at] = change
                if change.expires is not None:
                    heappush(self._expiring, (change.expires, at))
            if self._expiring and self._expiring[0][0] <= now - _GRACE:
                self._purge_locked(self._clock.before_jumps(now) - _GRACE, _AT_ONCE)
            return reply

    def transact_many(self, steps: Sequence[Step]) -> list[Any]:
        """One after the other: nothing here waits."""
        return [_answered(self.transact, step) for step in steps]

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
        with self._lock:
            return self._purge_locked(self._clock.before_jumps(clock.current.wall()), limit)

    def _purge_locked(self, until: float, limit: int) -> int:
        """Drops what expired until then, the earliest first; how many."""
        count, expiring = 0, self._expiring
        while expiring and expiring[0][0] <= until and count < limit:
            expires, at = heappop(expiring)
            kept = self._records.get(at)
            if kept is not None and kept.expires == expires:
                del self._records[at]
                count += 1
        if len(expiring) > 2 * len(self._records) + _SPARE:
            expiring[:] = [
                (k.expires, at) for at, k in self._records.items() if k.expires is not None
            ]
            heapify(expiring)
        self.purged += count
        return count

    def describe(self) -> dict[str, Any]:
        """What there is to know."""
        return {
            "store": "memory",
            "url": self.url,
            "records": len(self._records),
            "max_value": None,
        }

    def close(self) -> None:
        """Forgets everything."""
        self._records.clear()
        self._expiring.clear()


def _answered(transact: Callable[..., Any], step: Step) -> Any:
    try:
        return transact(*step)
    except Exception as error:
        return error
