"""Counts the calls of operations that succeed at once, for a log that tells only of trouble."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from mainstay.core.events import CallsCounted
from mainstay.drivers.gates import Counted, Guard

if TYPE_CHECKING:
    from mainstay.drivers.gates import Gate

_MOST = 10_000
"""Operations that are counted each for itself; beyond that nothing is counted."""


class CallCount(Guard):
    """A guard that never refuses: it only wants to know how many calls there were."""

    counts_calls = True
    layer = "count"

    def __init__(self, operation: str) -> None:
        self.name = operation
        self._counted = Counted()
        self._lock = threading.Lock()

    def attach(self, gate: Gate) -> None:
        """Counts the calls of this gate too."""
        with self._lock:
            self._counted.add(gate.tally)

    def take(self) -> int:
        """The calls since the last time."""
        with self._lock:
            return self._counted.take()


class CallCounts:
    """The counts of an engine's operations."""

    def __init__(self) -> None:
        self._counts: dict[str, CallCount] = {}

    def of(self, operation: str) -> CallCount | None:
        """The count of one operation; None where there are too many operations."""
        found = self._counts.get(operation)
        if found is None and len(self._counts) < _MOST:
            found = self._counts.setdefault(operation, CallCount(operation))
        return found

    def events(self) -> list[CallsCounted]:
        """What was counted since the last time.

        >>> CallCounts().events()
        []
        """
        taken = [(name, count.take()) for name, count in list(self._counts.items())]
        return [CallsCounted(operation=name, calls=calls) for name, calls in taken if calls]
