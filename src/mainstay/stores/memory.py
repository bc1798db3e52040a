"""The store of one process: records in a dictionary, gone with it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import mainstay.clock as clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstay.ports import Reply


class MemoryStore:
    """Keeps records in this process.

    >>> store = MemoryStore()
    >>> store.transact("seen", "a", lambda record, now: ("new", record))
    >>> store.transact("seen", "a", lambda record, now: (record, record))
    'new'
    """

    def __init__(self) -> None:
        self.url = "memory://"
        self.abilities: frozenset[str] = frozenset({"records"})
        self._records: dict[tuple[str, str], Any] = {}
        self._lock = threading.Lock()

    def transact(
        self, space: str, key: str, decide: Callable[[Any, float], tuple[Any, Reply]]
    ) -> Reply:
        """Reads, decides and writes as one step; a record of None is deleted."""
        with self._lock:
            at = (space, key)
            record, reply = decide(self._records.get(at), clock.current.wall())
            if record is None:
                self._records.pop(at, None)
            else:
                self._records[at] = record
            return reply

    def close(self) -> None:
        self._records.clear()
