"""Retry-After hints: how long the other side asks us to wait (RFC 9110, section 10.2.3).

A hint is a number of seconds, or a date. A date is read against the response's own Date header
if it has one, so that the two machines' clocks need not agree; otherwise against a wall clock
that the caller supplies. A date without a zone, or with one that is not known, is no hint, but for
the form of `asctime`, which is GMT by the RFC: an hour too early is worse than a delay of our own.
"""

from __future__ import annotations

import math

from mainstay.core.base.attributes import KEEPS_SIGNALS, PerClass, attribute
from mainstay.core.base.validate import in_seconds
from mainstay.core.known.kind import qualified_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.base.types import UserValue

_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_ZONES = {
    **dict.fromkeys(("GMT", "UT", "UTC", "Z"), 0),
    "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7,
}  # fmt: skip
"""The zones that have names in RFC 5322, in hours; names of others mean several things."""


class Hint:
    """What the other side asked: `seconds` from now, or the moment `at` in Unix seconds."""

    __slots__ = ("at", "seconds")

    def __init__(self, seconds: float | None = None, at: float | None = None) -> None:
        self.seconds = seconds
        self.at = at


HINTS_ARE_CARRIED = PerClass(
    lambda cls: KEEPS_SIGNALS[cls] and not issubclass(cls, BaseExceptionGroup)
)
"""Whether an exception of the class without `retry_after`, `headers` and `response` in its dict has
no hint."""


def hint_of(exception: BaseException) -> Hint | None:
    """The hint an exception carries: `.retry_after`, or the headers of its `.response`.

    >>> error = ConnectionError("slow down")
    >>> error.retry_after = 2.5
    >>> hint_of(error).seconds
    2.5
    """
    if KEEPS_SIGNALS[type(exception)]:
        carried = exception.__dict__
        own, response = carried.get("retry_after"), carried.get("response")
        headers = carried.get("headers")
    else:
        own, response = attribute(exception, "retry_after"), attribute(exception, "response")
        headers = attribute(exception, "headers")
    if own is not None:
        return parse(own)
    if isinstance(exception, BaseExceptionGroup):
        hints = [hint for hint in map(hint_of, exception.exceptions) if hint is not None]
        return max(hints, key=lambda hint: hint.seconds or 0.0, default=None)
    found = None if response is None else _headers_of(response)
    return _from_headers(found or headers)


def hint_in(response: UserValue) -> Hint | None:
    """The hint in the headers of a response; None if it has none.

    >>> hint_in({"ResponseMetadata": {"HTTPHeaders": {"retry-after": "3"}}}).seconds
    3.0
    """
    if isinstance(response, dict):
        return _from_headers(_headers_in(response))
    try:  # as `_headers_of`, without a call
        headers = getattr(response, "headers", None)
        return _from_headers(headers) if headers else None
    except Exception:  # a property may raise
        return None


def hint_of_result(value: object) -> Hint | None:
    """The hint of a result that is not accepted: its `.retry_after`, or its headers.

    >>> class Response:
    ...     headers = {"Retry-After": "7"}
    >>> hint_of_result(Response()).seconds
    7.0
    """
    hint = parse(attribute(value, "retry_after"))
    if hint is not None:
        return hint
    return _from_headers(_headers_of(value))


def parse(value: object, date: object = None) -> Hint | None:
    """The hint of a header's value; None if it makes no sense.

    >>> parse("120").seconds
    120.0
    >>> parse("Sun, 06 Nov 1994 08:49:37 GMT", date="Sun, 06 Nov 1994 08:49:27 GMT").seconds
    10.0
    >>> parse("2026-11-16T12:00:00+02:00").at == parse("Mon, 16 Nov 2026 10:00:00 GMT").at
    True
    """
    if value is None or type(value) is Hint:
        return value
    seconds = _number(in_seconds(value))
    if seconds is not None:
        return Hint(seconds=seconds)
    at = parse_date(value)
    if at is None:
        return None
    sent = parse_date(date)
    return Hint(at=at) if sent is None else Hint(seconds=max(0.0, at - sent))


def _headers_in(response: dict[UserValue, UserValue]) -> UserValue:
    """Those in a response that botocore has parsed."""
    metadata = response.get("ResponseMetadata")
    return metadata.get("HTTPHeaders") if isinstance(metadata, dict) else None


def _headers_of(response: object) -> UserValue:
    if isinstance(response, dict):
        return _headers_in(response)
    try:
        return getattr(response, "headers", None)
    except Exception:  # a property may raise
        return None


FOLDING = frozenset({
    "botocore.awsrequest.HeadersDict",
    "http.client.HTTPMessage",
    "httpx.Headers",
    "multidict._multidict.CIMultiDict",
    "multidict._multidict.CIMultiDictProxy",
    "requests.structures.CaseInsensitiveDict",
    "urllib3._collections.HTTPHeaderDict",
})  # fmt: skip
"""Classes of headers that know a name in any case, and quickly that they have none."""
_FOLDS = PerClass(lambda cls: qualified_name(cls) in FOLDING)


def _from_headers(headers: UserValue) -> Hint | None:
    try:
        if headers is None or (_FOLDS[type(headers)] and "Retry-After" not in headers):
            return None
        value = headers.get("Retry-After") or headers.get("retry-after")
        if value is None:
            return None
        return parse(value, headers.get("Date") or headers.get("date"))
    except Exception:  # headers that only look like some
        return None


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

    Also of a date of RFC 5322 or ISO 8601, and of a datetime, if it has a zone.

    >>> parse_date("Sun, 06 Nov 1994 08:49:37 GMT"), parse_date("Sun, 06 Nov 1994 03:49:37 -0500")
    (784111777.0, 784111777.0)
    """
    if not isinstance(text, str):
        return _unix_of(text)
    words = text.replace(",", " ").split()
    try:
        if len(words) <= 2:  # 1994-11-06T08:49:37Z
            return _unix_of(_from_iso(text))
        if len(words) == 4:  # Sunday 06-Nov-94 08:49:37 GMT
            words[1:2] = words[1].split("-")
        if len(words) == 5:  # Sun Nov  6 08:49:37 1994
            _, month, day, clock, year = words
            zone = "GMT"
        else:  # Sun 06 Nov 1994 08:49:37 GMT
            _, day, month, year, clock, zone = words
        local = _unix(int(year), _MONTHS.index(month[:3].lower()) + 1, int(day), clock)
        return local - _offset(zone)
    except (ValueError, OverflowError):  # a year of 400 digits is no float
        return None


def _from_iso(text: str) -> object:
    from datetime import datetime  # few services send such a date

    return datetime.fromisoformat(text.strip())


def _unix_of(moment: object) -> float | None:
    """Unix seconds of a datetime with a zone; without one nobody knows what it means."""
    try:
        zone: UserValue = attribute(moment, "utcoffset")
        return None if not callable(zone) or zone() is None else float(moment.timestamp())  # type: ignore[attr-defined]
    except Exception:  # a zone of somebody's own
        return None


def _offset(zone: str) -> int:
    """The seconds by which a zone is ahead of GMT: its name, `-0500` or `-05:00`."""
    if zone[:1] not in ("+", "-"):
        if zone.upper() not in _ZONES:
            raise ValueError(zone)
        return _ZONES[zone.upper()] * 3600
    digits = zone[1:].replace(":", "")
    if len(digits) != 4 or not digits.isdecimal():
        raise ValueError(zone)
    seconds = (int(digits[:2]) * 60 + int(digits[2:])) * 60
    return -seconds if zone[0] == "-" else seconds


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
