"""Sums are the same in every version of Python."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.analytics.stats import stats
from mainstay.core.base.sums import in_order
from mainstay.core.events.codec import encode
from mainstay.core.retry.events import RetryAttempt
from mainstay.core.telemetry.record import StageTotals, summed

TENTHS = [0.1] * 10
"""From Python 3.12 on `sum` makes 1.0 of them."""


def test_ten_tenths_are_a_bit_less_than_one():
    """Each step is rounded, in 3.11 and in whatever comes."""
    assert in_order(TENTHS) == 0.9999999999999999
    assert in_order(()) == 0


@given(st.lists(st.floats(0.0, 1e6), min_size=1))
def test_a_sum_is_that_of_adding_one_after_another(numbers):
    """Whoever counts as things happen comes to the same."""
    assert in_order(numbers) == list(accumulate(numbers))[-1]


def test_the_waits_of_a_call_are_added_in_order():
    """In the figures of a record."""
    waits = [
        RetryAttempt(call_id="1", attempt_number=attempt, delay_seconds=delay)
        for attempt, delay in enumerate(TENTHS, 1)
    ]
    found = stats(("w", encode(event)) for event in waits)
    assert found.total.waited == 0.9999999999999999


def test_the_totals_of_a_stage_are_added_in_order():
    """Those of several files too."""
    totals = [
        StageTotals(pipeline_id="etl", stage_name="poll", energy_model="m", energy_wh=energy)
        for energy in TENTHS
    ]
    (total,) = summed(totals)
    assert total.energy_wh == 0.9999999999999999
