"""Budgets decide by counting: the window, the share of the calls, the tokens."""

import math
import pickle
from bisect import bisect_left
from fractions import Fraction
from functools import reduce
from operator import add

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mainstay.core.limits.budget import (
    RatioRule,
    SlidingCounts,
    TokenRule,
    is_spent,
    spent,
    thousandths,
)
from mainstay.errors import PolicyError

NO_NUMBERS = [True, "1", None, math.nan, math.inf, -math.inf, -1, -0.5, 10**400]
QUARTERS = st.integers(0, 400).map(lambda n: n / 4)


def problems(make, *args, **fields):
    with pytest.raises(PolicyError) as caught:
        make(*args, **fields)
    return caught.value.problems


# --- the window -----------------------------------------------------------------------------------


def test_a_window_forgets_a_tenth_of_itself_at_a_time():
    """What was counted in a bucket goes when ten buckets have begun after it."""
    counts = SlidingCounts(10.0).add(100.0, 1, 2).add(105.9, 10, 20)
    assert counts.totals(105.9) == (11, 22)
    assert counts.totals(109.99) == (11, 22)
    assert counts.totals(110.0) == (10, 20)
    assert counts.totals(114.99) == (10, 20)
    assert counts.totals(115.0) == (0, 0)


def test_a_window_never_changes():
    """Counting gives another window; the first is as it was, and travels."""
    counts = SlidingCounts(10.0).add(100.0, 1)
    later = counts.add(101.0, 1)
    assert counts.totals(101.0) == (1, 0)
    assert later.totals(101.0) == (2, 0)
    assert pickle.loads(pickle.dumps(later)) == later


class Stamps:
    """The window as a list of what was counted when; buckets are only looked at when asked."""

    def __init__(self, width, patience):
        self.width, self.patience = width, patience
        self.stamps, self.latest = [], None

    def move(self, now):
        bucket = now // self.width
        if self.latest is None or bucket > self.latest:
            self.latest = bucket
        elif self.latest - bucket > self.patience:
            self.stamps = [stamp + bucket - self.latest for stamp in self.stamps]
            self.latest = bucket

    def add(self, now, times):
        self.move(now)
        self.stamps += [self.latest] * times

    def total(self, now):
        self.move(now)
        return len([stamp for stamp in self.stamps if stamp > self.latest - 10])


@pytest.mark.parametrize(("window", "patience"), [(10.0, 1), (160.0, 1), (2.5, 4), (0.625, 10)])
@given(steps=st.lists(st.tuples(QUARTERS, st.integers(0, 5)), max_size=40))
def test_a_window_counts_as_a_list_of_stamps_does(window, patience, steps):
    """At any times, also backwards, the totals are those of the stamps in ten buckets."""
    counts, model = SlidingCounts(window), Stamps(window / 10, patience)
    for now, times in steps:
        counts = counts.add(now, times, 2 * times)
        model.add(now, times)
        assert counts.totals(now) == (model.total(now), 2 * model.total(now))


def test_a_clock_set_back_takes_the_counts_along():
    """Nothing is forgotten by it, and nothing stays longer than a window."""
    counts = SlidingCounts(10.0).add(5000.0, 7)
    back = counts.at(100.0)
    assert back.totals(100.0) == (7, 0)
    assert back.totals(109.0) == (7, 0)
    assert back.totals(110.0) == (0, 0)


def test_a_thread_that_is_late_does_not_make_the_window_older():
    """Times that go back and forth by a little, across the edge of a bucket, forget nothing."""
    counts = SlidingCounts(10.0)
    for _ in range(100):
        counts = counts.add(100.9, 1).add(101.1, 1)
    assert counts.totals(101.1) == (200, 0)


def test_what_came_in_over_a_longer_time_is_counted_in_part():
    """A thousand calls in a hundred seconds are a hundred in ten."""
    counts = SlidingCounts(10.0).spread(0.0, 99.999, 1000, 500)
    first, second = counts.totals(99.999)
    assert (first, second) == (100, 50)
    assert [bucket[0] for bucket in counts.buckets] == [10] * 10


@given(
    since=QUARTERS,
    span=QUARTERS.filter(bool),
    first=st.integers(0, 1000),
    second=st.integers(0, 1000),
    window=st.sampled_from([2.5, 10.0, 160.0]),
)
@example(since=0.25, span=47.5, first=0, second=95, window=160.0)
def test_spreading_places_calls_evenly(since, span, first, second, window):
    """Each bucket gets those of n evenly placed moments that fall into it, give or take one."""
    now, width = since + span, window / 10
    counts = SlidingCounts(window).spread(since, now, first, second)
    for back, bucket in enumerate(counts.buckets):
        start = (now // width - back) * width
        for got, n in zip(bucket, (first, second), strict=True):
            inside = placed_before(start + width, since, span, n) - placed_before(
                start, since, span, n
            )
            assert abs(got - inside) <= 1
    assert counts.totals(now)[0] <= first
    if span < window - width:
        assert counts.totals(now) == (first, second)


def placed_before(end, since, span, n):
    """How many of n evenly placed moments are before this one; those on an edge are exact."""

    def moment(i):
        return Fraction(since) + Fraction(2 * i + 1, 2 * n) * Fraction(span)

    return bisect_left(range(n), Fraction(end), key=moment)


@pytest.mark.parametrize("now", [50.0, 49.5, 3.0])
def test_spreading_over_no_time_counts_everything_now(now):
    """Where the clock stands still or went back, what has come in is new."""
    assert SlidingCounts(10.0).spread(50.0, now, 8, 3).totals(now) == (8, 3)


def test_a_count_is_taken_back_from_its_own_bucket():
    """Ten buckets later there is nothing to take back; before, it goes from where it was."""
    counts = SlidingCounts(10.0).add(100.0, 1)
    number = counts.newest
    counts = counts.add(105.0, 5)
    assert counts.take_back(number, 105.0).totals(105.0) == (5, 0)
    assert counts.take_back(number, 109.9).totals(110.0) == (5, 0)
    assert counts.take_back(number, 110.0).totals(110.0) == (5, 0)
    assert counts.take_back(number, 500.0).totals(500.0) == (0, 0)


def test_a_count_is_never_taken_back_below_nothing():
    """Taken back twice, or after the clock went back, there are no negative counts."""
    counts = SlidingCounts(10.0).add(100.0, 1)
    once = counts.take_back(counts.newest, 100.0)
    assert once.take_back(counts.newest, 100.0).totals(100.0) == (0, 0)
    back = counts.at(10.0)
    assert back.take_back(counts.newest, 10.0).totals(10.0) == (0, 0)


# --- a share of the calls -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calls", "allowed"), [(0, 10), (50, 10), (54, 10), (55, 11), (100, 20), (1000, 200)]
)
def test_retries_are_a_fifth_of_the_calls_and_at_least_ten(calls, allowed):
    """The defaults: up to 10 in a window, or 20 % of the calls."""
    rule = RatioRule()
    assert rule.allows(calls, allowed - 1)
    assert not rule.allows(calls, allowed)


def test_a_share_is_reached_whatever_a_float_makes_of_it():
    """29 % of 100 are 29, though 0.29 × 100 is less."""
    assert 0.29 * 100 < 29
    assert RatioRule(ratio=0.29, floor=0).allows(100, 28)
    assert not RatioRule(ratio=0.29, floor=0).allows(100, 29)


def test_a_budget_of_nothing_allows_nothing():
    """Ratio 0 and floor 0 switch retries off."""
    assert not RatioRule(ratio=0, floor=0).allows(10**9, 0)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: repr(value)[:9])
def test_a_ratio_rule_refuses_what_is_no_number_in_range(value):
    """Each wrong value is named with its field, all at once."""
    found = problems(RatioRule, name=" x", ratio=value, floor=value, window=value)
    assert [each.field for each in found] == ["name", "ratio", "floor", "window"]
    assert [each.value for each in found] == [" x", value, value, value]
    assert found[1].allowed == "a finite number from 0 to 1"
    assert found[2].allowed == "an integer from 0 to 1000000"


@pytest.mark.parametrize(
    "fields", [{"ratio": 1.01}, {"ratio": 20}, {"floor": 2.0}, {"floor": 10**6 + 1}, {"window": 0}]
)
def test_a_ratio_rule_refuses_what_is_just_outside(fields):
    """20 is no ratio, 2.0 no count, and a window has a length."""
    assert [each.field for each in problems(RatioRule, **fields)] == list(fields)


def test_a_ratio_rule_is_a_value():
    """Equal rules are equal, and travel."""
    rule = RatioRule("r", ratio=0.5, floor=2, window=1)
    assert pickle.loads(pickle.dumps(rule)) == rule != RatioRule("r", ratio=0.5, floor=3, window=1)
    assert (rule.name, rule.ratio, rule.floor, rule.window) == ("r", 0.5, 2, 1.0)


# --- tokens ---------------------------------------------------------------------------------------


def test_the_rules_of_tokens_are_those_of_the_aws_sdks():
    """500 tokens; 5 for a retry, 10 after a timeout; taken while there are as many."""
    rule = TokenRule()
    assert (rule.capacity, rule.refund, rule.success_refund) == (500.0, None, 1.0)
    assert (rule.price(is_timeout=False), rule.price(is_timeout=True)) == (5000, 10_000)
    assert rule.spent(5000, 5000) == 0
    assert rule.spent(4999, 5000) is None
    assert rule.failed(1000) == 1000


def test_a_reserve_is_not_touched():
    """At the reserve there is no retry any more; one thousandth above there is."""
    rule = TokenRule(capacity=4, cost=0, timeout_cost=0, failure_cost=1, reserve=2)
    assert rule.spent(2001, 0) == 2001
    assert rule.spent(2000, 0) is None


@given(
    capacity=st.floats(1, 1000),
    steps=st.lists(st.tuples(st.sampled_from("take fail give".split()), st.floats(0, 1))),
)
def test_tokens_stay_between_nothing_and_the_capacity(capacity, steps):
    """Whatever is taken and given, there are never less than 0 nor more than fit."""
    rule = TokenRule(capacity=capacity, cost=0.5, timeout_cost=1, failure_cost=0.3)
    tokens = thousandths(capacity)
    for what, share in steps:
        if what == "take":
            after = rule.spent(tokens, thousandths(share * capacity))
            tokens = tokens if after is None else after
        elif what == "fail":
            tokens = rule.failed(tokens)
        else:
            tokens = rule.given(tokens, thousandths(share * capacity))
        assert 0 <= tokens <= thousandths(capacity)


def test_tenths_add_up():
    """Ten times a tenth is one, which floats do not know."""
    assert reduce(add, [0.1] * 10) != 1.0  # sum() makes up for it since 3.12
    assert sum([thousandths(0.1)] * 10) == thousandths(1)


AMOUNTS = "capacity cost timeout_cost refund success_refund failure_cost reserve".split()


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: repr(value)[:9])
def test_a_token_rule_refuses_what_is_no_number_in_range(value):
    """Each wrong value is named with its field, all at once."""
    wrong = [field for field in AMOUNTS if not (field == "refund" and value is None)]
    found = problems(TokenRule, 7, **dict.fromkeys(wrong, value))
    assert [each.field for each in found] == ["name", *wrong]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"capacity": 0}, "from 0.001 to 1000000"),
        ({"capacity": 10, "cost": 11}, "from 0 to 10"),
        ({"capacity": 20, "timeout_cost": 21}, "from 0 to 20"),
        ({"cost": 0}, "more than 0 if a failure costs nothing either"),
        ({"reserve": 500}, "less than the capacity, 500"),
    ],
)
def test_a_token_rule_refuses_what_makes_no_sense(fields, words):
    """A retry that can never be paid for, or never costs, is a mistake."""
    (found,) = problems(TokenRule, **fields)
    assert found.field == list(fields)[-1]
    assert words in found.allowed


def test_a_token_rule_is_a_value():
    """Equal rules are equal, and travel."""
    rule = TokenRule("t", capacity=20, refund=2)
    assert pickle.loads(pickle.dumps(rule)) == rule != TokenRule("t", capacity=20)


@pytest.mark.parametrize("sort", ["retry", "token"])
def test_a_spent_budget_is_known_by_what_it_says(sort):
    """Alerts and metrics understand the reason that a call was given up for."""
    assert is_spent(spent(sort, "search"))
    assert is_spent(spent(sort, "search") + "; retry_on: OSError")
    assert not is_spent("no attempts left; the retry budget is another matter")
