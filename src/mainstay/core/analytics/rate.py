"""How often something happens: a number that is worked out when it is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from mainstay.core.base.timestamps import seconds_between
from mainstay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

FIELDS = ("event_type", "retry_category", "operation", "tenant_id")
"""The fields by which events are filtered and grouped."""


class Rate:
    """Events per minute over the time that the stream covers, and over one minute at least.

    That time is from `since` to `until` if the filter has them, otherwise from the first event
    of the log to the last, whether they match or not.

    >>> from mainstay.events import CallSucceeded
    >>> stamps = ["2026-01-25T21:00:00Z", "2026-01-25T21:10:00Z"]
    >>> rate = AuditStream([CallSucceeded(timestamp=stamp) for stamp in stamps]).rate_per_minute
    >>> rate, rate > 0.1
    (0.2, True)
    """

    __slots__ = ("_count",)

    def __init__(self, count: Callable[[str], tuple[dict[str, int], float]]) -> None:
        self._count = count

    @overload
    def __call__(self, by: None = None) -> float: ...
    @overload
    def __call__(self, by: str) -> dict[str, float]: ...
    def __call__(self, by: str | None = None) -> float | dict[str, float]:
        """The rate, or that of each category, operation, tenant or type of event."""
        if by is None:
            return float(self)
        if by not in FIELDS:
            raise UsageError(f"by={by!r}: there are {', '.join(FIELDS)}")
        counts, minutes = self._count(by)
        return {name: counts[name] / minutes for name in sorted(counts)}

    def __float__(self) -> float:
        counts, minutes = self._count("")
        return sum(counts.values()) / minutes

    def __lt__(self, other: float) -> bool:
        return float(self) < other

    def __le__(self, other: float) -> bool:
        return float(self) <= other

    def __gt__(self, other: float) -> bool:
        return float(self) > other

    def __ge__(self, other: float) -> bool:
        return float(self) >= other

    def __repr__(self) -> str:
        return repr(float(self))

    def __format__(self, spec: str) -> str:
        return format(float(self), spec)


def minutes_between(first: str, last: str) -> float:
    """The minutes from one sortable time to another, one at least."""
    try:
        return max(1.0, seconds_between(first, last) / 60)
    except ValueError:  # no event has a time, or one that no calendar has
        return 1.0
