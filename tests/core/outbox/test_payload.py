"""Payloads and attributes: encoded, or refused before anything is written."""

import dataclasses

import msgspec
import pytest

from mainstay.core.outbox.payload import attributes_json, check_text, check_texts, encoded
from mainstay.errors import UsageError


class Created(msgspec.Struct):
    id: int
    score: float | None = None


class Model:
    """As a pydantic model has it."""

    def model_dump_json(self):
        return '{"id":7}'


class Broken:
    def model_dump_json(self):
        raise ValueError("a serializer of its own")


@dataclasses.dataclass
class Plain:
    id: int


@pytest.mark.parametrize(
    ("payload", "data"),
    [
        ({"id": 7}, b'{"id":7}'),
        ([1, None], b"[1,null]"),
        (Created(7), b'{"id":7,"score":null}'),
        (Plain(7), b'{"id":7}'),
        (Model(), b'{"id":7}'),
        ("text", b'"text"'),
        ({"when": None, "tags": {"null"}}, b'{"when":null,"tags":["null"]}'),
    ],
)
def test_a_payload_is_json(payload, data):
    assert encoded(payload) == (data, "application/json")


@pytest.mark.parametrize("payload", [b"\x00\xff", bytearray(b"\x00\xff"), memoryview(b"\x00\xff")])
def test_bytes_are_kept_as_they_are(payload):
    assert encoded(payload) == (b"\x00\xff", "application/octet-stream")


@pytest.mark.parametrize("payload", [object(), {"a": object()}, Broken(), {1.5j: 2}])
def test_what_cannot_be_encoded_is_refused_with_its_type(payload):
    with pytest.raises(UsageError, match="cannot be encoded as JSON") as caught:
        encoded(payload)
    assert "nothing was written" in caught.value.hint


@pytest.mark.parametrize(
    "payload",
    [float("nan"), {"a": [float("inf")]}, (1.0, float("nan")), Created(1, float("nan"))],
)
def test_numbers_without_json_are_refused(payload):
    """JSON of msgspec has null for them: the consumer would read another value."""
    with pytest.raises(UsageError, match="NaN and infinity"):
        encoded(payload)


def test_a_text_has_no_character_that_a_database_refuses():
    assert check_text("topic", "größe") == "größe"
    for wrong in ("a\0b", "\ud800"):
        with pytest.raises(UsageError, match="character"):
            check_text("topic", wrong)
    for wrong in (None, 7):
        with pytest.raises(UsageError, match="must be a text"):
            check_text("topic", wrong)
    with pytest.raises(UsageError, match="not empty"):
        check_text("topic", "", is_needed=True)


def test_attributes_are_checked():
    assert attributes_json({"source": ""}, None) == ""
    assert attributes_json({"source": "/a"}, {}) == '{"source":"/a"}'
    for name in ("Tenant", "a-b", "id", "", "x" * 21, 7):
        with pytest.raises(UsageError, match="no name of an attribute"):
            attributes_json({}, {name: "x"})


def test_extensions_are_kept():
    assert attributes_json({}, {"tenant": "t1"}) == '{"extensions":{"tenant":"t1"}}'


@pytest.mark.parametrize("value", ["orders", "größe", "", "a\0b", "\ud800", None, 7, b"x", ["x"]])
@pytest.mark.parametrize("name", ["topic", "aggregate_type", "aggregate_id"])
def test_texts_that_are_checked_together_are_checked_as_each_alone(name, value):
    """With the same error, and none where each is right."""
    texts = {"topic": "t", "aggregate_type": "", "aggregate_id": ""} | {name: value}
    alone = error_of(lambda: check_text(name, value, is_needed=name == "topic"))
    assert error_of(lambda: check_texts(**texts)) == alone


def error_of(check):
    try:
        check()
    except UsageError as error:
        return str(error)
    return None
