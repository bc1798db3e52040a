"""The inbox's reducer: one item for each matter, counted, closed once."""

import pytest
from msgspec.structs import replace

from mainstay.core.base.change import DROP, KEEP, Change
from mainstay.core.inbox.items import (
    ACTIONS,
    MOST_HISTORY,
    Item,
    damaged_item,
    decode,
    encode,
    noted,
    put,
)

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
    """It came up again after somebody dealt with it; its revision and its history go on."""
    _, first = put(None, ITEM, 5.0)
    _, kept = put(encode(replace(first, status="done", revision=4)), ITEM, 9.0)
    assert (kept.status, kept.times, kept.created) == ("open", 1, 9.0)
    assert (kept.revision, kept.decision) == (5, None)
    assert [(each.at, each.text) for each in kept.history] == [(5.0, "?"), (9.0, "?")]


def test_every_change_counts_as_a_revision_and_is_in_the_history():
    """Also a repetition, with the words of that time."""
    change, first = put(None, ITEM, 5.0)
    _, again = put(change.value, replace(ITEM, text="once more"), 6.0)
    assert (first.revision, again.revision) == (1, 2)
    assert [each.text for each in again.history] == ["?", "once more"]


def test_a_history_keeps_the_first_and_the_latest():
    """However often it is raised, an item stays small; a very long text is cut."""
    item = ITEM
    for number in range(100):
        item = noted(item, f"{number}" if number else "x" * 10_000, float(number))
    assert len(item.history) == MOST_HISTORY
    assert len(item.history[0].text) == 2000
    assert [each.text for each in item.history[1:]] == [str(n) for n in range(81, 100)]


@pytest.mark.parametrize("status", ["decided", "closed"])
def test_what_was_decided_on_another_occasion_says_nothing_of_this_one(status):
    """The call was released, ran again, and nobody knows its outcome once more."""
    before = encode(replace(ITEM, status=status, occasion="a:1", revision=2))
    for is_new in (True, False):
        change, kept = put(before, replace(ITEM, occasion="b:1"), 9.0, is_new=is_new)
        assert (kept.status, kept.occasion, kept.times, kept.revision) == ("open", "b:1", 1, 3)
        assert decode(change.value) == kept


def test_an_open_item_is_of_the_latest_occasion():
    """What is decided about it then is about what there is now."""
    before = encode(replace(ITEM, occasion="a:1", data={"owner": "a"}))
    item = replace(ITEM, occasion="b:1", data={"owner": "b"})
    _, kept = put(before, item, 9.0, is_new=False)
    assert (kept.status, kept.times, kept.occasion, kept.data) == ("open", 2, "b:1", {"owner": "b"})


def test_a_decided_item_of_the_same_occasion_is_counted_and_stays_decided():
    """Nobody decides anew while what was decided is on its way."""
    before = encode(replace(ITEM, status="decided", occasion="a:1", data={"owner": "a"}))
    _, kept = put(before, replace(ITEM, occasion=""), 9.0)
    assert (kept.status, kept.times, kept.data) == ("decided", 2, {"owner": "a"})


def test_an_item_that_was_written_before_there_was_a_history_is_read():
    """As the first version wrote them, open and closed."""
    old = (
        b'{"kind":"unknown_outcome","subject":"a","operation":"charge","text":"?","severity":"high",'
        b'"attempts":3,"status":"%s","times":2,"created":5.0,"seen":7.0}'
    )
    item = decode(old % b"open")
    assert (item.revision, item.history, item.data, item.decision) == (1, (), {}, None)
    assert item.actions == ACTIONS["unknown_outcome"]
    assert decode(old % b"done").is_over


def test_a_severity_that_nobody_gives_is_that_of_the_kind():
    """And an age is never negative, whatever the clocks."""
    assert ITEM.severity == "high"
    assert Item(kind="exhausted", subject="", operation="", text="").severity == "normal"
    assert Item(kind="alert", subject="", operation="", text="", severity="low").severity == "low"
    assert replace(ITEM, created=5.0).age(9.0) == 4.0
    assert replace(ITEM, created=5.0).age(1.0) == 0.0


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


def test_what_may_be_done_depends_on_kind_and_status():
    """A closed item is over; a kind that nobody knows can only be abandoned."""
    assert ITEM.actions == ACTIONS["unknown_outcome"]
    assert Item(kind="new", subject="", operation="", text="").actions == ("abandon",)
    assert replace(ITEM, status="decided").actions == ()
    assert replace(ITEM, status="closed").actions == ()


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


def test_a_matter_is_raised_in_the_place_of_a_damaged_item():
    """What was there cannot be read; that is said, and the matter is not lost with it."""
    item = Item(kind="exhausted", subject="a", operation="fetch", text="gave up")
    change, raised = put(b"{", item, now=5.0)
    assert (raised.times, raised.created) == (1, 5.0)
    assert "is damaged" in raised.history[0].text
    assert decode(change.value).id == item.id


def test_a_damaged_record_is_one_matter_however_often_it_is_found():
    """Its item has the key for people, and the address for whoever mends it."""
    item = damaged_item("charge", "k-1", "charge:k-1")
    assert item.id == damaged_item("charge", "other words", "charge:k-1").id
    assert (item.kind, item.severity) == ("corrupted_state", "critical")
    assert "charge with key 'k-1': its record is damaged" in item.text
    assert item.data == {"address": "charge:k-1"}
