"""The relay of faststream-outbox, for the table of the outbox: the same messages, the same broker.

It keeps no order, and deletes what was published; its fastest settings of those tried here count.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

SETTINGS = (
    {"max_workers": 5, "fetch_batch_size": 100, "terminal_flush_batch_size": 100},
    {"max_workers": 20, "fetch_batch_size": 500, "terminal_flush_batch_size": 100},
    {"max_workers": 40, "fetch_batch_size": 1000, "terminal_flush_batch_size": 100},
)
"""Those that it names for throughput; each worker has a connection of its own. The default is one
worker and one row at a time."""


def messages_a_second(url: str, count: int, publish: Callable[[Any], Awaitable[None]]) -> float:
    """The best of its settings, in messages a second."""
    return max(asyncio.run(_measured(url, count, publish, given)) for given in SETTINGS)


async def _measured(
    url: str, count: int, publish: Callable[[Any], Awaitable[None]], given: dict[str, int]
) -> float:
    from faststream_outbox import OutboxBroker, make_outbox_table
    from sqlalchemy import MetaData
    from sqlalchemy.ext.asyncio import create_async_engine

    metadata = MetaData()
    table = make_outbox_table(metadata, table_name="peer_outbox")
    address = url.replace("postgresql://", "postgresql+asyncpg://")
    engine = create_async_engine(address, pool_size=given["max_workers"] + 2)
    broker = OutboxBroker(engine, outbox_table=table, logger=None)
    done, left = asyncio.Event(), count

    @broker.subscriber("t", min_fetch_interval=0.001, max_fetch_interval=0.05, **given)
    async def relay(body: dict[str, Any]) -> None:
        nonlocal left
        await publish(body)
        left -= 1
        if not left:
            done.set()

    try:
        async with engine.begin() as connection:
            await connection.run_sync(metadata.drop_all)
            await connection.run_sync(metadata.create_all)
            for start in range(0, count, 500):
                several = [{"n": number} for number in range(start, min(start + 500, count))]
                await broker.publish_batch(*several, queue="t", session=connection)
        began = time.perf_counter()
        await broker.start()
        await asyncio.wait_for(done.wait(), 120.0)
        seconds = time.perf_counter() - began
        await broker.stop()
    finally:
        await engine.dispose()
    return count / seconds
