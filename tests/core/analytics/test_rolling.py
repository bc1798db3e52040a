"""Two counts over a window, in place: against a list of everything that ever happened."""

from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.analytics.rolling import Rolling

STEPS = st.lists(st.tuples(st.floats(0.0, 30.0), st.integers(0, 3), st.integers(0, 3)), max_size=60)


@given(st.sampled_from([1.0, 10.0, 60.0]), st.integers(1, 12), STEPS)
def test_it_counts_what_a_list_of_everything_counts(window, buckets, steps):
    """The buckets of the window that ends now, and nothing else."""
    rolling, now, happened = Rolling(window, buckets), 0.0, []
    for pause, first, second in steps:
        now += pause
        rolling.add(now, first, second)
        happened.append((int(now // rolling.width), first, second))
        newest = int(now // rolling.width)
        live = [each for each in happened if each[0] > newest - buckets]
        assert rolling.totals(now) == (sum(e[1] for e in live), sum(e[2] for e in live))


@given(st.lists(st.floats(-100.0, 100.0), max_size=40))
def test_a_clock_that_jumps_never_makes_a_count_negative(jumps):
    """The sums stay those of what is kept, whichever way the clock goes."""
    rolling, now = Rolling(10.0), 1000.0
    for jump in jumps:
        now = max(0.0, now + jump)
        rolling.add(now, 1, 1)
        first, second = rolling.totals(now)
        assert first == second
        assert 1 <= first <= len(jumps)


def test_a_small_step_back_counts_into_the_newest_bucket():
    """A thread that read the time a little earlier loses nothing."""
    rolling = Rolling(10.0)
    rolling.add(105.0, 1)
    rolling.add(103.0, 1)
    assert rolling.totals(105.0) == (2, 0)
    assert rolling.totals(114.9) == (2, 0)
    assert rolling.totals(115.0) == (0, 0)


def test_a_clock_that_was_set_back_starts_anew():
    """What was counted an hour ahead does not stay for an hour."""
    rolling = Rolling(10.0)
    rolling.add(3600.0, 5)
    rolling.add(0.0, 1)
    assert rolling.totals(0.0) == (1, 0)
    assert rolling.totals(10.0) == (0, 0)
