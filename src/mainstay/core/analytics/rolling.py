"""Two counts over a sliding window of seconds, changed in place.

For code that counts every call: a SlidingCounts (core/limits/budget.py) is a value, created anew
with each count. Nothing here reads a clock: `now` comes in, in seconds of any one clock.
Code that shares one between threads holds a lock.
"""

from __future__ import annotations


class Rolling:
    """Two counts over a window, forgotten a bucket at a time.

    The window is the bucket of `now` and those before it. A clock that steps back a little counts
    into the newest bucket; one that steps back by more than the window starts anew.

    >>> rolling = Rolling(10.0)
    >>> rolling.add(100.0, 3); rolling.add(104.0, 1, 1)
    >>> rolling.totals(104.0), rolling.totals(111.0), rolling.totals(120.0)
    ((4, 1), (1, 1), (0, 0))
    """

    __slots__ = ("_firsts", "_newest", "_seconds", "first", "second", "width")

    def __init__(self, window: float, buckets: int = 10) -> None:
        self.width = window / buckets
        self._firsts = [0] * buckets
        self._seconds = [0] * buckets
        self._newest = 0
        self.first = 0
        self.second = 0

    def add(self, now: float, first: int = 0, second: int = 0) -> None:
        """Counts what happens now."""
        number = int(now // self.width)
        if number != self._newest:
            self._move(number)
        slot = self._newest % len(self._firsts)
        self._firsts[slot] += first
        self._seconds[slot] += second
        self.first += first
        self.second += second

    def totals(self, now: float) -> tuple[int, int]:
        """Both counts of the window that ends now."""
        number = int(now // self.width)
        if number != self._newest:
            self._move(number)
        return self.first, self.second

    def _move(self, number: int) -> None:
        """Empties the buckets that have passed; all of them if the clock was set back far."""
        size = len(self._firsts)
        passed = number - self._newest
        if -size < passed < 0:
            return
        for step in range(1, min(abs(passed), size) + 1):
            slot = (self._newest + step) % size
            self.first -= self._firsts[slot]
            self.second -= self._seconds[slot]
            self._firsts[slot] = self._seconds[slot] = 0
        self._newest = number
