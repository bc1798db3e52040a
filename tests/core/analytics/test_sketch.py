"""Quantiles by a sketch: never further off than it says, whatever it was given."""

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.analytics.sketch import MOST_BUCKETS, Sketch, bucket_of

DURATIONS = st.lists(
    st.one_of(st.just(0.0), st.floats(1e-6, 1e6), st.floats(0.05, 5.0)), min_size=1, max_size=300
)
SHARES = st.sampled_from([0.0, 0.01, 0.5, 0.9, 0.99, 1.0])


def exact(durations, share):
    """The least duration that such a share did not exceed."""
    return sorted(durations)[max(1, ceil(share * len(durations) - 1e-9)) - 1]


def sketch_of(durations):
    sketch = Sketch()
    for seconds in durations:
        sketch.add(seconds)
    return sketch


@given(DURATIONS, SHARES)
def test_a_quantile_is_within_the_error(durations, share):
    sketch = sketch_of(durations)
    true = exact(durations, share)
    assert abs(sketch.quantile(share) - true) <= true * sketch.error * (1 + 1e-6)
    assert sketch.total == len(durations)


@given(DURATIONS, DURATIONS, SHARES)
def test_merging_is_counting_both(some, others, share):
    """Also where one of them had to join buckets and the other had not."""
    merged = sketch_of(some)
    merged.merge(sketch_of(others))
    assert merged.quantile(share) == sketch_of(some + others).quantile(share)


def test_a_wide_range_keeps_its_size_and_says_its_error():
    """Over 20 decades, which need 4,600 fine buckets, they are joined, and the error is told."""
    wide = [10 ** (-8 + n / 100) for n in range(2000)]
    sketch = sketch_of(wide)
    assert len(sketch._buckets) <= MOST_BUCKETS
    assert 0.01 < sketch.error < 0.08
    for share in (0.01, 0.5, 0.99):
        true = exact(wide, share)
        assert abs(sketch.quantile(share) - true) <= true * sketch.error


def test_a_narrow_range_is_within_one_per_cent():
    """What policies wait, from 1 ms to 28 s, needs no joining."""
    assert sketch_of([0.001 * 1.01**n for n in range(1000)]).error == 0.01


def test_two_sketches_that_fit_may_not_fit_together():
    """Merging joins until they do."""
    low = sketch_of([1e-6 * 1.02**n for n in range(500)])
    high = sketch_of([1e3 * 1.02**n for n in range(500)])
    assert low.error == high.error == 0.01
    low.merge(high)
    assert len(low._buckets) <= MOST_BUCKETS
    assert low.error > 0.01
    fine = sketch_of([1.0])
    fine.merge(low)
    assert fine.error == low.error
    assert fine.total == 1001


def test_nothing_has_no_quantile():
    assert Sketch().quantile(0.5) is None


def test_no_time_is_exactly_none():
    """Zeros, and what is no duration at all, count as no wait."""
    sketch = sketch_of([0.0, -1.0, float("nan"), 4.0])
    assert [sketch.quantile(share) for share in (0.25, 0.75)] == [0.0, 0.0]
    assert abs(sketch.quantile(1.0) - 4.0) < 0.05


def test_a_duration_without_end_has_the_last_bucket():
    assert bucket_of(float("inf")) == bucket_of(1e12)
