"""The harness: contenders run in turns, in one process, and are compared by their minima.

Rules of the room:

- Every contender gets its own copy of the timing loop, because CPython specialises bytecode
  per code object: contenders that share a loop would spoil each other's call sites. For each
  part of a run everything is built anew, so that luck with memory layout averages out.
- The loop is unrolled by ten and its overhead is not subtracted. The bare call pays it too, so
  ratios come out lower than with subtraction: by 2–4 % (by 22 % if it were not unrolled).
- Batches are short (under a millisecond), so that many fit between two disturbances, and of
  equal duration, so that what a batch costs besides the calls is the same share for everyone.
- Contenders take turns, batch by batch, in an order that rotates; a slow second hits them all.
- A run has nine parts (five when quick). Each part gives a ratio of minima over its hundreds
  of batches; the figure is the median of these, so that a disturbed part does not count, and
  the spread is the range of their middle half over that median. Above 10 % the machine was too
  busy to tell: a contender with a goal then has a second race, with the base and those that were
  as noisy, and the steadier of both figures stands. Between two runs at a load of four on two
  cores, 51 of 56 figures of peers in the in-process tables moved by less than 10 %, none by more
  than 15 %.
- Async contenders are awaited by a coroutine inside one running asyncio loop. Each batch ends
  with one turn of that loop, so that work left to it (cancelled timers) is paid for.
- The garbage collector is off inside a batch and runs between batches, unmeasured.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import statistics
import subprocess
import sys
import time
import types
from collections.abc import Callable, Container, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.table import SPREAD_LIMIT

METHOD = "Minima of interleaved batches; loop unrolled by ten, loop overhead not subtracted."

_turn_of_the_loop = asyncio.sleep  # kept: the failure table stubs asyncio.sleep


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure: `seconds` for a race, `repeats` for each fresh process."""

    seconds: float = 5.0
    repeats: int = 4
    parts: int = 9
    batch: float = 0.0004
    is_quick: bool = False

    def scaled(self, factor: float) -> Effort:
        """The same effort with another duration, for tables that hold several races."""
        return replace(self, seconds=self.seconds * factor)


QUICK = Effort(seconds=0.8, repeats=2, parts=5, batch=0.0003, is_quick=True)


@dataclass(frozen=True, slots=True)
class Contender:
    """Something to time: `prepare` gives the arguments of `loop`, which calls it n × 10 times."""

    name: str
    prepare: Callable[[], tuple[Any, ...]]
    loop: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per call: the minimum of each part of the run."""

    parts: tuple[float, ...]
    is_repeated: bool = False
    """Whether it is the steadier of two races."""

    @property
    def best(self) -> float:
        """The minimum over the whole run."""
        return min(self.parts)

    def over(self, base: Timing) -> float:
        """How many times `base` this takes."""
        return statistics.median(self._ratios(base))

    def spread_over(self, base: Timing) -> float:
        """How far the parts of the run disagree on that."""
        return spread(self._ratios(base))

    def _ratios(self, base: Timing) -> list[float]:
        return [mine / its for mine, its in zip(self.parts, base.parts, strict=True)]


@dataclass(frozen=True, slots=True)
class Absent:
    """A contender that could not run, and why."""

    reason: str


Results = dict[str, Timing | Absent]


class Lacks(Exception):
    """Raised by an adapter whose library does not have what the table asks for."""


def race(contenders: Iterable[Contender], effort: Effort, judged: Container[str] = ()) -> Results:
    """Time synchronous contenders in turns; the first is the base of those that are judged."""
    results = Results()
    schedule = _races(list(contenders), effort, results, judged)
    with _collector_off(), contextlib.suppress(StopIteration):
        lane = next(schedule)
        while True:
            start = time.perf_counter()
            try:
                lane.loop(lane.count, *lane.arguments)
            except Exception as error:
                lane = schedule.throw(error)
            else:
                lane = schedule.send(time.perf_counter() - start)
    return results


def race_async(
    contenders: Iterable[Contender], effort: Effort, judged: Container[str] = ()
) -> Results:
    """Time asynchronous contenders in turns, inside one running asyncio loop."""
    return asyncio.run(race_awaited(contenders, effort, judged))


async def race_awaited(
    contenders: Iterable[Contender], effort: Effort, judged: Container[str] = ()
) -> Results:
    """The same in a loop that runs already."""
    results = Results()
    schedule = _races(list(contenders), effort, results, judged)
    with _collector_off(), contextlib.suppress(StopIteration):
        lane = next(schedule)
        while True:
            start = time.perf_counter()
            try:
                await lane.loop(lane.count, *lane.arguments)
                await _turn_of_the_loop(0)
            except Exception as error:
                lane = schedule.throw(error)
            else:
                lane = schedule.send(time.perf_counter() - start)
    return results


def _races(
    contenders: list[Contender], effort: Effort, results: Results, judged: Container[str]
) -> Generator[Lane, float, None]:
    """A race of all; then one of the base and those that are judged and were noisy.

    The second takes the share of the time that they had in the first.
    """
    yield from _turns(contenders, effort, results)
    base = contenders[0].name
    noisy = [
        name for name in results if name in judged and _spread(results, name, base) > SPREAD_LIMIT
    ]
    if not noisy or effort.is_quick:
        return
    chosen = [each for each in contenders if each.name in (base, *noisy)]
    again = Results()
    yield from _turns(chosen, effort.scaled(len(chosen) / len(contenders)), again)
    for name in noisy:
        is_better = _spread(again, name, base) < _spread(results, name, base)
        results[name] = _in_first(results, again, name, base, is_better=is_better)


def _spread(results: Results, name: str, base: str) -> float:
    """How noisy the ratio of a contender to the base is; that of one who is absent is not."""
    mine, unit = results[name], results[base]
    if isinstance(mine, Absent) or isinstance(unit, Absent):
        return 0.0
    return mine.spread_over(unit)


def _in_first(first: Results, again: Results, name: str, base: str, *, is_better: bool) -> Timing:
    """The steadier timing of two races, that of the second in seconds of the first.

    So its ratio to the base is that of its own race, and others can be compared with it.
    """
    old, unit, new, its_unit = first[name], first[base], again[name], again[base]
    assert isinstance(old, Timing)
    if not (is_better and isinstance(new, Timing)):
        return replace(old, is_repeated=True)
    assert isinstance(unit, Timing)
    assert isinstance(its_unit, Timing)
    parts = zip(unit.parts, new.parts, its_unit.parts, strict=True)
    return Timing(tuple(base * mine / its for base, mine, its in parts), is_repeated=True)


def _turns(
    contenders: list[Contender], effort: Effort, results: Results
) -> Generator[Lane, float, None]:
    """Yield whose turn it is and be sent how long it took: one schedule for both colours."""
    for _ in range(effort.parts):
        until = time.perf_counter() + effort.seconds / effort.parts
        gc.collect()
        lanes = []
        for contender in contenders:
            if isinstance(results.get(contender.name), Absent):
                continue
            try:
                lane = Lane(contender.name, own_copy(contender.loop), contender.prepare())
                yield lane  # once, to see that it works
            except Exception as error:
                results[contender.name] = Absent(reason(error))
            else:
                lanes.append(lane)
        for _ in range(4):
            for lane in lanes:
                elapsed = yield lane
                lane.fit(elapsed, effort.batch)
        yield from _part(lanes, until)
        for lane in lanes:
            before = results.get(lane.name, Timing(()))
            assert isinstance(before, Timing)
            results[lane.name] = Timing((*before.parts, lane.best))


def _part(lanes: list[Lane], until: float) -> Generator[Lane, float, None]:
    turn = 0
    while lanes and (turn < 3 or time.perf_counter() < until):
        first = turn % len(lanes)
        for lane in lanes[first:] + lanes[:first]:
            elapsed = yield lane
            lane.record(elapsed)
        turn += 1
        if turn % 40 == 0:
            gc.collect()


@dataclass(slots=True)
class Lane:
    """A contender in one part of a race: its own copy of the loop, its batch size, its minimum."""

    name: str
    loop: Callable[..., Any]
    arguments: tuple[Any, ...]
    count: int = 1
    best: float = float("inf")

    def fit(self, elapsed: float, batch: float) -> None:
        """Choose the batch size that takes `batch` seconds, given that the last took `elapsed`."""
        self.count = max(1, round(self.count * batch / elapsed))

    def record(self, elapsed: float) -> None:
        """Keep `elapsed`, as seconds per call, if it is the best so far."""
        self.best = min(self.best, elapsed / (self.count * 10))


def own_copy(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of `function` with a code object, and so with inline caches, of its own."""
    assert isinstance(function, types.FunctionType)
    return types.FunctionType(
        function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__
    )


def child(module: str, *arguments: str, timeout: float | None = None) -> Any:
    """What `python -m module arguments` answers in a fresh interpreter; see `answer`.

    After `timeout` seconds it is killed, and subprocess.TimeoutExpired is raised.
    """
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1],
        timeout=timeout,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1])
    told = json.loads(done.stdout)
    if "absent" in told:
        raise Lacks(told["absent"])
    return told["value"]


def answer(function: Callable[..., object], *arguments: str) -> None:
    """Print the result of `function`, or why there is none, for `child` to read; then exit."""
    try:
        told = {"value": function(*arguments)}
    except Exception as error:
        told = {"absent": reason(error)}
    print(json.dumps(told), flush=True)
    os._exit(0)  # at once: calls asleep for a year and idle threads do not matter any more


def reason(error: BaseException) -> str:
    """Why a contender is absent, short enough for a table."""
    if isinstance(error, Lacks):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        return f"not installed ({error.name})"
    return " ".join(f"failed: {type(error).__name__}: {error}".split())[:90]


def spread(values: list[float]) -> float:
    """Range of the middle half of `values` over their median."""
    middle = sorted(values)[len(values) // 4 : -(len(values) // 4) or None]
    return (middle[-1] - middle[0]) / statistics.median(values)


@contextlib.contextmanager
def _collector_off() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


# The timing loops: ten calls a turn, written out.


def calls(n: int, f: Callable[[int, int], object]) -> None:
    """f(1, 2)"""
    for _ in range(n):
        f(1, 2)
        f(1, 2)
        f(1, 2)
        f(1, 2)
        f(1, 2)
        f(1, 2)
        f(1, 2)
        f(1, 2)
        f(1, 2)
        f(1, 2)


async def awaits(n: int, f: Callable[[int, int], Any]) -> None:
    """await f(1, 2)"""
    for _ in range(n):
        await f(1, 2)
        await f(1, 2)
        await f(1, 2)
        await f(1, 2)
        await f(1, 2)
        await f(1, 2)
        await f(1, 2)
        await f(1, 2)
        await f(1, 2)
        await f(1, 2)


def policy_calls(n: int, policy: Any, f: Callable[[int, int], object]) -> None:
    """policy.call(f, 1, 2)"""
    for _ in range(n):
        policy.call(f, 1, 2)
        policy.call(f, 1, 2)
        policy.call(f, 1, 2)
        policy.call(f, 1, 2)
        policy.call(f, 1, 2)
        policy.call(f, 1, 2)
        policy.call(f, 1, 2)
        policy.call(f, 1, 2)
        policy.call(f, 1, 2)
        policy.call(f, 1, 2)


async def policy_acalls(n: int, policy: Any, f: Callable[[int, int], Any]) -> None:
    """await policy.acall(f, 1, 2)"""
    for _ in range(n):
        await policy.acall(f, 1, 2)
        await policy.acall(f, 1, 2)
        await policy.acall(f, 1, 2)
        await policy.acall(f, 1, 2)
        await policy.acall(f, 1, 2)
        await policy.acall(f, 1, 2)
        await policy.acall(f, 1, 2)
        await policy.acall(f, 1, 2)
        await policy.acall(f, 1, 2)
        await policy.acall(f, 1, 2)


def engine_calls(n: int, engine: Any, name: str, f: Callable[[int, int], object]) -> None:
    """engine.call(name, f, 1, 2)"""
    for _ in range(n):
        engine.call(name, f, 1, 2)
        engine.call(name, f, 1, 2)
        engine.call(name, f, 1, 2)
        engine.call(name, f, 1, 2)
        engine.call(name, f, 1, 2)
        engine.call(name, f, 1, 2)
        engine.call(name, f, 1, 2)
        engine.call(name, f, 1, 2)
        engine.call(name, f, 1, 2)
        engine.call(name, f, 1, 2)


def nullary(n: int, f: Callable[[], object]) -> None:
    """f()"""
    for _ in range(n):
        f()
        f()
        f()
        f()
        f()
        f()
        f()
        f()
        f()
        f()


def operation_lookups(n: int, registry: Any, name: str) -> None:
    """registry.of(name)"""
    for _ in range(n):
        registry.of(name)
        registry.of(name)
        registry.of(name)
        registry.of(name)
        registry.of(name)
        registry.of(name)
        registry.of(name)
        registry.of(name)
        registry.of(name)
        registry.of(name)


def lookups(n: int, mapping: Any, name: str) -> None:
    """mapping[name]"""
    for _ in range(n):
        mapping[name]
        mapping[name]
        mapping[name]
        mapping[name]
        mapping[name]
        mapping[name]
        mapping[name]
        mapping[name]
        mapping[name]
        mapping[name]
