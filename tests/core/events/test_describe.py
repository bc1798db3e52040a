"""Texts as events hold them."""

import pytest

from mainstay.core.events.describe import reason_of, shown
from mainstay.core.redact.redactor import Redactor


def test_a_text_is_shown_without_secrets():
    """By the usual redactor, or by the one that is given."""
    assert shown("password=hunter2") == "password=[redacted]"
    assert shown("größer: password=hunter2", Redactor()) == "größer: password=[redacted]"


def test_bytes_without_a_form_in_utf8_are_shown():
    """A name of a file that was decoded with surrogates."""
    assert shown("caf\udce9") == "caf\\udce9"


class Broken(Exception):
    def __str__(self):
        raise ValueError


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "MemoryError"),
        (TimeoutError(" "), "TimeoutError"),
        (AssertionError(), "AssertionError"),
        (Broken(), f"{__name__}.Broken"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
        (ValueError("password=hunter2"), "password=[redacted]"),
    ],
)
def test_a_reason_is_never_empty(error, reason):
    """The text of a MemoryError is empty: a log line ended in a colon."""
    assert reason_of(error) == reason
