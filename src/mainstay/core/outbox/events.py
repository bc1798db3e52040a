"""Events of the outbox. A message that is published at once emits none: the table has it."""

from __future__ import annotations

from typing import ClassVar

from mainstay.core.base.event import Event

__all__ = [
    "OutboxDead",
    "OutboxDiscarded",
    "OutboxLeaseLost",
    "OutboxPurged",
    "OutboxReplayed",
    "OutboxRetry",
]


class OutboxRetry(Event, frozen=True, kw_only=True, tag="outbox_retry"):
    """A message was not published; another attempt is scheduled.

    >>> OutboxRetry(operation="outbox", message="8d0f", topic="t", attempt_number=1).event_type
    'outbox_retry'
    """

    message: str = ""
    topic: str = ""
    attempt_number: int = 0
    delay_seconds: float = 0.0
    reason: str = ""
    level: ClassVar[str] = "WARNING"

    def sentence(self) -> str:
        return (
            f"{self.operation}: message {self.message} ({self.topic}) failed at attempt"
            f" {self.attempt_number}; the next is in {self.delay_seconds:.3g} s: {self.reason}"
        )


class OutboxDead(Event, frozen=True, kw_only=True, tag="outbox_dead"):
    """A message will not be published unless an operator replays it.

    >>> OutboxDead(operation="outbox", message="8d0f", topic="t", total_attempts=4).event_type
    'outbox_dead'
    """

    message: str = ""
    topic: str = ""
    total_attempts: int = 0
    reason: str = ""
    level: ClassVar[str] = "ERROR"

    def sentence(self) -> str:
        return (
            f"{self.operation}: message {self.message} ({self.topic}) is dead after"
            f" {self.total_attempts} attempts: {self.reason}"
        )


class OutboxReplayed(Event, frozen=True, kw_only=True, tag="outbox_replayed"):
    """An operator has put a dead message back into the outbox, with the same id.

    >>> OutboxReplayed(message="8d0f", operator="ann", is_out_of_order=True).event_type
    'outbox_replayed'
    """

    message: str = ""
    topic: str = ""
    operator: str = ""
    is_out_of_order: bool = False
    level: ClassVar[str] = "INFO"
    is_security: ClassVar[bool] = True

    def sentence(self) -> str:
        order = ", out of order" if self.is_out_of_order else ""
        return (
            f"{self.operation}: message {self.message} ({self.topic}) was replayed by"
            f" {self.operator or 'unnamed'}{order}"
        )


class OutboxDiscarded(Event, frozen=True, kw_only=True, tag="outbox_discarded"):
    """An operator has decided that a dead message is never published.

    >>> OutboxDiscarded(message="8d0f", operator="ann", why="a test").event_type
    'outbox_discarded'
    """

    message: str = ""
    topic: str = ""
    operator: str = ""
    why: str = ""
    level: ClassVar[str] = "WARNING"
    is_security: ClassVar[bool] = True

    def sentence(self) -> str:
        why = f": {self.why}" if self.why else ""
        return (
            f"{self.operation}: message {self.message} ({self.topic}) was discarded by"
            f" {self.operator or 'unnamed'}{why}"
        )


class OutboxPurged(Event, frozen=True, kw_only=True, tag="outbox_purged"):
    """Messages that were published or discarded before a time were deleted.

    >>> OutboxPurged(operation="outbox", purged=7).event_type
    'outbox_purged'
    """

    purged: int = 0
    older_than_seconds: float = 0.0
    level: ClassVar[str] = "INFO"
    is_security: ClassVar[bool] = True

    def sentence(self) -> str:
        return (
            f"{self.operation}: {self.purged} messages that ended more than"
            f" {self.older_than_seconds:.6g} s ago were deleted"
        )


class OutboxLeaseLost(Event, frozen=True, kw_only=True, tag="outbox_lease_lost"):
    """What a worker wrote about a message was refused: another worker had taken it over.

    >>> OutboxLeaseLost(operation="outbox", message="8d0f").event_type
    'outbox_lease_lost'
    """

    message: str = ""
    topic: str = ""
    level: ClassVar[str] = "WARNING"

    def sentence(self) -> str:
        return (
            f"{self.operation}: message {self.message} ({self.topic}) was taken over by another"
            " worker, because its lease had run out; it may be published twice, with the same id"
        )
