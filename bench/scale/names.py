"""How the cost of a call grows with the number of names of operations in one process.

Each kind of engine at each size is a process of its own: `python -m bench.scale.names KIND N`. The
names exist before the measurement. The first round calls every name once, the second every name
again, in the same order: the order that is hardest on anything with a cap, since a name that is
looked for again was looked for longest ago.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.measure import answer, child
from bench.scale.curve import Curve, Series, count
from bench.scale.sweep import Effort, own_memory, sweep
from mainstay import Backoff, BreakerSettings, Engine, RetryPolicy

WARM = 200
ONCE = RetryPolicy(name="once", max_attempts=1, backoff=Backoff.constant(0.0))
KINDS = {
    "plain": "",
    "circuits": ", circuit",
    "failing": ", circuit, fails",
    "metrics": ", metrics, fails",
}


def run(effort: Effort) -> Curve:
    """Time and memory of calls under many names."""
    sizes = effort.sizes([1_000, 10_000, 100_000, 1_000_000], [1_000, 10_000, 30_000])
    series = []
    for what in KINDS.values():
        series += [Series(f"first call{what}"), Series(f"later call{what}")]
        series.append(Series(f"memory{what}", "B", each=False))
    points, left_out = sweep("names", sizes, _at(effort), effort.seconds)
    method = (
        "engine.call of a function that does nothing (or raises at once), one name after the other,"
        " twice; an engine without sinks, with a circuit for each name, with a Prometheus sink."
        " CPU time. Memory: what the process has more of after both rounds."
    )
    title = "Operation names in one process"
    series.append(count("circuits kept"))
    series.append(count("label values kept"))
    return Curve("names", title, "names", method, series, points, left_out)


def _at(effort: Effort) -> Callable[[int], dict[str, float]]:
    def measure(n: int) -> dict[str, float]:
        found: dict[str, float] = {}
        for kind, what in KINDS.items():
            told = child("bench.scale.names", kind, str(n), timeout=effort.seconds * 2)
            found[f"first call{what}"] = told["first"]
            found[f"later call{what}"] = told["later"]
            found[f"memory{what}"] = told["memory"]
            if kind == "failing":
                found["circuits kept"] = told["kept"]
            if kind == "metrics":
                found["label values kept"] = told["kept"]
        return found

    return measure


# What runs in the fresh process.


def figures(kind: str, n: str) -> dict[str, float]:
    """CPU seconds of both rounds, bytes, and how many circuits or label values there are."""
    engine, kept = _engine(kind)
    call, function = _caller(engine, kind)
    _round(*_caller(_engine(kind)[0], kind), [f"warm.{number}" for number in range(WARM)])
    names = [f"orders.{number}" for number in range(int(n))]
    gc.collect()
    before = own_memory()
    first = _round(call, function, names)
    later = _round(call, function, names)
    gc.collect()
    memory = max(own_memory() - before, 0)
    return {"first": first, "later": later, "memory": float(memory), "kept": float(kept())}


def _engine(kind: str) -> tuple[Engine, Callable[[], int]]:
    breaker = BreakerSettings() if kind in {"circuits", "failing"} else None
    sinks: list[Any] = []
    kept = int
    if kind == "metrics":
        from prometheus_client import CollectorRegistry

        from mainstay.sinks.prometheus import PrometheusSink

        sinks.append(PrometheusSink(CollectorRegistry()))
        kept = lambda: len(sinks[0].operation._known)  # noqa: E731 -- what is kept
    engine = Engine(policies=[ONCE], default="once", sinks=sinks, breaker=breaker)
    return engine, kept if breaker is None else lambda: len(engine.circuits)


def _caller(engine: Engine, kind: str) -> tuple[Callable[..., object], Callable[[], None]]:
    return (engine.call, _nothing) if kind in {"plain", "circuits"} else (_failing(engine), _fail)


def _failing(engine: Engine) -> Callable[..., object]:
    call = engine.call

    def failed(name: str, function: Callable[[], None]) -> None:
        try:
            call(name, function)
        except ConnectionError:
            return

    return failed


def _nothing() -> None:
    pass


def _fail() -> None:
    raise ConnectionError("connection refused")


def _round(call: Callable[..., object], function: Any, names: list[str]) -> float:
    start = time.process_time()
    for name in names:
        call(name, function)
    return time.process_time() - start


if __name__ == "__main__":
    answer(figures, *sys.argv[1:])
