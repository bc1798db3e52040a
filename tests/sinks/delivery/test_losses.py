"""What a buffer has lost: counted by reason, reported once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mainstay.sinks.delivery.losses import Losses

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("lose"), st.integers(1, 5), st.sampled_from("abc")),
        st.just(("look",)),
        st.just(("report",)),
    ),
    max_size=40,
)


@given(STEPS)
def test_each_loss_is_reported_once(steps):
    """Also those that come between the look and the report."""
    losses, seen, reported, lost = Losses(), [], 0, 0
    for step in steps:
        if step[0] == "lose":
            losses.add(step[1], step[2])
            lost += step[1]
        elif step[0] == "look":
            seen = losses.waiting()
        else:
            reported += sum(loss.events for loss in seen)
            losses.reported(seen)
            seen = []
    waiting = sum(loss.events for loss in losses.waiting())
    assert (losses.total, reported + waiting) == (lost, lost)


def test_reasons_are_bounded():
    """An error text may be another one each time."""
    losses = Losses()
    for number in range(100):
        losses.add(1, f"error {number}")
    assert len(losses.waiting()) <= 21
    assert sum(loss.events for loss in losses.waiting()) == 100
    assert losses.waiting()[-1].why == "for other reasons"
