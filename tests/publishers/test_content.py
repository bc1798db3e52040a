"""Headers of CloudEvents and names by template, without a broker."""

from urllib.parse import unquote

import pytest

from mainstay.core.outbox.message import Message
from mainstay.errors import UsageError
from mainstay.publishers.content import Template, attributes_of, text_headers


def message(**fields):
    return Message(**{"id": "m-1", "topic": "t", "payload": b"{}", **fields})


@pytest.mark.parametrize("code", [*range(256), 0x20AC, 0x1F600])
def test_a_header_is_printable_ascii_and_can_be_decoded(code):
    """As the HTTP binding has it: space, quotation mark and percent sign are encoded too."""
    text = f"a{chr(code)}b"
    header = text_headers(message(subject=text))["ce-subject"]
    assert unquote(header) == text
    assert all(0x21 <= ord(each) <= 0x7E and each != '"' for each in header)
    is_plain = 0x21 <= code <= 0x7E and chr(code) not in '"%'
    assert (header == text) == is_plain


def test_a_replay_is_marked_unless_the_message_has_that_attribute():
    """It is out of order; a program's own attribute of that name stays."""
    assert attributes_of(message(is_replay=True))["replay"] == "true"
    assert "replay" not in attributes_of(message())
    assert attributes_of(message(is_replay=True, extensions={"replay": "no"}))["replay"] == "no"


@pytest.mark.parametrize("name", ["Upper", "with-dash", "", "a\r\nb", "a b"])
def test_a_name_that_cloudevents_does_not_allow_is_refused(name):
    """It could be another header."""
    with pytest.raises(UsageError, match="no name of an attribute"):
        text_headers(message(extensions={name: "x"}))


def test_a_template_has_the_fields_of_the_message():
    """The type is the topic unless it is given."""
    template = Template("subject", "{topic}.{type}.{aggregate_type}.{aggregate_id}")
    assert template.of(message(aggregate_type="Order", aggregate_id="7")) == "t.t.Order.7"
    assert template.of(message(type="paid")) == "t.paid.."


@pytest.mark.parametrize("text", ["{0}", "{}", "{id}", "{topic.payload}", "{topic", "{topic!r}}"])
def test_a_template_with_anything_else_is_refused(text):
    with pytest.raises(UsageError, match="subject = "):
        Template("subject", text)
