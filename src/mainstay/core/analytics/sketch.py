"""Quantiles of any number of durations in little memory, with an error that is known.

Durations are counted in buckets whose borders grow by a fixed factor, so that a bucket's middle is
within a share of everything in it. If there are too many buckets, neighbours are joined: twice the
width, about twice the error, which `error` states. The idea is DDSketch (Masson, Rim and Lee, VLDB
2019), the joining that of UDDSketch (Epicoco and others, 2020). For the last durations only, kept
exactly, see quantile.py.
"""

from __future__ import annotations

from math import ceil, log

ERROR = 0.01
"""The share by which a quantile may be off as long as no buckets were joined."""
MOST_BUCKETS = 512
"""At an error of 1 % they reach over a factor of 28,000: from 1 ms to 28 s."""
LEAST, MOST = 1e-9, 1e12
"""Shorter durations count as none, longer ones as this."""

_GROWTH = (1 + ERROR) / (1 - ERROR)
_PER_BUCKET = 1 / log(_GROWTH)


def bucket_of(seconds: float) -> int | None:
    """The finest bucket of a duration, as `Sketch.count` takes it; None for no time at all.

    >>> bucket_of(1.0), bucket_of(0.0)
    (0, None)
    """
    return ceil(log(min(seconds, MOST)) * _PER_BUCKET) if seconds > LEAST else None


class Sketch:
    """Counts durations; returns any quantile of them within `error` of the exact one.

    >>> sketch = Sketch()
    >>> for seconds in range(1, 101):
    ...     sketch.add(seconds)
    >>> abs(sketch.quantile(0.9) - 90) <= 90 * sketch.error
    True
    >>> sketch.error
    0.01
    """

    __slots__ = ("_buckets", "_joins", "_zeros", "total")

    def __init__(self) -> None:
        self.total = 0
        """How many durations were counted."""
        self._zeros = 0
        self._joins = 0
        self._buckets: dict[int, int] = {}

    def add(self, seconds: float) -> None:
        """Counts one duration, in seconds; one below nothing counts as none."""
        self.count(bucket_of(seconds))

    def count(self, bucket: int | None, times: int = 1) -> None:
        """Counts a duration whose bucket is known, for code that counts it in several sketches."""
        self.total += times
        if bucket is None:
            self._zeros += times
            return
        joins = self._joins
        if joins:
            bucket = -(-bucket >> joins)
        buckets = self._buckets
        buckets[bucket] = buckets.get(bucket, 0) + times
        if len(buckets) > MOST_BUCKETS:
            self._join(joins + 1)

    def merge(self, other: Sketch) -> None:
        """Counts everything that another sketch has counted."""
        self._join(max(self._joins, other._joins))
        self.total += other.total
        self._zeros += other._zeros
        apart = self._joins - other._joins
        for bucket, times in other._buckets.items():
            wide = -(-bucket >> apart)
            self._buckets[wide] = self._buckets.get(wide, 0) + times
        while len(self._buckets) > MOST_BUCKETS:
            self._join(self._joins + 1)

    def quantile(self, share: float) -> float | None:
        """The least duration that such a share of all did not exceed; None without any."""
        if not self.total:
            return None
        left = max(1, ceil(share * self.total - 1e-9)) - self._zeros
        if left <= 0:
            return 0.0
        counts = self._buckets
        bucket = next(each for each in sorted(counts) if (left := left - counts[each]) <= 0)
        growth = _GROWTH**self._width
        return float(2 * growth**bucket / (growth + 1))

    @property
    def error(self) -> float:
        """The share by which a quantile may be off: 0.01 is one per cent."""
        growth = _GROWTH**self._width
        return round((growth - 1) / (growth + 1), 6)

    @property
    def _width(self) -> int:
        """How many of the finest buckets one of these is."""
        return int(2**self._joins)

    def _join(self, joins: int) -> None:
        """Joins neighbours until each bucket is 2**joins of the finest."""
        apart, old = joins - self._joins, self._buckets
        if not apart:
            return
        self._joins, self._buckets = joins, {}
        for bucket, times in old.items():
            wide = -(-bucket >> apart)
            self._buckets[wide] = self._buckets.get(wide, 0) + times
