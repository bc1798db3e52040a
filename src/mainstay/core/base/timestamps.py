"""Wall-clock moments as records spell them: ISO 8601 in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

_last: tuple[int, str] = (-1, "")
"""The second that was spelled last, and how: most events share it with the one before."""


def stamp(wall: float) -> str:
    """A moment in Unix seconds as text; empty where it has left the calendar.

    >>> stamp(1_763_212_500.25)
    '2025-11-15T13:15:00.250000Z'
    >>> stamp(1e300)
    ''
    """
    global _last  # noqa: PLW0603 -- one tuple, replaced as a whole
    try:
        second, micro = divmod(round(wall * 1e6), 1_000_000)
        kept, text = _last
        if kept != second:
            text = datetime.fromtimestamp(second, UTC).isoformat()[:19]
            _last = (second, text)
    except (OSError, OverflowError, ValueError):
        return ""
    return f"{text}.{micro:06}Z" if micro else f"{text}Z"
