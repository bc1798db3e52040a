"""Events as canonical JSON, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

import msgspec

from mainstay.core.codec.reader import reader
from mainstay.core.events.catalogue import CATALOGUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstay.core.base.event import Event

_encoder = msgspec.json.Encoder(order="sorted")
_decode: Callable[[bytes | str], Event] = reader(Union[tuple(CATALOGUE.values())])  # noqa: UP007  of a computed tuple


def encode(event: Event) -> bytes:
    """The event as canonical JSON: sorted keys, UTF-8.

    >>> from mainstay.events import CallSucceeded
    >>> decode(encode(CallSucceeded(total_attempts=1))).total_attempts
    1
    """
    return _encoder.encode(event)


def decode(data: bytes | str) -> Event:
    """The event of a recorded line, of any version; MsgspecError if it is none.

    >>> decode('{"event_type":"idempotency","action":"hit"}').action
    'hit'
    """
    return _decode(data)
