"""What a relay reports: counts, events, and the inbox items of dead entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from mainstay.core.inbox.items import Item
from mainstay.core.outbox.entry import Phase
from mainstay.core.outbox.events import OutboxDead, OutboxLeaseLost, OutboxRetry
from mainstay.drivers.call.emit import emit
from mainstay.runtime.reports.report_failure import report

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from typing import Protocol

    from mainstay.core.base.event import Event
    from mainstay.core.outbox.entry import Entry
    from mainstay.core.outbox.settle import Settlement
    from mainstay.core.redact.redactor import Redactor
    from mainstay.drivers.inbox.inbox import Inbox
    from mainstay.ports import Sink

    class DeadTable(Protocol):
        """Where dead entries are, and whether the inbox has items of them."""

        @property
        def url(self) -> str: ...
        def unreported(self) -> list[Entry]: ...
        def reported(self, ids: list[str]) -> None: ...
        def get(self, entry_id: str) -> Entry | None: ...


OPERATION, KIND = "outbox", "dead_letter"
"""The operation of events and items of the outbox, and the kind of its items."""


class RelayCounts(Struct):
    """What a relay has done.

    >>> RelayCounts().published
    0
    """

    published: int = 0
    retried: int = 0
    """Failed attempts after which the entry waits for the next."""
    dead: int = 0
    refused: int = 0
    """Attempts that were not made, because a circuit was open."""
    given_back: int = 0
    """Claimed, and not attempted."""
    lost: int = 0
    """Outcomes that were refused, because another relay had taken over."""
    recovered: int = 0
    """Entries of crashed workers that were taken over."""


class Reports:
    """Counts and events of one relay; raises the items of dead entries."""

    def __init__(
        self,
        table: DeadTable,
        inbox: Inbox,
        listeners: tuple[Sink, ...],
        redact: Redactor | None,
    ) -> None:
        self.counts = RelayCounts()
        self._table = table
        self._inbox = inbox
        self._listeners = listeners
        self._redact = redact

    def settled(
        self, ended: Iterable[tuple[Entry, Settlement]], accepted: Container[str], now: float
    ) -> None:
        """Counts what was written, and emits what is worth an event."""
        for entry, done in ended:
            if done.id not in accepted:
                self.counts.lost += 1
                self._emit(
                    OutboxLeaseLost(
                        operation=OPERATION, message=entry.id, topic=entry.message.topic
                    )
                )
            elif done.phase is Phase.SENT:
                self.counts.published += 1
            elif done.is_dead:
                self._died(entry, done)
            elif done.phase is not Phase.WAITING:
                self.counts.given_back += 1
            elif done.attempts < entry.attempts:
                self.counts.refused += 1
            else:
                self._waits(entry, done, now)

    def recovered(self, found: Iterable[tuple[Entry, Settlement]]) -> None:
        """Entries whose lease had run out."""
        for entry, done in found:
            self.counts.recovered += 1
            if done.is_dead:
                self._died(entry, done)

    def raise_items(self) -> None:
        """Raises an item for each dead entry that has none; it may be called at any time."""
        while True:
            dead = self._table.unreported()
            raised = [entry.id for entry in dead if self._raised(entry)]
            if raised:
                self._table.reported(raised)
            if len(raised) < len(dead) or not dead:
                return

    def _raised(self, entry: Entry) -> bool:
        try:
            self._inbox.put(dead_item(entry, self._table.url))
            after = self._table.get(entry.id)
            if after is None or after.state != "DEAD":  # it was replayed or discarded meanwhile
                self._inbox.resolve(KIND, entry.id, "the message is not dead any more")
        except Exception as error:  # the next upkeep tries again
            report(error, "a dead message of %s has no item in the inbox yet", self._table.url)
            return False
        return True

    def _died(self, entry: Entry, done: Settlement) -> None:
        self.counts.dead += 1
        self._emit(
            OutboxDead(
                operation=OPERATION,
                message=entry.id,
                topic=entry.message.topic,
                total_attempts=done.attempts,
                reason=done.history[-1].text if done.history else "",
            )
        )

    def _waits(self, entry: Entry, done: Settlement, now: float) -> None:
        self.counts.retried += 1
        self._emit(
            OutboxRetry(
                operation=OPERATION,
                message=entry.id,
                topic=entry.message.topic,
                attempt_number=done.attempts,
                delay_seconds=round(max(0.0, (done.next_at or now) - now), 6),
                reason=done.history[-1].text if done.history else "",
            )
        )

    def _emit(self, event: Event) -> None:
        emit(event, self._listeners, self._redact)


def dead_item(entry: Entry, url: str) -> Item:
    """The inbox item of a dead entry: retry replays it, abandon discards it."""
    why = entry.history[-1].text if entry.history else "no reason is recorded"
    return Item(
        kind=KIND,
        subject=entry.id,
        operation=OPERATION,
        text=f"message {entry.id} ({entry.message.topic}) is dead after {entry.attempts} attempts:"
        f" {why}",
        attempts=entry.attempts,
        occasion=f"{entry.position}",
        data={"message": entry.id, "topic": entry.message.topic, "outbox": url},
    )
