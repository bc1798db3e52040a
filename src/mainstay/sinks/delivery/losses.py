"""What a buffer could not keep: how many events, when, and why; counted, and reported once."""

from __future__ import annotations

import threading

from msgspec import Struct
from msgspec.structs import replace

import mainstay.runtime.clock as clock
from mainstay.core.base.timestamps import stamp

_MOST_REASONS = 20


class Loss(Struct, frozen=True):
    """Events that were lost for one reason, between two moments."""

    events: int
    first: str
    last: str
    why: str


class Losses:
    """Counts losses by their reason, until a sink has reported them.

    >>> losses = Losses()
    >>> losses.add(2, "the writer could not keep up"); losses.add(1, "the writer could not keep up")
    >>> [(loss.events, loss.why) for loss in losses.waiting()], losses.total
    ([(3, 'the writer could not keep up')], 3)
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begins anew, as a forked child does."""
        self._lock = threading.Lock()
        self._by_reason: dict[str, Loss] = {}
        self.total = 0

    def add(self, count: int, why: str) -> None:
        """That many events are lost now."""
        now = stamp(clock.current.wall())
        with self._lock:
            self.total += count
            if why not in self._by_reason and len(self._by_reason) >= _MOST_REASONS:
                why = "for other reasons"
            known = self._by_reason.get(why)
            first = now if known is None else known.first
            before = 0 if known is None else known.events
            self._by_reason[why] = Loss(before + count, first, now, why)

    def waiting(self) -> list[Loss]:
        """What is not reported yet."""
        with self._lock:
            return list(self._by_reason.values())

    def reported(self, losses: list[Loss]) -> None:
        """These were reported; what came since remains."""
        with self._lock:
            for loss in losses:
                now = self._by_reason.pop(loss.why, loss)
                if now.events > loss.events:
                    rest = replace(now, events=now.events - loss.events, first=loss.last)
                    self._by_reason[loss.why] = rest
