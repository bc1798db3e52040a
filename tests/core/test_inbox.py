"""The inbox's reducer: one item for each matter, counted, closed once."""

import pytest

from mainstay.core.inbox import ACTIONS, Item, close, decode, encode, put
from mainstay.core.records import DROP, KEEP, Change

ITEM = Item(kind="unknown_outcome", subject="a", operation="charge", text="?", attempts=3)


def test_a_new_matter_is_an_open_item_with_its_time():
    """And nothing in it is lost on the way through a store."""
    change, kept = put(None, ITEM, 5.0)
    assert (kept.status, kept.times, kept.created, kept.seen) == ("open", 1, 5.0, 5.0)
    assert decode(change.value) == kept
    assert change.expires is None


def test_the_same_matter_again_is_counted_and_not_repeated():
    """Its time of creation and its text stay; the attempts are the latest."""
    first, _ = put(None, ITEM, 5.0)
    again = Item(kind="unknown_outcome", subject="a", operation="x", text="other", attempts=7)
    _, kept = put(first.value, again, 9.0)
    assert (kept.times, kept.created, kept.seen, kept.attempts) == (2, 5.0, 9.0, 7)
    assert (kept.operation, kept.text) == ("charge", "?")


def test_a_matter_that_was_closed_is_raised_anew():
    """It came up again after somebody dealt with it."""
    closed, _ = close(put(None, ITEM, 5.0)[0].value, "done")
    _, kept = put(closed.value, ITEM, 9.0)
    assert (kept.status, kept.times, kept.created) == ("open", 1, 9.0)


@pytest.mark.parametrize("status", ["open", "done"])
def test_a_matter_that_is_not_new_changes_no_item_there_is(status):
    """Whoever asks again about an unknown outcome neither counts it nor opens it again."""
    value = encode(Item(kind="k", subject="a", operation="o", text="t", status=status))
    item = Item(kind="k", subject="a", operation="o", text="t")
    change, kept = put(value, item, 9.0, is_new=False)
    assert change is KEEP
    assert kept == decode(value)


def test_a_matter_that_is_not_new_but_was_never_raised_is_raised():
    """The process that found it out was killed before it could."""
    change, kept = put(None, ITEM, 9.0, is_new=False)
    assert decode(change.value) == kept
    assert (kept.status, kept.created) == ("open", 9.0)


def test_closing_is_done_once():
    """Nothing, and what is closed already, stays as it is."""
    value = put(None, ITEM, 5.0)[0].value
    change, kept = close(value, "abandoned")
    assert kept.status == "abandoned"
    assert decode(change.value) == kept
    assert close(change.value, "done") == (KEEP, None)
    assert close(None, "done") == (KEEP, None)


def test_what_may_be_done_depends_on_kind_and_status():
    """A closed item is over; a kind that nobody knows can only be abandoned."""
    assert ITEM.actions == ACTIONS["unknown_outcome"]
    assert Item(kind="new", subject="", operation="", text="").actions == ("abandon",)
    assert decode(close(encode(ITEM), "done")[0].value).actions == ()


def test_an_item_is_known_by_kind_and_subject_alone():
    """And no two of them run into each other at the seam."""
    same = Item(kind="unknown_outcome", subject="a", operation="b", text="c", attempts=9)
    assert same.id == ITEM.id
    pairs = [("a", "b"), ("ab", ""), ("", "ab"), ("b", "a")]
    assert len({Item(kind=k, subject=s, operation="", text="").id for k, s in pairs}) == 4


def test_a_change_without_a_value_drops():
    """And keeping is told apart from writing the same bytes."""
    assert Change(None) == DROP
    assert Change(b"keep") is not KEEP
