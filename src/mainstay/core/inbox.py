"""The inbox: what a person must decide, as a reducer over items. One item for each matter.

The same matter raised again is counted, not repeated. Acting on items, and who may, comes with the
commands; what is kept here is the item, its history and the actions that are legal for it.
"""

from __future__ import annotations

import hashlib

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainstay.core.records import KEEP, Change

SPACE = "inbox"
ACTIONS: dict[str, tuple[str, ...]] = {
    "unknown_outcome": ("mark_done", "retry", "abandon"),
    "exhausted": ("retry", "abandon"),
    "alert": ("mark_done",),
}
"""What a person may do about an item of a kind."""


class Item(Struct, frozen=True, kw_only=True):
    """One matter for a person.

    >>> Item(kind="unknown_outcome", subject="a", operation="charge", text="?").actions
    ('mark_done', 'retry', 'abandon')
    """

    kind: str
    subject: str
    """What it is about: with the kind it makes the item's identity."""
    operation: str
    text: str
    severity: str = "normal"
    attempts: int = 0
    status: str = "open"
    times: int = 1
    """How often it was raised."""
    created: float = 0.0
    seen: float = 0.0
    """When it was last raised."""

    @property
    def id(self) -> str:
        """The item's identity: the same matter has the same."""
        return hashlib.sha256(f"{self.kind}\0{self.subject}".encode()).hexdigest()[:16]

    @property
    def actions(self) -> tuple[str, ...]:
        """What may be done about it."""
        return ACTIONS.get(self.kind, ("abandon",)) if self.status == "open" else ()


def put(value: bytes | None, item: Item, now: float, *, is_new: bool = True) -> tuple[Change, Item]:
    """Raises a matter: a new item, or one more time for an open one.

    One that is not new is raised only where there is no item of it, open or closed: whoever found
    it out may have died before it was raised.

    >>> item = Item(kind="exhausted", subject="a", operation="fetch", text="gave up")
    >>> change, first = put(None, item, now=1.0)
    >>> put(change.value, item, now=5.0)[1].times
    2
    """
    before = None if value is None else decode(value)
    if before is not None and not is_new:
        return KEEP, before
    if before is not None and before.status == "open":
        kept = replace(before, times=before.times + 1, seen=now, attempts=item.attempts)
    else:
        kept = replace(item, created=now, seen=now)
    return Change(encode(kept)), kept


def close(value: bytes | None, status: str) -> tuple[Change, Item | None]:
    """Closes a matter with what became of it; None where there is no open one.

    >>> close(None, "done")[1] is None
    True
    """
    before = None if value is None else decode(value)
    if before is None or before.status != "open":
        return KEEP, None
    kept = replace(before, status=status)
    return Change(encode(kept)), kept


def encode(item: Item) -> bytes:
    """The item as JSON."""
    return msgspec.json.encode(item)


def decode(value: bytes) -> Item:
    """The item of such a text."""
    return msgspec.json.decode(value, type=Item)
