"""Events as canonical JSON, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

import msgspec

from mainstay.core.events.catalogue import CATALOGUE

if TYPE_CHECKING:
    from mainstay.core.base.event import Event

_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder(Union[tuple(CATALOGUE.values())])  # noqa: UP007  of a computed tuple


def encode(event: Event) -> bytes:
    """The event as canonical JSON: sorted keys, UTF-8.

    >>> from mainstay.events import CallSucceeded
    >>> decode(encode(CallSucceeded(total_attempts=1))).total_attempts
    1
    """
    return _encoder.encode(event)


def decode(data: bytes | str) -> Event:
    """The event of a recorded line, of any version.

    >>> decode('{"event_type":"idempotency","action":"hit"}').action
    'hit'
    """
    event: Event = _decoder.decode(data)
    return event
