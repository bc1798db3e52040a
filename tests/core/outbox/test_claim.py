"""Which rows a claim takes, parks and leaves, against an independent model."""

from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.outbox.claim import Candidate, plan_claim

ROWS = st.lists(
    st.tuples(st.sampled_from([None, "X", "Y", "Z"]), st.sampled_from([0, 0, 0, 1])), max_size=12
).map(
    lambda rows: [
        Candidate(f"m{index}", aggregate, 10 * index + 10, crashes)
        for index, (aggregate, crashes) in enumerate(rows)
    ]
)
FIRST = st.dictionaries(st.sampled_from("XYZ"), st.integers(0, 130))


@given(ROWS, FIRST, st.booleans())
def test_a_row_is_claimed_only_if_no_entry_of_its_aggregate_is_before_it(rows, first, is_idle):
    """What is claimed is first in its aggregate; what is blocked is not; nothing is both."""
    plan = plan_claim(rows, first, is_idle=is_idle)
    for row in plan.claimed:
        assert first.get(row.aggregate, row.position) >= row.position
    for row in plan.blocked:
        assert first[row.aggregate] < row.position
    assert not set(plan.claimed) & set(plan.blocked)


@given(ROWS, FIRST, st.booleans())
def test_within_an_aggregate_a_claim_takes_a_prefix(rows, first, is_idle):
    """No row is claimed while an earlier one of its aggregate is left."""
    plan = plan_claim(rows, first, is_idle=is_idle)
    for aggregate in "XYZ":
        mine = [row for row in rows if row.aggregate == aggregate]
        taken = [row in plan.claimed for row in mine]
        assert taken == sorted(taken, reverse=True)


@given(ROWS, FIRST, st.booleans())
def test_an_entry_that_has_crashed_is_alone(rows, first, is_idle):
    """It is the only one of its claim, and only if the worker has nothing else under way."""
    plan = plan_claim(rows, first, is_idle=is_idle)
    if any(row.crashes for row in plan.claimed):
        assert len(plan.claimed) == 1
        assert is_idle


@given(ROWS, FIRST)
def test_an_idle_worker_claims_something_if_anything_is_free(rows, first):
    """No entry starves: the first that is not blocked is taken."""
    free = [row for row in rows if first.get(row.aggregate, row.position) >= row.position]
    plan = plan_claim(rows, first, is_idle=True)
    assert plan.claimed[:1] == tuple(free[:1])


def test_a_busy_worker_is_asked_to_finish_before_it_takes_a_crashed_entry():
    """What comes before it is claimed; the rest waits."""
    rows = [Candidate("a", None, 1), Candidate("b", None, 2, crashes=1), Candidate("c", None, 3)]
    plan = plan_claim(rows, {}, is_idle=False)
    assert [row.id for row in plan.claimed] == ["a"]
    assert plan.wants_alone
