"""Back-pressure: turns at the measured pace, bounded, and none where waiting gains nothing."""

from __future__ import annotations

import heapq
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mainstay.runtime.clock as clock
from mainstay.sinks.delivery import pressure as module
from mainstay.sinks.delivery.pressure import MOST, STUCK, Pressure
from mainstay.testing import virtual_time


class Hand:
    """A clock that is moved by hand, in the place of the system's."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def hand(monkeypatch):
    made = Hand()
    monkeypatch.setattr(module, "SYSTEM", made)
    monkeypatch.setattr(clock, "current", made)
    return made


def paced(seconds, fill=2.0):
    """A pressure whose thread takes so long for an entry, behind a queue of that length."""
    made = Pressure()
    for _ in range(50):
        made.delivered(1, seconds)
    made.rise(fill)
    return made


def test_calls_that_come_together_get_turns_at_the_pace_of_the_thread(hand):
    """One after the other, and slower the longer the queue is, so that it gets shorter."""
    made = paced(0.01, fill=2.0)
    waits = [made.turn() for _ in range(5)]
    assert waits == pytest.approx([0.0, 0.02, 0.04, 0.06, 0.08], rel=0.01)
    assert made.held == 5


@pytest.mark.parametrize(("fill", "one_of"), [(1.0, 4), (1.3, 2), (1.5, 1)])
def test_few_calls_sleep_for_all_while_the_queue_is_not_much_too_long(hand, fill, one_of):
    """The turns of those that go on count: together they wait as long."""
    made = paced(0.01, fill)
    waits = [made.turn() for _ in range(8)]
    assert [index for index, wait in enumerate(waits, 1) if wait] == [
        index for index in range(2, 9) if index % one_of == 0
    ]
    assert waits[-1] == pytest.approx(7 * 0.01 * fill, rel=0.01)


def test_nobody_waits_for_a_thread_that_delivers_nothing(hand):
    """It waits for a lock, or its destination hangs: the disk takes over."""
    made = paced(0.01)
    made.turn()
    hand.now += STUCK + 0.1
    assert made.is_stuck
    assert [made.turn() for _ in range(3)] == [0.0, 0.0, 0.0]
    made.delivered(1, 0.01)
    assert not made.is_stuck


@pytest.mark.parametrize("stall", [0.3, 0.6, 0.9])
def test_few_calls_get_a_turn_while_the_thread_stands_still(hand, stall):
    """The pace was measured before: by it the queue would be full before the stall is over."""
    made, half, tasks = paced(0.0001, fill=1.0), 5_000, 100
    made.delivered(1_000, 0.1)
    queued, awake, end = half, [hand.now] * tasks, hand.now + stall
    while (now := heapq.heappop(awake)) < end:
        hand.now = now
        made.rise(queued / half)
        heapq.heappush(awake, now + made.turn() + 0.001)
        queued += 1
    assert queued < 1.6 * half


def test_a_batch_that_was_late_costs_no_turns_once_it_is_delivered(hand):
    """Those that come later wait by the pace, not for what the stall has added."""
    made = paced(0.0001, fill=1.6)
    made.delivered(1_000, 0.1)
    hand.now += 0.8
    waits = [made.turn() for _ in range(400)]
    made.delivered(1_000, 0.1)
    assert waits[-1] > 0.2
    assert made.turn() <= 400 * 0.0001 * 1.6 * 1.01


def test_nobody_waits_in_virtual_time():
    """The thread works in real time: a virtual wait would gain nothing."""
    made = Pressure()
    made.rise(1.0)
    with virtual_time():
        assert [made.turn() for _ in range(100)] == [0.0] * 100


@given(
    st.floats(1e-5, 0.1),
    st.lists(st.floats(0.0, 0.2), min_size=1, max_size=60),
)
def test_a_wait_is_bounded_and_turns_are_no_closer_than_the_pace(pace, pauses):
    """Whenever calls come: the k-th turn after another is at least k times the pace later."""
    hand = Hand()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SYSTEM", hand)
        patch.setattr(clock, "current", hand)
        made = paced(pace)
        turns = []
        for pause in pauses:
            hand.now += pause
            made.begin()
            wait = made.turn()
            assert 0.0 <= wait <= MOST
            if wait < MOST:
                turns.append(hand.now + wait)
    steps = [later - sooner for sooner, later in itertools.pairwise(turns)]
    assert all(step >= 2.0 * pace * 0.99 - 1e-9 for step in steps)
