"""A new message as a row, checked and encoded: what cannot be added raises before any statement."""

from __future__ import annotations

import time
from datetime import datetime
from os import urandom
from typing import TYPE_CHECKING, TypedDict

from mainstay.core.base.validate import Checker
from mainstay.core.outbox.entry import aggregate_key
from mainstay.core.outbox.payload import attributes_json, check_text, check_texts, encoded
from mainstay.errors import UsageError
from mainstay.stores.outbox.rows import NewRow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from mainstay.core.base.types import Seconds, UserValue

_LONGEST = 10 * 366 * 86_400.0
"""Seconds of a delay."""
_ATTRIBUTES = ("source", "type", "subject", "dataschema")


class MessageFields(TypedDict, total=False):
    """The optional fields of a message; `engine.outbox.add` explains them."""

    aggregate_type: str
    aggregate_id: str
    ordered: bool
    dedupe_key: str | None
    delay: Seconds | None
    due: datetime | None
    id: str | None
    content_type: str
    source: str
    type: str
    subject: str
    dataschema: str
    extensions: Mapping[str, str] | None


_KNOWN = frozenset(MessageFields.__annotations__)
_PLAIN = frozenset({"aggregate_type", "aggregate_id", "ordered"})
"""The fields of most messages; the others have their defaults."""


def new_row(topic: str, payload: UserValue, fields: MessageFields) -> NewRow:
    """The row of a message.

    >>> new_row("user.created.v1", {"id": 7}, {"aggregate_id": "u-1"}).aggregate
    '0::u-1'
    """
    if not _KNOWN.issuperset(fields):
        unknown = min(set(fields) - _KNOWN)
        raise UsageError(
            f"{unknown!r} is no field of a message", hint=f"known: {', '.join(sorted(_KNOWN))}"
        )
    given: Callable[..., Any] = fields.get
    kind, which = given("aggregate_type", ""), given("aggregate_id", "")
    check_texts(topic=topic, aggregate_type=kind, aggregate_id=which)
    data, usual = encoded(payload)
    aggregate = aggregate_key(kind, which) if given("ordered", True) else None
    if _PLAIN.issuperset(fields):
        return NewRow(_uuid(), topic, data, usual, kind, which, aggregate)
    due = _due(given("delay"), given("due"))
    return NewRow(
        id=_needed("id", given("id")) or _uuid(),
        topic=topic,
        payload=data,
        content_type=_of_one_line(check_text("content_type", given("content_type", ""))) or usual,
        aggregate_type=kind,
        aggregate_id=which,
        aggregate=aggregate,
        dedupe_key=_needed("dedupe_key", given("dedupe_key")),
        attributes=_attributes(fields),
        phase="ready" if due is None else "scheduled",
        next_at=due,
    )


def _of_one_line(content_type: str) -> str:
    """A content type is sent as a header."""
    if not content_type.isprintable():
        raise UsageError(f"content_type = {content_type!r}: has a character that no header has")
    return content_type


def _needed(name: str, value: UserValue) -> str | None:
    return None if value is None else check_text(name, value, is_needed=True)


def _attributes(fields: MessageFields) -> str:
    found: dict[str, str] = {name: fields[name] for name in _ATTRIBUTES if name in fields}  # type: ignore[literal-required]
    extensions = fields.get("extensions")
    return attributes_json(found, extensions) if found or extensions else ""


def _uuid() -> str:
    """A UUID of version 7: those made later sort later, which an index likes."""
    text = f"{int(time.time() * 1000):012x}7{urandom(10).hex()}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-a{text[17:20]}-{text[20:32]}"


def _due(delay: Seconds | None, due: datetime | None) -> float | None:
    """When a message is due, in Unix seconds; None for at once."""
    if delay is not None and due is not None:
        raise UsageError("delay and due are both given", hint="give one of them")
    if due is not None:
        if not isinstance(due, datetime):
            raise UsageError(f"due = {due!r}: must be a datetime", hint="datetime.now(UTC) + …")
        if due.tzinfo is None:
            raise UsageError(f"due = {due!r}: has no time zone", hint="datetime.now(UTC) + …")
        moment = due.timestamp()
        return moment if moment > time.time() else None
    if delay is None:
        return None
    check = Checker("outbox.add")
    seconds = check.duration("delay", delay, 0.0, _LONGEST)
    check.close()
    return time.time() + seconds if seconds else None
