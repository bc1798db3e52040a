"""Whose turn it is to purge: one process at a time, whatever the clock does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.base.change import KEEP
from mainstay.core.base.clock_jumps import ClockView, Jump
from mainstay.core.idempotency.purge import gone_on, is_due, may_purge, take_turn
from mainstay.core.idempotency.record import Record, RecordState, encode

EVERY = 60.0


def test_the_first_process_purges_and_the_others_find_that():
    """Until the interval is over."""
    change, is_mine = take_turn(None, EVERY, now=1000.0)
    assert is_mine
    assert take_turn(change.value, EVERY, now=1059.9) == (KEEP, False)
    assert take_turn(change.value, EVERY, now=1060.0)[1]


def test_a_damaged_record_is_written_anew():
    """It must not keep every process from purging for ever."""
    for damaged in (b"", b"{", b"null", b'{"at":"x"}', b"\xff"):
        change, is_mine = take_turn(damaged, EVERY, now=5.0)
        assert is_mine
        assert not is_due(change.value, EVERY, now=6.0)


@given(
    every=st.floats(1.0, 86_400.0),
    moments=st.lists(st.floats(0.0, 4e9), min_size=1, max_size=30),
)
def test_a_clock_that_was_set_delays_a_purge_by_one_interval_at_most(every, moments):
    """Whatever the clock was at earlier turns: an interval after now, a purge is due."""
    value = None
    for now in moments:
        change, is_mine = take_turn(value, every, now)
        value = change.value if is_mine else value
        assert is_due(value, every, now + every)
        assert not is_due(value, every, now)


# --- a clock that was set ahead before the process started ----------------------------------------

DAY = 86_400.0


def view(uptime, *jumps, boot="b"):
    return ClockView(jumps, boot, uptime)


def test_what_says_no_length_is_kept_for_as_long_as_the_clock_was_set_ahead():
    """A saga that has ended, a count of keys, or a record of a call that is damaged."""
    jumped = view(0.0, Jump(1000.0, DAY))
    for space, value in (("sagas", b"{}"), ("records", b"{"), ("records", b"\xff")):
        assert may_purge(space, value, 1500.0, 1500.0, view(0.0))
        assert not may_purge(space, value, 1500.0, 1499.9 + DAY, jumped)
        assert may_purge(space, value, 1500.0, 1500.0 + DAY, jumped)


def test_a_process_goes_on_from_the_reading_of_the_one_before():
    """So it knows of a jump between them; the reading is kept again, and tells the next one."""
    jumps, change = gone_on(None, 1000.0, view(50.0))
    assert jumps == ()
    jumps, change = gone_on(change.value, 1020.0 + DAY, view(70.0))
    assert jumps == (Jump(1020.0, DAY),)
    jumps, change = gone_on(change.value, 1200.0 + DAY, view(250.0))
    assert jumps == (Jump(1020.0, DAY),)
    jumps, change = gone_on(change.value, 1400.0, view(450.0))
    assert jumps == ()


def test_a_reading_is_kept_again_after_a_while_or_if_the_clock_was_set():
    """Not at every step: a file that nobody writes to is not written to by its purges either."""
    _, change = gone_on(None, 1000.0, view(50.0))
    assert gone_on(change.value, 1059.0, view(109.0)) == ((), KEEP)
    assert gone_on(change.value, 1061.0, view(111.0))[1] is not KEEP
    assert gone_on(change.value, 1009.0 + DAY, view(59.0))[1] is not KEEP


def test_a_reading_of_another_boot_or_a_damaged_one_begins_anew():
    """With what this process has seen itself. Where the boot is not known, nothing is kept."""
    _, change = gone_on(None, 1000.0, view(50.0))
    seen = Jump(1005.0, 7.0)
    for value in (change.value, b"", b"{", b"\xff", b"null"):
        jumps, new = gone_on(value, 1010.0 + DAY, view(60.0, seen, boot="other"))
        assert jumps == (seen,)
        assert new.value != value
    assert gone_on(change.value, 1010.0 + DAY, view(0.0, seen, boot="")) == ((seen,), KEEP)


@given(
    moments=st.lists(
        st.tuples(st.floats(0.0, 5_000.0), st.sampled_from([0.0, 0.0, DAY, 3600.0, -DAY])),
        max_size=6,
    )
)
def test_a_chain_of_processes_knows_what_one_that_watched_knows(moments):
    """The sum of all jumps since the first reading, as far as they were not taken back."""
    now, uptime, value, by_hand = 1e9, 100.0, None, 0.0
    for seconds, by in [(0.0, 0.0), *moments]:
        now, uptime = now + seconds + by, uptime + seconds
        by_hand = max(0.0, by_hand + by)
        jumps, change = gone_on(value, now, view(uptime))
        value = value if change is KEEP else change.value
        assert sum(jump.by for jump in jumps) == pytest.approx(by_hand, abs=1e-3)


def test_a_record_without_the_time_for_which_it_is_kept_goes_by_its_expiry():
    """As versions before that time have written it."""
    value = encode(Record(RecordState.SUCCEEDED, "f", "me", 1, 1, 1000.0, expires=1500.0))
    assert may_purge("records", value, 1500.0, 1500.0, view(0.0))
    assert not may_purge("records", value, 1500.0, 1500.0, view(0.0, Jump(1000.0, DAY)))
