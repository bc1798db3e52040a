"""Events of one call: what their reason is made of."""

from mainstay.core.retry.events import RetryExhausted


def test_the_two_parts_of_a_reason_can_be_read():
    """Why there was no further attempt, and why the failure was classified so."""
    event = RetryExhausted(reason="no attempt left; a ConnectionError")
    assert event.stop_reason == "no attempt left"
    assert event.failure_reason == "a ConnectionError"
