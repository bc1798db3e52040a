"""Wall-clock moments as text: ISO 8601 in UTC as records have it, and what people write.

Records carry `2026-01-25T21:15:00Z` or the same with six digits of the second. Such texts compare
as moments do once the Z is gone, and nearly all are of that form; any other is parsed.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_last: tuple[float, str] = (float("nan"), "")
"""The second that was spelled last, and how: most events share it with the one before."""
_digits: tuple[str, ...] = ()
"""The numbers below a thousand with three digits, once a moment was spelled."""


def stamp(wall: float) -> str:
    """A moment in Unix seconds as text; empty if it has left the calendar.

    >>> stamp(1_763_212_500.25)
    '2025-11-15T13:15:00.250000Z'
    >>> stamp(1e300)
    ''
    """
    second, text = _last
    micro = (wall - second) * 1e6 + 0.5
    if not 0.0 <= micro < 1e6:
        try:
            second, text = _spell(wall)
        except (OSError, OverflowError, ValueError):
            return ""
        micro = (wall - second) * 1e6 + 0.5
    after = int(micro)
    return f"{text}.{_digits[after // 1000]}{_digits[after % 1000]}Z" if after else f"{text}Z"


def _spell(wall: float) -> tuple[float, str]:
    """The second of a moment, and how it is written; both are kept."""
    global _last, _digits  # noqa: PLW0603 -- tuples, replaced as a whole
    second = wall // 1.0
    if (wall - second) * 1e6 + 0.5 >= 1e6:  # nearer to the next one than a microsecond shows
        second += 1.0
    text = datetime.fromtimestamp(second, UTC).isoformat()[:19]
    _digits = _digits or tuple([f"{number:03}" for number in range(1000)])
    _last = (second, text)
    return _last


def moment_of(wall: float) -> datetime:
    """A moment in Unix seconds, in UTC; the last one there is, if it has left the calendar.

    >>> moment_of(0.0).isoformat()
    '1970-01-01T00:00:00+00:00'
    >>> moment_of(1e300).year
    9999
    """
    try:
        return datetime.fromtimestamp(wall, UTC)
    except (OSError, OverflowError, ValueError):
        return datetime.max.replace(tzinfo=UTC)


def sortable(stamp: str) -> str:
    """A record's time as a text that sorts as time does; empty if it is none.

    >>> sortable("2026-01-25T21:15:00Z") < sortable("2026-01-25T21:15:00.5Z")
    True
    >>> sortable("2026-01-25T22:15:00+01:00")
    '2026-01-25T21:15:00'
    >>> sortable("tomorrow")
    ''
    """
    if stamp[-1:] == "Z" and len(stamp) in (20, 27):
        return stamp[:-1]
    try:
        return written(_utc(datetime.fromisoformat(stamp)))
    except (ValueError, OverflowError):
        return ""


def written(moment: datetime) -> str:
    """A moment as such a text.

    >>> written(datetime(2026, 1, 25, tzinfo=UTC))
    '2026-01-25T00:00:00'
    """
    return _utc(moment).replace(tzinfo=None).isoformat()


def parse_moment(text: str, now: datetime) -> datetime:
    """The moment of an ISO text, or so long before now: "90s", "15m", "2h", "7d", "1w".

    A text without a zone is UTC, as records are.

    >>> at = datetime(2026, 1, 25, 12, tzinfo=UTC)
    >>> parse_moment("2h", at).isoformat()
    '2026-01-25T10:00:00+00:00'
    >>> parse_moment("2026-01-24", at).isoformat()
    '2026-01-24T00:00:00+00:00'
    """
    import re  # here: every call loads this module, and few programs parse a moment

    ago = re.fullmatch(_AGO, text.strip(), re.IGNORECASE)
    try:
        if ago is not None:
            return now - timedelta(seconds=float(ago[1]) * _UNITS[ago[2].lower()])
        return _utc(datetime.fromisoformat(text.strip()))
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is no moment; write 2026-01-25T21:15:00Z, 2026-01-25, or 2h: two hours ago"
        ) from None


_AGO = r"(\d+(?:\.\d+)?)\s*([smhdw])"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def seconds_between(first: str, last: str) -> float:
    """The seconds from one sortable text to another.

    >>> seconds_between("2026-01-25T21:15:00", "2026-01-25T21:16:00.500000")
    60.5
    """
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
