"""The relay of faststream-outbox, for the table of the outbox: the same messages, the same broker.

It keeps no order, and deletes what was published; its fastest settings of those tried here count.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from os import sysconf
from pathlib import Path
from typing import Any, NamedTuple

SETTINGS = (
    {"max_workers": 5, "fetch_batch_size": 100, "terminal_flush_batch_size": 100},
    {"max_workers": 20, "fetch_batch_size": 500, "terminal_flush_batch_size": 100},
    {"max_workers": 40, "fetch_batch_size": 1000, "terminal_flush_batch_size": 100},
)
"""Those that it names for throughput; each worker has a connection of its own. The default is one
worker and one row at a time."""


class Relayed(NamedTuple):
    """What a run came to: messages a second, and CPU of both processes for a message."""

    rate: float
    cpu: float


class Meter:
    """The time and the CPU of one run: of this process and of a server's, which has children."""

    def __init__(self, pid: int, count: int) -> None:
        self._pid, self._count = pid, count
        self._cpu, self._began = self._spent(), time.perf_counter()

    def read(self) -> Relayed:
        """Once all messages are published."""
        seconds = time.perf_counter() - self._began
        return Relayed(self._count / seconds, (self._spent() - self._cpu) / self._count)

    def _spent(self) -> float:
        ended = _stat(Path(f"/proc/{self._pid}"))[13:15]  # of children that are no more, in ticks
        spent = sum(int(each) for each in ended) / sysconf("SC_CLK_TCK")
        for task in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, IndexError):  # it has ended
                if _stat(task)[1] == str(self._pid):
                    spent += int((task / "schedstat").read_text().split()[0]) / 1e9
        return time.process_time() + spent


def _stat(task: Path) -> list[str]:
    """The fields behind the name of a process."""
    return (task / "stat").read_text().rpartition(")")[2].split()


def relayed(
    url: str, pid: int, count: int, publish: Callable[[Any], Awaitable[None]]
) -> list[Relayed]:
    """What each of its settings came to."""
    return [asyncio.run(_measured(url, pid, count, publish, given)) for given in SETTINGS]


async def _measured(
    url: str, pid: int, count: int, publish: Callable[[Any], Awaitable[None]], given: dict[str, int]
) -> Relayed:
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
        meter = Meter(pid, count)
        await broker.start()
        await asyncio.wait_for(done.wait(), 120.0)
        found = meter.read()
        await broker.stop()
    finally:
        await engine.dispose()
    return found
