"""Arithmetic of remaining time. Moments are seconds of a monotonic clock; NEVER is no deadline."""

from __future__ import annotations

import math

NEVER = math.inf


def until(now: float, limit: float | None, outer: float = NEVER) -> float:
    """When a limit that starts now runs out; never later than the outer deadline.

    >>> until(100.0, 5.0, outer=103.0)
    103.0
    """
    return outer if limit is None else min(now + limit, outer)


def remaining(now: float, end: float) -> float:
    """The time left, never below zero.

    >>> remaining(100.0, 103.0)
    3.0
    """
    return max(0.0, end - now)


def fits(now: float, delay: float, end: float) -> bool:
    """Whether an attempt that starts after a delay still has time before the end.

    >>> fits(100.0, 3.0, 103.0)
    False
    """
    return now + delay < end
