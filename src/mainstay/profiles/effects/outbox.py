"""The document's worker: publishes the outbox of an engine through an event bus, until it ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from typing import Protocol

    from mainstay.core.outbox.message import Message
    from mainstay.drivers.outbox.reports import RelayCounts
    from mainstay.engine.engine import Engine

    class EventBus(Protocol):
        """What the document's event bus does."""

        async def publish(self, *, topic: str, event: Any, correlation_id: UUID) -> object:
            """Publishes an event."""


async def outbox_publisher_worker(
    engine: Engine, event_bus: EventBus, **options: Any
) -> RelayCounts:
    """Publishes what `OutboxEntry.add` has added, until the task is cancelled.

    100 entries a batch, each second, in the order of their aggregate; after 3 retries an entry is
    dead, and an inbox item asks a person.

    Args:
        engine: whose outbox it is.
        event_bus: has `async publish(topic=, event=, correlation_id=)`; the event is the payload
            as JSON has it, the correlation id that of the entry.
        options: those of `engine.outbox.relay`: `batch`, `poll`, `policy`, `lease`, `after_dead`.

    >>> import asyncio, tempfile
    >>> from mainstay import Engine
    >>> async def main():
    ...     with Engine(f"sqlite:///{tempfile.mkdtemp()}/app.db") as engine:
    ...         worker = asyncio.create_task(outbox_publisher_worker(engine, None))
    ...         await asyncio.sleep(0)
    ...         worker.cancel()
    >>> asyncio.run(main())
    """

    async def publish(message: Message) -> None:
        is_json = message.content_type == "application/json"
        event = json.loads(message.payload) if is_json else message.payload
        await event_bus.publish(topic=message.topic, event=event, correlation_id=_id_of(message.id))

    return await engine.outbox.relay(publish, **options).arun()


def _id_of(text: str) -> Any:
    """The id of an entry; a message that others have added may have any text."""
    try:
        return UUID(text)
    except ValueError:
        return text
