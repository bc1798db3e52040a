"""How writing, verifying and counting an audit log grow with its records, and in how much memory.

The log is written by failing calls of an engine under a hundred names, as fast as the writer goes.
Then `mainstay audit verify` and `mainstay audit stats` run on it, each in a process of its own:
`python -m bench.scale.audit write|verify|stats PLACE N`. Times are CPU times of those processes,
after the same step on a log of six records, which loads what it needs.

Memory is that of the process itself, without the pages of files that it maps: the system has those
anyway, takes them back when it likes, and SQLite's reader maps up to 1 GiB of the log.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import answer, child
from bench.scale.curve import BOUNDED, Curve, Series
from bench.scale.sweep import Effort, MemoryWatch, sweep
from mainstay import Backoff, Engine, RetryPolicy
from mainstay.audit import AuditLog

PLACES = {"JSONL": "{}/audit.jsonl", "SQLite": "sqlite:///{}/audit.db"}
POLICY = RetryPolicy(name="bench", max_attempts=3, backoff=Backoff.constant(0.0))
EVENTS = 6
"""Records of a call of which all three attempts fail."""
NAMES = 100
SLICE = 2_000
"""Calls between two looks at whether the writer has kept up."""


def run(effort: Effort) -> list[Curve]:
    """Both places of a log that need no server."""
    sizes = [1_000, 10_000, 100_000, 1_000_000]
    sizes = effort.sizes(sizes, sizes[:-1], [*sizes, 10_000_000])
    return [_curve(place, sizes, effort.seconds) for place in PLACES]


def _curve(place: str, sizes: list[int], seconds: float) -> Curve:
    def measure(n: int) -> dict[str, float]:
        found: dict[str, float] = {}
        with _folder() as folder:
            where = PLACES[place].format(folder)
            for step in ("write", "verify", "stats"):
                told = child("bench.scale.audit", step, where, str(n), timeout=seconds)
                found[step] = told["cpu"]
                found[f"peak of {step}"] = told["peak"]
        return found

    points, left_out = sweep(f"audit, {place}", sizes, measure, seconds)
    steps = ("write", "verify", "stats")
    series = [Series(step) for step in steps]
    series += [Series(f"peak of {step}", "B", each=False, limit=BOUNDED) for step in steps]
    method = (
        f"Calls under {NAMES} names whose three attempts fail, {EVENTS} records each, written by"
        " the engine's own log; then `audit verify` and `audit stats`, fresh processes, CPU time;"
        " memory is the peak of the process without mapped files."
    )
    title = f"Records of an audit log: {place}"
    name = f"audit.{place.lower()}"
    return Curve(name, title, "records", method, series, points, left_out)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="bench-scale-audit-"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


# What runs in the fresh process.


def figures(step: str, place: str, n: str) -> dict[str, float]:
    """CPU seconds of a step, and the peak of its memory."""
    with _folder() as folder:
        small = str(folder / "audit.jsonl") if place.endswith(".jsonl") else f"sqlite:///{folder}/a"
        _write(small, EVENTS)
        if step != "write":
            _command(step, small)
    with MemoryWatch() as watch:
        start = time.process_time()
        if step == "write":
            _write(place, int(n))
        else:
            _command(step, place)
        cpu = time.process_time() - start
    return {"cpu": cpu, "peak": float(watch.peak)}


def _write(place: str, n: int) -> None:
    log = AuditLog(place, spill=False)
    engine = Engine(policies=[POLICY], default="bench", sinks=[log])
    calls = -(-n // EVENTS)
    for first in range(0, calls, SLICE):
        for number in range(first, min(first + SLICE, calls)):
            with contextlib.suppress(ConnectionError):
                engine.call(f"orders.{number % NAMES}", _fail)
        assert log.flush(60)
    assert log.stats()["lost"] == 0
    engine.close()
    log.close()


def _fail() -> None:
    raise ConnectionError("connection refused")


def _command(step: str, place: str) -> None:
    """The command itself, in this process, so that its peak can be read."""
    from mainstay.cli.app import app

    with contextlib.redirect_stdout(io.StringIO()) as shown:
        code = app(["audit", step, place, "--json"], standalone_mode=False)
    assert not code, shown.getvalue()


if __name__ == "__main__":
    answer(figures, *sys.argv[1:])
