"""Calls as OpenTelemetry traces and metrics: a span for each attempt, under a span for each call.

The spans are made in spans.py, the metrics are those of catalogue.py. What a processor or an
exporter raises never reaches a call.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import mainstay.events as events
from mainstay.core.base.validate import in_seconds
from mainstay.errors import MissingExtraError
from mainstay.ports import SinkWants
from mainstay.sinks.metrics.catalogue import METRICS
from mainstay.sinks.metrics.gauges import WatchingMeter
from mainstay.sinks.metrics.spans import CallTrace, attributes_of

try:
    from opentelemetry import metrics, trace
except ImportError:
    raise MissingExtraError("opentelemetry-api", "otel") from None

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import TracerProvider

    from mainstay.core.base.types import Seconds
    from mainstay.core.retry.plan import Plan
    from mainstay.sinks.metrics.catalogue import Metric
    from mainstay.sinks.metrics.gauges import Readings

_FRESH = 0.5
"""Seconds for which a reading serves the other instruments of the same collection."""


class OpenTelemetrySink(WatchingMeter):
    """Traces calls and their attempts, and counts the metrics of the catalogue.

    Args:
        tracer_provider: by default the global one, as it is when spans are made.
        meter_provider: by default the global one.
        max_names: how many operations, circuits and categories have a metric attribute of their
            own; further ones are counted as "other".
        window: over how many seconds the success ratio is taken.

    >>> sink = OpenTelemetrySink()
    >>> with Engine(sinks=[sink]) as engine:
    ...     sink.watch(engine)
    ...     engine.call("parse", int, "42")
    42
    """

    wants = SinkWants(attempts=True, store_steps=True)

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        max_names: int = 200,
        window: Seconds = 300.0,
    ) -> None:
        super().__init__(max_names, in_seconds(window))  # type: ignore[arg-type]  # a number by then
        self.tracer = trace.get_tracer("mainstay", tracer_provider=tracer_provider)
        self._meter = metrics.get_meter("mainstay", meter_provider=meter_provider)
        self._instruments = {metric.name: self._made(metric) for metric in METRICS.values()}
        self._last: tuple[float, Readings] = (0.0, {})

    def follow(self, plan: Plan) -> CallTrace:
        """Starts the span of a call.

        >>> OpenTelemetrySink().follow(RetryPolicy()._verb_site).call_ended()
        """
        return CallTrace(self.tracer, plan, self.count)

    def __call__(self, event: Any) -> None:
        """Counts an event; one beside a call is also noted on the span it happens in."""
        super().__call__(event)
        names = _NOTED.get(type(event))
        if names is not None:
            span = trace.get_current_span()
            if span.is_recording():
                span.add_event(event.event_type, attributes_of(event, names))

    def count(self, event: Any) -> None:
        """Counts an event, and no more."""
        super().__call__(event)

    def _made(self, metric: Metric) -> Any:
        about = {"unit": "s" if "_seconds" in metric.name else "1", "description": metric.text}
        if metric.bounds:
            bounds = list(metric.bounds)
            return self._meter.create_histogram(
                metric.name, explicit_bucket_boundaries_advisory=bounds, **about
            )
        if not metric.is_read:
            return self._meter.create_counter(metric.name, **about)
        callbacks = [partial(self._observe, metric)]
        if metric.kind == "counter":
            return self._meter.create_observable_counter(metric.name, callbacks, **about)
        return self._meter.create_observable_gauge(metric.name, callbacks, **about)

    def _adder(self, metric: Metric, labels: tuple[str, ...]) -> Callable[[float], object]:
        instrument = self._instruments[metric.name]
        add = instrument.record if metric.bounds else instrument.add
        return partial(add, attributes=dict(zip(metric.labels, labels, strict=True)))

    def _observe(self, metric: Metric, _: CallbackOptions) -> Iterator[Observation]:
        read, found = self._last
        if time.monotonic() - read > _FRESH:
            found = self.readings()
            self._last = (time.monotonic(), found)
        for labels, value in found.get(metric.name, {}).items():
            attributes = dict(zip(metric.labels, labels, strict=True))
            yield metrics.Observation(value, attributes)


_NOTED: dict[type[events.Event], tuple[str, ...]] = {
    events.AlertFired: ("alert", "metric", "value", "threshold"),
    events.AttemptHedged: ("operation", "hedge_number", "waited_seconds"),
    events.CircuitStateChanged: ("operation", "from_state", "to_state", "reason"),
    events.FallbackUsed: ("operation", "exception_type"),
    events.Idempotency: ("operation", "action"),
}
"""What is noted of an event beside a call."""
