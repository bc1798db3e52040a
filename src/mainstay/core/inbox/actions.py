"""Acting on items, as reducers: of two decisions at once one wins, and the other gets Already.

To decide is one step, to carry out the decision another, to close the item the third. If a process
ends between the first and the second, any other may carry out the decision, and none can change it.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainstay.core.base.change import KEEP, Change
from mainstay.core.codec.outcome import Succeeded, encode_outcome
from mainstay.core.inbox.items import Decision, Item, decode, encode, noted
from mainstay.errors import UsageError


class Won(Struct, frozen=True):
    """The decision stands; this is the item with it."""

    won: ClassVar[bool] = True
    item: Item

    @property
    def text(self) -> str:
        """What came of it."""
        return self.item.result or "decided, and not carried out yet"


class Already(Struct, frozen=True):
    """Lost the race: the item's decision holds by whom, when and what."""

    won: ClassVar[bool] = False
    item: Item

    @property
    def text(self) -> str:
        """The decision that won."""
        decision = self.item.decision
        if decision is None:  # of one that was closed before decisions were kept
            return f"it was closed before ({self.item.status})"
        return f"{decision.by} has decided {decision.action!r} before"


class Illegal(Struct, frozen=True):
    """The action is none for this item, or lacks what it needs."""

    won: ClassVar[bool] = False
    text: str
    actions: tuple[str, ...]


class Stale(Struct, frozen=True):
    """The item has changed since it was looked at."""

    won: ClassVar[bool] = False
    revision: int

    @property
    def text(self) -> str:
        """What to look at."""
        return f"it has changed since it was looked at: its revision is {self.revision}"


class Gone(Struct, frozen=True):
    """There is no such item."""

    won: ClassVar[bool] = False
    text: ClassVar[str] = "there is no such item"


Answer = Won | Already | Illegal | Stale | Gone
OUTCOMES = frozenset({"unknown_outcome"})
"""Kinds whose evidence is the outcome itself, as JSON: calls will return it."""


def act(
    value: bytes | None,
    action: str,
    by: str,
    why: str,
    evidence: str,
    revision: int | None,
    now: float,
    *,
    token: str = "",
) -> tuple[Change, Answer]:
    """Decides an item that is open; without a revision, whichever revision it has.

    >>> item = Item(kind="exhausted", subject="a", operation="fetch", text="gave up")
    >>> change, answer = act(encode(item), "retry", "ann", "it is back", "", 1, now=5.0)
    >>> answer.item.decision.by
    'ann'
    >>> act(change.value, "abandon", "bob", "enough", "", None, now=6.0)[1].text
    "ann has decided 'retry' before"
    """
    if value is None:
        return KEEP, Gone()
    item = decode(value)
    if item.decision is not None and token and item.decision.token == token:
        return KEEP, Won(item)
    refused = refusal(item, action, why, evidence, revision, by)
    if refused is not None:
        return KEEP, refused
    decision = Decision(action=action, by=by, at=now, why=why, evidence=evidence, token=token)
    kept = replace(item, status="decided", decision=decision, revision=item.revision + 1)
    kept = noted(kept, f"{by} decided {action!r}" + (f": {why}" if why else ""), now)
    return Change(encode(kept)), Won(kept)


def refusal(
    item: Item, action: str, why: str, evidence: str, revision: int | None, by: str | None = None
) -> Already | Illegal | Stale | None:
    """Why an action on an item is refused, to any operator or to one; None if it is legal.

    >>> item = Item(kind="exhausted", subject="a", operation="fetch", text="gave up")
    >>> refusal(item, "retry", "", "", 9).text
    'it has changed since it was looked at: its revision is 1'
    """
    if item.status != "open":
        return Already(item)
    if revision is not None and revision != item.revision:
        return Stale(item.revision)
    error = problem_with(item, action, why, evidence)
    if by is not None and item.deciders and by not in item.deciders:
        error = f"only {', '.join(item.deciders)} may decide about it"
    return Illegal(error, item.actions) if error else None


def problem_with(item: Item, action: str, why: str, evidence: str) -> str:
    """Why an action is not possible; empty if it is.

    >>> item = Item(kind="exhausted", subject="a", operation="fetch", text="gave up")
    >>> problem_with(item, "abandon", "", "")
    'to abandon needs a reason'
    """
    if action not in item.actions:
        return f"{action!r} is no action for {item.kind}"
    if action in ("abandon", "skip") and not why.strip():
        return f"to {action} needs a reason"
    if action == "mark_done" and not evidence.strip():
        return "to mark it done needs evidence"
    if action == "mark_done" and item.kind in OUTCOMES and not is_json(evidence):
        return "the evidence must be the outcome, as JSON"
    return ""


def is_json(text: str) -> bool:
    """Whether a text is one JSON value, and can be recorded: what is decided is carried out.

    >>> is_json('{"id": 7}'), is_json("id 7")
    (True, False)
    """
    try:
        encode_outcome(Succeeded(msgspec.json.decode(text)))
    except (ValueError, RecursionError, UsageError):  # no JSON, no UTF-8, or too deep
        return False
    return True


def close(value: bytes | None, decision: Decision, result: str, now: float) -> tuple[Change, bool]:
    """Closes an item whose decision was carried out; whether this call closed it.

    An item that has another decision by now stays as it is.
    """
    item = None if value is None else decode(value)
    if item is None or item.status != "decided" or item.decision != decision:
        return KEEP, False
    kept = replace(item, status="closed", result=result, revision=item.revision + 1)
    return Change(encode(noted(kept, result, now)), now + _KEPT), True


def resolve(value: bytes | None, result: str, now: float) -> tuple[Change, Item | None]:
    """Closes an open item whose matter was resolved elsewhere; the item, if this call closed it.

    One that is decided stays: carrying the decision out closes it.

    >>> item = Item(kind="dead_letter", subject="8d0f", operation="outbox", text="dead")
    >>> resolve(encode(item), "it was replayed", now=5.0)[1].status
    'closed'
    >>> resolve(None, "it was replayed", now=5.0)[1] is None
    True
    """
    item = None if value is None else decode(value)
    if item is None or item.status != "open":
        return KEEP, None
    kept = replace(item, status="closed", result=result, revision=item.revision + 1)
    kept = noted(kept, result, now)
    return Change(encode(kept), now + _KEPT), kept


_KEPT = 90 * 86_400.0
"""Seconds for which a closed item is kept; the audit log keeps the decision."""
