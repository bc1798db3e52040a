"""Table 14: 64 async callers on SQLite, whose steps share their commits.

A keyed call has two steps that are acknowledged: the claim and the completion. The raw sides are
the standard library's sqlite3: a commit of one claim, and a commit of 64 claims, at FULL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from bench.compare import duration
from bench.measure import METHOD, Absent, Contender, Effort, Results, Timing, race_async
from bench.sqlite_records import (
    INSERT,
    SELECT,
    SPACE,
    WARM,
    address,
    claimed_and_completed,
    engine_in,
    folder,
    fsync_time,
    new_keys,
    raw_claim,
    raw_file,
)
from bench.table import Row, Table, at_most

ORDER = 14
CALLERS = 64
MINE, COMMIT, BATCH = "mainstay", "a commit by hand", "a commit of 64 by hand"
OF_A_COMMIT = at_most(0.15)


def run(effort: Effort) -> Table:
    """The cost of an acknowledgement, relative to a commit and to a row of a shared commit."""
    with folder() as place:
        results = race_async(
            [
                Contender(COMMIT, lambda: (_commit(place),), _one_by_one),
                Contender(BATCH, lambda: (_batch(place),), _one_by_one),
                Contender(MINE, lambda: _callers(place), _together),
            ],
            effort,
        )
        note = f"An fsync of 4 KB takes {duration(fsync_time(place))} here."
    method = (
        f"{METHOD} {CALLERS} tasks, each with one call after the other, all with new keys; "
        f"synchronous=FULL, write-ahead log, a real file. {note}"
    )
    return Table("sqlite_async", "Async callers on SQLite", method, _rows(results))


def _rows(results: Results) -> list[Row]:
    names = (COMMIT, BATCH, MINE)
    missing = [r.reason for r in map(results.get, names) if isinstance(r, Absent)]
    if missing:
        return [Row("an acknowledgement", None, OF_A_COMMIT, note=missing[0])]
    commit, batch, mine = (_timing(results, name) for name in names)
    share = batch.over(commit) / CALLERS
    return [
        Row(COMMIT, 1.0, note=f"{duration(commit.best)} on this machine"),
        Row("a row of a commit of 64 by hand", share, spread=batch.spread_over(commit)),
        Row("an acknowledgement, of a commit", mine.over(commit) / CALLERS, OF_A_COMMIT,
            spread=mine.spread_over(commit)),
        Row("an acknowledgement, of a row of a commit of 64", mine.over(batch),
            spread=mine.spread_over(batch)),
    ]  # fmt: skip


def _timing(results: Results, name: str) -> Timing:
    found = results[name]
    assert isinstance(found, Timing)
    return found


# Each turn of these loops is ten times 64 acknowledgements, ten commits, or ten commits of 64.


async def _one_by_one(n: int, write: Callable[[], object]) -> None:
    for _ in range(n * 10):
        write()


async def _together(
    n: int, charge: Callable[[str, int], Awaitable[int]], keys: Iterator[str]
) -> None:
    async def caller() -> None:
        for _ in range(n * 5):
            await charge(next(keys), 500)

    await asyncio.gather(*(caller() for _ in range(CALLERS)))


def _callers(place: Path) -> tuple[Any, ...]:
    engine = engine_in(place)

    @engine.idempotent(key=lambda order, amount: order, operation="charge")
    async def charge(order, amount):
        return amount

    return charge, new_keys()


def _commit(place: Path) -> Callable[[], object]:
    connection, keys = raw_file(place), new_keys()
    claim, _, _ = claimed_and_completed()
    for _ in range(WARM * 2):
        raw_claim(connection, address(next(keys)), claim)
    return lambda: raw_claim(connection, address(next(keys)), claim)


def _batch(place: Path) -> Callable[[], object]:
    connection, keys = raw_file(place), new_keys()
    claim, _, _ = claimed_and_completed()
    execute = connection.execute

    def write() -> None:
        execute("BEGIN IMMEDIATE")
        for _ in range(CALLERS):
            key = address(next(keys))
            execute(SELECT, (SPACE, key)).fetchone()
            execute(INSERT, (SPACE, key, claim, None))
        execute("COMMIT")

    return write
