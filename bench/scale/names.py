"""How the cost of a call grows with the number of names of operations in one process.

Each kind of engine at each size is a process of its own: `python -m bench.scale.names KIND N`. The
names exist before the measurement. The first round calls every name once, the second every name
again, in the same order: the order that is hardest on anything with a cap, since a name that is
looked for again was looked for longest ago. A last round of new names runs without the garbage
collector: it shows what of the growth is the collector's, which walks through all that is kept.
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
    "plain": "no sinks",
    "circuits": "a circuit for each name",
    "failing": "a circuit for each name, every call fails",
    "metrics": "a Prometheus sink, every call fails",
}
CAPPED = (
    "an engine keeps what it knows of 10,000 names. With more, in this order, every name is"
    " new again: a later call costs what a first call does. It does not grow from there on."
)

COLLECTED = (
    "full collections of garbage walk through the circuits that are kept, some thirty objects each,"
    " up to 10,000 of them; without the collector the column beside it is within the bound."
)


def run(effort: Effort) -> list[Curve]:
    """Time and memory of calls under many names, for each kind of engine."""
    sizes = effort.sizes([1_000, 10_000, 100_000, 1_000_000], [1_000, 10_000, 30_000])
    return [_curve(kind, sizes, effort.seconds) for kind in KINDS]


def _curve(kind: str, sizes: list[int], seconds: float) -> Curve:
    def measure(n: int) -> dict[str, float]:
        found: dict[str, float] = child("bench.scale.names", kind, str(n), timeout=seconds * 2)
        return found

    points, left_out = sweep(f"names, {kind}", sizes, measure, seconds)
    why = COLLECTED if kind in {"circuits", "failing"} else ""
    series = [
        Series("first call", reason=why),
        Series("first call, no collector"),
        Series("later call", reason=CAPPED),
        Series("memory", "B", each=False),
    ]
    if kind != "plain":
        series.append(count("label values kept" if kind == "metrics" else "circuits kept"))
    method = (
        "engine.call of a function that does nothing (or raises at once), one name after the other,"
        " twice; then new names without the garbage collector; CPU time. Memory: what the process"
        " has more of after the first two rounds."
    )
    title = f"Operation names in one process: {KINDS[kind]}"
    return Curve(f"names.{kind}", title, "names", method, series, points, left_out)


# What runs in the fresh process.


def figures(kind: str, n: str) -> dict[str, float]:
    """CPU seconds of the rounds, bytes, and how many circuits or label values there are."""
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
    kept_now = kept()
    names = [f"others.{number}" for number in range(int(n))]
    gc.disable()
    uncollected = _round(call, function, names)
    gc.enable()
    what = "label values kept" if kind == "metrics" else "circuits kept"
    return {
        "first call": first,
        "first call, no collector": uncollected,
        "later call": later,
        "memory": float(memory),
        what: float(kept_now),
    }


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
