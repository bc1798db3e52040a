"""Back-pressure: how long a call waits because the thread of a buffer is behind.

The thread measures how long it takes for an entry of the queue. If the queue is long, each call
that comes gets a turn, one after the other at that pace; a longer queue makes slower turns, and so
does a batch that is late, while it is under way. A call sleeps until its turn: once, in its own
way, so that no call blocks an event loop and none is woken in vain. While the queue is not much too
long only one call in four sleeps, since a sleep costs an event loop as much as a call. If the
thread makes no progress, no call waits for it: the disk takes over.
"""

from __future__ import annotations

import threading

import mainstay.runtime.clock as clock
from mainstay.runtime.clock import SYSTEM

MOST = 5.0
"""Seconds that a call waits at most, each time."""
STUCK = 1.0
"""Seconds without a delivery after which the thread counts as stuck."""
_SLEEPS = ((1.25, 4), (1.5, 2))
"""Up to which fill of the queue one of how many calls sleeps; beyond, each of them does."""
_GUESS = 0.0001
"""Seconds for an entry, until that is measured."""
_BATCH = 100
"""Entries that a batch under way is taken to have at least."""
_SHARE = 0.3
"""The weight of the newest measurement."""


class Pressure:
    """The turns of the calls of one buffer.

    Attributes:
        is_high: whether calls are to wait. Calls read this and nothing else while it is False.
        held: how many calls have waited.

    >>> pressure = Pressure()
    >>> pressure.is_high
    False
    """

    __slots__ = (
        "_come", "_entries", "_late", "_lock", "_moved", "_next", "_pace", "_weight", "held",
        "is_high",
    )  # fmt: skip

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begins anew, as a forked child does."""
        self._lock = threading.Lock()
        self.is_high = False
        self.held = 0
        self._pace = _GUESS
        self._entries = _BATCH
        self._weight = 1.0
        self._next = 0.0
        self._late = 0.0
        """By how much the next turn is later because the batch under way is late."""
        self._come = 0
        self._moved = SYSTEM.monotonic()

    @property
    def is_stuck(self) -> bool:
        """Whether nothing was delivered for a while."""
        return SYSTEM.monotonic() - self._moved > STUCK

    def turn(self) -> float:
        """Seconds until the turn of the call at hand; 0.0 if waiting gains nothing."""
        with self._lock:
            now = SYSTEM.monotonic()
            if now - self._moved > STUCK or clock.current is not SYSTEM:
                return 0.0
            wait = max(0.0, self._next - now)
            if wait < MOST:
                late = self._lateness(now) * self._weight
                self._late += late
                self._next = now + wait + self._pace * self._weight + late
            self._come += 1
            if self._come % self._one_of():
                return 0.0
            self.held += 1
            return min(wait, MOST)

    def _lateness(self, now: float) -> float:
        """Seconds for an entry beyond the pace, if the batch under way is late by now."""
        return max(0.0, (now - self._moved) / self._entries - self._pace)

    def _one_of(self) -> int:
        """One of how many calls sleeps."""
        for fill, calls in _SLEEPS:
            if self._weight < fill:
                return calls
        return 1

    def rise(self, fill: float) -> None:
        """The queue is long: `fill` is its length, in parts of the length from which on it is."""
        self._weight = fill
        self.is_high = True

    def fall(self) -> None:
        """The queue is short again, or waiting gains nothing."""
        self.is_high = False

    def begin(self) -> None:
        """The thread begins to deliver: it is not stuck yet."""
        self._moved = SYSTEM.monotonic()

    def delivered(self, entries: int, seconds: float) -> None:
        """The thread has delivered a batch: it is late no longer."""
        with self._lock:
            self._moved = SYSTEM.monotonic()
            self._next -= self._late
            self._late = 0.0
        if entries:
            self._entries = max(entries, _BATCH)
            self._pace += _SHARE * (seconds / entries - self._pace)
