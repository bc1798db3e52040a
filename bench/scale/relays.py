"""How the outbox on one PostgreSQL grows with its relays, and whether it keeps the order.

n relays, each in a process of its own, publish n times as many messages of as many aggregates to a
broker that takes a millisecond. When a message was published is written down in each process by the
clock that they share; afterwards no message of an aggregate may have begun before the one before it
had ended. `python -m bench.scale.relays URL N MESSAGES`.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from multiprocessing.synchronize import Barrier
from typing import Any

from bench.measure import Lacks, answer, child
from bench.scale.curve import Curve, Series, count, ratio
from bench.scale.fleet import fleet
from bench.scale.sweep import Effort, Measure, sweep
from mainstay import Engine

TAKES = 0.001
"""Seconds that the broker takes for a message."""
AGGREGATES = 200
"""Aggregates for each relay."""

Published = tuple[int, int, float, float]
"""The number of an aggregate, the number of a message in it, when it began and when it ended."""


def run(effort: Effort) -> list[Curve]:
    """One server without fsync."""
    from tests.servers.postgres import server_programs, start_postgres

    if server_programs() is None:
        raise Lacks("no PostgreSQL server")
    messages = 1_000 if effort.is_quick else 4_000
    sizes = effort.sizes([1, 2, 4, 8, 16], [1, 2, 4])
    server = start_postgres(max_connections="400")
    try:
        measure = _at(effort, server.url, messages)
        points, left_out = sweep("relays", sizes, measure, effort.seconds)
    finally:
        server.kill()
    one = points[0].figures["message"]
    for point in points:
        point.figures["rate × one relay"] = one * point.n / point.figures["message"]
    series = [
        Series("message"),
        ratio("rate × one relay"),
        ratio("busiest relay × its share"),
        count("out of order"),
        count("published twice"),
    ]
    method = (
        f"{messages:,} messages of {AGGREGATES} aggregates for each relay, to a broker that takes"
        f" {TAKES * 1000:g} ms; from the first that begins to the last that ends. A process for"
        " each relay; PostgreSQL without fsync."
    )
    title = "Relays on one outbox"
    return [Curve("relays", title, "relays", method, series, points, left_out)]


def _at(effort: Effort, url: str, messages: int) -> Measure:
    def measure(n: int) -> dict[str, float]:
        from tests.servers.databases import postgres_place

        arguments = (postgres_place(url).url, str(n), str(messages))
        told: dict[str, float] = child("bench.scale.relays", *arguments, timeout=effort.seconds)
        if told["lost"]:
            raise AssertionError(f"{told['lost']:.0f} messages were not published")
        return {
            "message": told["seconds"] / messages,
            "busiest relay × its share": told["busiest"],
            "out of order": told["disordered"],
            "published twice": told["twice"],
        }

    return measure


# What runs in the fresh process, and in those that it forks.


def figures(url: str, n: str, messages: str) -> dict[str, float]:
    """Seconds until all are published, and what became of the order."""
    relays, each = int(n), int(messages)
    _fill(url, relays * each, relays * AGGREGATES)
    done = multiprocessing.RawArray("q", relays)
    parts = fleet(_work, relays, url, done, relays * each, within=240.0)
    log = [entry for part in parts for entry in part]
    ids = {entry[:2] for entry in log}
    begins, ends = min(entry[2] for entry in log), max(entry[3] for entry in log)
    return {
        "seconds": ends - begins,
        "busiest": max(map(len, parts)) * relays / len(log),
        "disordered": float(disordered(log)),
        "twice": float(len(log) - len(ids)),
        "lost": float(relays * each - len(ids)),
    }


def disordered(log: Iterable[Published]) -> int:
    """How many messages began before an earlier one of their aggregate had ended.

    >>> disordered([(1, 0, 0.0, 0.1), (1, 1, 0.2, 0.3), (2, 1, 0.0, 0.1), (2, 0, 0.05, 0.2)])
    1
    """
    lanes: dict[int, list[Published]] = defaultdict(list)
    for entry in log:
        lanes[entry[0]].append(entry)
    wrong = 0
    for lane in lanes.values():
        lane.sort(key=lambda entry: entry[1])
        ended = float("-inf")
        for _, _, began, end in lane:
            wrong += began < ended
            ended = max(ended, end)
    return wrong


def _fill(url: str, messages: int, aggregates: int) -> None:
    import psycopg

    with Engine(url, sinks=[], audit=False, share=None, purge=None) as engine:
        with psycopg.connect(url) as connection:
            for number in range(messages):
                lane, place = number % aggregates, number // aggregates
                engine.outbox.add(
                    connection, topic="t", payload=[lane, place], aggregate_id=f"a{lane}"
                )
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ANALYZE mainstay_outbox")


def _work(number: int, barrier: Barrier, url: str, done: Any, messages: int) -> list[Published]:
    """Publishes until all messages are published by whichever relay."""
    log: list[Published] = []

    async def publish(message: Any) -> None:
        began = time.monotonic()
        await asyncio.sleep(TAKES)
        lane, place = map(int, message.payload.decode().strip("[]").split(","))
        log.append((lane, place, began, time.monotonic()))
        done[number] = len(log)

    with Engine(url, sinks=[], audit=False, share=None, purge=None) as engine:
        relay = engine.outbox.relay(publish)
        barrier.wait()
        with relay:
            until = time.monotonic() + 200.0
            while sum(done) < messages and time.monotonic() < until:
                time.sleep(0.02)
    return log


if __name__ == "__main__":
    answer(figures, *sys.argv[1:])
