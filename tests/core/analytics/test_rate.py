"""A rate is worked out when it is looked at, and reads as a number."""

import pytest

from mainstay.core.analytics.rate import Rate, minutes_between
from mainstay.errors import UsageError


def rate(counts, minutes=2.0):
    return Rate(lambda by: (counts if by else {"": sum(counts.values())}, minutes))


def test_it_compares_as_a_number_does():
    four = rate({"a": 5, "b": 3})
    assert (four > 3, four >= 4, four < 5, four <= 4) == (True, True, True, True)
    assert (four > 4, four >= 5, four < 4, four <= 3) == (False, False, False, False)
    assert (float(four), four(), repr(four), f"{four:.1f}") == (4.0, 4.0, "4.0", "4.0")


def test_it_can_be_told_by_name():
    assert rate({"b": 3, "a": 5})(by="operation") == {"a": 2.5, "b": 1.5}
    with pytest.raises(UsageError, match="by='day': there are event_type, retry_category"):
        rate({})(by="day")


@pytest.mark.parametrize(
    ("first", "last", "minutes"),
    [
        ("2026-01-25T21:00:00", "2026-01-25T21:30:00", 30.0),
        ("2026-01-25T21:00:00", "2026-01-25T21:00:01", 1.0),
        ("", "", 1.0),
        ("2026-01-25T21:00:00", "9999-99-99T99:99:99", 1.0),
    ],
)
def test_a_time_is_a_minute_at_least(first, last, minutes):
    assert minutes_between(first, last) == minutes
