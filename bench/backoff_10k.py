"""Table 5: ten thousand concurrent async calls that fail once, wait, and succeed.

Each figure comes from a process of its own: `python -m bench.backoff_10k NAME wall|memory COUNT`,
with the name of a failure of bench/real_errors.py behind it for what a client raises.
Memory is read when every call is asleep, and there the delay is a year: tracing slows the start
so much that short delays would be over before the last call has begun.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from bench.handwritten import handwritten
from bench.measure import Effort, answer, child, reason, spread
from bench.peers import EVERYONE, PEERS, Function, Plan
from bench.real_errors import failures
from bench.table import SPREAD_LIMIT, Goal, Row, Table, at_least, at_most

ORDER = 5
HAND = "hand-written loop"
SHORT = Plan(initial=0.3)
LONG = Plan(initial=3e7, max_delay=3e7)
HEAVY = 1.5  # a contender that takes this many times the loop is measured once
REAL = ("httpx.ConnectError from OSError", "HTTPStatusError 503", "botocore ClientError")
PATIENCE = 30.0  # seconds after which no third turn begins
TURNS = 2  # of what a client raises; as many again if they disagree

Figures = dict[str, list[float]]


def run(effort: Effort) -> Table:
    """Wall time and memory of many calls in backoff at once."""
    # req: IT-041-12
    count = 1_000 if effort.is_quick else 10_000
    wall, memory, absent = _interleaved(count, effort)
    beyond = {name: [total - SHORT.longest for total in totals] for name, totals in wall.items()}
    rows = _rows("total wall", wall, absent, at_most(1.25), "s")
    rows += _rows("memory", memory, absent, at_most(1.35), "B a call")
    rows += _rows("wall beyond the sleep", beyond, absent, None, "s")
    for error in REAL:
        rows += _real(error, count, effort)
    method = (
        f"× a hand-written asyncio loop; {count:,} calls, one failure each, then {SHORT.initial} s "
        f"± 10 % (full or equal jitter up to {SHORT.longest:.2g} s for some peers). Total wall "
        "includes the sleep and has the goal; beyond the sleep is the total less the longest "
        f"delay. Fresh processes, interleaved, minima of up to {effort.repeats}. Memory, of two "
        "processes at a time: tracemalloc, tasks included, when all are asleep."
    )
    return Table("backoff_10k", f"{count:,} concurrent async calls in backoff", method, rows)


def _interleaved(count: int, effort: Effort) -> tuple[Figures, Figures, dict[str, str]]:
    wall: Figures = {name: [] for name in (HAND, *EVERYONE)}
    absent: dict[str, str] = {}
    until = time.perf_counter() + PATIENCE
    for turn in range(effort.repeats):
        if turn > 1 and time.perf_counter() > until:
            break
        for name in (HAND, *EVERYONE):
            if name in absent or _is_settled(name, wall, effort):
                continue
            try:
                wall[name].append(_figure(name, "wall", count))
            except Exception as error:
                absent[name] = reason(error)
                wall.pop(name)
    memory: Figures = {}
    for name, parked in _parked(list(wall), "", count).items():
        if isinstance(parked, Exception):
            absent[name] = reason(parked)
            wall.pop(name)
        else:
            memory[name] = [parked]
    return wall, memory, absent


def _parked(names: list[str], error: str, count: int) -> dict[str, float | Exception]:
    """Bytes a call: of two contenders at a time, since nothing is timed; once, as it hardly varies.

    Of one that fails it is what it raised.
    """

    def parked(name: str) -> float | Exception:
        try:
            return _figure(name, "memory", count, error)
        except Exception as failure:
            return failure

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(names, pool.map(parked, names), strict=True))


def _figure(name: str, kind: str, count: int, error: str = "") -> float:
    told: float = child("bench.backoff_10k", name, kind, str(count), error)
    return told


def _real(error: str, count: int, effort: Effort) -> list[Row]:
    """The same with what a client raises, beside the loop alone."""
    goals = {"total wall": at_most(1.3), "memory": at_most(1.35)}
    wall: Figures = {"mainstay": [], HAND: []}
    try:
        memory = [_known(each) for each in _parked(list(wall), error, count).values()]
        _take_turns(wall, error, count)
        is_repeated = not effort.is_quick and (_disagreement(*wall.values()) or 0) > SPREAD_LIMIT
        if is_repeated:
            _take_turns(wall, error, count)
    except Exception as failure:
        return [Row(f"{error}, {kind}", None, goals[kind], note=reason(failure)) for kind in goals]
    mine, base = wall.values()
    noise = _disagreement(mine, base)
    figures = {"total wall": min(mine) / min(base), "memory": memory[0] / memory[1]}
    return [
        Row(
            f"{error}, {kind}: mainstay",
            figures[kind],
            goals[kind],
            spread=noise if kind == "total wall" else None,
            is_repeated=is_repeated,
        )
        for kind in goals
    ]


def _known(parked: float | Exception) -> float:
    if isinstance(parked, Exception):
        raise parked
    return parked


def _take_turns(wall: Figures, error: str, count: int) -> None:
    for _ in range(TURNS):
        for name, each in wall.items():
            each.append(_figure(name, "wall", count, error))


def _is_settled(name: str, wall: Figures, effort: Effort) -> bool:
    """Those whose first figure is not close to anything are not measured again."""
    if not wall[name]:
        return False
    return (effort.is_quick and name in PEERS) or wall[name][0] > HEAVY * min(wall[HAND])


def _rows(
    what: str, figures: Figures, absent: dict[str, str], goal: Goal | None, unit: str
) -> list[Row]:
    base = figures[HAND]
    rows = [Row(f"{what}: {HAND}", 1.0, note=f"{min(base):.3g} {unit} on this machine")]
    for name in EVERYONE:
        its_goal = goal if name == "mainstay" else None
        if name in absent:
            rows.append(Row(f"{what}: {name}", None, its_goal, note=absent[name]))
            continue
        mine = figures[name]
        rows.append(
            Row(
                f"{what}: {name}", min(mine) / min(base), its_goal, spread=_disagreement(mine, base)
            )
        )
    if goal is not None:
        rows.append(_better(what, figures))
    return rows


def _disagreement(mine: list[float], base: list[float]) -> float | None:
    """The ratio of minima once from the even and once from the odd turns: how far apart."""
    if len(mine) < 2:
        return None
    return spread([min(mine[half::2]) / min(base[half : len(mine) : 2]) for half in (0, 1)])


def _better(what: str, figures: Figures) -> Row:
    best = min((n for n in figures if n in PEERS), key=lambda n: min(figures[n]), default="")
    what = f"{what}: mainstay, times better than the best peer"
    if not best or "mainstay" not in figures:
        return Row(what, None, at_least(1), note=best)
    return Row(what, min(figures[best]) / min(figures["mainstay"]), at_least(1), note=best)


# What runs in the fresh process.


def figure(name: str, kind: str, count: str, error: str = "") -> float:
    """Seconds for `count` calls of the contender `name`, or bytes for each of them asleep."""
    adapter = handwritten if name == HAND else EVERYONE[name]
    plan = SHORT if kind == "wall" else LONG
    make: Callable[[], Exception] = plan.on
    if error:
        make, on = failures()[error]
        plan = replace(plan, on=on)
    failed: list[None] = []
    function = adapter(plan, "async")(_fails_once(make, failed))
    measured = (
        _wall(function, int(count)) if kind == "wall" else _memory(function, int(count), failed)
    )
    return asyncio.run(measured)


def _fails_once(make: Callable[[], Exception], failed: list[None]) -> Function:
    async def f(mine: list[int], b: object) -> object:
        if not mine:
            mine.append(1)
            failed.append(None)
            raise make()
        return mine

    return f


async def _wall(function: Function, count: int) -> float:
    cells: list[list[int]] = [[] for _ in range(count)]
    gc.collect()
    start = time.perf_counter()
    await asyncio.gather(*[asyncio.create_task(function(cell, None)) for cell in cells])
    return time.perf_counter() - start


async def _memory(function: Function, count: int, failed: list[None]) -> float:
    cells: list[list[int]] = [[] for _ in range(count + 1)]
    for cell in cells:  # room for what the function itself will keep, so that it does not count
        cell.append(1)
        cell.pop()
    warm = asyncio.create_task(function(cells.pop(), None))
    await _asleep(failed, 1)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    tasks = [asyncio.create_task(function(cell, None)) for cell in cells]
    await _asleep(failed, count + 1)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    assert not warm.done()
    assert not any(task.done() for task in tasks)
    return (after - before) / count


async def _asleep(failed: list[None], count: int) -> None:
    """Until `count` calls have failed, and a little longer, so that each has begun its sleep."""
    while len(failed) < count:  # noqa: ASYNC110 - an event would be measured too
        await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)


if __name__ == "__main__":
    answer(figure, *sys.argv[1:])
