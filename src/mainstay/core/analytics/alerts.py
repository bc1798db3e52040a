"""Rules over a window: when an alert fires, and when it clears.

A rule looks at one metric, for everything or for each operation, category or tenant apart. Its
memory is bounded: ten buckets for each group, 1,000 groups, and "other" for the rest. An alert
fires once, when the metric has been past its threshold for long enough, and clears when it is well
back: at four fifths of the threshold, so that a value at the brink does not flap.

Nothing here reads a clock: the time comes in as `now`, in seconds of any one clock.
"""

from __future__ import annotations

from mainstay.core.analytics.alert_names import GROUPS
from mainstay.core.analytics.events import AlertCleared, AlertFired
from mainstay.core.analytics.rolling import Rolling
from mainstay.core.base.validate import MAX_SECONDS, Checker
from mainstay.core.base.value import Value
from mainstay.core.circuit.events import CircuitStateChanged
from mainstay.core.limits.budget import is_spent
from mainstay.core.retry.events import (
    CallFailed,
    CallRefused,
    CallSucceeded,
    RetryAttempt,
    RetryExhausted,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Fields, Seconds

MOST_GROUPS = 1000
"""Groups that a rule keeps apart at once; further ones are one group, "other"."""
OTHER = "other"
_ENDS = (CallSucceeded, CallFailed, RetryExhausted, CallRefused)
_OPEN = ("open", "forced_open")


def _denied(event: Event) -> bool:
    return isinstance(event, CallFailed | RetryExhausted) and is_spent(event.reason)


def _opened(event: Event) -> bool:
    if not isinstance(event, CircuitStateChanged):
        return False
    return event.from_state not in _OPEN and event.to_state in _OPEN


COUNTED: dict[str, Callable[[Event], bool]] = {
    "retries_per_minute": lambda event: isinstance(event, RetryAttempt),
    "failure_rate": lambda event: isinstance(event, _ENDS[1:]),
    "exhausted_per_minute": lambda event: isinstance(event, RetryExhausted),
    "circuits_opened": _opened,
    "budget_denied": _denied,
    "lost_events": lambda _event: False,
}
"""The metrics of rules, and what counts for each. Losses are no event: a sink counts them."""


class AlertRule(Value):
    """When to raise an alert.

    Args:
        name: what the alert is called.
        metric: `retries_per_minute`, `failure_rate` (of calls, from 0 to 1),
            `exhausted_per_minute`, `circuits_opened`, `budget_denied` or `lost_events` (how many in
            the window).
        above: fires if the metric is greater than this; or
        below: fires if it is less.
        window: over how many seconds the metric is taken, a tenth of it at a time.
        minimum: how many calls or events the window must hold.
        per: "operation", "retry_category" or "tenant_id", each with an alert of its own; None for
            everything together.
        for_seconds: for how long the metric must be past the threshold.
        clear: where the alert clears; by default at four fifths of `above`, or five fourths of
            `below`. One whose window is empty clears too.

    >>> AlertRule("failing", "failure_rate", above=0.5, minimum=20, per="operation").clear
    0.4
    """

    __slots__ = (
        "above", "below", "clear", "for_seconds", "metric", "minimum", "name", "per", "window",
    )  # fmt: skip
    name: str
    metric: str
    above: float | None
    below: float | None
    window: float
    minimum: int
    per: str | None
    for_seconds: float
    clear: float

    def __init__(
        self,
        name: str,
        metric: str,
        *,
        above: float | None = None,
        below: float | None = None,
        window: Seconds = 60.0,
        minimum: int = 1,
        per: str | None = None,
        for_seconds: Seconds = 0.0,
        clear: float | None = None,
    ) -> None:
        check = Checker("AlertRule")
        if (above is None) is (below is None):
            check.note("above, below", (above, below), "one of the two: a threshold")
        level = check.number("threshold", _given(above, below, 0.0), 0.0, MAX_SECONDS)
        usual = level * (1.25 if above is None else 0.8)
        clear = check.number("clear", _given(clear, usual, usual), 0.0, MAX_SECONDS)
        if clear > level if above is not None else clear < level:
            bound = "most" if above is not None else "least"
            check.note("clear", clear, f"at {bound} the threshold, {level:g}")
        self._fill(
            name=check.name("name", name),
            metric=check.choice("metric", metric, tuple(COUNTED)),
            above=None if above is None else level,
            below=None if below is None else level,
            window=check.duration("window", window, 1.0, 86_400.0),
            minimum=check.count("minimum", minimum, 1_000_000_000),
            per=None if per is None else check.choice("per", per, GROUPS),
            for_seconds=check.duration("for_seconds", for_seconds, 0.0, 86_400.0),
            clear=clear,
        )
        check.close()

    @property
    def threshold(self) -> float:
        """The value past which it fires.

        >>> AlertRule("quiet", "retries_per_minute", below=2.0).threshold
        2.0
        """
        return _given(self.above, self.below, 0.0)

    def is_past(self, value: float) -> bool:
        """Whether a value is a reason to fire.

        >>> AlertRule("storm", "retries_per_minute", above=10).is_past(10.0)
        False
        """
        return value > self.threshold if self.above is not None else value < self.threshold

    def is_cleared_by(self, value: float) -> bool:
        """Whether a value is a reason to clear.

        >>> AlertRule("storm", "retries_per_minute", above=10).is_cleared_by(9.0)
        False
        """
        return value <= self.clear if self.above is not None else value >= self.clear

    def value(self, seen: int, counted: int) -> float:
        """The metric of a window, by the events seen in it and those of them that count.

        >>> AlertRule("storm", "retries_per_minute", above=10, window=30).value(8, 8)
        16.0
        """
        if self.metric == "failure_rate":
            return counted / seen if seen else 0.0
        return counted * 60.0 / self.window if self.metric.endswith("_minute") else float(counted)


def _given(first: float | None, second: float | None, third: float) -> float:
    return first if first is not None else second if second is not None else third


class _Group:
    """One operation, category or tenant under one rule."""

    __slots__ = ("counts", "fired", "since")

    def __init__(self, window: float) -> None:
        self.counts = Rolling(window)
        self.since: float | None = None
        """When the metric went past the threshold."""
        self.fired: float | None = None
        """When the alert fired, until it clears."""


class Board:
    """The rules with what they have seen.

    >>> board = Board([AlertRule("storm", "retries_per_minute", above=1)])
    >>> for _ in range(2):
    ...     board.add(RetryAttempt(operation="fetch"), now=100.0)
    >>> [event.alert for event in board.due(now=101.0)], board.due(now=102.0)
    (['storm'], [])
    """

    __slots__ = ("_groups", "_most", "rules")

    def __init__(self, rules: Iterable[AlertRule], most: int = MOST_GROUPS) -> None:
        self.rules = tuple(rules)
        self._most = most
        self._groups: tuple[dict[str, _Group], ...] = tuple({} for _ in self.rules)

    def add(self, event: Event, now: float) -> None:
        """Counts an event under every rule that it matters to."""
        for rule, groups in zip(self.rules, self._groups, strict=True):
            is_counted = COUNTED[rule.metric](event)
            if is_counted or (rule.metric == "failure_rate" and isinstance(event, _ENDS)):
                name = "" if rule.per is None else getattr(event, rule.per) or ""
                self._group(rule, groups, name, now).counts.add(now, 1, int(is_counted))

    def lost(self, count: int, now: float) -> None:
        """Counts events that a sink has lost."""
        if not count:
            return
        for rule, groups in zip(self.rules, self._groups, strict=True):
            if rule.metric == "lost_events":
                self._group(rule, groups, "", now).counts.add(now, count, count)

    def due(self, now: float) -> list[AlertFired | AlertCleared]:
        """What has fired and what has cleared since the last time."""
        events: list[AlertFired | AlertCleared] = []
        for rule, groups in zip(self.rules, self._groups, strict=True):
            for name, group in list(groups.items()):
                event = _step(rule, name, group, now)
                if event is not None:
                    events.append(event)
                if _is_idle(group):
                    del groups[name]
        return events

    def firing(self) -> list[tuple[str, str]]:
        """The alerts that are on, as (rule, group).

        >>> Board([]).firing()
        []
        """
        return [
            (rule.name, name)
            for rule, groups in zip(self.rules, self._groups, strict=True)
            for name, group in groups.items()
            if group.fired is not None
        ]

    def _group(self, rule: AlertRule, groups: dict[str, _Group], name: str, now: float) -> _Group:
        found = groups.get(name)
        if found is None:
            if len(groups) >= self._most:
                for other, group in list(groups.items()):
                    group.counts.totals(now)
                    if _is_idle(group):
                        del groups[other]
            name = name if len(groups) < self._most else OTHER
            found = groups.setdefault(name, _Group(rule.window))
        return found


def _is_idle(group: _Group) -> bool:
    """Whether there is nothing to remember of a group."""
    return not group.counts.first and group.since is None and group.fired is None


def _step(
    rule: AlertRule, name: str, group: _Group, now: float
) -> AlertFired | AlertCleared | None:
    """Looks at one group: whether its alert fires or clears now."""
    seen, counted = group.counts.totals(now)
    value = rule.value(seen, counted)
    if group.fired is not None:
        if seen and not rule.is_cleared_by(value):
            return None
        lasted, group.fired, group.since = now - group.fired, None, None
        return AlertCleared(**_event_fields(rule, name, value), lasted_seconds=max(0.0, lasted))
    if seen < rule.minimum or not rule.is_past(value):
        group.since = None
        return None
    group.since = now if group.since is None else group.since
    if now - group.since < rule.for_seconds:
        return None
    group.fired = now
    return AlertFired(**_event_fields(rule, name, value))


def _event_fields(rule: AlertRule, name: str, value: float) -> Fields:
    fields: Fields = {
        "alert": rule.name,
        "metric": rule.metric,
        "value": value,
        "threshold": rule.threshold,
        "window_seconds": rule.window,
        "group": name,
    }
    return fields if rule.per is None else {**fields, rule.per: name}
