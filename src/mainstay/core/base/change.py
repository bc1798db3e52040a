"""What a store is asked to do with a record: keep it as it is, write it, or drop it.

A store runs `decide(value, now)` as one step with the reading before and the writing after it, on
its own clock. So all that is stored has a reducer here, and no store interprets what it holds.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from mainstay.errors import StoredValueError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias, TypeVar

    Kind = TypeVar("Kind")
    Reply = TypeVar("Reply")
    Decide: TypeAlias = Callable[[bytes | None, float], tuple["Change", Reply]]


class Change(Struct, frozen=True, gc=False):
    """What becomes of a record; without a value it is dropped."""

    value: bytes | None = None
    expires: float | None = None
    """The moment, on the store's clock, from which on it may be purged; None for never."""


KEEP = Change(b"keep")
"""The record stays as it is, and nothing is written."""
DROP = Change()


def ready(kind: type) -> None:
    """Has msgspec build what it needs for a type; called where the type is defined.

    If two threads decode a type for the first time at once, msgspec 0.22 ends the process with a
    segmentation fault. A module is imported by one thread.

    >>> ready(int)
    """
    msgspec.json.Decoder(kind)


def read_as(kind: type[Kind], value: bytes, what: str) -> Kind:
    """A record as the type that it should be; one that is damaged raises StoredValueError.

    >>> read_as(int, b"", "number")
    Traceback (most recent call last):
    mainstay.errors.StoredValueError: the record of the number is damaged: Input data was truncated
    """
    try:
        return msgspec.json.decode(value, type=kind)
    except (ValueError, RecursionError) as error:  # of msgspec, and of what is no UTF-8
        raise damage(f"the record of the {what} is damaged: {error}") from error


def damage(text: str) -> StoredValueError:
    """The error of a record that nothing can read, here or elsewhere.

    >>> damage("the record of the call is damaged").is_damaged
    True
    """
    error = StoredValueError(text)
    error.is_damaged = True
    return error
