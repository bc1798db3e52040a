"""Table 19: the audit log behind a saturated event loop: losses, rate, and the loop's lag.

Tasks ask for 20,000 failing calls a second, then for as many as they can make. The first is judged
by what is asked for, or by the rate at which the writer works alone, with a full queue and no loop
beside it, if that is less: a machine that makes all that is asked for is not slow. The second is
shown beside what loop and writer can reach together, since both need the interpreter's lock.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path

from bench.measure import Effort
from bench.table import Row, Table, at_least, at_most
from mainstay import Backoff, Engine, RetryPolicy
from mainstay.audit import AuditLog, verify_log

ORDER = 19
IS_LONG = True
ASKED = 20_000
"""Failing calls a second that are asked for."""
TASKS = 200
POLICY = RetryPolicy(name="bench", max_attempts=3, backoff=Backoff.constant(0.0))
FILL = 4_000
"""Calls of which the queue is full when the writer alone is measured."""


def run(effort: Effort) -> Table:
    """Each place of the log that needs no server."""
    seconds, rounds = (1.5, 1) if effort.is_quick else (6.0, 3)
    rows: list[Row] = []
    with _folder() as place:
        for name, where in _places(place).items():
            rows += _rows(name, where, seconds, rounds)
    method = (
        f"{TASKS:,} asyncio tasks ask for {ASKED:,} calls a second for {seconds:g} s, then for as"
        f" many as they can make; a call makes three attempts, all fail, six events. Lag: how late"
        f" a sleep of 5 ms ends, in the first. The median of {rounds} rounds, the writer alone and"
        f" behind the loop in turns."
    )
    return Table("audit_load", "The audit log behind a saturated loop", method, rows)


def _places(place: Path) -> dict[str, Callable[[], str]]:
    return {
        "SQLite": lambda: f"sqlite:///{_new(place)}/audit.db",
        "a file": lambda: str(_new(place) / "audit.jsonl"),
    }


def _rows(name: str, where: Callable[[], str], seconds: float, rounds: int) -> list[Row]:
    found = [
        (
            _alone(where()),
            _unwritten(where()),
            _behind(where(), seconds, ASKED),
            _behind(where(), seconds, inf),
        )
        for _ in range(rounds)
    ]
    alone, unwritten = (statistics.median(each[n] for each in found) for n in (0, 1))
    paced, unpaced = ([each[n] for each in found] for n in (2, 3))
    rate, most = (statistics.median(load.rate for load in loads) for loads in (paced, unpaced))
    lag = statistics.median(load.lag for load in paced) * 1000
    one_lock = 1 / (1 / alone + 1 / unwritten)
    unit = min(ASKED, alone)
    note = f"{rate:,.0f} calls/s; {ASKED:,} asked for, {alone:,.0f} alone; {_waits(paced)}"
    shared = f"{one_lock:,.0f} calls/s, {one_lock / alone:.2f} × the writer alone"
    is_too_much = one_lock < ASKED
    return [
        Row(f"{name}: records lost", _lost(paced + unpaced), at_most(0), unit=""),
        Row(
            f"{name}: calls, × what is asked for or written", rate / unit, at_least(0.8), note=note
        ),
        Row(
            f"{name}: calls, × what one lock allows",
            rate / one_lock if is_too_much else None,
            note=shared if is_too_much else f"{shared}: more than is asked for",
        ),
        Row(
            f"{name}: as many as can be made, × what one lock allows",
            most / one_lock,
            note=f"{most:,.0f} calls/s; {_waits(unpaced)}",
        ),
        Row(f"{name}: the loop's lag, p99", lag, at_most(20), unit="ms"),
    ]


def _waits(loads: list[Load]) -> str:
    return f"{loads[-1].held:,} waits"


def _lost(loads: list[Load]) -> float:
    return float(sum(load.lost for load in loads))


def _alone(where: str) -> float:
    """Calls a second that the writer brings to the log, while no other thread works."""
    log = AuditLog(where, spill=False)
    engine = Engine(policies=[POLICY], sinks=[log])
    call = engine.operation("bench").call
    assert log.flush(60)
    spent = 0.0
    for _ in range(3):
        with log._buffer._delivering:  # the writer waits until the queue is full
            for _ in range(FILL):
                _expect_failure(call)
            start = time.perf_counter()
        assert log.flush(60)
        spent += time.perf_counter() - start
    assert log.stats()["lost"] == 0
    engine.close()
    return 3 * FILL / spent


def _unwritten(where: str) -> float:
    """Calls a second that the loop makes with a log that takes them and writes none meanwhile.

    Loop and writer share the interpreter's lock: together they reach one call in the time that each
    of them needs for it.
    """
    log = AuditLog(where, spill=False)
    engine = Engine(policies=[POLICY], sinks=[log])
    fetch = engine.protect("bench")(_afail)
    assert log.flush(60)
    with log._buffer._delivering:
        start = time.perf_counter()
        asyncio.run(_calls(fetch))
        spent = time.perf_counter() - start
    assert log.flush(60)
    assert log.stats()["lost"] == 0
    engine.close()
    return FILL / spent


async def _calls(fetch: Callable[[], Awaitable[object]]) -> None:
    async def some() -> None:
        for _ in range(FILL // TASKS):
            try:
                await fetch()
            except ConnectionError:
                continue

    await asyncio.gather(*(some() for _ in range(TASKS)))


def _expect_failure(call: Callable[..., object]) -> None:
    try:
        call(_fail)
    except ConnectionError:
        return
    raise AssertionError("the call has succeeded")


def _fail() -> None:
    raise ConnectionError("connection refused")


class Load:
    """What came of a saturated loop."""

    def __init__(self, rate: float, lag: float, lost: int, held: int) -> None:
        self.rate, self.lag, self.lost, self.held = rate, lag, lost, held


def _behind(where: str, seconds: float, asked: float) -> Load:
    log = AuditLog(where, spill=False)
    engine = Engine(policies=[POLICY], sinks=[log])
    start = time.perf_counter()
    made, lags = asyncio.run(_saturated(engine, seconds, asked))
    assert log.flush(60)
    spent = time.perf_counter() - start
    stats = log.stats()
    engine.close()
    verdict = verify_log(where)
    assert verdict.ok, verdict.problem
    assert verdict.records == 6 * made + 1, "each call is there, and the plan"
    lag = sorted(lags)[int(len(lags) * 0.99)]
    return Load(made / spent, lag, max(verdict.lost, log.stats()["lost"]), stats["held"])


async def _saturated(engine: Engine, seconds: float, rate: float) -> tuple[int, list[float]]:
    """How many calls were made of those that were asked for a second, and the loop's lags."""
    fetch = engine.protect("bench")(_afail)
    start, made, lags = time.perf_counter(), 0, list[float]()
    end, is_over = start + seconds, False

    async def calls(task: int) -> None:
        nonlocal made
        asked = 0
        while (now := time.perf_counter()) < end:
            due = start + (asked * TASKS + task) / rate
            if due > now:
                await asyncio.sleep(due - now)
            asked += 1
            try:
                await fetch()
            except ConnectionError:
                made += 1

    async def lag() -> None:
        while not is_over:
            slept = time.perf_counter()
            await asyncio.sleep(0.005)
            lags.append(time.perf_counter() - slept - 0.005)

    watch = asyncio.create_task(lag())
    await asyncio.gather(*(calls(task) for task in range(TASKS)))
    is_over = True
    await watch
    return made, lags


async def _afail() -> None:
    raise ConnectionError("connection refused")


@contextmanager
def _folder() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="bench-audit-load-"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _new(place: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=place))
