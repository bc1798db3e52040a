"""The inbox: what a person must decide, as a reducer over items. One item for each matter.

    open -> decided -> closed

The same matter raised again is counted, not repeated. What is kept here is the item, its history
and the actions that are legal for its kind; deciding and closing is actions.py's.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from mainstay.core.base.change import KEEP, Change, read_as, ready
from mainstay.core.base.spaces import Space
from mainstay.errors import StoredValueError

SPACE = Space.INBOX.value
ACTIONS: dict[str, tuple[str, ...]] = {
    "unknown_outcome": ("mark_done", "retry", "abandon"),
    "exhausted": ("retry", "abandon"),
    "stuck_saga": ("retry", "skip", "mark_done"),
    "dead_letter": ("retry", "abandon"),
    "partial_failure": ("mark_done", "abandon"),
    "quarantine": ("release", "abandon"),
    "governance": ("mark_done", "abandon"),
    "corrupted_state": ("mark_done", "abandon"),
    "alert": ("mark_done",),
}
"""What a person may do about an item of a kind."""

SEVERITIES = {
    "unknown_outcome": "high",
    "stuck_saga": "critical",
    "quarantine": "high",
    "governance": "high",
    "corrupted_state": "critical",
}
"""The severity of a kind, if the item has none of its own; "normal" for the others."""

RANKS = ("critical", "high", "normal", "low")
"""Severities, the worst first."""

MOST_HISTORY = 20
"""Happenings an item keeps: the first, and the latest."""
LONGEST_TEXT = 2_000
"""Characters of a happening."""


class Happening(Struct, frozen=True):
    """One thing that happened to an item."""

    at: float
    text: str


class Decision(Struct, frozen=True, kw_only=True):
    """A decision about an item, and why."""

    action: str
    by: str
    at: float
    why: str = ""
    evidence: str = ""
    token: str = ""
    """Distinguishes decisions: one may arrive twice, if its reply was lost."""


class Item(Struct, frozen=True, kw_only=True):
    """One matter for a person.

    >>> item = Item(kind="unknown_outcome", subject="a", operation="charge", text="?")
    >>> item.actions, item.severity
    (('mark_done', 'retry', 'abandon'), 'high')
    """

    kind: str
    subject: str
    """What it is about: with the kind it makes the item's identity."""
    operation: str
    text: str
    severity: str = ""
    """"critical", "high", "normal" or "low"; left empty, what its kind usually is."""
    attempts: int = 0
    status: str = "open"
    """"open", "decided", and anything else once it is over."""
    times: int = 1
    """How often it was raised."""
    created: float = 0.0
    seen: float = 0.0
    """When it was last raised."""
    revision: int = 1
    """Counts every change of it, also across the times it was closed and raised anew."""
    occasion: str = ""
    """Distinguishes the times that the matter came up, if that is possible."""
    data: dict[str, Any] = {}
    """What the room that raised it needs to act, such as where a record is; and `deciders`."""
    history: tuple[Happening, ...] = ()
    """What happened, without secrets: the first, and the latest."""
    decision: Decision | None = None
    result: str = ""
    """What became of it, once it is closed."""

    def __post_init__(self) -> None:
        if not self.severity:
            force_setattr(self, "severity", SEVERITIES.get(self.kind, "normal"))

    @property
    def id(self) -> str:
        """The item's identity: the same matter has the same."""
        return hashlib.sha256(f"{self.kind}\0{self.subject}".encode()).hexdigest()[:16]

    @property
    def actions(self) -> tuple[str, ...]:
        """What may be done about it."""
        return ACTIONS.get(self.kind, ("abandon",)) if self.status == "open" else ()

    @property
    def deciders(self) -> tuple[str, ...]:
        """The operators who may decide about it; empty for every operator.

        They are in `data`: a field of their own would change the fingerprints of recorded items.
        """
        return tuple(self.data.get("deciders", ()))

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do about it."""
        return self.status not in ("open", "decided")

    def age(self, now: float) -> float:
        """Seconds since it was raised.

        >>> Item(kind="alert", subject="a", operation="b", text="c", created=5.0).age(now=65.0)
        60.0
        """
        return max(0.0, now - self.created)


def damaged_item(operation: str, key: str, address: str) -> Item:
    """The item of a keyed call whose record nothing can read.

    >>> damaged_item("charge", "k-1", "a").severity
    'critical'
    """
    return Item(
        kind="corrupted_state",
        subject=address,
        operation=operation,
        text=f"{operation} with key {key!r}: its record is damaged. No call with this key runs"
        " until the record is restored or removed",
        data={"address": address},
    )


def put(value: bytes | None, item: Item, now: float, *, is_new: bool = True) -> tuple[Change, Item]:
    """Raises a matter: a new item, or one more time for one that is not over.

    One that is not new is raised only if there is no item of it, open or closed: the process that
    found it may have ended before it raised one. A decision on another occasion does not count for
    this one.

    >>> item = Item(kind="exhausted", subject="a", operation="fetch", text="gave up")
    >>> change, first = put(None, item, now=1.0)
    >>> put(change.value, item, now=5.0)[1].times
    2
    """
    try:
        before = None if value is None else decode(value)
    except StoredValueError as damage:  # what is raised now is not lost with it
        before, item = None, noted(item, damage.message, now)
    if before is None:
        kept = replace(item, created=now, seen=now)
        return _written(kept, item.text, now)
    is_other = bool(before.occasion and item.occasion) and before.occasion != item.occasion
    if not is_new and not is_other:
        return KEEP, before
    revision = before.revision + 1
    if before.status == "open" or (before.status == "decided" and not is_other):
        kept = replace(
            before,
            times=before.times + 1,
            seen=now,
            attempts=item.attempts,
            revision=revision,
            occasion=item.occasion or before.occasion,
            data=item.data or before.data,
        )
    else:
        kept = replace(item, created=now, seen=now, revision=revision, history=before.history)
    return _written(kept, item.text, now)


def noted(item: Item, text: str, now: float) -> Item:
    """The item with one more happening; of many, the first and the latest are kept."""
    history = (*item.history, Happening(now, text[:LONGEST_TEXT]))
    if len(history) > MOST_HISTORY:
        history = (history[0], *history[1 - MOST_HISTORY :])
    return replace(item, history=history)


def _written(item: Item, text: str, now: float) -> tuple[Change, Item]:
    kept = noted(item, text, now)
    return Change(encode(kept)), kept


def encode(item: Item) -> bytes:
    """The item as JSON."""
    return msgspec.json.encode(item)


def decode(value: bytes) -> Item:
    """The item of such a text, also of one that was written before items had a history."""
    return read_as(Item, value, "item")


ready(Item)
