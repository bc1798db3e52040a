"""Events as canonical JSON. What only writes events needs no catalogue of them; codec.py has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from mainstay.core.base.event import Event

_encoder = msgspec.json.Encoder(order="sorted")


def encode(event: Event) -> bytes:
    """The event as canonical JSON: sorted keys, UTF-8.

    >>> from mainstay.events import CallSucceeded
    >>> encode(CallSucceeded(total_attempts=1))[:10]
    b'{"call_id"'
    """
    return _encoder.encode(event)
