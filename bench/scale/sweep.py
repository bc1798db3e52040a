"""Measures a curve size by size, in bounded time, with a line of progress."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bench.measure import Lacks
from bench.scale.curve import Point

Measure = Callable[[int], dict[str, float]]


@dataclass(frozen=True, slots=True)
class Effort:
    """How far a curve goes: `seconds` in all, `repeats` at each size."""

    seconds: float = 300.0
    repeats: int = 3
    is_quick: bool = False
    is_full: bool = False

    def sizes(self, usual: list[int], quick: list[int], full: list[int] | None = None) -> list[int]:
        """The sizes that are asked for."""
        return quick if self.is_quick else full if full and self.is_full else usual


QUICK = Effort(seconds=13.0, repeats=1, is_quick=True)
FULL = Effort(seconds=1_800.0, is_full=True)


def sweep(
    name: str,
    sizes: list[int],
    measure: Measure,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[list[Point], str]:
    """The points that fit into the time, in ascending order, and what is left out.

    The first is always measured, and the second if there is time at all: what a size takes is known
    from two, as a line through the last two. A curve that grows faster ends one size late.
    """
    points: list[Point] = []
    spent: list[float] = []
    began = clock()
    for index, n in enumerate(sizes):
        left = seconds - (clock() - began)
        expected = _expected([point.n for point in points], spent, n)
        if points and expected > left:
            sizes_left = ", ".join(f"{size:,}" for size in sizes[index:])
            why = f"{n:,} would take some {expected:.0f} s of {max(left, 0):.0f} s left"
            return points, f"not measured: {sizes_left}; {why}"
        start = clock()
        with progress(f"{name}: {n:,}"):
            points.append(Point(n, measure(n)))
        spent.append(clock() - start)
    return points, ""


def _expected(sizes: list[int], spent: list[float], n: int) -> float:
    """Seconds that the size n takes, given what smaller ones took."""
    if len(sizes) < 2:
        return sum(spent)
    slope = max(spent[-1] - spent[-2], 0.0) / (sizes[-1] - sizes[-2])
    return spent[-1] + slope * (n - sizes[-1])


@contextmanager
def progress(message: str) -> Iterator[None]:
    """Shows what is measured, and for how long: a line that changes, or one in a log at its end."""
    began, is_over = time.perf_counter(), threading.Event()

    def show() -> None:
        while not is_over.wait(1.0):
            took = time.perf_counter() - began
            print(f"\r\x1b[K{message} … {took:.0f} s", end="", file=sys.stderr, flush=True)

    if not sys.stderr.isatty():
        yield
        print(f"{message}: {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
        return
    shows = threading.Thread(target=show, daemon=True)
    shows.start()
    try:
        yield
    finally:
        is_over.set()
        shows.join()
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class MemoryWatch:
    """The most memory that this process has of its own meanwhile, looked at fifty times a second.

    Not `ru_maxrss`, which is inherited through exec from the process that started this one, and
    which counts the pages of mapped files, as `VmHWM` does.
    """

    def __init__(self) -> None:
        self.peak = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self.peak = own_memory()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(0.02):
            self.peak = max(self.peak, own_memory())


def own_memory() -> int:
    """The memory that this process has of its own now, in bytes, without mapped files."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        raise Lacks("no /proc to read the memory from") from None
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
