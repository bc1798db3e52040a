"""The document's event bus as what a relay publishes by."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Protocol

    from mainstay.core.outbox.message import Message

    class EventBus(Protocol):
        """What the document's event bus does."""

        async def publish(self, *, topic: str, event: Any, correlation_id: UUID) -> object:
            """Publishes an event."""


def publish_to(event_bus: EventBus) -> Callable[[Message], Awaitable[None]]:
    """A function of one message that publishes it on an event bus."""

    async def publish(message: Message) -> None:
        is_json = message.content_type == "application/json"
        event = json.loads(message.payload) if is_json else message.payload
        await event_bus.publish(topic=message.topic, event=event, correlation_id=_id_of(message.id))

    return publish


def _id_of(text: str) -> Any:
    """The id of an entry; a message that others have added may have any text."""
    try:
        return UUID(text)
    except ValueError:
        return text
