"""Events as Prometheus metrics, counted in the thread they happen in, without I/O.

Counters and histograms are prometheus_client's own, so that its multiprocess mode adds them up over
processes. What is read when Prometheus asks (circuits, budgets, buffers, success ratio) comes from
a collector; multiprocess mode has none, see docs/how-to/monitoring.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.base.validate import Checker
from mainstay.errors import MissingExtraError, UsageError
from mainstay.sinks.metrics.catalogue import METRICS
from mainstay.sinks.metrics.gauges import WatchingMeter

try:
    from prometheus_client import REGISTRY, Counter, Histogram
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError:
    raise MissingExtraError("prometheus-client", "prometheus") from None

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import CollectorRegistry

    from mainstay.core.base.types import Seconds
    from mainstay.sinks.metrics.catalogue import Metric

    Family = CounterMetricFamily | GaugeMetricFamily


class PrometheusSink(WatchingMeter):
    """Counts events as Prometheus metrics.

    One sink serves any number of engines and decorators. `watch(engine)` adds what is read when
    Prometheus asks: circuits, budgets, idempotency records, buffers.

    Args:
        registry: where the metrics are registered; by default prometheus_client's own.
        prefix: what the names begin with, other than those of the effects specification.
        max_names: how many operations, circuits and categories have a label of their own; further
            ones are counted as "other".
        window: over how many seconds the success ratio is taken.

    >>> from prometheus_client import CollectorRegistry
    >>> registry = CollectorRegistry()
    >>> sink = PrometheusSink(registry)
    >>> with Engine(sinks=[sink]) as engine:
    ...     sink.watch(engine)
    ...     engine.call("parse", int, "42")
    42
    >>> labels = {"operation": "parse", "outcome": "success"}
    >>> registry.get_sample_value("mainstay_calls_total", labels)
    1.0
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        prefix: str = "mainstay",
        *,
        max_names: int = 200,
        window: Seconds = 300.0,
    ) -> None:
        check = Checker("PrometheusSink")
        self.prefix = check.name("prefix", prefix)
        max_names = check.count("max_names", max_names, 100_000)
        window = check.duration("window", window, 1.0, 86_400.0)
        check.close()
        super().__init__(max_names, window)
        self._registry = REGISTRY if registry is None else registry
        self._metrics: dict[str, Counter | Histogram] = {}
        self._collector = _Reader(self)
        self._register()

    def _register(self) -> None:
        try:
            for metric in METRICS.values():
                if not metric.is_read:
                    self._metrics[metric.name] = self._made(metric)
            self._registry.register(self._collector)
        except ValueError as error:
            self.close()
            raise UsageError(
                f"these metrics are in the registry already ({error})",
                hint="one sink serves every engine; or give it a registry or prefix of its own",
            ) from error

    def _made(self, metric: Metric) -> Counter | Histogram:
        name = self.named(metric)
        if metric.kind == "counter":
            return Counter(name, metric.text, metric.labels, registry=self._registry)
        return Histogram(
            name, metric.text, metric.labels, buckets=metric.bounds, registry=self._registry
        )

    def named(self, metric: Metric) -> str:
        """The metric's name with the prefix.

        >>> from prometheus_client import CollectorRegistry
        >>> sink = PrometheusSink(CollectorRegistry(), prefix="shop")
        >>> sink.named(METRICS["mainstay_calls_total"])
        'shop_calls_total'
        """
        own = metric.name.removeprefix("mainstay_")
        return metric.name if own == metric.name else f"{self.prefix}_{own}"

    def _adder(self, metric: Metric, labels: tuple[str, ...]) -> Callable[[float], object]:
        child = self._metrics[metric.name].labels(*labels)
        return child.inc if isinstance(child, Counter) else child.observe

    def close(self) -> None:
        """Takes its metrics out of the registry.

        >>> from prometheus_client import CollectorRegistry
        >>> registry = CollectorRegistry()
        >>> PrometheusSink(registry).close()
        >>> list(registry.collect())
        []
        """
        for known in (*self._metrics.values(), self._collector):
            try:
                self._registry.unregister(known)
            except KeyError:  # it was not registered, or is not any more
                continue


class _Reader(Collector):
    """Reads a sink's engines when Prometheus asks."""

    def __init__(self, sink: PrometheusSink) -> None:
        self._sink = sink

    def describe(self) -> Iterator[Family]:
        """The metrics without values: a registry asks for their names."""
        return (self._family(metric) for metric in METRICS.values() if metric.is_read)

    def collect(self) -> Iterator[Family]:
        """The metrics that have values now."""
        for name, values in self._sink.readings().items():
            family = self._family(METRICS[name])
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family

    def _family(self, metric: Metric) -> Family:
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        return kind(self._sink.named(metric), metric.text, labels=metric.labels)
