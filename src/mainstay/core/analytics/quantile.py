"""How long the recent calls took: the last few durations, and any quantile of them.

A ring of the last durations, kept in order beside it: exact for what it holds, forgets by itself,
and one size whatever the traffic. P² would be smaller and remember for ever, also what has changed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from math import ceil

RING = 128
"""Durations that are kept: the 0.99 quantile is then the second longest."""


class Recent:
    """The last durations, in seconds.

    >>> recent = Recent()
    >>> for seconds in (0.3, 0.1, 0.2, 0.4):
    ...     recent.add(seconds)
    >>> recent.quantile(0.5), recent.quantile(1.0), len(recent)
    (0.2, 0.4, 4)
    """

    __slots__ = ("_ordered", "_ring")

    def __init__(self, size: int = RING) -> None:
        self._ring: deque[float] = deque(maxlen=size)
        self._ordered: list[float] = []

    def __len__(self) -> int:
        return len(self._ring)

    def add(self, seconds: float) -> None:
        """Remembers a duration in place of the oldest. What a clock that stepped gives is none."""
        if not 0.0 <= seconds < float("inf"):
            return
        if len(self._ring) == self._ring.maxlen:
            del self._ordered[bisect_left(self._ordered, self._ring[0])]
        self._ring.append(seconds)
        insort(self._ordered, seconds)

    def quantile(self, share: float) -> float | None:
        """The least duration that such a share of the calls did not exceed; None without calls."""
        if not self._ordered:
            return None
        rank = ceil(share * len(self._ordered) - 1e-9)  # 0.55 × 20 is a little more than 11
        return self._ordered[max(rank, 1) - 1]
