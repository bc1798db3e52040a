"""Circuits from what was checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.config.policies import jitter_of
from mainstay.core.base.validate import MAX_SECONDS, Checker
from mainstay.core.circuit.settings import BreakerSettings
from mainstay.core.circuit.window import Window
from mainstay.core.retry.backoff import Backoff
from mainstay.core.retry.policy_codec import from_plain

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from mainstay.config.blame import ConfigMapping

_MADE = ("enabled", "operations", "recovery_timeout", "recovery_jitter", "window", "count_on",
         "ignore")  # fmt: skip


def breaker_of(
    checked: Mapping[str, Any], place: ConfigMapping, count: str = "dependency"
) -> BreakerSettings | None:
    """The settings of a section; None if it is switched off, or wrong.

    `count` is which failures count if the section does not have it.
    """
    before = len(place.report.problems)
    fields: dict[str, Any] = {k: v for k, v in checked.items() if k not in _MADE}
    if "recovery_timeout" in checked:
        fields["recovery_timeout"] = _recovery(checked["recovery_timeout"], place)
    if "recovery_jitter" in checked:
        jitter = jitter_of(checked["recovery_jitter"], place, "recovery_jitter")
        fields["recovery_jitter"] = jitter
    if "window" in checked:
        fields["window"] = _window(checked["window"], place)
    for name, like in (("count_on", "retry_on"), ("ignore", "never_retry_on")):
        if name in checked:
            fields[name] = from_plain(Checker(name), like, checked[name])
    if "count_on" not in checked:
        fields.setdefault("count", count)
    if len(place.report.problems) > before:
        return None
    made = place.build(lambda: BreakerSettings(**fields))
    return made if checked.get("enabled", True) else None


def _recovery(value: Any, place: ConfigMapping) -> Any:
    """Seconds, or the curve by which each opening in a row lasts longer."""
    if isinstance(value, float) or set(value) <= {"initial"}:
        return value if isinstance(value, float) else value.get("initial", 30.0)
    initial = value.get("initial", 30.0)
    kind = value.get("kind", "exponential")
    if kind == "constant":
        return initial
    options = {name: value[name] for name in ("factor", "step") if name in value}
    longest = value.get("max_delay", min(initial * 10, MAX_SECONDS))
    return place.build(
        lambda: Backoff(kind, initial, max_delay=longest, **options),
        {name: (("recovery_timeout", name),) for name in ("initial", "max_delay")},
    )


def _window(value: Mapping[str, Any], place: ConfigMapping) -> Window | None:
    has_calls, has_seconds = "calls" in value, "seconds" in value
    if has_calls == has_seconds:
        place.problem(("window",), "must have either calls or seconds")
        return None
    if has_calls:
        if "buckets" in value:
            place.problem(("window", "buckets"), "is for a window of seconds only")
        return place.build(lambda: Window.calls(value["calls"]))
    return place.build(lambda: Window.seconds(value["seconds"], value.get("buckets", 10)))
