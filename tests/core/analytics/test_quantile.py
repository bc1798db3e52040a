"""Recent durations: exact quantiles of what is kept, and only the last are kept."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.analytics.quantile import RING, Recent

SECONDS = st.lists(st.floats(0.0, 1e6), min_size=1, max_size=3 * RING)


def recent_of(durations, size=RING):
    recent = Recent(size)
    for each in durations:
        recent.add(each)
    return recent


@given(SECONDS, st.floats(0.0, 1.0))
def test_a_quantile_is_the_least_duration_that_so_many_did_not_exceed(durations, share):
    """Nearest rank, over the last durations only."""
    kept = sorted(durations[-RING:])
    found = recent_of(durations).quantile(share)
    assert found in kept
    assert sum(each <= found for each in kept) >= share * len(kept) - 1e-6
    below = [each for each in kept if each < found]
    assert not below or sum(each <= below[-1] for each in kept) < share * len(kept) + 1e-6


@given(SECONDS)
def test_no_more_than_the_ring_is_kept(durations):
    """Memory is bounded, and the order and the ring hold the same."""
    recent = recent_of(durations)
    assert len(recent) == min(len(durations), RING)
    assert sorted(recent._ring) == recent._ordered


def test_what_was_long_ago_is_forgotten():
    """A service that has become fast is believed after one ring of calls."""
    recent = recent_of([9.0] * 5 + [1.0] * 4, size=4)
    assert recent.quantile(1.0) == 1.0


def test_ranks_are_not_shifted_by_rounding():
    """0.55 × 20 is a little more than 11 in floating point, and still the 11th."""
    recent = recent_of(range(1, 21))
    assert recent.quantile(0.55) == 11
    assert recent.quantile(0.95) == 19
    assert recent.quantile(0.0) == 1
    assert recent.quantile(1.0) == 20


@pytest.mark.parametrize("odd", [-1.0, -0.001, math.nan, math.inf])
def test_a_duration_that_cannot_be_is_left_out(odd):
    """A clock that steps back gives negative durations; they would only lower the delay."""
    recent = recent_of([odd])
    assert len(recent) == 0
    assert recent.quantile(0.5) is None


def test_zero_is_a_duration():
    """A call may take no time that the clock can see."""
    assert recent_of([0.0]).quantile(0.5) == 0.0
