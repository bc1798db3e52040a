"""An entry of the outbox: a message, its phase, and what may become of it.

    PENDING    scheduled, ready, parked, waiting
    CLAIMED    claimed
    SENT       sent
    DEAD       dead, holding
    DISCARDED  discarded, purged

`ready` may be claimed. `parked` is behind another entry of its aggregate. `waiting` waits for its
next attempt, `scheduled` for the time that the caller has set. `holding` is dead, and the later
entries of its aggregate wait for an operator. `purged` is about to be deleted: nothing else is.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from mainstay.core.outbox.message import Message  # noqa: TC001  msgspec reads the annotation


class Phase(StrEnum):
    """Where an entry is."""

    SCHEDULED = "scheduled"
    READY = "ready"
    PARKED = "parked"
    WAITING = "waiting"
    CLAIMED = "claimed"
    SENT = "sent"
    DEAD = "dead"
    HOLDING = "holding"
    DISCARDED = "discarded"
    PURGED = "purged"


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.SCHEDULED: frozenset({Phase.READY}),
    Phase.READY: frozenset({Phase.CLAIMED, Phase.PARKED}),
    Phase.PARKED: frozenset({Phase.READY}),
    Phase.WAITING: frozenset({Phase.READY}),
    Phase.CLAIMED: frozenset(
        {Phase.SENT, Phase.WAITING, Phase.READY, Phase.PARKED, Phase.DEAD, Phase.HOLDING}
    ),
    Phase.SENT: frozenset({Phase.PURGED}),
    Phase.DEAD: frozenset({Phase.READY, Phase.DISCARDED}),
    Phase.HOLDING: frozenset({Phase.READY, Phase.DISCARDED}),
    Phase.DISCARDED: frozenset({Phase.PURGED}),
    Phase.PURGED: frozenset(),
}
"""What may follow each phase."""

HOLDERS = frozenset({Phase.READY, Phase.PARKED, Phase.WAITING, Phase.CLAIMED, Phase.HOLDING})
"""Phases in which an entry keeps the later ones of its aggregate from being published."""

STATES: dict[Phase, str] = {
    Phase.SCHEDULED: "PENDING",
    Phase.READY: "PENDING",
    Phase.PARKED: "PENDING",
    Phase.WAITING: "PENDING",
    Phase.CLAIMED: "CLAIMED",
    Phase.SENT: "SENT",
    Phase.DEAD: "DEAD",
    Phase.HOLDING: "DEAD",
    Phase.DISCARDED: "DISCARDED",
    Phase.PURGED: "DISCARDED",
}
"""The state of each phase, as people name it."""


class Failure(Struct, frozen=True):
    """One thing that happened to an entry: a failed attempt, a crash, a replay, a discard."""

    at: float
    attempt: int
    kind: str
    text: str
    """Without secrets."""


class Entry(Struct, frozen=True, kw_only=True):
    """A message and its bookkeeping.

    >>> entry = Entry(message=Message(id="8d0f", topic="user.created.v1", payload=b"{}"))
    >>> entry.state, entry.retry_count
    ('PENDING', 0)
    """

    message: Message
    aggregate: str | None = None
    """What the order is kept for; None if the message has no order."""
    dedupe_key: str | None = None
    position: int = 0
    """Entries of an aggregate are published by position; a larger one replaces it if the entry's
    place in the order changes."""
    phase: Phase = Phase.READY
    attempts: int = 0
    """Counted when it is claimed, so that a worker that dies counts."""
    crashes: int = 0
    """Claims whose worker ended before it wrote an outcome."""
    next_at: float | None = None
    token: str = ""
    """That of the claim; a write with another one is refused."""
    lease_until: float | None = None
    created_at: float = 0.0
    published_at: float | None = None
    ended_at: float | None = None
    """When it was published, or discarded."""
    history: tuple[Failure, ...] = ()

    @property
    def id(self) -> str:
        """The id of the message."""
        return self.message.id

    @property
    def state(self) -> str:
        """PENDING, CLAIMED, SENT, DEAD or DISCARDED."""
        return STATES[self.phase]

    @property
    def retry_count(self) -> int:
        """Attempts after the first.

        >>> Entry(message=Message(id="1", topic="t", payload=b""), attempts=4).retry_count
        3
        """
        return max(0, self.attempts - 1)


def aggregate_key(aggregate_type: str, aggregate_id: str) -> str | None:
    """What the order is kept for, as one text that no other type and id have.

    >>> aggregate_key("User", "u-1"), aggregate_key("User", "")
    ('4:User:u-1', None)
    """
    return f"{len(aggregate_type)}:{aggregate_type}:{aggregate_id}" if aggregate_id else None
