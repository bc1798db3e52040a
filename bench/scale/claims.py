"""How claims of keys on one PostgreSQL grow with the number of processes that make them.

A claim is a keyed call with a new key: it begins, runs and is recorded. The floor is the same
statements by the client library alone, as in `bench.servers`. Every process does both in turns, and
all of them the same at the same time. `python -m bench.scale.claims URL N SECONDS TURNS`.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from typing import Any

from bench.measure import Lacks, answer, child
from bench.scale.curve import Curve, Series, ratio
from bench.scale.fleet import fleet, quantile
from bench.scale.sweep import Effort, Measure, sweep
from bench.servers import MARK, charges, noted, postgres_again
from bench.sqlite_records import charging
from mainstay import Engine

SIDES = ("raw", "mine")


def run(effort: Effort) -> list[Curve]:
    """One server without fsync, which is hardest on what we add; an empty database each time."""
    from tests.servers.postgres import server_programs, start_postgres

    if server_programs() is None:
        raise Lacks("no PostgreSQL server")
    sizes = effort.sizes([1, 2, 4, 8, 16, 32, 64], [1, 2, 4, 8])
    server = start_postgres(max_connections="400")
    try:
        points, left_out = sweep("claims", sizes, _at(effort, server.url), effort.seconds)
    finally:
        server.kill()
    series = [
        Series("claim"),
        Series("raw", limit=None),
        ratio("claims ÷ raw, rate"),
        Series("p99", each=False),
        ratio("p99 × raw"),
        ratio("p99 × p50"),
    ]
    method = (
        "A claim: a keyed call with a new key on PostgreSQL without fsync, in n processes at once;"
        " raw: the same statements by psycopg alone, in turns. The time of n processes with one"
        " claim each (n ÷ rate); p99 of single claims."
    )
    title = "Processes that claim keys on one PostgreSQL"
    return [Curve("claims", title, "processes", method, series, points, left_out)]


def _at(effort: Effort, url: str) -> Measure:
    seconds, turns = ("0.5", "2") if effort.is_quick else ("2", "4")

    def measure(n: int) -> dict[str, float]:
        from tests.servers.databases import postgres_place

        arguments = (postgres_place(url).url, str(n), seconds, turns)
        told = child("bench.scale.claims", *arguments, timeout=effort.seconds)
        return {
            "claim": n / told["mine_rate"],
            "raw": n / told["raw_rate"],
            "claims ÷ raw, rate": told["mine_rate"] / told["raw_rate"],
            "p99": told["mine_p99"],
            "p99 × raw": told["mine_p99"] / told["raw_p99"],
            "p99 × p50": told["mine_p99"] / told["mine_p50"],
        }

    return measure


# What runs in the fresh process, and in those that it forks.


def figures(url: str, n: str, seconds: str, turns: str) -> dict[str, float]:
    """Claims a second of all processes together, and quantiles of single ones, for both sides."""
    said = _said(url)
    found = fleet(_work, int(n), url, said, float(seconds), int(turns), within=240.0)
    told = {}
    for side in SIDES:
        rates = [sum(each[side][turn][0] for each in found) for turn in range(int(turns))]
        took = [took for each in found for _, times in each[side] for took in times]
        told[f"{side}_rate"] = statistics.median(rates)
        told[f"{side}_p99"] = quantile(took, 0.99)
        told[f"{side}_p50"] = quantile(took, 0.5)
    return told


def _said(url: str) -> list[Any]:
    """The statements of a claim, as psycopg is given them."""
    import psycopg

    from mainstay.stores.postgres.store import PostgresStore

    store = PostgresStore(url)
    try:
        charge, warm, _ = charges(store)
        warm()
        with noted(psycopg.Cursor, "execute") as said:
            charge(MARK, 500)
    finally:
        store.close()
    return [each for each in said if each[0][1] is not None]  # without the setup of a connection


def _work(
    number: int, barrier: Barrier, url: str, said: list[Any], seconds: float, turns: int
) -> dict[str, list[tuple[float, list[float]]]]:
    """The rate and the times of each turn, by side."""
    import psycopg

    engine = Engine(url, sinks=[], audit=False, share=None, purge=None)
    charge = charging(engine)
    keys = (f"p{number}-{time.time_ns()}-{each}" for each in itertools.count())
    trips = postgres_again(said)
    with engine, psycopg.connect(url, autocommit=True) as connection:

        def raw() -> None:
            generator = trips(next(keys))
            text, options = next(generator)
            while True:
                row = connection.execute(*text, **options).fetchone()
                try:
                    text, options = generator.send(row)
                except StopIteration:
                    return

        sides: dict[str, Callable[[], object]] = {
            "raw": raw,
            "mine": lambda: charge(next(keys), 500),
        }
        for side in sides.values():
            for _ in range(5):  # statements are prepared by then
                side()
        found: dict[str, list[tuple[float, list[float]]]] = {side: [] for side in SIDES}
        for turn in range(turns):
            for side in SIDES if turn % 2 else reversed(SIDES):
                barrier.wait()
                found[side].append(_turn(sides[side], seconds))
    return found


def _turn(side: Callable[[], object], seconds: float) -> tuple[float, list[float]]:
    times = []
    start = now = time.perf_counter()
    while now < start + seconds:
        side()
        before, now = now, time.perf_counter()
        times.append(now - before)
    return len(times) / (now - start), times


if __name__ == "__main__":
    answer(figures, *sys.argv[1:])
