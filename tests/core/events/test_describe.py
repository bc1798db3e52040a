"""Texts as events hold them."""

from mainstay.core.events.describe import shown
from mainstay.core.redact.redactor import Redactor


def test_a_text_is_shown_without_secrets():
    """By the usual redactor, or by the one that is given."""
    assert shown("password=hunter2") == "password=[redacted]"
    assert shown("größer: password=hunter2", Redactor()) == "größer: password=[redacted]"


def test_bytes_without_a_form_in_utf8_are_shown():
    """A name of a file that was decoded with surrogates."""
    assert shown("caf\udce9") == "caf\\udce9"
