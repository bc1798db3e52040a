"""What a window holds, against plain lists of calls with their times.

Times are quarters of a second and buckets are powers of two, so that nothing hangs on rounding.
"""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.circuit.window import Evidence, Totals, Window, added, moved, totals
from mainstay.errors import PolicyError

NO_COUNTS = [0, -1, True, 1.5, "3", None, math.nan, 10_001]
NO_SECONDS = [0, 0.05, -1.0, True, "3", None, math.nan, math.inf, 10**400]
QUARTERS = st.integers(0, 200).map(lambda n: n / 4)
CALLS = st.tuples(st.integers(0, 12), st.booleans(), st.booleans())


def problems(make, *args, **fields):
    with pytest.raises(PolicyError) as caught:
        make(*args, **fields)
    return [problem.field for problem in caught.value.problems]


def after(window, seen, now, before=0, failed=False, slow=False):
    return added(window, seen, now, before=before, failed=failed, slow=slow)


class Ledger:
    """A time window as a list of calls, each with the bucket of its time."""

    def __init__(self, window, began):
        self.window, self.calls, self.latest = window, [], began

    def bucket(self, moment):
        return math.floor(Fraction(moment) / Fraction(self.window.width))

    def look(self, now):
        """A clock that steps back by more than the window starts it anew."""
        if now < self.latest - self.window.size:
            self.calls, self.latest = [], now
        return max(now, self.latest)

    def add(self, now, before, failed, slow):
        now = self.look(now)
        start, gap = Fraction(self.latest), Fraction(now) - Fraction(self.latest)
        for n in range(1, before + 1):  # evenly, the last of them now
            moment = start + gap * n / before
            bucket = math.ceil(moment / Fraction(self.window.width)) - 1
            self.calls.append((max(bucket, self.bucket(start)), False, False))
        self.calls.append((self.bucket(now), failed, slow))
        self.latest = now

    def totals(self, now):
        newest = self.bucket(self.look(now))
        live = [call for call in self.calls if call[0] > newest - self.window.buckets]
        return Totals(len(live), sum(call[1] for call in live), sum(call[2] for call in live))


# --- the value ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", NO_COUNTS)
def test_a_window_of_calls_has_a_whole_number_of_them(size):
    """Anything else is refused, with the field and what is allowed."""
    assert problems(Window.calls, size) == ["size"]


@pytest.mark.parametrize("size", NO_SECONDS)
def test_a_window_of_time_has_some_seconds(size):
    """Anything that is no finite number from a tenth of a second up is refused."""
    assert problems(Window.seconds, size) == ["size"]


@pytest.mark.parametrize("buckets", [0, -1, True, 2.0, "3", None, 61])
def test_a_window_of_time_has_one_to_sixty_buckets(buckets):
    """Anything else is refused."""
    assert problems(Window.seconds, 60.0, buckets) == ["buckets"]


def test_every_problem_of_a_window_is_told_at_once():
    """Nobody mends one value to hear of the next."""
    assert problems(Window.seconds, -1.0, 0) == ["size", "buckets"]
    assert problems(Window, "days", 3) == ["kind"]
    assert problems(Window, "calls", 3, 4) == ["buckets"]


def test_a_window_is_a_value():
    """Equal where its fields are; its buckets share its time."""
    assert Window.calls(5) == Window.calls(5) != Window.calls(6)
    assert Window.seconds(60.0, buckets=6).width == 10.0
    assert Window.seconds(60).buckets == 10


# --- the last so many calls -----------------------------------------------------------------------


@given(st.integers(1, 20), st.lists(CALLS, max_size=30))
def test_a_window_of_calls_holds_the_last_ones(size, calls):
    """As a list does that is cut to its last entries; successes may come in bulk."""
    window, seen, ledger = Window.calls(size), Evidence(), []
    for before, failed, slow in calls:
        seen = after(window, seen, 0.0, before, failed, slow)
        ledger = [*ledger, *[(False, False)] * before, (failed, slow)][-size:]
        expected = Totals(len(ledger), sum(c[0] for c in ledger), sum(c[1] for c in ledger))
        assert totals(window, seen, 99.0) == expected


def test_more_successes_than_a_window_holds_push_everything_out():
    """A thousand million successes cost no more than a few."""
    window = Window.calls(3)
    seen = after(window, Evidence(), 0.0, 0, failed=True, slow=True)
    assert totals(window, seen, 0.0) == Totals(1, 1, 1)
    seen = after(window, seen, 0.0, 10**9)
    assert totals(window, seen, 0.0) == Totals(3, 0, 0)


# --- the calls of the last so many seconds --------------------------------------------------------

WINDOWS = st.sampled_from([Window.seconds(8.0, 4), Window.seconds(16.0, 2), Window.seconds(4.0, 1)])
STEPS = st.one_of(QUARTERS, st.integers(-80, -1).map(lambda n: n / 4))


@given(WINDOWS, QUARTERS, st.lists(st.tuples(STEPS, CALLS), max_size=25), QUARTERS)
def test_a_window_of_time_holds_the_last_seconds(window, began, calls, later):
    """As a list of calls with their times does, in whole buckets; also where the clock jumps."""
    seen, ledger, now = Evidence(heard=began), Ledger(window, began), began
    for step, call in calls:
        now += step
        seen = after(window, seen, now, *call)
        ledger.add(now, *call)
        assert totals(window, seen, now) == ledger.totals(now)
    assert totals(window, seen, now + later) == ledger.totals(now + later)
    assert len(seen.buckets) <= window.buckets


def test_a_bucket_is_forgotten_when_as_many_have_begun_after_it():
    """Four buckets of two seconds: a failure at 1 s is gone at 8 s, and not before."""
    window = Window.seconds(8.0, 4)
    seen = after(window, Evidence(), 1.0, failed=True)
    assert totals(window, seen, 7.99).failed == 1
    assert totals(window, seen, 8.0).failed == 0


def test_successes_of_a_long_healthy_time_do_not_drown_the_first_failure():
    """A thousand successes in as many seconds: the last eight seconds hold about eight."""
    window = Window.seconds(8.0, 4)
    seen = after(window, Evidence(heard=0.0), 1000.0, before=1000, failed=True)
    assert 1 < totals(window, seen, 1000.0).calls <= 1 + 8 + 1


@given(st.integers(0, 500), st.integers(1, 400))
def test_successes_known_only_by_their_number_are_spread_evenly(count, gap):
    """The window holds their share of the time it covers, to within a bucket; none is invented."""
    window, now = Window.seconds(8.0, 4), 1000.0 + gap / 4
    seen = after(window, Evidence(heard=1000.0), now, before=count, failed=True)
    held = totals(window, seen, now).calls - 1
    rate = count / (gap / 4)
    assert held <= count
    assert min(count, rate * 6.0) - 1 <= held <= min(count, rate * 8.0) + 1


def test_a_small_step_back_adds_to_the_newest_bucket():
    """Nothing is lost, and nothing is entered into a bucket that was left."""
    window = Window.seconds(8.0, 4)
    seen = after(window, Evidence(), 100.0, failed=True)
    seen = after(window, seen, 97.0, failed=True)
    assert totals(window, seen, 97.0) == Totals(2, 2, 0)
    assert totals(window, seen, 107.9).failed == 2
    assert totals(window, seen, 108.0).failed == 0


def test_a_clock_that_steps_back_past_the_window_starts_it_anew():
    """What it held would otherwise not be forgotten until the clock had caught up."""
    window = Window.seconds(8.0, 4)
    seen = after(window, Evidence(), 5000.0, failed=True)
    assert totals(window, seen, 100.0) == Totals()
    seen = after(window, seen, 100.0, failed=True)
    assert totals(window, seen, 100.0) == Totals(1, 1, 0)
    assert totals(window, seen, 109.0) == Totals()


@given(WINDOWS, st.lists(st.tuples(QUARTERS, CALLS), max_size=8), st.integers(-50, 50), QUARTERS)
def test_evidence_moves_to_another_clock(window, calls, buckets, later):
    """By whole buckets: it holds the same then as it held before."""
    seen, now, by = Evidence(), 0.0, buckets * window.width
    for step, call in calls:
        now += step
        seen = after(window, seen, now, *call)
    there = moved(window, seen, by)
    assert totals(window, there, now + by + later) == totals(window, seen, now + later)
    assert moved(window, there, -by) == seen


def test_evidence_of_calls_is_the_same_on_every_clock():
    """It holds no time."""
    seen = after(Window.calls(3), Evidence(), 0.0, failed=True)
    assert moved(Window.calls(3), seen, 77.0) is seen
