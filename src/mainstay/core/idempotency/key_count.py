"""How many keys a caller has begun to use: a reducer over one small record for each caller.

Keys are counted in groups by the time they were begun, each a 24th of the time for which a key is
kept: the record is bounded, whatever the limit. A group counts until the last of its keys is over,
so that the limit is never exceeded, and a place may become free that much later than its key.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from mainstay.core.base.change import DROP, KEEP, Change, read_as, ready
from mainstay.core.base.spaces import Space

SPACE = Space.KEY_COUNTS.value
_PARTS = 24


class KeyCount(Struct, frozen=True):
    """When each group of keys was begun, and how many they are; the oldest first."""

    groups: tuple[tuple[float, int], ...] = ()


class Counted(Struct, frozen=True):
    """The key is counted, in the group of that time."""

    at: float


class Full(Struct, frozen=True):
    """The caller has as many keys as allowed; the first place is free after `retry_after`."""

    retry_after: float


def count_key(
    value: bytes | None, most: int, ttl: float, now: float
) -> tuple[Change, Counted | Full]:
    """Counts one more key, unless the caller has `most` of them within `ttl` seconds.

    >>> change, answer = count_key(None, most=1, ttl=240.0, now=1000.0)
    >>> answer
    Counted(at=1000.0)
    >>> count_key(change.value, most=1, ttl=240.0, now=1005.0)[1]
    Full(retry_after=245.0)
    """
    groups = _live(value, ttl, now)
    if sum(groups.values()) >= most:
        return KEEP, Full(min(groups) + _kept_for(ttl) - now)
    last = max(groups, default=None)
    at = now if last is None or now - last >= ttl / _PARTS else last
    groups[at] = groups.get(at, 0) + 1
    return _written(groups, ttl), Counted(at)


def discount_key(value: bytes | None, at: float, ttl: float, now: float) -> tuple[Change, None]:
    """Takes a key out of its group again: no record of it was kept."""
    groups = _live(value, ttl, now)
    if at not in groups:  # its time is over, or the clock was set back
        return KEEP, None
    groups[at] -= 1
    return _written({at: count for at, count in groups.items() if count}, ttl), None


def _live(value: bytes | None, ttl: float, now: float) -> dict[float, int]:
    """The groups that count; one of the future is of now: the clock was set back."""
    found = KeyCount() if value is None else read_as(KeyCount, value, "count of keys")
    groups: dict[float, int] = {}
    for at, count in found.groups:
        if now - at < _kept_for(ttl):
            groups[min(at, now)] = groups.get(min(at, now), 0) + count
    return groups


def _kept_for(ttl: float) -> float:
    return ttl + ttl / _PARTS


def _written(groups: dict[float, int], ttl: float) -> Change:
    if not groups:
        return DROP
    kept = msgspec.json.encode(KeyCount(tuple(sorted(groups.items()))))
    return Change(kept, max(groups) + _kept_for(ttl))


ready(KeyCount)
