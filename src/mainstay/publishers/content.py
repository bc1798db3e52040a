"""What of a message every broker gets: attributes of CloudEvents as headers, and names by template.

Binary content mode: the payload is the body as it is, and each attribute is a header. Bindings
differ in the prefix, and in how a value that is no printable ASCII is written.
"""

from __future__ import annotations

import re
from string import Formatter
from typing import TYPE_CHECKING
from urllib.parse import quote

from mainstay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstay.core.outbox.message import Message

_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_PLAIN = re.compile("[!#$&-~]*")
"""What needs no percent-encoding, as nearly all values are: `quote` takes ten times as long."""
_NAME = re.compile("[a-z0-9]+")
_FIELDS = ("topic", "type", "aggregate_type", "aggregate_id")


def attributes_of(message: Message) -> dict[str, str]:
    """The attributes of CloudEvents but `datacontenttype`, for which each binding has a place.

    A message that an operator has replayed has the extension `replay`: it is out of order.

    >>> from mainstay.core.outbox.message import Message
    >>> attributes_of(Message(id="8d0f", topic="user.created.v1", payload=b"{}", is_replay=True))
    {'replay': 'true', 'specversion': '1.0', 'id': '8d0f', 'source': 'mainstay', 'type':
    'user.created.v1'}
    """
    found = {"replay": "true"} if message.is_replay else {}
    found |= message.attributes
    found.pop("datacontenttype", None)
    for name in message.extensions:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} is no name of an attribute of CloudEvents",
                hint="lower-case letters and digits only",
            )
    return found


def text_headers(message: Message, prefix: str = "ce-") -> dict[str, str]:
    """The attributes as headers of text: what is no printable ASCII is percent-encoded.

    >>> from mainstay.core.outbox.message import Message
    >>> text_headers(Message(id="1", topic="t", payload=b"", subject="a b"))["ce-subject"]
    'a%20b'
    """
    found = attributes_of(message)
    return {
        f"{prefix}{name}": value if _PLAIN.fullmatch(value) else quote(value, _SAFE)
        for name, value in found.items()
    }


class Template:
    """A name with fields of the message in it, such as `events.{topic}`.

    >>> from mainstay.core.outbox.message import Message
    >>> Template("subject", "events.{topic}").of(Message(id="1", topic="paid", payload=b""))
    'events.paid'
    """

    def __init__(self, option: str, text: str, encode: Callable[[str], str] | None = None) -> None:
        try:
            names = [name for _, name, _, _ in Formatter().parse(text) if name is not None]
        except ValueError:
            names = [text]
        for name in names:
            if name not in _FIELDS:
                known = ", ".join(f"{{{each}}}" for each in _FIELDS)
                raise UsageError(f"{option} = {text!r}: {{{name}}} is not known", hint=known)
        self._text = text
        self._encode = encode
        self._is_topic = text == "{topic}" and encode is None

    def of(self, message: Message) -> str:
        """The name for a message."""
        if self._is_topic:
            return message.topic
        fields = {
            "topic": message.topic,
            "type": message.type or message.topic,
            "aggregate_type": message.aggregate_type,
            "aggregate_id": message.aggregate_id,
        }
        if self._encode is not None:
            fields = {name: self._encode(value) for name, value in fields.items()}
        return self._text.format(**fields)
