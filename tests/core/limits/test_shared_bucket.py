"""The tokens that nodes share: each report counts once, and the bucket has its bounds."""

from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.limits.shared_bucket import SharedBucket, TokenTotals, report_totals

SILENCE = 10.0


def reported(value, node, totals, last=None, now=100.0):
    """One step of a node at a bucket of 10 tokens: what is kept, and the tokens."""
    change, bucket = report_totals(value, node, last or TokenTotals(), totals, 10_000, now, SILENCE)
    return change.value, bucket.tokens


def test_a_bucket_begins_full_and_loses_what_each_node_took_since_its_last_report():
    """Nodes report totals; the bucket holds how much of each it has counted."""
    value, tokens = reported(None, "a", TokenTotals(taken=3_000))
    assert tokens == 7_000
    value, tokens = reported(value, "b", TokenTotals(taken=2_000, given=500))
    assert tokens == 5_500
    value, tokens = reported(value, "a", TokenTotals(taken=4_000, given=1_000))
    assert tokens == 5_500


def test_a_step_that_comes_twice_counts_once():
    """The reply to the first may have been lost."""
    value, tokens = reported(None, "a", TokenTotals(taken=3_000))
    assert reported(value, "a", TokenTotals(taken=3_000)) == (value, tokens)


def test_a_bucket_is_never_overdrawn_and_never_overflows():
    """Two nodes may take the last tokens at once, and successes may be many."""
    value, tokens = reported(None, "a", TokenTotals(taken=9_000))
    value, tokens = reported(value, "b", TokenTotals(taken=9_000))
    assert tokens == 0
    assert reported(value, "b", TokenTotals(taken=9_000, given=99_000))[1] == 10_000


def test_a_node_that_was_forgotten_is_counted_from_what_it_was_last_answered():
    """Silent for longer than the others wait: its totals are not counted from zero again."""
    value, _ = reported(None, "a", TokenTotals(taken=3_000), now=100.0)
    value, tokens = reported(value, "b", TokenTotals(), now=100.0 + SILENCE)
    assert tokens == 7_000
    totals = TokenTotals(taken=4_000)
    assert reported(value, "a", totals, last=TokenTotals(taken=3_000), now=200.0)[1] == 6_000


def test_a_bucket_does_not_grow_with_every_restart():
    """Nodes that are gone leave what they took, and not their names."""
    value = None
    for number in range(20):
        change, bucket = report_totals(
            value,
            f"n{number}",
            TokenTotals(),
            TokenTotals(taken=100),
            10_000,
            number * 100.0,
            SILENCE,
        )
        value = change.value
        assert len(bucket.flows) == 1
    assert bucket.tokens == 8_000
    assert change.expires > 1900.0


MOVES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.integers(0, 30), st.booleans()),
    max_size=30,
)


@given(MOVES)
def test_where_nothing_overflows_the_order_of_the_nodes_does_not_matter(moves):
    """Takes and gives add up; a report that comes twice, or later, does not change the sum."""
    totals = {node: TokenTotals() for node in "abc"}
    value, bucket = None, SharedBucket(500_000)
    for node, taken, given_back, is_repeated in moves:
        old = totals[node]
        totals[node] = TokenTotals(old.taken + taken, old.given + min(given_back, taken))
        for _ in range(1 + is_repeated):
            change, bucket = report_totals(value, node, old, totals[node], 500_000, 0.0, SILENCE)
            value = change.value
    owed = sum(each.taken - each.given for each in totals.values())
    assert bucket.tokens == 500_000 - owed
