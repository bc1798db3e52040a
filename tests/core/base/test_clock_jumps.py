"""Clocks that are set: which jumps a process sees, and where stored moments are after them."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.base.clock_jumps import (
    NO_VIEW,
    TOLERANCE,
    ClockView,
    Jump,
    lease_left,
    moved,
    observed,
)

SECONDS = st.floats(0.0, 3600.0)
SETTINGS = st.sampled_from([0.0, 0.0, 5.0, 3600.0, 86_400.0])


class Clocks:
    """A store's clock that may be set, a clock that may not, and a process that watches both."""

    def __init__(self):
        self.now, self.monotonic, self.reading = 1e9, 50.0, None
        self.look()

    def look(self):
        self.reading = observed(self.reading, self.now, self.monotonic)
        return self.reading.jumps

    def passes(self, seconds):
        self.now += seconds
        self.monotonic += seconds

    def is_set(self, by):
        self.now += by


def test_time_that_passes_is_no_jump():
    """Nor is the drift of two clocks, however long nobody has looked."""
    clocks = Clocks()
    clocks.passes(86_400.0)
    clocks.is_set(0.0005 * 86_400.0)
    assert clocks.look() == ()


def test_a_clock_set_ahead_is_seen_with_what_it_would_have_shown():
    """So that what was stored before it can be told from what was stored after it."""
    clocks = Clocks()
    clocks.passes(10.0)
    clocks.is_set(3600.0)
    assert clocks.look() == (Jump(1e9 + 10.0, pytest.approx(3600.0)),)


def test_a_clock_set_back_takes_back_the_jumps_that_were_seen():
    """The last first; what is left of one counts, unless it is no more than drift."""
    clocks = Clocks()
    for by in (100.0, 3600.0):
        clocks.is_set(by)
        clocks.look()
    clocks.is_set(-3000.0)
    assert [jump.by for jump in clocks.look()] == pytest.approx([100.0, 600.0])
    clocks.is_set(-650.0)
    assert [jump.by for jump in clocks.look()] == pytest.approx([50.0])
    clocks.is_set(-49.5)
    clocks.is_set(-86_400.0)
    assert clocks.look() == ()


def test_few_jumps_are_remembered():
    """The latest: a process that runs for years does not collect them."""
    clocks = Clocks()
    for by in range(10, 40):
        clocks.is_set(float(by))
        clocks.look()
    assert [round(jump.by) for jump in clocks.look()] == [32, 33, 34, 35, 36, 37, 38, 39]


@given(st.lists(st.tuples(SECONDS, SETTINGS), max_size=6), st.integers(0, 5), st.floats(1.0, 1e5))
def test_a_moment_is_as_far_ahead_as_it_would_be_on_a_clock_that_is_not_set(story, at, length):
    """For a process that has watched the clock since: but for what counts as drift."""
    clocks, moment, left = Clocks(), 1e9 + length, length
    for number, (seconds, by) in enumerate(story):
        if number == at:
            moment, left = clocks.now + length, length
        clocks.passes(seconds)
        left -= seconds
        clocks.is_set(by)
        clocks.look()
    seen = moved(moment, length, clocks.look()) - clocks.now
    assert seen == pytest.approx(left, abs=1e-3 + TOLERANCE * len(story))


@pytest.mark.parametrize(
    ("boot", "uptime", "is_same"),
    [("b", 5.0, True), ("b", 9.0, True), ("b", 9.1, False), ("c", 5.0, False), ("", 5.0, False)],
)
def test_uptimes_are_compared_within_one_boot_only(boot, uptime, is_same):
    """An uptime that lies ahead is of another clock, whatever it says."""
    assert ClockView(boot="b", uptime=9.0).is_same_boot(boot, uptime) is is_same
    assert not NO_VIEW.is_same_boot(boot, uptime)


@pytest.mark.parametrize(
    ("since", "by", "moves"),
    [(115.0, 3600.0, True), (115.1, 3600.0, False), (111.0, 2.0, True), (111.1, 2.0, False)],
)
def test_a_moment_just_after_the_last_look_counts_as_before_the_jump(since, by, moves):
    """A process learns of a store's time by an answer, which is late; by half the jump at most."""
    found = moved(since + 30.0, 30.0, (Jump(before=110.0, by=by),))
    assert found == since + 30.0 + by * moves


def held(**fields):
    return SimpleNamespace(
        **{"lease": 30.0, "lease_until": 130.0, "boot": "", "uptime": 0.0} | fields
    )


def test_what_is_left():
    """Never more than the length, never less than nothing; none without a lease."""
    assert lease_left(held(), 110.0) == 20.0
    assert lease_left(held(), 131.0) == 0.0
    assert lease_left(held(), 50.0) == 30.0
    assert lease_left(held(lease=0.0), 110.0) == 0.0


def test_a_clock_that_was_set():
    """A jump ahead moves the end; within one boot only the uptime counts."""
    assert lease_left(held(), 3710.0, ClockView(jumps=(Jump(110.0, 3600.0),))) == 20.0
    view = ClockView(boot="b", uptime=12.0)
    assert lease_left(held(boot="b", uptime=2.0), 9e9, view) == 20.0
    assert lease_left(held(boot="b", uptime=2.0), 9e9, ClockView(boot="b", uptime=40.0)) == 0.0
