"""Retry-After: seconds, three forms of date, and whatever else servers send."""

import calendar
import email.utils
import http.client
import io
import math
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.known.kind import qualified_name
from mainstay.core.retry.retry_after import FOLDING, Hint, hint_in, hint_of, parse, parse_date

MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2068, 12, 31)).map(  # noqa: DTZ001
    lambda moment: moment.replace(microsecond=0, tzinfo=UTC)
)


def as_pair(hint):
    return None if hint is None else (hint.seconds, hint.at)


def imf_fixdate(moment):
    return email.utils.format_datetime(moment, usegmt=True)


def rfc850(moment):
    return moment.strftime("%A, %d-%b-%y %H:%M:%S GMT")


def asctime(moment):
    return moment.strftime("%a %b {:2d} %H:%M:%S %Y").format(moment.day)


# --- seconds --------------------------------------------------------------------------------------


@given(seconds=st.floats(0.0, 1e9))
def test_seconds_are_read_as_numbers_and_as_text(seconds):
    """A number of seconds is itself, given as a number or as text."""
    assert as_pair(parse(seconds)) == (seconds, None)
    assert as_pair(parse(repr(seconds))) == (seconds, None)


@pytest.mark.parametrize(("value", "seconds"), [(0, 0.0), ("0", 0.0), ("120", 120.0), (" 5 ", 5.0)])
def test_whole_seconds(value, seconds):
    """The common forms, zero and surrounding spaces included."""
    hint = parse(value)
    assert as_pair(hint) == (seconds, None)
    assert type(hint.seconds) is float


NONSENSE = [
    "", " ", "soon", "-1", -1, -0.5, "nan", "inf", "-inf", math.nan, math.inf, True, False, None,
    [], {}, SimpleNamespace(), b"120", 3j, 10**400, "9" * 400, "1 2", "Sun", "Sun, 06 Nov 1994",
    "Sun, 06 Nov 1994 08:49:37 GMT extra", "Sun, 06 Nov 1994 08:49 GMT",
    "Sun, 06 Nov 1994 08:49:37:00 GMT", "Sun, 06 Foo 1994 08:49:37 GMT",
    "Sun, 00 Nov 1994 08:49:37 GMT", "Sun, 32 Nov 1994 08:49:37 GMT",
    "Sun, 06 Nov 1994 24:49:37 GMT", "Sun, 06 Nov 1994 08:60:37 GMT",
    "Sun, 06 Nov 1994 08:49:61 GMT", "Sun, 06 Nov " + "9" * 400 + " 08:49:37 GMT",
    "Sun, xx Nov 1994 08:49:37 GMT", "Sun, 06 Nov 19x4 08:49:37 GMT", "Sun Nov 6 08:49:37 year",
]  # fmt: skip


@pytest.mark.parametrize("value", NONSENSE, ids=lambda value: repr(value)[:40])
def test_nonsense_is_ignored(value):
    """What makes no sense is no hint, and never an error: it came from a stranger."""
    assert parse(value) is None
    error = ConnectionError()
    error.retry_after = value
    assert hint_of(error) is None


@given(value=st.one_of(st.text(max_size=40), st.integers(), st.floats(), st.none()))
def test_no_value_at_all_raises(value):
    """Any text or number gives a hint of a finite time, or none."""
    hint = parse(value, value)
    if hint is not None:
        [moment] = [part for part in (hint.seconds, hint.at) if part is not None]
        assert math.isfinite(moment)
        assert hint.seconds is None or hint.seconds >= 0.0


# --- dates ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "sun, 06 nov 1994 08:49:37 gmt",
        "Sunday,06-Nov-94 08:49:37 GMT",
        "Sun, 06 November 1994 08:49:37 GMT",
    ],
)
def test_the_examples_of_the_rfc(text):
    """The three forms of RFC 9110, section 5.6.7, are one moment."""
    assert parse_date(text) == 784111777.0
    assert as_pair(parse(text)) == (None, 784111777.0)


@given(moment=MOMENTS)
def test_all_three_forms_agree_with_the_standard_library(moment):
    """Each form of any date of a century is what email.utils makes of it."""
    for form in (imf_fixdate, asctime):
        text = form(moment)
        expected = calendar.timegm(email.utils.parsedate(text))
        assert parse_date(text) == expected == moment.timestamp()


@given(moment=MOMENTS)
def test_a_year_of_two_digits_is_within_a_century(moment):
    """From 70 on it is the last century, below it this one, as the standard library reads it."""
    text = rfc850(moment)
    assert parse_date(text) == calendar.timegm(email.utils.parsedate(text)) == moment.timestamp()


def test_the_years_at_the_turn():
    """99 is 1999, 70 is 1970, 00 is 2000, 69 is 2069, 100 is the year 100."""
    years = {"99": 1999, "70": 1970, "00": 2000, "69": 2069, "100": 100}
    for text, year in years.items():
        moment = datetime(year, 1, 1, tzinfo=UTC)
        expected = (moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(seconds=1)
        assert parse_date(f"Xxx, 01 Jan {text} 00:00:00 GMT") == expected


@given(moment=st.datetimes(datetime(100, 1, 1), datetime(9999, 12, 31)))  # noqa: DTZ001
def test_every_day_of_the_calendar(moment):
    """Leap years, centuries and all: days are counted as datetime counts them."""
    moment = moment.replace(microsecond=0)
    text = f"Xxx, {moment.day:02d} {moment:%b} {moment.year:04d} {moment:%H:%M:%S} GMT"
    since = moment - datetime(1970, 1, 1)  # noqa: DTZ001
    assert parse_date(text) == since / timedelta(seconds=1)


def test_the_bounds_of_a_clock():
    """Midnight, the last second and a leap second are times."""
    day = parse_date("Sun, 06 Nov 1994 00:00:00 GMT")
    assert parse_date("Sun, 06 Nov 1994 23:59:59 GMT") == day + 86_399
    assert parse_date("Sun, 06 Nov 1994 23:59:60 GMT") == day + 86_400
    assert parse_date("Thu, 01 Jan 1970 00:00:00 GMT") == 0.0
    assert parse_date("Sat, 31 Dec 1994 00:00:00 GMT") == day + 55 * 86_400


@given(sent=MOMENTS, wait=st.integers(-(10**6), 10**6))
def test_a_date_is_read_against_the_date_of_the_response(sent, wait):
    """With a Date header the two clocks need not agree; a date in the past is no wait."""
    until = imf_fixdate(sent + timedelta(seconds=wait))
    assert as_pair(parse(until, date=imf_fixdate(sent))) == (max(0.0, float(wait)), None)


@pytest.mark.parametrize("date", [None, "", "yesterday", 12])
def test_a_date_without_another_is_a_moment(date):
    """Without a Date header that makes sense, the caller's wall clock will be needed."""
    hint = parse("Sun, 06 Nov 1994 08:49:37 GMT", date=date)
    assert as_pair(hint) == (None, 784111777.0)


def test_seconds_do_not_depend_on_the_date_of_the_response():
    """A number of seconds is relative already."""
    assert as_pair(parse("7", date="Sun, 06 Nov 1994 08:49:37 GMT")) == (7.0, None)


# --- where it is found ----------------------------------------------------------------------------


def failure(**attributes):
    error = RuntimeError("no")
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


class Headers:
    """Headers as httpx and requests have them: no dict, only `get`, any case."""

    def __init__(self, **headers):
        self._headers = {name.lower().replace("_", "-"): value for name, value in headers.items()}

    def get(self, name):
        return self._headers.get(name.lower())


WHEN = "Sun, 06 Nov 1994 08:49:37 GMT"
BEFORE = "Sun, 06 Nov 1994 08:49:27 GMT"


@pytest.mark.parametrize(
    "error",
    [
        failure(retry_after=10),
        failure(retry_after="10"),
        failure(response=SimpleNamespace(headers={"Retry-After": "10"})),
        failure(response=SimpleNamespace(headers={"retry-after": "10"})),
        failure(response=SimpleNamespace(headers=Headers(Retry_After="10"))),
        failure(response=SimpleNamespace(headers={"Retry-After": WHEN, "Date": BEFORE})),
        failure(response=SimpleNamespace(headers={"retry-after": WHEN, "date": BEFORE})),
        failure(headers={"Retry-After": "10"}),
        failure(response=SimpleNamespace(headers={}), headers={"Retry-After": "10"}),
        failure(response=SimpleNamespace(), headers={"Retry-After": "10"}),
        failure(response={"ResponseMetadata": {"HTTPHeaders": {"retry-after": "10"}}}),
        failure(retry_after=10, headers={"Retry-After": "99"}),
    ],
    ids=lambda error: str(sorted(vars(error)))[:60],
)
def test_a_hint_is_found_where_libraries_put_it(error):
    """On the exception, in its response's headers, in its own, or in botocore's metadata."""
    assert as_pair(hint_of(error)) == (10.0, None)


def message(text=""):
    return http.client.parse_headers(io.BytesIO(text.encode() + b"\r\n\r\n"))


def test_headers_that_know_a_name_in_any_case_are_asked_once():
    """Those of the standard library are; the libraries' own are in tests/integrations."""
    assert as_pair(hint_of(failure(headers=message("retry-AFTER: 10")))) == (10.0, None)
    assert as_pair(hint_of(failure(headers=message("Server: x")))) is None
    assert qualified_name(http.client.HTTPMessage) in FOLDING


@pytest.mark.parametrize(
    "error",
    [
        failure(),
        failure(response=None),
        failure(headers=None),
        failure(headers=[("Retry-After", "10")]),
        failure(headers="Retry-After: 10"),
        failure(headers={}),
        failure(response=SimpleNamespace(headers={"Retry-After": "later"})),
        failure(response={}),
        failure(response={"ResponseMetadata": None}),
        failure(response={"ResponseMetadata": {"HTTPHeaders": None}}),
        failure(response={"Error": {"Code": "Throttling"}}),
        failure(response="text"),
    ],
    ids=lambda error: str(vars(error))[:60],
)
def test_no_hint_is_found_where_there_is_none(error):
    """Odd shapes of responses and headers are no hint, and never an error."""
    assert hint_of(error) is None


def test_a_hint_holds_what_it_was_given():
    """Seconds or a moment, and nothing else by default."""
    assert as_pair(Hint()) == (None, None)
    assert as_pair(Hint(3.0)) == (3.0, None)
    assert as_pair(Hint(at=3.0)) == (None, 3.0)


# --- zones ----------------------------------------------------------------------------------------

NOON = parse_date("Mon, 16 Nov 2026 12:00:00 GMT")


@pytest.mark.parametrize(
    "text",
    [
        "Mon, 16 Nov 2026 12:00:00 UTC",
        "Mon, 16 Nov 2026 12:00:00 UT",
        "Mon, 16 Nov 2026 12:00:00 +0000",
        "Mon, 16 Nov 2026 14:00:00 +0200",
        "Mon, 16 Nov 2026 14:00:00 +02:00",
        "Mon, 16 Nov 2026 06:30:00 -0530",
        "Tue, 17 Nov 2026 01:00:00 +1300",
        "Mon, 16 Nov 2026 07:00:00 EST",
        "Mon, 16 Nov 2026 05:00:00 pdt",
        "Monday, 16-Nov-26 07:00:00 EST",
        "Monday, 16-Nov-26 14:00:00 +0200",
        "2026-11-16T12:00:00Z",
        "2026-11-16T14:00:00+02:00",
        " 2026-11-16 14:00:00+02:00 ",
        "Mon Nov 16 12:00:00 2026",
    ],
)
def test_a_date_is_read_in_its_zone(text):
    """By number or by name, in the forms of RFC 9110, RFC 5322 and ISO 8601."""
    assert parse_date(text) == NOON


@pytest.mark.parametrize(
    "text",
    [
        "Mon, 16 Nov 2026 12:00:00 CET",
        "Mon, 16 Nov 2026 12:00:00 X",
        "Mon, 16 Nov 2026 12:00:00 +2",
        "Mon, 16 Nov 2026 12:00:00 +02h0",
        "2026-11-16T12:00:00",
        "2026-11-16",
        "2026-13-16T12:00:00Z",
    ],
)
def test_a_date_in_no_known_zone_is_no_hint(text):
    """The wrong zone would be hours too early: the policy's own delay is better."""
    assert parse_date(text) is None
    assert parse(text) is None


def test_a_moment_with_a_zone_is_a_hint():
    """An exception may carry a datetime, or a timedelta; one without a zone means nothing."""
    zone = timezone(timedelta(hours=2))
    assert parse(datetime(2026, 11, 16, 14, tzinfo=zone)).at == NOON
    assert parse(datetime(2026, 11, 16, 14)) is None  # noqa: DTZ001 -- without a zone
    assert parse(timedelta(minutes=2)).seconds == 120.0
    assert parse(timedelta(seconds=-1)) is None


class Nowhere(tzinfo):
    def utcoffset(self, _):
        raise RuntimeError("lost")


def test_a_zone_that_fails_is_no_hint():
    """A zone may be anybody's code."""
    assert parse(datetime(2026, 11, 16, tzinfo=Nowhere())) is None


def test_a_response_whose_headers_cannot_be_read_asks_for_nothing():
    """A property may raise, as those of some clients do before they are set."""

    class Response:
        @property
        def headers(self):
            raise RuntimeError("not read yet")

    assert hint_in(Response()) is None
    assert hint_in(object()) is None
