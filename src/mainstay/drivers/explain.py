"""Explains a site: its policy with the guards and layers that stand around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.circuit.settings import BreakerSettings
from mainstay.core.explain.explain import explain_engine, explain_policy
from mainstay.core.limits.throttle import RateRule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from mainstay.core.explain.explain import EngineExplanation, Explanation
    from mainstay.core.retry.policy import Policy
    from mainstay.drivers.call.guard import Guard
    from mainstay.drivers.call.site import Site


def explain_site(site: Site, around: Iterable[Policy] = ()) -> Explanation:
    """What a call at this site comes to at worst."""
    guards = site.gate.guards if site.gate is not None else ()
    breakers = [
        (getattr(guard, "name", ""), guard.rule)
        for guard in guards
        if isinstance(guard.rule, BreakerSettings)
    ]
    return explain_policy(
        site.policy,
        breakers=breakers,
        idempotency=site.idempotency,
        around=around,
        subject=site.operation,
        **_of_guards(guards),
    )


def explain_operations(
    policies: dict[str, Policy],
    settings_of: Callable[[str], Iterable[tuple[str, BreakerSettings]]],
    guards: Iterable[Guard],
) -> EngineExplanation:
    """What calls of these operations come to at worst; no circuit is made for it."""
    others, found = _of_guards(guards), []
    for name, policy in policies.items():
        breakers = settings_of(name)
        it = explain_policy(policy, breakers=breakers, subject=name, **others)
        found.append((name, it))
    return explain_engine(found)


def _of_guards(guards: Iterable[Guard]) -> dict[str, Any]:
    guards = tuple(guards)
    rules: list[Any] = [getattr(guard, "rule", None) for guard in guards]
    ratios = [rule.ratio for rule in rules if hasattr(rule, "ratio")]
    layers = [guard.layer for guard in guards if guard.layer not in ("", "breaker")]
    limits = [rule for rule in rules if isinstance(rule, RateRule)]
    return {"budget_ratio": min(ratios, default=None), "layers": layers, "limits": limits}
