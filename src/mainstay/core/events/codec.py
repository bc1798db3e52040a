"""Events as canonical JSON, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

from mainstay.core.codec.reader import reader
from mainstay.core.events.catalogue import CATALOGUE
from mainstay.core.events.encode import encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstay.core.base.event import Event

__all__ = ["decode", "encode"]

_decode: Callable[[bytes | str], Event] = reader(Union[tuple(CATALOGUE.values())])  # noqa: UP007  of a computed tuple


def decode(data: bytes | str) -> Event:
    """The event of a recorded line, of any version; MsgspecError if it is none.

    >>> decode('{"event_type":"idempotency","action":"hit"}').action
    'hit'
    """
    return _decode(data)
