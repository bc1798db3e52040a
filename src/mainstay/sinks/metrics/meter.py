"""Which event counts for what, and how the values of labels stay few.

The same for Prometheus and OpenTelemetry; each of them only defines how a number is added. Labels
are few and fixed: never an id, a key, a tenant or an exception's text. Names that a program chooses
(operations, circuits, categories) are counted: past a limit they are all "other".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mainstay.events as events
import mainstay.runtime.clock as clock
from mainstay.core.analytics.rolling import Rolling
from mainstay.core.circuit.breaker import CircuitState
from mainstay.core.effects.transport import KINDS
from mainstay.core.known.kind import Kind
from mainstay.core.limits.budget import is_spent
from mainstay.ports import SinkWants
from mainstay.runtime.fork import make_lock
from mainstay.runtime.reports.logs import logger
from mainstay.sinks.metrics.catalogue import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from mainstay.sinks.metrics.catalogue import Metric

    Addition: TypeAlias = tuple[str, tuple[str, ...], float]

_log = logger()

OTHER = "other"
_KINDS = frozenset(kind.value for kind in Kind)
_STATES = frozenset(state.value for state in CircuitState)


class LabelValues:
    """The values of one label that programs choose: up to a limit, and then "other".

    >>> names = LabelValues("operation", 1)
    >>> names("fetch"), names("order-17"), names("fetch")
    ('fetch', 'other', 'fetch')
    """

    __slots__ = ("_is_full", "_known", "_limit", "_lock", "label")

    def __init__(self, label: str, limit: int) -> None:
        self.label = label
        self._limit = limit
        self._known: dict[str, str] = {}
        self._is_full = False
        self._lock = make_lock()

    def __call__(self, name: str) -> str:
        """The name, or "other" if the limit is reached."""
        return self._known.get(name) or self._learn(name)

    def _learn(self, name: str) -> str:
        with self._lock:
            if len(self._known) < self._limit or name in self._known:
                return self._known.setdefault(name, name or "none")
            is_news, self._is_full = not self._is_full, True
        if is_news:
            _log.warning(
                "more than %d values of the label %r: further ones are counted as %r; take ids and"
                " keys out of the names",
                self._limit, self.label, OTHER,
            )  # fmt: skip
        return OTHER


class Share:
    """The share of successes of one operation over a window.

    >>> share = Share(60.0)
    >>> share.add(1.0); share.add(0.0); share.value()
    0.5
    """

    __slots__ = ("_counts", "_lock")

    def __init__(self, window: float) -> None:
        self._counts = Rolling(window)
        self._lock = make_lock()

    def add(self, success: float) -> None:
        """Counts a call: 1 for one that succeeded, 0 for one that did not."""
        now = clock.current.monotonic()
        with self._lock:
            self._counts.add(now, 1, int(success))

    def value(self) -> float | None:
        """The share; None if there were no calls."""
        now = clock.current.monotonic()
        with self._lock:
            calls, succeeded = self._counts.totals(now)
        return succeeded / calls if calls else None


class Meter:
    """Counts events. A subclass defines how a number is added to a metric.

    Args:
        max_names: how many operations, circuits and the like have a label of their own.
        window: over how many seconds the success ratio is taken.
    """

    wants = SinkWants(store_steps=True)

    def __init__(self, max_names: int, window: float) -> None:
        self.operation = LabelValues("operation", max_names)
        self.category = LabelValues("category", max_names)
        self.circuit = LabelValues("circuit", max_names)
        self.alert = LabelValues("alert", max_names)
        self.outcome = LabelValues("outcome", 20)
        self.store = LabelValues("store", 20)
        self._window = window
        self._shares: dict[str, Share] = {}
        self._adders: dict[tuple[str, tuple[str, ...]], Callable[[float], object]] = {}

    def __call__(self, event: Any) -> None:
        """Counts an event, in the thread it happens in."""
        rule = RULES.get(type(event))
        if rule is not None:
            for name, labels, amount in rule(self, event):
                adder = self._adders.get((name, labels)) or self._learn(name, labels)
                adder(amount)

    def add(self, name: str, labels: tuple[str, ...], amount: float = 1.0) -> None:
        """Adds to one metric."""
        (self._adders.get((name, labels)) or self._learn(name, labels))(amount)

    def compensated(self, effect_type: str, outcome: str = "success") -> None:
        """Counts a compensation that has ended; `outcome` is a word, such as "success"."""
        labels = (self.operation(effect_type), self.outcome(outcome))
        self.add("effect_compensation_total", labels)

    def partially_failed(self, effect_type: str) -> None:
        """Counts an effect of which only a part was applied."""
        self.add("effect_partial_failure_total", (self.operation(effect_type),))

    def store_step(self, store: str, step: str, seconds: float, *, failed: bool) -> None:
        """Adds the seconds of a step of the store; the engine calls it."""
        labels = (self.store(store), step, "error" if failed else "ok")
        self.add("mainstay_store_seconds", labels, seconds)

    def shares(self) -> list[tuple[str, float]]:
        """The success ratio of each operation that was called of late."""
        found = [(name, share.value()) for name, share in list(self._shares.items())]
        return [(name, value) for name, value in found if value is not None]

    def _learn(self, name: str, labels: tuple[str, ...]) -> Callable[[float], object]:
        """How such a number is added; every set of labels is made once."""
        adder: Callable[[float], object]
        if name == "mainstay_success_ratio":
            adder = self._shares.setdefault(labels[0], Share(self._window)).add
        else:
            adder = self._adder(METRICS[name], labels)
        return self._adders.setdefault((name, labels), adder)

    def _adder(self, metric: Metric, labels: tuple[str, ...]) -> Callable[[float], object]:
        raise NotImplementedError


def attempt_label(number: int) -> str:
    """The number of an attempt as a label: "1" to "10", and "10+".

    >>> attempt_label(3), attempt_label(11)
    ('3', '10+')
    """
    return _ATTEMPTS[number] if 0 < number <= 10 else "10+"


_ATTEMPTS = tuple(str(number) for number in range(11))


def _kind(kind: str) -> str:
    return kind if kind in _KINDS else "unknown"


def _ended(operation: str, outcome: str, success: float) -> tuple[Addition, Addition]:
    return (
        ("mainstay_calls_total", (operation, outcome), 1.0),
        ("mainstay_success_ratio", (operation,), success),
    )


def _effect_type(meter: Meter, e: Any) -> str:
    """The kind of an effect that an orchestrator calls, such as "database"; else the operation."""
    return meter.operation(e.retry_category if e.retry_category in KINDS else e.operation)


def _attempt_failed(meter: Meter, e: Any) -> tuple[Addition, ...]:
    operation = meter.operation(e.operation)
    failed: Addition = ("mainstay_failed_attempts_total", (operation, _kind(e.kind)), 1.0)
    if e.attempt_number <= 1:
        return (failed,)
    labels = (_effect_type(meter, e), attempt_label(e.attempt_number), "failure")
    return failed, ("effect_retry_total", labels, 1.0)


def _retry_attempt(meter: Meter, e: Any) -> tuple[Addition, ...]:
    operation, category = meter.operation(e.operation), e.retry_category
    labels = (operation, meter.category(category) if category else "", _kind(e.kind))
    return (
        ("mainstay_retries_total", labels, 1.0),
        ("effect_retry_delay_seconds", (_effect_type(meter, e),), e.delay_seconds),
    )


def _succeeded(meter: Meter, e: Any) -> tuple[Addition, ...]:
    operation, attempts = meter.operation(e.operation), e.total_attempts
    if attempts <= 1:
        return _ended(operation, "success", 1.0)
    labels = (_effect_type(meter, e), attempt_label(attempts), "success")
    return *_ended(operation, "success", 1.0), ("effect_retry_total", labels, 1.0)


def _gave_up(meter: Meter, e: Any) -> tuple[Addition, ...]:
    operation = meter.operation(e.operation)
    outcome = "exhausted" if type(e) is events.RetryExhausted else "failed"
    found = _ended(operation, outcome, 0.0)
    if not is_spent(e.reason):
        return found
    return *found, ("mainstay_budget_denied_total", (operation,), 1.0)


def _refused(meter: Meter, e: Any) -> tuple[Addition, ...]:
    return _ended(meter.operation(e.operation), "refused", 0.0)


def _interrupted(meter: Meter, e: Any) -> tuple[Addition, ...]:
    """A cancelled call is no evidence about what it called."""
    return (("mainstay_calls_total", (meter.operation(e.operation), "cancelled"), 1.0),)


def _circuit(meter: Meter, e: Any) -> tuple[Addition, ...]:
    state = e.to_state if e.to_state in _STATES else OTHER
    return (("mainstay_circuit_changes_total", (meter.circuit(e.operation), state), 1.0),)


def _alert(meter: Meter, e: Any) -> tuple[Addition, ...]:
    state = "fired" if type(e) is events.AlertFired else "cleared"
    return (("mainstay_alerts_total", (meter.alert(e.alert), state), 1.0),)


def _counted(name: str) -> Callable[[Meter, Any], tuple[Addition, ...]]:
    return lambda meter, e: ((name, (meter.operation(e.operation),), 1.0),)


def _outbox(result: str) -> Callable[[Meter, Any], tuple[Addition, ...]]:
    addition = (("mainstay_outbox_total", (result,), 1.0),)
    return lambda _meter, _event: addition


def _saga_step_failed(meter: Meter, event: events.SagaStepFailed) -> tuple[Addition, ...]:
    """A part of the saga was applied: a step before, or perhaps this one."""
    if not event.completed and not event.in_doubt:
        return ()
    return (("effect_partial_failure_total", (_effect_type(meter, event),), 1.0),)


def _effect_compensated(meter: Meter, event: events.EffectCompensated) -> tuple[Addition, ...]:
    outcome = meter.outcome("success" if event.success else "failure")
    return (("effect_compensation_total", (meter.operation(event.operation), outcome), 1.0),)


def _saga_step_undone(meter: Meter, event: events.SagaStepUndone) -> tuple[Addition, ...]:
    outcome = meter.outcome("success" if event.success else "failure")
    return (("effect_compensation_total", (_effect_type(meter, event), outcome), 1.0),)


RULES: dict[type[events.Event], Callable[[Meter, Any], tuple[Addition, ...]]] = {
    events.AttemptFailed: _attempt_failed,
    events.EffectCompensated: _effect_compensated,
    events.EffectPartiallyFailed: _counted("effect_partial_failure_total"),
    events.RetryAttempt: _retry_attempt,
    events.CallSucceeded: _succeeded,
    events.CallFailed: _gave_up,
    events.RetryExhausted: _gave_up,
    events.CallRefused: _refused,
    events.CallInterrupted: _interrupted,
    events.CircuitStateChanged: _circuit,
    events.AttemptHedged: _counted("mainstay_hedges_total"),
    events.FallbackUsed: _counted("mainstay_fallbacks_total"),
    events.HookFailed: _counted("mainstay_hook_failures_total"),
    events.OutboxRetry: _outbox("retry"),
    events.OutboxDead: _outbox("dead"),
    events.OutboxReplayed: _outbox("replayed"),
    events.OutboxDiscarded: _outbox("discarded"),
    events.OutboxLeaseLost: _outbox("lost"),
    events.AlertFired: _alert,
    events.AlertCleared: _alert,
    events.SagaStepFailed: _saga_step_failed,
    events.SagaStepUndone: _saga_step_undone,
}
"""What an event adds to which metric."""
