"""Whose turn it is to purge: one process at a time, whatever the clock does."""

from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.base.change import KEEP
from mainstay.core.idempotency.purge import is_due, take_turn

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
