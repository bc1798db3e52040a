"""Rows of the outbox as entries, and what is inserted, for every database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from mainstay.core.base.timestamps import stamp
from mainstay.core.outbox.entry import Entry, Failure, Phase
from mainstay.core.outbox.message import Message
from mainstay.core.outbox.settle import Settlement, is_over

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTENT = (
    "id, topic, payload, content_type, aggregate_type, aggregate_id, aggregate, dedupe_key,"
    " attributes, created_at"
)
BOOKS = (
    "position, is_replay, phase, attempts, crashes, next_at, token, lease_until, ended_at, history"
)
COLUMNS = f"{CONTENT}, {BOOKS}"
_HISTORY = msgspec.json.Decoder(tuple[Failure, ...])
_ATTRIBUTES = msgspec.json.Decoder(dict[str, Any])
_encode = msgspec.json.Encoder().encode


class NewRow(Struct, frozen=True, gc=False):
    """What `add` inserts: the message, encoded."""

    id: str
    topic: str
    payload: bytes
    content_type: str
    aggregate_type: str
    aggregate_id: str
    aggregate: str | None
    dedupe_key: str | None = None
    attributes: str = ""
    phase: str = "ready"
    next_at: float | None = None


def entry_of(row: Sequence[Any], token: str | None = None) -> Entry:
    """The entry of a row with COLUMNS; as it is after the claim with a token, if one is given."""
    is_claimed, history = token is not None, row[19]
    phase = Phase.CLAIMED if is_claimed else Phase(row[12])
    attempts: int = row[13] + is_claimed
    return Entry(
        message=_message(row, attempts),
        aggregate=row[6],
        dedupe_key=row[7],
        position=row[10],
        phase=phase,
        attempts=attempts,
        crashes=row[14],
        next_at=row[15],
        token=row[16] if token is None else token,
        lease_until=row[17],
        created_at=row[9],
        published_at=row[18] if phase is Phase.SENT else None,
        ended_at=row[18],
        history=_HISTORY.decode(history) if history else (),
    )


def _message(row: Sequence[Any], attempt: int) -> Message:
    known: dict[str, Any] = _ATTRIBUTES.decode(row[8]) if row[8] else {}
    return Message(
        id=row[0],
        topic=row[1],
        payload=bytes(row[2]),
        content_type=row[3],
        aggregate_type=row[4],
        aggregate_id=row[5],
        time=stamp(row[9]),
        attempt=attempt,
        is_replay=bool(row[11]),
        **known,
    )


def history_text(history: tuple[Failure, ...]) -> str:
    """A history as it is kept.

    >>> history_text(())
    '[]'
    """
    return _encode(history).decode()


class Batch(Struct, frozen=True):
    """What a claim has taken."""

    entries: tuple[Entry, ...]
    token: str
    now: float
    """On the clock of the database."""
    seen: int = 0
    """Rows that were ready."""
    parked: int = 0
    wants_alone: bool = False
    """The next entry must be claimed alone, when nothing else is under way."""


class Look(Struct, frozen=True):
    """What there is to do besides claims."""

    now: float
    next_at: float | None
    """When something is due next: a wait, a schedule or a lease ends; None if nothing is."""
    is_due: bool = False
    has_unreported: bool = False
    """Whether dead entries have no item in the inbox yet."""
    recovered: tuple[tuple[Entry, Settlement], ...] = ()
    """Entries of crashed workers, and what became of them."""

    @classmethod
    def of(
        cls,
        now: float,
        scheduled: float | None,
        waiting: float | None,
        latest: float | None,
        lease: float | None,
        last: float | None,
        unreported: object,
    ) -> Look:
        """From the first and last times of each phase; one too far in the future is over."""
        times = [each for each in (scheduled, waiting, lease) if each is not None]
        late = [each for each in (latest, last) if each is not None and is_over(each, now)]
        is_due = bool(late) or any(each <= now for each in times)
        return cls(now, min(times, default=None), is_due, bool(unreported))
