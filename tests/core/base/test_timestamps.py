"""Moments as records spell them."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.base.timestamps import stamp


@given(st.floats(0.0, 4e9))
def test_a_moment_is_spelled_as_datetime_spells_it(wall):
    """To the microsecond, up to the last one's rounding; in order or not."""
    told = datetime.fromisoformat(stamp(wall))
    assert abs((told - datetime.fromtimestamp(wall, UTC)).total_seconds()) <= 2e-6
    assert stamp(wall) == stamp(wall)


def test_a_moment_outside_the_calendar_is_no_text():
    """A clock may say anything."""
    assert stamp(float("inf")) == stamp(float("nan")) == stamp(1e18) == ""
    assert stamp(0.0) == "1970-01-01T00:00:00Z"
