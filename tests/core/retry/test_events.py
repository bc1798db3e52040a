"""Events of one call: what their reason is made of."""

import pytest

from mainstay.core.retry.events import (
    AttemptFailed,
    CallFailed,
    CallSucceeded,
    RetryAttempt,
    RetryExhausted,
)


def test_the_two_parts_of_a_reason_can_be_read():
    """Why there was no further attempt, and why the failure was classified so."""
    event = RetryExhausted(reason="no attempt left; a ConnectionError")
    assert event.stop_reason == "no attempt left"
    assert event.failure_reason == "a ConnectionError"


@pytest.mark.req("NFR-041-21", "NFR-041-22")
@pytest.mark.parametrize(
    ("event", "level"),
    [
        (AttemptFailed(), "DEBUG"),
        (RetryAttempt(), "WARNING"),
        (RetryAttempt(log_level="INFO"), "INFO"),
        (CallSucceeded(total_attempts=1), "DEBUG"),
        (CallSucceeded(total_attempts=2), "INFO"),
        (CallFailed(), "ERROR"),
        (RetryExhausted(), "ERROR"),
    ],
)
def test_an_event_has_the_level_at_which_it_is_logged(event, level):
    """Its class's; a scheduled retry has its policy's, and a success depends on the attempts."""
    assert event.logged_at == level
