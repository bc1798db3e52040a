"""Retry-After hints: how long the other side asks us to wait (RFC 9110, section 10.2.3).

A hint is a number of seconds, or a date. A date is read against the response's own Date header
if it has one, so that the two machines' clocks need not agree; otherwise against a wall clock
that the caller supplies.
"""

from __future__ import annotations

import math

from mainstay.core.base.attributes import attribute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.base.types import UserValue

_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()


class Hint:
    """What the other side asked: `seconds` from now, or the moment `at` in Unix seconds."""

    __slots__ = ("at", "seconds")

    def __init__(self, seconds: float | None = None, at: float | None = None) -> None:
        self.seconds = seconds
        self.at = at


def hint_of(exception: BaseException) -> Hint | None:
    """The hint an exception carries: `.retry_after`, or the headers of its `.response`.

    >>> error = ConnectionError("slow down")
    >>> error.retry_after = 2.5
    >>> hint_of(error).seconds
    2.5
    """
    own = attribute(exception, "retry_after")
    if own is not None:
        return parse(own)
    if isinstance(exception, BaseExceptionGroup):
        hints = [hint for hint in map(hint_of, exception.exceptions) if hint is not None]
        return max(hints, key=lambda hint: hint.seconds or 0.0, default=None)
    response = attribute(exception, "response")
    headers = _headers_of(response) or attribute(exception, "headers")
    try:
        return _from_headers(headers)
    except Exception:  # headers that only look like some
        return None


def parse(value: object, date: object = None) -> Hint | None:
    """The hint of a header's value; None if it makes no sense.

    >>> parse("120").seconds
    120.0
    >>> parse("Sun, 06 Nov 1994 08:49:37 GMT", date="Sun, 06 Nov 1994 08:49:27 GMT").seconds
    10.0
    """
    if type(value) is Hint:
        return value
    seconds = _number(value)
    if seconds is not None:
        return Hint(seconds=seconds)
    at = parse_date(value)
    if at is None:
        return None
    sent = parse_date(date)
    return Hint(at=at) if sent is None else Hint(seconds=max(0.0, at - sent))


def _headers_of(response: object) -> UserValue:
    if isinstance(response, dict):  # botocore's parsed response
        metadata = response.get("ResponseMetadata")
        return metadata.get("HTTPHeaders") if isinstance(metadata, dict) else None
    return attribute(response, "headers")


def _from_headers(headers: UserValue) -> Hint | None:
    if headers is None:
        return None
    value = headers.get("Retry-After") or headers.get("retry-after")
    return parse(value, headers.get("Date") or headers.get("date"))


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if 0.0 <= seconds < math.inf else None


def parse_date(text: object) -> float | None:
    """Unix seconds of an HTTP date in any of its three forms, or None.

    >>> parse_date("Sun, 06 Nov 1994 08:49:37 GMT")
    784111777.0
    """
    if not isinstance(text, str):
        return None
    words = text.replace(",", " ").replace("-", " ").split()
    try:
        if len(words) == 5:  # Sun Nov  6 08:49:37 1994
            _, month, day, clock, year = words
        else:  # Sun 06 Nov 1994 08:49:37 GMT · Sunday 06 Nov 94 08:49:37 GMT
            _, day, month, year, clock, _ = words
        return _unix(int(year), _MONTHS.index(month[:3].lower()) + 1, int(day), clock)
    except (ValueError, OverflowError):  # a year of 400 digits is no float
        return None


def _unix(year: int, month: int, day: int, clock: str) -> float:
    if year < 100:  # two digits: this century, or the one before (RFC 9110, section 5.6.7)
        year += 1900 if year >= 70 else 2000
    hour, minute, second = (int(part) for part in clock.split(":"))
    if not (1 <= day <= 31 and 0 <= hour < 24 and 0 <= minute < 60 and 0 <= second <= 60):
        raise ValueError(clock)
    return float(((_days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second)


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the Gregorian calendar, counting years from March."""
    year -= month <= 2
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + of_year - 719468
