"""How the cost of concurrent async calls in backoff grows with their number.

Each figure comes from a process of its own: `python -m bench.scale.parked WHO N`, and memory from
`bench.backoff_10k`. A call fails once, waits and succeeds. The floor is a hand-written loop.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from typing import Any

from bench import backoff_10k
from bench.backoff_10k import HAND, SHORT
from bench.handwritten import handwritten
from bench.measure import answer, child
from bench.peers import EVERYONE
from bench.scale.curve import Curve, Series, ratio
from bench.scale.sweep import Effort, Measure, sweep

MINE = "mainstay"


def run(effort: Effort) -> list[Curve]:
    """CPU, wall, memory and timers of calls that are all asleep at once."""
    sizes = effort.sizes([100, 1_000, 10_000, 100_000], [100, 1_000, 10_000])
    points, left_out = sweep("parked", sizes, _at(effort), effort.seconds)
    series = [
        Series("CPU time"),
        Series("loop, CPU time", limit=None),
        ratio("× loop, CPU"),
        ratio("× loop, wall"),
        Series("memory", "B"),
        ratio("× loop, memory"),
        Series("timers", "", limit=None),
    ]
    method = (
        f"asyncio; each call fails once, waits {SHORT.initial} s ± 10 %, and succeeds; × a"
        f" hand-written loop in turns, the best of {effort.repeats}. The wall includes the wait."
        " Memory: tracemalloc, tasks included, when all are asleep; the timers of the loop then."
    )
    title = "Concurrent async calls in backoff"
    return [Curve("parked", title, "calls", method, series, points, left_out)]


def _at(effort: Effort) -> Measure:
    def measure(n: int) -> dict[str, float]:
        until = time.perf_counter() + effort.seconds / 6
        turns: dict[str, list[dict[str, float]]] = {HAND: [], MINE: []}
        memory = {}
        for who in turns:
            memory[who] = child("bench.backoff_10k", who, "memory", str(n), timeout=effort.seconds)
        for turn in range(effort.repeats):
            if turn and time.perf_counter() > until:
                break
            for who, found in turns.items():
                found.append(child("bench.scale.parked", who, str(n), timeout=effort.seconds))
        best = {
            (who, what): min(each[what] for each in found)
            for who, found in turns.items()
            for what in ("cpu", "wall", "timers")
        }
        return {
            "CPU time": best[MINE, "cpu"],
            "loop, CPU time": best[HAND, "cpu"],
            "× loop, CPU": best[MINE, "cpu"] / best[HAND, "cpu"],
            "× loop, wall": best[MINE, "wall"] / best[HAND, "wall"],
            "memory": memory[MINE] * n,
            "× loop, memory": memory[MINE] / memory[HAND],
            "timers": best[MINE, "timers"],
        }

    return measure


# What runs in the fresh process.


def figures(who: str, n: str) -> dict[str, float]:
    """CPU seconds, wall seconds and the timers of the loop when the last call has begun."""
    adapter = handwritten if who == HAND else EVERYONE[who]
    failed: list[None] = []
    function = adapter(SHORT, "async")(backoff_10k._fails_once(SHORT.on, failed))
    return asyncio.run(_measured(function, int(n), failed))


async def _measured(function: Any, n: int, failed: list[None]) -> dict[str, float]:
    await function([], None)  # what is made at the first failure
    failed.clear()
    cells: list[list[int]] = [[] for _ in range(n)]
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    tasks = [asyncio.create_task(function(cell, None)) for cell in cells]
    await asyncio.sleep(0)
    timers = len(asyncio.get_running_loop()._scheduled)  # type: ignore[attr-defined]
    assert len(failed) == n, "every call is in backoff"
    await asyncio.gather(*tasks)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"cpu": cpu, "wall": wall, "timers": float(timers)}


if __name__ == "__main__":
    answer(figures, *sys.argv[1:])
