"""Values that are read when metrics are collected: circuits, budgets, records, buffers, outbox.

An engine is watched by a weak reference: one that is gone is watched no more. Reading takes no part
in any call; what cannot be read is left out, and logged once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from mainstay.errors import UsageError
from mainstay.ports import methods_of
from mainstay.runtime.fork import PROCESS, make_lock
from mainstay.runtime.reports.report_failure import report
from mainstay.sinks.metrics.meter import Meter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, TypeAlias

    Reading: TypeAlias = tuple[str, tuple[str, ...], float]
    Readings: TypeAlias = dict[str, dict[tuple[str, ...], float]]

_BUFFERED = {
    "waiting": "mainstay_sink_queued",
    "delivered": "mainstay_sink_delivered_total",
    "spilled": "mainstay_sink_spilled_total",
    "lost": "mainstay_sink_lost_total",
    "held": "mainstay_sink_held_total",
}
"""What a buffer counts, and the metric of it."""


class WatchingMeter(Meter):
    """A meter that also reads the engines it watches."""

    def __init__(self, max_names: int, window: float) -> None:
        super().__init__(max_names, window)
        self._engines: dict[str, tuple[ref[Any], Callable[[], float | None] | None]] = {}
        self._complained: set[str] = set()
        self._watching = make_lock()

    def watch(
        self,
        engine: Any,
        name: str = "main",
        *,
        outbox_age: Callable[[], float | None] | None = None,
    ) -> None:
        """Reads an engine's circuits, budgets, records and buffers from now on.

        Args:
            engine: an Engine.
            name: the label `engine` of its metrics; two engines have two names.
            outbox_age: gives the age in seconds of the oldest message that is not published, or
                None if there is none; by default that of the engine's own outbox.
        """
        with self._watching:
            known = self._engines.get(name)
            if known is not None and known[0]() not in (None, engine):
                raise UsageError(
                    f"another engine is watched as {name!r}", hint="watch(engine, name=...)"
                )
            self._engines[name] = (ref(engine), outbox_age)

    def readings(self) -> Readings:
        """Every value there is to read now, by metric and labels.

        Past the limit of names several have the same labels: the worst state, and sums otherwise.
        """
        found: Readings = {}
        for metric, labels, value in self._read():
            values = found.setdefault(metric, {})
            before = values.get(labels, 0.0)
            is_state = metric == "mainstay_circuit_state"
            values[labels] = max(before, value) if is_state else before + value
        return found

    def _read(self) -> Iterator[Reading]:
        for operation, share in self.shares():
            yield "mainstay_success_ratio", (operation,), share
        watched = self._watched()
        if watched:
            yield "mainstay_forks_total", (), float(PROCESS.forks)
            yield "mainstay_fork_refusals_total", (), float(PROCESS.refusals)
            yield "mainstay_files_replaced_total", (), float(PROCESS.replaced)
        for name, (engine, outbox_age) in watched:
            for read in (self._circuits, _sharing, _budgets, _records, self._sinks):
                yield from self._tried(read, engine, name)
            used = getattr(engine, "_outbox", None)  # one that was never used has no age
            yield from self._tried(_outbox, outbox_age or getattr(used, "age", None), name)

    def _watched(self) -> list[tuple[str, tuple[Any, Callable[[], float | None] | None]]]:
        with self._watching:
            alive = {name: (each[0](), each[1]) for name, each in self._engines.items()}
            for name, (engine, _) in alive.items():
                if engine is None:
                    del self._engines[name]
        return [(name, each) for name, each in alive.items() if each[0] is not None]

    def _tried(
        self, read: Callable[[Any, str], Iterable[Reading]], what: Any, name: str
    ) -> list[Reading]:
        """The readings; none, and one log record, if they cannot be read."""
        try:
            return list(read(what, name))
        except Exception as error:
            about = f"{read.__name__.strip('_')} of engine {name}"
            if about not in self._complained:
                self._complained.add(about)
                report(error, "the %s cannot be read for metrics", about)
            return []

    def _circuits(self, engine: Any, name: str) -> Iterator[Reading]:
        for circuit in engine.circuits:
            labels, snapshot = (name, self.circuit(circuit.name)), circuit.snapshot()
            yield "mainstay_circuit_state", labels, float(snapshot.state.gauge)
            yield "mainstay_circuit_refused_total", labels, float(snapshot.refused)

    def _sinks(self, engine: Any, name: str) -> Iterator[Reading]:
        for sink in engine.sinks:
            stats = methods_of(sink).stats
            counts = {} if stats is None else stats()
            for key, metric in _BUFFERED.items():
                if key in counts:
                    yield metric, (name, type(sink).__name__), float(counts[key])


def _sharing(engine: Any, name: str) -> Iterator[Reading]:
    for result, count in engine.circuits.sharing().items():
        yield "mainstay_circuit_shared_total", (name, result), float(count)


def _budgets(engine: Any, name: str) -> Iterator[Reading]:
    """Retries left in the present window, or tokens; budgets are named by the program."""
    for guard in engine.guards:
        if guard.layer != "budget":
            continue
        snapshot = guard.snapshot()
        limit = snapshot["allowed"] if "allowed" in snapshot else snapshot["capacity"]
        left = snapshot["tokens"] if "tokens" in snapshot else max(0, limit - snapshot["retries"])
        yield "mainstay_budget_left", (name, guard.name), float(left)
        yield "mainstay_budget_limit", (name, guard.name), float(limit)


def _records(engine: Any, name: str) -> Iterator[Reading]:
    for result, count in engine.records.counts().items():
        yield "mainstay_idempotency_total", (name, result), float(count)
    yield "mainstay_purged_total", (name,), float(engine.records.purged)


def _outbox(age: Callable[[], float | None] | None, name: str) -> Iterator[Reading]:
    seconds = age() if age is not None else None
    if seconds is not None:
        yield "mainstay_outbox_age_seconds", (name,), float(seconds)
