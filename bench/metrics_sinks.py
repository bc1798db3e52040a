"""Table 17: what an event costs the call that tells it to a metrics sink.

A Prometheus counter is looked up by its labels and counted up; that is the floor of any such sink.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.compare import ratios
from bench.measure import METHOD, Contender, Effort, nullary, race
from bench.peers import Function
from bench.table import Table, at_most

ORDER = 17
FLOOR = "Counter.labels(operation, outcome).inc()"
SUCCESS = "PrometheusSink, call_succeeded"
FAILED = "PrometheusSink, attempt_failed"
RETRY = "PrometheusSink, retry_attempt"
EXHAUSTED = "PrometheusSink, retry_exhausted"
TRACED = "OpenTelemetrySink, call_succeeded"


def run(effort: Effort) -> Table:
    """Each event alone; one may count for several metrics."""
    contenders = [
        Contender(FLOOR, _counter, nullary),
        Contender(SUCCESS, partial(_prometheus, "call_succeeded"), nullary),
        Contender(FAILED, partial(_prometheus, "attempt_failed"), nullary),
        Contender(RETRY, partial(_prometheus, "retry_attempt"), nullary),
        Contender(EXHAUSTED, partial(_prometheus, "retry_exhausted"), nullary),
        Contender(TRACED, _otel, nullary),
    ]
    goals = dict.fromkeys((SUCCESS, FAILED, RETRY, EXHAUSTED), at_most(2))
    rows = ratios(race(contenders, effort.scaled(0.5), goals), FLOOR, goals)
    method = f"× one labelled counter of prometheus_client, looked up and counted up. {METHOD}"
    return Table("metrics_sinks", "An event told to a metrics sink", method, rows)


def _counter() -> tuple[Function]:
    from prometheus_client import CollectorRegistry, Counter

    labels = ("operation", "outcome")
    counter = Counter("calls_total", "calls", labels, registry=CollectorRegistry())
    return (lambda: counter.labels("fetch", "success").inc(),)


def _event(name: str) -> Any:
    from mainstay import events

    known = {"attempt_number": 1, "total_attempts": 1, "delay_seconds": 0.1, "kind": "transient"}
    cls = events.CATALOGUE[name]
    given = {field: value for field, value in known.items() if field in cls.__struct_fields__}
    return cls(operation="fetch", **given)


def _prometheus(name: str) -> tuple[Function]:
    from prometheus_client import CollectorRegistry

    from mainstay.sinks.prometheus import PrometheusSink

    return (partial(PrometheusSink(CollectorRegistry()), _event(name)),)


def _otel() -> tuple[Function]:
    from opentelemetry.sdk.metrics import MeterProvider

    from mainstay.sinks.otel import OpenTelemetrySink

    sink = OpenTelemetrySink(meter_provider=MeterProvider())
    return (partial(sink, _event("call_succeeded")),)
