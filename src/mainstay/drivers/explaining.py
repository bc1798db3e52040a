"""Explains a site: its policy with the guards and layers that stand around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.explain import explain_engine, explain_policy
from mainstay.drivers.breaker import CircuitBreaker
from mainstay.drivers.budget import RetryBudget, TokenBudget
from mainstay.drivers.limiter import AdaptiveThrottle, MemoryGuard, RateLimit

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from mainstay.core.explain import EngineExplanation, Explanation
    from mainstay.core.policy import Policy
    from mainstay.drivers.circuits import CircuitRegistry
    from mainstay.drivers.gates import Guard
    from mainstay.drivers.site import Site

_LAYER_OF = {
    AdaptiveThrottle: "throttle",
    MemoryGuard: "memory guard",
    RateLimit: "rate limit",
    TokenBudget: "budget",
}


def explain_site(site: Site, around: Iterable[Policy] = ()) -> Explanation:
    """What a call at this site comes to at worst."""
    guards = site.gate.guards if site.gate is not None else ()
    breakers = [(g.name, g.settings) for g in guards if isinstance(g, CircuitBreaker)]
    return explain_policy(
        site.policy,
        breakers=breakers,
        idempotency=site.idempotency,
        around=around,
        subject=site.operation,
        **_of_guards(guards),
    )


def explain_operations(
    policies: dict[str, Policy], circuits: CircuitRegistry, guards: Iterable[Guard]
) -> EngineExplanation:
    """What calls of these operations come to at worst; no circuit is made for it."""
    others, found = _of_guards(guards), []
    for name, policy in policies.items():
        breakers = circuits.settings_of(name)
        it = explain_policy(policy, breakers=breakers, subject=name, **others)
        found.append((name, it))
    return explain_engine(found)


def _of_guards(guards: Iterable[Guard]) -> dict[str, Any]:
    guards = tuple(guards)
    ratios = [guard.rule.ratio for guard in guards if isinstance(guard, RetryBudget)]
    layers = [_LAYER_OF[type(guard)] for guard in guards if type(guard) in _LAYER_OF]
    return {"budget_ratio": min(ratios, default=None), "layers": layers}
