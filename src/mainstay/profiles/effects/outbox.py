"""The document's worker: publishes the outbox of an engine through an event bus, until it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstay.drivers.effects.event_bus import publish_to

if TYPE_CHECKING:
    from mainstay.drivers.effects.event_bus import EventBus
    from mainstay.drivers.outbox.reports import RelayCounts
    from mainstay.engine.engine import Engine


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
    return await engine.outbox.relay(publish_to(event_bus), **options).arun()
