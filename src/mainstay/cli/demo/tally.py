"""Counts the engine's events. Nothing in the summary comes from anywhere else."""

from __future__ import annotations

import threading
from collections import Counter, deque
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from mainstay.events import (
    AttemptFailed,
    CallFailed,
    CallInterrupted,
    CallSucceeded,
    RetryAttempt,
    RetryExhausted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from mainstay.events import Event

RECENT = 6


@dataclass(slots=True)
class Count:
    """What became of the calls of one operation, or of all."""

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

    @property
    def succeeded(self) -> int:
        return self.first + self.saved

    def __add__(self, other: Count) -> Count:
        names = [f.name for f in fields(Count)]
        return Count(**{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(frozen=True, slots=True, order=True)
class Failure:
    """Why a call failed: `stop` is why it was not tried again, `cause` what had happened."""

    operation: str
    kind: str
    stop: str
    cause: str


@dataclass(slots=True)
class Tally:
    """A listener that counts; the engine calls it from several threads."""

    operations: Iterable[str]
    counts: dict[str, Count] = field(init=False)
    failures: Counter[Failure] = field(default_factory=Counter)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    is_done: bool = False
    """Whether what comes now is no longer of the calls that are counted."""
    recent: deque[Event] = field(default_factory=lambda: deque(maxlen=RECENT))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.counts = {name: Count() for name in self.operations}

    def __call__(self, event: Event) -> None:
        add = _ADD.get(type(event))
        if add is None or self.is_done:
            return
        with self._lock:
            add(self, self.counts[event.operation], event)

    @property
    def total(self) -> Count:
        with self._lock:
            return sum(self.counts.values(), start=Count())


def _attempt_failed(tally: Tally, count: Count, event: Any) -> None:
    count.failed_attempts += 1
    tally.errors[event.kind, event.reason] += 1


def _retry_scheduled(tally: Tally, count: Count, event: Any) -> None:
    count.retries += 1
    count.waited += event.delay_seconds
    tally.recent.append(event)


def _call_succeeded(tally: Tally, count: Count, event: Any) -> None:
    if event.total_attempts == 1:
        count.first += 1
        return
    count.saved += 1
    tally.recent.append(event)


def _call_failed(tally: Tally, count: Count, event: Any) -> None:
    why = (event.stop_reason, event.failure_reason)
    count.failed += 1
    tally.failures[Failure(event.operation, event.kind, *why)] += 1
    tally.recent.append(event)


def _call_interrupted(_tally: Tally, count: Count, _event: Any) -> None:
    count.interrupted += 1


_ADD: dict[type[Event], Callable[[Tally, Count, Any], None]] = {
    AttemptFailed: _attempt_failed,
    CallFailed: _call_failed,
    CallInterrupted: _call_interrupted,
    CallSucceeded: _call_succeeded,
    RetryAttempt: _retry_scheduled,
    RetryExhausted: _call_failed,
}
