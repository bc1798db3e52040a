"""Many sagas at once on SQLite, for the table of sagas: 32 under way, by each side's ways.

Ours: tasks that await `arun`, and threads that call `run`. Of DBOS: tasks that await an async
workflow, threads that call one, `start_workflow`, and a queue. The fastest way of each side counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.compare import duration
from bench.measure import reason, spread
from bench.table import Row
from mainstay import Engine, Saga, SagaStep

AT_ONCE = 32
MINE_COUNT, THEIR_COUNT = 256, 64
WHAT = f"SQLite: {AT_ONCE} sagas of three steps at once, times faster than as many DBOS workflows"
Way = Callable[[int], object]
"""Runs that many of them, and returns when all have ended."""


def crowd(
    place: Path, rounds: int, durability: str, its_durability: Callable[[], str]
) -> list[Row]:
    """The ratio of the fastest ways, over some rounds in which all ways take turns."""
    try:
        with (
            asyncio.Runner() as runner,
            ThreadPoolExecutor(AT_ONCE) as threads,
            _dbos(f"sqlite:///{place}/crowd.sqlite", runner, threads) as theirs,
            Engine(f"sqlite:///{place}/crowd.db", sinks=[], audit=False) as engine,
        ):
            mine = _mine(engine, runner, threads)
            turns = [
                ([_timed(way, MINE_COUNT) for way in mine.values()],
                 [_timed(way, THEIR_COUNT) for way in theirs.values()])
                for _ in range(rounds)
            ]  # fmt: skip
            note = "; ".join([
                f"a saga ({durability}): {_best(mine, [own for own, _ in turns])}",
                f"a workflow ({its_durability()}): {_best(theirs, [its for _, its in turns])}",
            ])  # fmt: skip
    except Exception as error:
        return [Row(WHAT, None, None, note=reason(error))]
    ratios = [min(its) / min(own) for own, its in turns]
    return [Row(WHAT, statistics.median(ratios), None, spread=spread(ratios), note=note)]


def _best(ways: dict[str, Way], turns: list[list[float]]) -> str:
    """The best time of each way."""
    best = [min(times) for times in zip(*turns, strict=True)]
    return ", ".join(f"{duration(each)} {way}" for way, each in zip(ways, best, strict=True))


def _timed(way: Way, count: int) -> float:
    began = time.perf_counter()
    way(count)
    return (time.perf_counter() - began) / count


def _mine(engine: Engine, runner: asyncio.Runner, threads: ThreadPoolExecutor) -> dict[str, Way]:
    async def done() -> int:
        return 1

    names, numbers = ("debit", "credit", "notify"), itertools.count()
    plain = Saga("plain", [SagaStep(name, lambda: 1, lambda: None) for name in names])
    awaited = Saga("awaited", [SagaStep(name, done, done) for name in names])

    def one(_: int) -> object:
        return engine.sagas.run(plain, {"amount": 500}, id=f"{next(numbers)}")

    async def aone() -> object:
        return await engine.sagas.arun(awaited, {"amount": 500}, id=f"{next(numbers)}")

    return {
        "in tasks": lambda count: runner.run(_in_tasks(aone, count)),
        "in threads": lambda count: list(threads.map(one, range(count))),
    }


async def _in_tasks(one: Callable[[], Awaitable[object]], count: int) -> None:
    numbers = iter(range(count))

    async def work() -> None:
        for _ in numbers:
            await one()

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


@contextlib.contextmanager
def _dbos(
    url: str, runner: asyncio.Runner, threads: ThreadPoolExecutor
) -> Iterator[dict[str, Way]]:
    """Its ways, on a database of its own; tasks of one event loop, whose executor it replaces."""
    import dbos

    dbos.DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "run_admin_server": False,
            "log_level": "ERROR",
        }
    )
    workflow, aworkflow = _workflow(dbos.DBOS), _aworkflow(dbos.DBOS)
    dbos.DBOS.launch()
    queue = dbos.DBOS.register_queue("crowd", worker_concurrency=AT_ONCE, polling_interval_sec=0.01)

    def all_of(start: Callable[..., Any], count: int) -> None:
        for handle in [start(workflow, 500) for _ in range(count)]:
            handle.get_result()

    try:
        yield {
            "in tasks": lambda count: runner.run(_in_tasks(lambda: aworkflow(500), count)),
            "in threads": lambda count: list(threads.map(workflow, [500] * count)),
            "by start_workflow": lambda count: all_of(dbos.DBOS.start_workflow, count),
            "by a queue": lambda count: all_of(queue.enqueue, count),
        }
    finally:
        dbos.DBOS.destroy(destroy_registry=True)


def _workflow(dbos: Any) -> Callable[[int], int]:
    def returned(amount: int) -> int:
        return amount

    steps = [dbos.step(name=name)(returned) for name in ("debit", "credit", "notify")]

    @dbos.workflow()
    def crowd_workflow(amount: int) -> int:
        for step in steps:
            step(amount)
        return amount

    return crowd_workflow  # type: ignore[no-any-return]


def _aworkflow(dbos: Any) -> Callable[[int], Awaitable[int]]:
    async def returned(amount: int) -> int:
        return amount

    steps = [dbos.step(name=name)(returned) for name in ("adebit", "acredit", "anotify")]

    @dbos.workflow()
    async def crowd_aworkflow(amount: int) -> int:
        for step in steps:
            await step(amount)
        return amount

    return crowd_aworkflow  # type: ignore[no-any-return]
