"""Counts the engine's events; the summary has no other source."""

from __future__ import annotations

import threading
from collections import Counter, deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

from mainstay import events

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(slots=True)
class Count:
    """The outcomes of the calls of one operation, or of all."""

    first: int = 0
    saved: int = 0
    failed: int = 0
    interrupted: int = 0
    failed_attempts: int = 0
    retries: int = 0
    waited: float = 0.0

    @property
    def ended(self) -> int:
        return self.first + self.saved + self.failed


class Failure(NamedTuple):
    """Why a call failed: `stop` is why there was no further attempt, `cause` the failure."""

    operation: str
    kind: str
    stop: str
    cause: str


class Tally:
    """A listener that counts, called from several threads."""

    def __init__(self, operations: Iterable[str]) -> None:
        self.counts = {name: Count() for name in operations}
        self.failures: Counter[Failure] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()
        self.recent: deque[events.Event] = deque(maxlen=6)
        self.states = {name: ["closed"] for name in self.counts}
        self.refused = dict.fromkeys(self.counts, 0)
        self.lines: list[str] = []
        """One for each step of the acts; empty while the calls are made."""
        self._lock = threading.Lock()

    def __call__(self, event: events.Event) -> None:
        if event.operation not in self.counts:
            return
        with self._lock:
            if isinstance(event, events.CircuitStateChanged):
                states = self.states[event.operation]
                states.append(event.to_state.replace("_", "-"))
                self.lines.append(f"  circuit of {event.operation}: {states[-2]} → {states[-1]}")
            elif isinstance(event, events.CallRefused):
                self.refused[event.operation] += 1
            elif not self.lines:  # the acts are not among the calls that are counted
                self._count(self.counts[event.operation], event)

    def _count(self, count: Count, event: events.Event) -> None:
        if isinstance(event, events.AttemptFailed):
            count.failed_attempts += 1
            self.errors[event.kind, event.reason] += 1
            return
        if isinstance(event, events.RetryAttempt):
            count.retries += 1
            count.waited += event.delay_seconds
        elif isinstance(event, events.CallFailed | events.RetryExhausted):
            count.failed += 1
            why = (event.kind, event.stop_reason, event.failure_reason)
            self.failures[Failure(event.operation, *why)] += 1
        elif isinstance(event, events.CallSucceeded) and event.total_attempts > 1:
            count.saved += 1
        else:
            count.first += isinstance(event, events.CallSucceeded)
            count.interrupted += isinstance(event, events.CallInterrupted)
            return
        self.recent.append(event)

    @property
    def total(self) -> Count:
        """All operations together."""
        with self._lock:
            counts = [asdict(count) for count in self.counts.values()]
        return Count(**{name: sum(each[name] for each in counts) for name in counts[0]})
