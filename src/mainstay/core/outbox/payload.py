"""Payloads and attributes of messages, checked and encoded before anything is written."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import msgspec

from mainstay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstay.core.base.types import UserValue

JSON = "application/json"
BINARY = "application/octet-stream"
_NAME = re.compile("[a-z0-9]{1,20}")
_RESERVED = frozenset(
    {"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema"}
)
_encode = msgspec.json.Encoder().encode


def encoded(payload: UserValue) -> tuple[bytes, str]:
    """A payload as bytes, and its content type; raises UsageError for what cannot be encoded.

    >>> encoded({"id": 7}), encoded(b"as it is")
    ((b'{"id":7}', 'application/json'), (b'as it is', 'application/octet-stream'))
    """
    is_dict = type(payload) is dict  # as nearly all
    if not is_dict and isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload), BINARY
    try:
        dump = None if is_dict else getattr(payload, "model_dump_json", None)
        text = dump().encode() if callable(dump) else _encode(payload)
    except Exception as error:  # a model's own serializer may raise anything
        raise UsageError(
            f"payload: a {type(payload).__qualname__} cannot be encoded as JSON: {error}",
            hint="give a dict, list, msgspec Struct, pydantic model or bytes; nothing was written",
        ) from error
    if b"null" in text and _has_nan(payload):
        raise UsageError(
            "payload: NaN and infinity have no JSON", hint="use null or a text; nothing was written"
        )
    return text, JSON


def _has_nan(value: UserValue) -> bool:
    """Whether a number in plain data is not finite; msgspec would write null for it."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(_has_nan(each) for each in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return any(_has_nan(each) for each in value)
    if isinstance(value, msgspec.Struct):
        return any(_has_nan(getattr(value, name)) for name in value.__struct_fields__)
    return False


def check_texts(*, topic: UserValue, aggregate_type: UserValue, aggregate_id: UserValue) -> None:
    """The same as `check_text` for the texts that every message has, most of them at one look."""
    try:
        text: str = topic + aggregate_type + aggregate_id
        if topic and text.isascii() and "\0" not in text:
            return
    except (AttributeError, TypeError):  # they are no texts
        pass
    check_text("topic", topic, is_needed=True)
    check_text("aggregate_type", aggregate_type)
    check_text("aggregate_id", aggregate_id)


def check_text(name: str, value: UserValue, *, is_needed: bool = False) -> str:
    """A text that every database and broker takes; raises UsageError otherwise.

    >>> check_text("topic", "user.created.v1", is_needed=True)
    'user.created.v1'
    """
    if not isinstance(value, str) or (is_needed and not value):
        raise UsageError(f"{name} = {value!r}: must be a text" + " that is not empty" * is_needed)
    if "\0" in value or not _is_unicode(value):
        raise UsageError(f"{name} = {value!r}: has a character that no database keeps")
    return value


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def attributes_json(given: Mapping[str, str], extensions: Mapping[str, str] | None) -> str:
    """The attributes of CloudEvents that are not columns, as JSON; empty if there are none.

    >>> attributes_json({"source": "/shop", "type": ""}, {"tenant": "t1"})
    '{"source":"/shop","extensions":{"tenant":"t1"}}'
    """
    found: dict[str, UserValue] = {
        name: check_text(name, value) for name, value in given.items() if value != ""
    }
    if extensions:
        found["extensions"] = {_extension(n): check_text(n, v) for n, v in extensions.items()}
    return _encode(found).decode() if found else ""


def _extension(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _RESERVED:
        raise UsageError(
            f"extensions: {name!r} is no name of an attribute of CloudEvents",
            hint="use 1 to 20 lower-case letters and digits, and none of its own names",
        )
    return name
