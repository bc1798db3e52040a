"""Counts the calls of operations that succeed at once, for a log that records only failures."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from mainstay.core.retry.events import CallsCounted
from mainstay.drivers.call.guard import Guard, Tally
from mainstay.runtime.fork import make_lock, reset_in_child

if TYPE_CHECKING:
    from mainstay.drivers.call.guard import Gate

_MOST = 10_000
"""Operations that are counted each for itself; beyond that nothing is counted."""


class CallCount(Guard):
    """A guard that never refuses: it only wants to know how many calls there were.

    A wrapper counts in the tally of its gate; a call that takes the long way is counted here. What
    a gate has counted outlives it: a function may be gone before its count is read.
    """

    layer = "count"

    def __init__(self, operation: str) -> None:
        self.name = operation
        self._own = Tally()
        self._tallies: list[tuple[ref[object], Tally, int]] = [(ref(self), self._own, 0)]
        self._found = 0
        self._lock = make_lock()
        reset_in_child(self, CallCount.begin_anew)

    def begin_anew(self) -> None:
        """In a forked child: what was counted before is its parent's to report."""
        self.take()

    def attach(self, gate: Gate) -> None:
        """Counts the calls of this gate too."""
        with self._lock:
            if any(owner() is None for owner, _, _ in self._tallies):
                self._look_locked()
            self._tallies.append((ref(gate), gate.tally, gate.tally.total()))
        gate.count_others(self._own.count)

    def take(self) -> int:
        """The calls since the last time."""
        with self._lock:
            self._look_locked()
            found, self._found = self._found, 0
            return found

    def _look_locked(self) -> None:
        """Reads every tally, and drops those whose gate is gone."""
        still = []
        for owner, tally, before in self._tallies:
            is_there = owner() is not None
            total = tally.total()
            self._found += total - before
            if is_there:
                still.append((owner, tally, total))
        self._tallies = still


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
