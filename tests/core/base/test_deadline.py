"""Arithmetic of remaining time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.base.deadline import NEVER, fits, remaining, until

MOMENTS = st.floats(-1e9, 1e9)
LIMITS = st.floats(0.0, 1e6)
ENDS = st.one_of(MOMENTS, st.just(NEVER))


@given(now=MOMENTS, limit=LIMITS, outer=ENDS)
def test_a_limit_ends_in_time_and_never_after_the_outer_one(now, limit, outer):
    """An inner deadline never exceeds the outer one."""
    end = until(now, limit, outer)
    assert end == min(now + limit, outer)
    assert end <= outer


@given(now=MOMENTS, outer=ENDS)
def test_without_a_limit_the_outer_one_holds(now, outer):
    """No limit of one's own is the limit around."""
    assert until(now, None, outer) == outer
    assert until(now, None) == NEVER
    assert until(now, 5.0) == now + 5.0


def test_a_limit_of_nothing_is_now():
    """Zero seconds is not the same as no limit."""
    assert until(10.0, 0.0) == 10.0


@given(now=MOMENTS, end=ENDS)
def test_the_time_left_is_never_negative(now, end):
    """Past the end there is nothing left, whatever the clock says."""
    assert remaining(now, end) == (end - now if end > now else 0.0)


@pytest.mark.req("NFR-041-11")
@given(now=MOMENTS, delay=LIMITS, end=ENDS)
def test_an_attempt_fits_where_time_is_left_after_the_wait(now, delay, end):
    """No attempt starts at or after the end."""
    assert fits(now, delay, end) is (now + delay < end)


def test_the_very_end_is_too_late():
    """An attempt with no time at all is not started; one with a moment is."""
    assert not fits(100.0, 3.0, 103.0)
    assert fits(100.0, math.nextafter(3.0, 0.0) - 1e-9, 103.0)
    assert fits(100.0, 1e9, NEVER)
