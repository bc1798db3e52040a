"""The record of what a process waits for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.base.change import DROP
from mainstay.core.telemetry.waits import Wait, WaitBoard, put_up, read_board
from mainstay.errors import StoredValueError

SECONDS = st.floats(0.001, 1e6)


@given(st.lists(SECONDS, min_size=1, max_size=5), st.floats(0.0, 2e9), st.integers(0, 9))
def test_waits_are_kept_on_the_clock_of_the_store(lefts, now, more):
    """Each until its end, the record a minute longer than the last; in their order."""
    waits = [Wait(f"op {n}", n, 9, "OSError", left) for n, left in enumerate(lefts)]
    change, _ = put_up("me", waits, more)(b"before", now)
    board = read_board(change.value)
    assert [each.until for each in board.waits] == [now + left for left in lefts]
    assert [each.operation for each in board.waits] == [each.operation for each in waits]
    assert (board.process, board.more) == ("me", more)
    assert change.expires == max(now + left for left in lefts) + 60.0


def test_without_a_wait_the_record_is_dropped():
    """Nothing is left of a process that waits for nothing."""
    assert put_up("me", [])(b"before", 1.0) == (DROP, None)


def test_a_damaged_record_is_an_error():
    """And one without fields is empty."""
    assert read_board(b"{}") == WaitBoard()
    with pytest.raises(StoredValueError, match="waits of a process"):
        read_board(b"[")
