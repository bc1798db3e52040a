"""`mainstay.deadline`: how long is left, and a way to say it."""

import asyncio
import math

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import mainstay
from mainstay import DeadlineExceeded, PolicyError, RetryPolicy, deadline
from mainstay.testing import virtual_time


@pytest.fixture(autouse=True)
def time():
    """Virtual time for every test here."""
    with virtual_time() as virtual:
        yield virtual


def left():
    seconds = deadline.remaining()
    return None if seconds is None else round(seconds, 6)


def test_nothing_limits_what_nobody_limited():
    """Outside of every deadline there is none: None, and the end of time."""
    assert deadline.remaining() is None
    assert deadline.moment() == math.inf


def test_within_counts_down_and_is_restored(time):
    """It starts when it is entered, ends at zero, and leaves no trace."""
    limit = deadline.within(5.0)
    time.advance(3.0)
    with limit:
        assert left() == 5.0
        time.advance(2.0)
        assert left() == 3.0
        time.advance(9.0)
        assert left() == 0.0
    assert left() is None


@given(st.lists(st.floats(0.001, 1000.0), min_size=1, max_size=6))
def test_an_inner_deadline_never_exceeds_an_outer_one(limits):
    """However they are nested, the shortest so far counts; each level is restored."""
    seen = []

    def enter(rest):
        seen.append(left())
        if rest:
            with deadline.within(rest[0]):
                enter(rest[1:])
            assert left() == seen[len(limits) - len(rest)]

    enter(limits)
    assert seen == [None, *(round(min(limits[:n]), 6) for n in range(1, len(limits) + 1))]


@pytest.mark.parametrize("seconds", [0, -1.0, math.nan, math.inf, "5", None, True])
def test_a_limit_that_is_none_is_refused(seconds):
    """A wrong number is refused at once, with the name of the field."""
    with pytest.raises(PolicyError, match="seconds"):
        deadline.within(seconds)


def test_an_error_that_leaves_restores_it():
    """As every context manager should."""
    with pytest.raises(KeyError), deadline.within(5.0):
        raise KeyError
    assert left() is None


def test_tasks_that_share_one_object_each_leave_their_own_block(time):
    """The first to enter is also the first to leave."""
    shared, seen = deadline.within(10.0), []

    async def work(before, inside):
        await asyncio.sleep(before)
        with shared:
            await asyncio.sleep(inside)
            seen.append(left())
        assert deadline.remaining() is None

    async def main():
        await asyncio.gather(work(0.0, 2.0), work(1.0, 3.0))

    asyncio.run(main())
    assert seen == [8.0, 7.0]


def test_one_object_can_be_entered_again(time):
    """Each time it starts anew; inside itself it is no longer than it was."""
    limit = deadline.within(5.0)
    with limit:
        time.advance(2.0)
        with limit:
            assert left() == 3.0
    with limit:
        assert left() == 5.0


def test_it_follows_tasks_and_not_their_siblings():
    """What is set in a task is seen by its children, and by nobody beside it."""
    seen = {}

    async def child(name):
        await asyncio.sleep(0)
        seen[name] = left()

    async def limited():
        with deadline.within(5.0):
            await asyncio.gather(child("inside"), child("also inside"))

    async def main():
        await asyncio.gather(limited(), child("beside"))
        await child("after")

    asyncio.run(main())
    assert seen == {"inside": 5.0, "also inside": 5.0, "beside": None, "after": None}


def test_it_follows_trio_tasks(time):
    """The same under trio."""
    seen = {}

    async def child(name):
        await trio.lowlevel.checkpoint()
        seen[name] = left()

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child, "beside")
            with deadline.within(5.0):
                async with trio.open_nursery() as inner:
                    inner.start_soon(child, "started inside")
                await child("inside")

    trio.run(main, clock=time.trio_clock())
    assert seen == {"beside": None, "started inside": 5.0, "inside": 5.0}


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_call_that_has_no_time_left_is_tried_once(time, colour):
    """A deadline that has passed allows no retry; the first attempt's own error is raised."""
    calls = []

    def fail():
        calls.append(left())
        raise ConnectionError("mine")

    async def afail():
        fail()

    policy = RetryPolicy(retry_on=OSError)
    with deadline.within(1.0):
        time.advance(2.0)
        with pytest.raises((ConnectionError, DeadlineExceeded)):
            if colour == "sync":
                policy.call(fail)
            else:
                asyncio.run(policy.acall(afail))
    assert calls == [0.0]


def test_the_module_and_its_names_are_public():
    """`mainstay.deadline.remaining()` is what integrations are told to read."""
    assert mainstay.deadline is deadline
    assert mainstay.deadline.remaining() is None
