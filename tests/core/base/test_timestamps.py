"""Wall-clock moments as text: of records, and of people."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mainstay.core.base import timestamps
from mainstay.core.base.timestamps import (
    parse_moment,
    seconds_between,
    sortable,
    stamp,
    written,
)

NOW = datetime(2026, 1, 25, 12, tzinfo=UTC)
MOMENTS = st.datetimes(
    datetime(1970, 1, 2), datetime(2100, 1, 1),  # noqa: DTZ001  Hypothesis adds the zones
    timezones=st.integers(-14, 14).map(lambda h: timezone(timedelta(hours=h))),
)  # fmt: skip


def as_recorded(moment):
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


@given(MOMENTS, MOMENTS)
def test_texts_sort_as_moments_do(one, other):
    """In the form of records, and in any other that ISO has."""
    for write in (as_recorded, datetime.isoformat):
        assert (sortable(write(one)) < sortable(other.isoformat())) == (one < other)
        assert (sortable(write(one)) == sortable(other.isoformat())) == (one == other)


@given(MOMENTS, MOMENTS)
def test_the_seconds_between_two_are_theirs(one, other):
    assert seconds_between(written(one), written(other)) == (other - one).total_seconds()


@pytest.mark.parametrize("text", ["", "soon", "0001-01-01T00:00:00+14:00"])
def test_what_is_no_time_is_empty(text):
    assert sortable(text) == ""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("2h", 7200), ("1.5 H", 5400), ("7d", 604800), ("1w", 604800)],
)
def test_so_long_ago(text, seconds):
    assert parse_moment(text, NOW) == NOW - timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    ["2026-01-25T11:00:00Z", "2026-01-25T12:00:00+01:00", "2026-01-25 11:00", " 20260125T11 "],
)
def test_the_forms_of_iso(text):
    """Without a zone it is UTC, as records are."""
    assert parse_moment(text, NOW) == NOW - timedelta(hours=1)


@pytest.mark.parametrize("text", ["", "yesterday", "2x", "99999999999w", "2026-13-01"])
def test_what_is_no_moment_says_what_is(text):
    with pytest.raises(ValueError, match="is no moment; write 2026"):
        parse_moment(text, NOW)


@given(st.floats(0.0, 4e9))
def test_a_moment_is_spelled_as_datetime_spells_it(wall):
    """To the microsecond, up to the last one's rounding; in order or not."""
    told = datetime.fromisoformat(stamp(wall))
    assert abs((told - datetime.fromtimestamp(wall, UTC)).total_seconds()) <= 2e-6
    assert stamp(wall) == stamp(wall)


WALLS = st.one_of(
    st.floats(-4e9, 4e9),
    st.builds(
        lambda second, rest: second + rest,
        st.integers(-5, 5).map(lambda number: 1_763_212_500.0 + number),
        st.sampled_from([-6e-7, -4e-7, 0.0, 4e-7, 6e-7, 0.25, 0.5, 0.9999994, 0.9999996]),
    ),
)


@given(WALLS, WALLS)
@example(1_763_212_500.0, 1_763_212_500.0 - 7e-7)
@example(1_763_212_500.0, 1_763_212_500.0 - 4e-7)
@example(1_763_212_500.0, 1_763_212_500.0 + 0.9999996)
def test_the_second_that_is_kept_changes_nothing(before, wall):
    """A moment is spelled as if none had been spelled before it."""
    stamp(before)
    spelled = stamp(wall)
    timestamps._last = (float("nan"), "")
    assert stamp(wall) == spelled


def test_a_moment_outside_the_calendar_is_no_text():
    """A clock may say anything."""
    assert stamp(float("inf")) == stamp(float("nan")) == stamp(1e18) == ""
    assert stamp(0.0) == "1970-01-01T00:00:00Z"
