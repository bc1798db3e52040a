"""Table 32: publishers against the client library alone, and a relay against a bare loop.

The same messages to the same server: a hundred at once, or one after the other. Sides take turns,
batch by batch; a figure is the median of the ratios of the parts of a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import statistics
import time
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.measure import Effort, reason, spread
from bench.sqlite_records import folder
from bench.table import Row, Table, at_least
from mainstay import Engine
from mainstay.publishers import Message, open_publisher

ORDER = 32
IS_LONG = True
AT_ONCE = 100
RELAY = at_least(0.5)
METHOD = "Throughput, mainstay ÷ the other side, interleaved; every message is acknowledged."


def run(effort: Effort) -> Table:
    """NATS and Valkey, each on loopback."""
    rows = []
    count = 500 if effort.is_quick else 2000
    with folder() as place:
        for name, measured in {"NATS": _nats, "Valkey": _valkey}.items():
            home = place / name
            home.mkdir()
            try:
                rows += measured(home, count, effort.parts)
            except Exception as error:
                rows.append(Row(name, None, note=reason(error)))
    return Table("publishers", "Publishers", f"{METHOD} Batches of {count}.", rows)


Side = Callable[[list[Message]], Awaitable[object]]
Publish = Callable[[Message], Awaitable[object]]


def _messages(topic: str, count: int) -> list[Message]:
    return [
        Message(id=str(uuid.uuid4()), topic=topic, payload=b'{"amount": 5}', aggregate_id=str(n))
        for n in range(count)
    ]


async def _one_by_one(publish: Publish, batch: list[Message]) -> None:
    for message in batch:
        await publish(message)


async def _at_once(publish: Publish, batch: list[Message]) -> None:
    waiting = iter(batch)

    async def work() -> None:
        for message in waiting:
            await publish(message)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


async def _compared(
    mine: Side,
    other: Side,
    count: int,
    parts: int,
    prepare: Callable[[list[Message]], object] | None = None,
) -> list[float]:
    """How many times the other side's throughput ours is, for each part."""
    ratios = []
    for part in range(parts + 1):
        seconds: dict[str, float] = {}
        sides = {"mine": mine, "other": other}
        for name in sorted(sides, reverse=bool(part % 2)):
            batch = _messages("bench", count)
            if name == "mine" and prepare is not None:
                await asyncio.to_thread(prepare, batch)
            began = time.perf_counter()
            await sides[name](batch)
            seconds[name] = time.perf_counter() - began
        ratios.append(seconds["other"] / seconds["mine"])
    return ratios[1:]  # the first one connects


def _row(what: str, ratios: list[float], goal: Any = None) -> Row:
    return Row(what, statistics.median(ratios), goal, spread=spread(ratios))


def _nats(home: Path, count: int, parts: int) -> list[Row]:
    import nats

    from tests.servers.nats import start_nats

    server = start_nats(home)
    try:

        async def main() -> list[Row]:
            client = await nats.connect(server.url)
            stream = client.jetstream()
            await stream.add_stream(name="B", subjects=["bench"])
            publisher = open_publisher(server.url)

            async def bare(message: Message) -> object:
                return await stream.publish(
                    "bench", message.payload, headers={"Nats-Msg-Id": message.id}
                )

            rows = await _rows("NATS", "nats-py", publisher.publish, bare, count, parts)
            rows += await _relay_rows(home, server.url, bare, count, parts)
            await publisher.close()
            await client.close()
            return rows

        return asyncio.run(main())
    finally:
        server.kill()


async def _rows(
    broker: str,
    library: str,
    mine: Publish,
    bare: Publish,
    count: int,
    parts: int,
) -> list[Row]:
    rows = []
    for way, name in ((_one_by_one, "one by one"), (_at_once, f"{AT_ONCE} at once")):
        ratios = await _compared(
            lambda batch, way=way: way(mine, batch), lambda batch, way=way: way(bare, batch),
            count, parts,
        )  # fmt: skip
        rows.append(_row(f"{broker}, {name} ÷ {library} alone", ratios))
    return rows


async def _relay_rows(home: Path, url: str, bare: Publish, count: int, parts: int) -> list[Row]:
    """From a file, and from a server without fsync."""
    from tests.servers.postgres import start_postgres

    path = home / "outbox.db"
    of_a_file = partial(sqlite3.connect, path)
    rows = await _relayed("SQLite", f"sqlite:///{path}", of_a_file, url, bare, count, parts)
    try:
        import psycopg

        server = start_postgres()
    except Exception as error:
        return [*rows, Row("relay from PostgreSQL to NATS", None, RELAY, note=reason(error))]
    try:
        of_a_server = partial(psycopg.connect, server.url)
        rows += await _relayed("PostgreSQL", server.url, of_a_server, url, bare, count, parts)
    finally:
        server.kill()
    return rows


async def _relayed(
    database: str,
    store: str,
    connect: Callable[[], Any],
    url: str,
    bare: Publish,
    count: int,
    parts: int,
) -> list[Row]:
    """A relay drains what was added before, which is not measured."""
    rows = []
    with Engine(store, sinks=[], audit=False, share=None) as engine:
        engine.outbox.counts()

        def add(batch: list[Message]) -> None:
            with contextlib.closing(connect()) as connection, connection:
                for message in batch:
                    engine.outbox.add(
                        connection, topic="bench", payload=message.payload, id=message.id,
                        aggregate_id=message.aggregate_id,
                    )  # fmt: skip

        async def drain(_batch: list[Message]) -> None:
            await engine.outbox.relay(open_publisher(url)).adrain()

        for way, name in ((_one_by_one, "a bare loop"), (_at_once, f"{AT_ONCE} at once, bare")):
            ratios = await _compared(
                drain, lambda batch, way=way: way(bare, batch), count, parts, prepare=add
            )
            goal = RELAY if way is _one_by_one else None
            rows.append(_row(f"relay from {database} to NATS ÷ {name}", ratios, goal))
    return rows


def _valkey(home: Path, count: int, parts: int) -> list[Row]:
    from redis.asyncio import BlockingConnectionPool, Redis

    from tests.servers.valkey import start_valkey

    server = start_valkey(home)
    try:

        async def main() -> list[Row]:
            pool = BlockingConnectionPool.from_url(server.url, max_connections=16)
            client = Redis(connection_pool=pool)
            publisher = open_publisher(server.url)

            async def bare(message: Message) -> object:
                return await client.xadd("bench", {"id": message.id, "data": message.payload})

            rows = await _rows("Valkey", "redis-py", publisher.publish, bare, count, parts)
            await publisher.close()
            await client.aclose()
            await pool.aclose()
            return rows

        return asyncio.run(main())
    finally:
        server.kill()
