"""The count of a caller's keys: never more than allowed, in a record that stays small."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstay.core.base.change import DROP, KEEP
from mainstay.core.idempotency.key_count import Counted, Full, count_key, discount_key
from mainstay.errors import StoredValueError

TTL = 2400.0


class Caller:
    """One caller's record, with its clock."""

    def __init__(self, most=3):
        self.value, self.now, self.most, self.expires = None, 1000.0, most, None

    def _step(self, made):
        if made is not KEEP:
            self.value, self.expires = made.value, made.expires

    def begin(self):
        made, answer = count_key(self.value, self.most, TTL, self.now)
        self._step(made)
        return answer

    def release(self, at):
        self._step(discount_key(self.value, at, TTL, self.now)[0])


def test_a_caller_has_so_many_keys_and_no_more():
    """The answer is when the first place will be free, and then it is."""
    caller = Caller()
    assert [caller.begin() for _ in range(3)] == [Counted(1000.0)] * 3
    caller.now += 100.0
    assert caller.begin() == Full(2400.0)
    caller.now += 2399.9
    assert isinstance(caller.begin(), Full)
    caller.now += 0.1
    assert caller.begin() == Counted(3500.0)


def test_a_key_that_was_released_frees_its_place():
    """One whose group is over, or that was never counted, changes nothing."""
    caller = Caller(most=2)
    first, _ = caller.begin(), caller.begin()
    caller.release(first.at)
    assert caller.begin() == Counted(1000.0)
    caller.release(5.0)
    assert isinstance(caller.begin(), Full)
    caller.release(1000.0)
    caller.release(1000.0)
    assert caller.value is None, "the record is dropped with its last key"
    assert discount_key(None, 5.0, TTL, 9.0) == (KEEP, None)
    made, _ = count_key(None, 1, TTL, 9.0)
    assert discount_key(made.value, 9.0, TTL, 9.0) == (DROP, None)


def test_a_count_expires_with_its_last_key():
    """So that callers who come once do not fill the store."""
    caller = Caller()
    caller.begin()
    assert caller.expires == 1000.0 + TTL + TTL / 24


def test_after_the_clock_was_set_back_keys_count_from_now_on():
    """And not until the clock has caught up."""
    caller = Caller(most=1)
    caller.now += 86_400.0
    caller.begin()
    caller.now -= 86_400.0
    assert caller.begin() == Full(2500.0)
    caller.most = 2
    assert caller.begin() == Counted(1000.0)
    caller.now += 2500.0
    assert isinstance(caller.begin(), Counted)


def test_a_damaged_count_is_an_error():
    """It is no count of nothing."""
    with pytest.raises(StoredValueError, match="count of keys is damaged"):
        count_key(b"{", 1, TTL, 0.0)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.floats(0.0, 700.0), st.integers(1, 9)), max_size=40))
def test_the_limit_holds_and_the_record_is_bounded(steps):
    """However many keys come at whatever times."""
    caller, begun = Caller(most=20), []
    for wait, times in steps:
        caller.now += wait
        answers = [caller.begin() for _ in range(times)]
        begun += [caller.now for each in answers if isinstance(each, Counted)]
        assert sum(caller.now - at < TTL for at in begun) <= 20
        assert len(caller.value) < 26 * 40
