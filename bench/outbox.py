"""Table 23: the outbox: adding, claiming, publishing, and the time from commit to publish.

All on one PostgreSQL that keeps its commits in memory (no fsync), which is hardest on what we add.
"""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

from bench.measure import Effort, reason
from bench.table import Row, Table, at_least, at_most
from mainstay import Engine

ORDER = 23
IS_LONG = True
ADD, FLAT, LATENCY, PEER = at_most(1.3), at_most(1.3), at_most(20.0), at_least(1.5)
_RAW = (
    "CREATE TABLE raw_outbox"
    " (LIKE mainstay_outbox INCLUDING DEFAULTS INCLUDING GENERATED INCLUDING INDEXES)"
)
_INSERT = (
    "INSERT INTO raw_outbox (id, topic, payload, content_type, aggregate_type, aggregate_id,"
    " aggregate) VALUES (%s, %s, %s, %s, %s, %s, %s)"
)
_FILL = (
    "INSERT INTO mainstay_outbox (id, topic, payload, content_type, aggregate_type, aggregate_id,"
    " aggregate, phase, ended_at) SELECT 'b' || n, 't', '{{}}', 'application/json', 'U',"
    " {which}, '1:U:' || {which}, '{phase}', {ended} FROM generate_series(1, {count}) AS n"
)
BATCHES = (100, 250, 500)
"""Sizes of a claim that the relay is tried with; 100 is the default."""
SHAPES = {
    "pending": ("(n % 10000)::text", "ready", "NULL"),
    "sent and kept": ("(n % 10000)::text", "sent", "0"),
    "behind one aggregate": ("'one'", "ready", "NULL"),
}
"""The id of the aggregate, the phase, and when it ended."""


def run(effort: Effort) -> Table:
    """Everything on one server."""
    rows: list[Row] = []
    try:
        from tests.servers.postgres import start_postgres

        server = start_postgres()
    except Exception as error:
        rows = [Row("outbox", None, ADD, note=f"not available: {reason(error)}")]
    else:
        try:
            with Engine(server.url, sinks=[], audit=False, share=None) as engine:
                engine.outbox.counts()
                rows += _adding(engine, server.url)
                rows += _latency(engine, server.url)
                rows += _publishing(engine, server.url)
                rows += _against_peer(engine, server.url, server.pid)
            large = 1_000_000 if effort.seconds >= Effort().seconds else 100_000
            rows += [row for shape in SHAPES for row in _claiming(server.url, shape, large)]
        finally:
            server.kill()
    method = (
        "PostgreSQL without fsync; turns of both sides one after the other; the best of many turns."
    )
    return Table("outbox", "The outbox on PostgreSQL", method, rows)


def _adding(engine: Engine, url: str) -> list[Row]:
    """`add` against an INSERT of the same row into a table without triggers, and with commit."""
    import psycopg

    payload = {"id": 7, "name": "Ann", "mail": "ann@example.org"}
    data = b'{"id":7,"name":"Ann","mail":"ann@example.org"}'
    with psycopg.connect(url) as connection:
        connection.execute(_RAW)
        connection.commit()
        number = iter(range(10**9))

        def raw() -> None:
            which = f"u-{next(number)}"
            values = (which, "t", data, "application/json", "U", which, f"1:U:{which}")
            connection.execute(_INSERT, values)

        def mine() -> None:
            aggregate = f"u-{next(number)}"
            engine.outbox.add(
                connection, topic="t", payload=payload, aggregate_type="U", aggregate_id=aggregate
            )

        inside = _compared(raw, mine, connection.commit, commits=False)
        whole = _compared(raw, mine, connection.commit, commits=True)
    return [
        Row("add ÷ a raw INSERT, in the transaction", inside, ADD),
        Row("add + commit ÷ a raw INSERT + commit", whole, None),
    ]


def _compared(
    raw: Callable[[], None], mine: Callable[[], None], commit: Callable[[], None], *, commits: bool
) -> float:
    """The ratio of the best of many short turns, which a busy machine leaves alone."""
    times: dict[Any, list[float]] = {raw: [], mine: []}
    for turn in range(500):
        for step in (raw, mine) if turn % 2 else (mine, raw):
            began = time.perf_counter()
            for _ in range(3):
                step()
                if commits:
                    commit()
            times[step].append(time.perf_counter() - began)
            commit()
    best = {step: statistics.mean(sorted(found)[:20]) for step, found in times.items()}
    return best[mine] / best[raw]


def _latency(engine: Engine, url: str) -> list[Row]:
    """From the return of commit to the call of publish, with an idle relay."""
    import psycopg

    got: list[float] = []
    arrived = threading.Event()

    async def publish(_message: Any) -> None:
        got.append(time.perf_counter())
        arrived.set()

    engine.outbox.relay(publish).drain()
    found = []
    with engine.outbox.relay(publish), psycopg.connect(url) as connection:
        time.sleep(0.5)
        for _ in range(50):
            arrived.clear()
            engine.outbox.add(connection, topic="t", payload={})
            connection.commit()
            began = time.perf_counter()
            arrived.wait(5.0)
            found.append(got[-1] - began)
            time.sleep(0.02)
    note = f"worst {max(found) * 1000:.1f} ms"
    return [
        Row("commit → publish, idle", statistics.median(found) * 1000, LATENCY, "ms", note=note)
    ]


def _publishing(engine: Engine, url: str) -> list[Row]:
    """A relay against a loop that publishes the same messages, to a broker that takes 1 ms."""
    import psycopg

    count = 3000

    async def publish(_message: Any) -> None:
        await asyncio.sleep(0.001)

    async def loop() -> None:
        lanes = asyncio.Semaphore(100)

        async def one() -> None:
            async with lanes:
                await publish(None)

        await asyncio.gather(*(one() for _ in range(count)))

    bare, relayed = [], []
    for _ in range(3):
        with psycopg.connect(url) as connection:
            for number in range(count):
                engine.outbox.add(
                    connection, topic="t", payload={}, aggregate_id=f"a{number % 500}"
                )
        began = time.perf_counter()
        asyncio.run(loop())
        bare.append(count / (time.perf_counter() - began))
        began = time.perf_counter()
        engine.outbox.relay(publish).drain()
        relayed.append(count / (time.perf_counter() - began))
    note = f"{statistics.median(relayed):,.0f} messages/s of 500 aggregates"
    ratio = statistics.median(relayed) / statistics.median(bare)
    return [Row("relay ÷ 100 tasks that only wait 1 ms each", ratio, None, note=note)]


def _against_peer(engine: Engine, url: str, pid: int) -> list[Row]:
    """The relay, which keeps the order of 500 aggregates, against the one of faststream-outbox.

    Each side's fastest settings count. On a busy machine the side with more processes gets more of
    it, so what both spend is a row, too.
    """
    import psycopg

    count, what = 3000, "relay, times as fast as faststream-outbox"

    async def publish(_message: Any) -> None:
        await asyncio.sleep(0.001)

    def mine(batch: int) -> Relayed:
        with psycopg.connect(url) as connection:
            for number in range(count):
                engine.outbox.add(
                    connection, topic="t", payload={"n": number}, aggregate_id=f"a{number % 500}"
                )
        meter = Meter(pid, count)
        engine.outbox.relay(publish, batch=batch).drain()
        return meter.read()

    try:
        from bench.outbox_peer import Meter, Relayed, relayed

        turns = [([mine(each) for each in BATCHES], relayed(url, pid, count, publish))
                 for _ in range(3)]  # fmt: skip
    except Exception as error:
        return [Row(what, None, PEER, note=f"not available: {reason(error)}")]
    own, theirs = ([each for turn in side for each in turn] for side in zip(*turns, strict=True))
    fast, slow = max(each.rate for each in own), max(each.rate for each in theirs)
    spent, more = (min(each.cpu for each in side) for side in (own, theirs))
    return [
        Row(what, fast / slow, PEER, note=f"{fast:,.0f}/s in order, {slow:,.0f}/s without order"),
        Row(
            "CPU of faststream-outbox and its server for a message ÷ ours",
            more / spent,
            None,
            note=f"{more * 1e6:.0f} and {spent * 1e6:.0f} µs",
        ),
    ]


def _claiming(url: str, shape: str, large: int) -> list[Row]:
    """What a claim and the writing of its outcomes take before many rows against 1,000."""
    few, many = _claim_times(url, shape, 1000), _claim_times(url, shape, large)
    rows = []
    for what, one, other in zip(("claim", "outcomes"), few, many, strict=True):
        if one and other:
            note = f"{one * 1000:.2f} ms at 1,000, {other * 1000:.2f} ms at {large:,}"
            rows.append(Row(f"{what} of 100, {shape}", other / one, FLAT, note=note))
    return rows


def _claim_times(url: str, shape: str, count: int) -> tuple[float, float]:
    """The mean of the five best claims of 100 rows, and of the five best writes of outcomes."""
    import psycopg

    from mainstay.core.outbox.settle import given_back
    from mainstay.stores.outbox.open import open_outbox
    from tests.servers.databases import postgres_place

    place = postgres_place(url)
    table = open_outbox(place.url)
    which, phase, ended = SHAPES[shape]
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute("ALTER TABLE mainstay_outbox DISABLE TRIGGER USER")
        connection.execute(_FILL.format(which=which, phase=phase, ended=ended, count=count))
        if phase == "sent":
            fill = _FILL.format(which="n::text", phase="ready", ended="NULL", count=1000)
            connection.execute(fill.replace("'b' ||", "'r' ||"))
        connection.execute("ALTER TABLE mainstay_outbox ENABLE TRIGGER USER")
    if shape == "behind one aggregate":
        table.claim(1, 3000.0, "holder", is_idle=True)
    times, settling = list[float](), list[float]()
    for _ in range(25):
        began = time.perf_counter()
        batch = table.claim(100, 30.0, "t", is_idle=True)
        if batch.seen < 100:  # all of a thousand are parked by now
            break
        times.append(time.perf_counter() - began)
        if batch.entries:
            done = [given_back(each, is_behind=False) for each in batch.entries]
            began = time.perf_counter()
            table.settle(batch.entries, done)
            settling.append(time.perf_counter() - began)
    table.close()
    best = [statistics.mean(sorted(found)[:5]) if found else 0.0 for found in (times, settling)]
    return best[0], best[1]
