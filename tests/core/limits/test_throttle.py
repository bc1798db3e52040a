"""Holding back is decided by rules: the throttle's formula, the calendar of retries, sizes."""

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.known.kind import Kind
from mainstay.core.limits.throttle import (
    Calendar,
    MemoryRule,
    RateRule,
    ThrottleRule,
    is_refusal,
    readable,
)
from mainstay.errors import CallShed, PolicyError

NO_NUMBERS = [True, "1", None, math.nan, math.inf, -math.inf, -1, -0.5, 10**400]
EPSILON = 1e-6


def problems(make, *args, **fields):
    with pytest.raises(PolicyError) as caught:
        make(*args, **fields)
    return caught.value.problems


# --- the throttle ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("k", "requests", "accepts", "expected"),
    [
        (2.0, 100, 100, 0.0),
        (2.0, 100, 50, 0.0),
        (2.0, 100, 49, 2 / 101),
        (2.0, 100, 0, 100 / 101),
        (1.1, 110, 100, 0.0),
        (1.0, 100, 99, 1 / 101),
        (2.0, 10, 0, 10 / 11),
        (2.0, 9, 0, 0.0),
        (2.0, 0, 0, 0.0),
    ],
)
def test_the_formula_of_the_book(k, requests, accepts, expected):
    """max(0, (requests − K · accepts) / (requests + 1)), and nothing below the floor."""
    got = ThrottleRule(k=k).probability(requests, accepts)
    assert got == pytest.approx(expected, abs=1e-12)


@given(requests=st.integers(0, 10**6), accepts=st.integers(0, 10**6), k=st.floats(1, 100))
def test_a_probability_is_one(requests, accepts, k):
    """It is at least 0 and below 1: something is always let through."""
    assert 0.0 <= ThrottleRule(k=k, floor=1).probability(requests, accepts) < 1.0


def test_a_call_is_held_back_with_the_probability():
    """Of the numbers from 0 to 1, as many hold a call back as the probability says."""
    rule = ThrottleRule()
    assert sum(rule.sheds(0.3, n / 1000) for n in range(1000)) == 300
    assert not rule.sheds(0.0, 0.0)


def test_the_callers_mistakes_are_no_refusals():
    """What is wrong with the call says nothing of the service; what is not known might."""
    assert not any(map(is_refusal, (ValueError(), PermissionError(), FileNotFoundError())))
    refusals = (TimeoutError(), ConnectionResetError(), RuntimeError(), CallShed("x", 0.5))
    assert all(map(is_refusal, refusals))


@pytest.mark.parametrize(
    ("status", "refused"), [(400, False), (404, False), (401, False), (429, True), (503, True)]
)
def test_a_status_says_whether_it_was_refused(status, refused):
    """429 and 503 are refusals, 404 is an answer."""
    error = RuntimeError("x")
    error.status_code = status
    assert is_refusal(error) is refused


def test_every_kind_is_either_a_refusal_or_not():
    """A kind that is added must be decided on."""
    from mainstay.core.limits.throttle import REFUSALS

    assert set(Kind) - REFUSALS == {Kind.PERMANENT, Kind.AUTH, Kind.AMBIGUOUS}


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: repr(value)[:9])
def test_a_throttle_rule_refuses_what_is_no_number_in_range(value):
    """Each wrong value is named with its field, all at once."""
    found = problems(ThrottleRule, "", k=value, window=value, floor=value, seed=0.5)
    assert [each.field for each in found] == ["name", "k", "window", "floor", "seed"]


@pytest.mark.parametrize(
    "fields", [{"k": 0.99}, {"floor": 0}, {"floor": 1.0}, {"window": 0.001}, {"seed": True}]
)
def test_a_throttle_rule_refuses_what_is_just_outside(fields):
    """A k below 1 would hold back calls of a healthy service."""
    assert [each.field for each in problems(ThrottleRule, **fields)] == list(fields)


def test_a_throttle_rule_is_a_value():
    """Equal rules are equal, and travel; a seed is no part of them."""
    rule = ThrottleRule("t", k=1.5, window=60, floor=3, seed=7)
    assert pickle.loads(pickle.dumps(rule)) == rule == ThrottleRule("t", k=1.5, window=60, floor=3)


# --- the calendar of retries ----------------------------------------------------------------------


def keeps_the_rate(starts, rule):
    """Whether in any stretch of time no more than burst + rate · t start."""
    starts = sorted(starts)
    return all(
        j - i + 1 <= rule.burst + (starts[j] - starts[i]) * rule.per_second + EPSILON
        for i in range(len(starts))
        for j in range(i, len(starts))
    )


def first_free(starts, rule, earliest):
    """The first moment from `earliest` on, by trying every one that could be it."""
    interval = 1 / rule.per_second
    tried = {earliest, *(s + n * interval for s in starts for n in range(len(starts) + 1))}
    return next(
        moment
        for moment in sorted(tried)
        if moment >= earliest and keeps_the_rate([*starts, moment], rule)
    )


@given(
    burst=st.integers(1, 4),
    per_second=st.sampled_from([0.5, 1.0, 3.0, 10.0]),
    steps=st.lists(
        st.tuples(st.integers(0, 6).map(lambda n: n / 4), st.integers(0, 12).map(lambda n: n / 4)),
        max_size=12,
    ),
)
def test_each_retry_gets_the_first_moment_that_keeps_the_rate(burst, per_second, steps):
    """In any order of delays: the law holds for the starts, and nobody waits longer than needed."""
    rule = RateRule(per_second=per_second, burst=burst, max_wait=10_000)
    calendar, starts, now = Calendar(), [], 1000.0
    for passed, delay in steps:
        now += passed
        expected = first_free(starts, rule, now + delay)
        wait, calendar = calendar.reserve(rule, now, delay)
        assert wait >= delay
        assert now + wait == pytest.approx(expected, abs=EPSILON)
        starts.append(now + wait)
        assert keeps_the_rate(starts, rule)


def test_a_burst_starts_at_once_and_the_rest_in_turn():
    """Three at once, then one every half second; the delay counts towards the wait."""
    rule, calendar, waits = RateRule(per_second=2.0, burst=3), Calendar(), []
    for _ in range(6):
        wait, calendar = calendar.reserve(rule, 50.0, 1.0)
        waits.append(wait)
    assert waits == [1.0, 1.0, 1.0, 1.5, 2.0, 2.5]


def test_a_short_delay_is_not_kept_behind_a_long_one():
    """A retry in a minute leaves room for one now."""
    rule = RateRule(per_second=1.0, burst=1, max_wait=100.0)
    _, calendar = Calendar().reserve(rule, 0.0, 60.0)
    assert calendar.reserve(rule, 0.0, 0.5)[0] == 0.5
    assert calendar.reserve(rule, 0.0, 59.5)[0] == 61.0


@pytest.mark.req("AG-02.rate")
def test_a_retry_that_would_wait_too_long_takes_no_place():
    """The refused leave the calendar as it was; the next in time is let through."""
    rule = RateRule(per_second=1.0, burst=1, max_wait=1.5)
    _, calendar = Calendar().reserve(rule, 10.0, 0.0)
    assert calendar.reserve(rule, 10.0, 0.0)[0] == 1.0
    _, full = calendar.reserve(rule, 10.0, 0.0)
    refused, after = full.reserve(rule, 10.0, 0.0)
    assert refused is None
    assert after == full
    assert after.reserve(rule, 10.5, 0.0)[0] == 1.5


def test_a_delay_of_its_own_is_never_too_long():
    """Max_wait bounds what the limit makes longer; a backoff of a minute is the policy's."""
    rule = RateRule(per_second=1.0, burst=1, max_wait=0.0)
    wait, calendar = Calendar().reserve(rule, 0.0, 60.0)
    assert wait == 60.0
    assert calendar.reserve(rule, 0.0, 60.0)[0] is None


def test_a_clock_set_back_keeps_neither_too_much_nor_too_little():
    """The waits go on as if it had not been: not anew, and not until the old time comes."""
    rule = RateRule(per_second=1.0, burst=1, max_wait=10_000)
    calendar = Calendar()
    for _ in range(3):
        _, calendar = calendar.reserve(rule, 5000.0, 0.0)
    wait, calendar = calendar.reserve(rule, 100.0, 0.0)
    assert wait == 3.0
    assert calendar.reserve(rule, 104.0, 0.0)[0] == 0.0


def test_a_thread_that_is_late_gains_nothing():
    """Times that go back and forth by a little give no start away twice."""
    rule = RateRule(per_second=1.0, burst=2, max_wait=10_000)
    calendar, starts = Calendar(), []
    for n in range(20):
        now = 100.0 + n / 8 - (0.75 if n % 2 else 0.0)
        wait, calendar = calendar.reserve(rule, now, 0.0)
        starts.append(now + wait)
    assert keeps_the_rate(starts, rule)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: repr(value)[:9])
def test_a_rate_rule_refuses_what_is_no_number_in_range(value):
    """Each wrong value is named with its field, all at once."""
    found = problems(RateRule, "x ", per_second=value, burst=value, max_wait=value)
    assert [each.field for each in found] == ["name", "per_second", "burst", "max_wait"]


@pytest.mark.parametrize("fields", [{"per_second": 0}, {"burst": 0}, {"burst": 1.0}])
def test_a_rate_rule_refuses_what_is_just_outside(fields):
    """A rate of nothing would wait for ever."""
    assert [each.field for each in problems(RateRule, **fields)] == list(fields)


def test_a_calendar_is_a_value():
    """Equal calendars are equal, and travel."""
    calendar = Calendar().reserve(RateRule("r", burst=1), 5.0, 1.0)[1]
    assert pickle.loads(pickle.dumps(calendar)) == calendar != Calendar()


# --- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1, 1),
        (512_000_000, 512_000_000),
        ("512MB", 512_000_000),
        ("512 mb", 512_000_000),
        ("1.5GiB", 1_610_612_736),
        ("2TB", 2 * 10**12),
        ("7B", 7),
        ("80%", 8_000),
        ("0.5 %", 50),
        ("100%", 10_000),
    ],
)
def test_a_size_is_read_as_people_write_it(limit, expected):
    """Bytes, thousands, powers of two, and a share of 10,000."""
    assert MemoryRule(limit).bytes_of(10_000) == expected


@pytest.mark.parametrize(
    "limit",
    [0, -1, True, 1.5, None, 2**63, "", "MB", "512", "-1MB", "1e3MB", "101%", "0%", "0MB", ".",
     "1.2.3MB", "٣MB", "5%B", "80%x", "nan%", "inf%", "9" * 400 + "B", b"1MB"],
    ids=lambda value: repr(value)[:9],
)  # fmt: skip
def test_a_size_that_is_none_is_refused(limit):
    """The limit and the probe are named, both at once."""
    found = problems(MemoryRule, limit, probe=3)
    assert [each.field for each in found] == ["limit", "probe"]
    assert '"512MB"' in found[0].allowed


def test_a_share_of_what_is_not_known_is_not_known():
    """Bytes need no total; per cent do."""
    assert MemoryRule("1KB").bytes_of(None) == 1000
    assert MemoryRule("50%").bytes_of(None) is None
    assert (MemoryRule("50%").is_share, MemoryRule("1KB").is_share) == (True, False)
    assert pickle.loads(pickle.dumps(MemoryRule("50%"))) == MemoryRule("50%")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 KB"),
        (999_700, "1 MB"),
        (512_000_000, "512 MB"),
        (1_500_000_000, "1.5 GB"),
        (2_000_000_000_000, "2 TB"),
    ],
)
def test_a_size_is_written_as_people_read_it(size, text):
    """Three digits and a unit."""
    assert readable(size) == text


def test_a_turn_that_is_given_back_is_free_again():
    """The next one takes it; a start that is not there changes nothing."""
    rule = RateRule(per_second=1.0, burst=1)
    _, calendar = Calendar().reserve(rule, 0.0, 0.0)
    wait, later = calendar.reserve(rule, 0.0, 0.0)
    assert wait == 1.0
    assert later.without(1.0).reserve(rule, 0.0, 0.0)[0] == 1.0
    assert later.without(9.0) == later
    assert later.reserve(rule, 0.0, 0.0)[0] == 2.0


@pytest.mark.parametrize("value", [1, None, "yes"])
def test_first_calls_is_true_or_false(value):
    """Anything else is a mistake."""
    with pytest.raises(PolicyError, match="first_calls"):
        RateRule(first_calls=value)
