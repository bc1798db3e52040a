"""Readers of JSON that anybody may have written: all that cannot be read is a MsgspecError."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

Read = TypeVar("Read")
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec itself raises for JSON that cannot be read."""


def reader(kind: type[Read] | Any) -> Callable[[bytes | str], Read]:
    """Decodes JSON of a kind; also text that is no UTF-8 or nested too deep is a MsgspecError.

    >>> reader(list[int])(b"[1]")
    [1]
    """
    decode: Callable[[bytes | str], Read] = msgspec.json.Decoder(kind).decode

    def read(data: bytes | str) -> Read:
        try:
            return decode(data)
        except (UnicodeDecodeError, RecursionError) as error:
            raise msgspec.DecodeError(str(error)) from None

    return read
