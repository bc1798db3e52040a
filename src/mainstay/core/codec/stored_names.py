"""The names by which what is stored refers to our own classes, whichever module they live in.

A record names a public class by its door, `mainstay` and `Kind`, and not by its module: modules
move. Version 1 wrote the module, in records, fingerprints and pickles. Those names stay valid for
ever, and are listed here with the module in which each class is now. Fingerprints go on with them:
another name would make a key that was used a PayloadMismatch.

Users' classes are not looked up here: their names are their own.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DOORS = (
    "mainstay",
    "mainstay.events",
    "mainstay.errors",
    "mainstay.audit",
    "mainstay.testing",
    "mainstay.profiles.agents",
    "mainstay.profiles.clients",
    "mainstay.profiles.control_plane",
    "mainstay.profiles.effects",
    "mainstay.profiles.pipelines",
)
"""The public modules, which do not move; a class has the name that it has in the first of them."""

# Each row: the module of version 1 (without `mainstay.`), that of today, and what is found there.
# Code that moves a module changes the second column, and never the first.
VERSION_1 = (
    ("ambient", "mainstay.runtime.context", "Context"),
    ("audit.reading", "mainstay.audit.read", "Record"),
    ("audit.verifying", "mainstay.audit.verify", "Verdict"),
    ("config.settings", "mainstay.config.settings", "Settings SharedBreaker"),
    ("core.alerts", "mainstay.core.analytics.alerts", "AlertRule"),
    ("core.backoff", "mainstay.core.retry.backoff", "Backoff Jitter"),
    ("core.breaker", "mainstay.core.circuit.breaker", "Circuit CircuitState Signal"),
    ("core.breaker_settings", "mainstay.core.circuit.settings", "BreakerSettings"),
    ("core.breaker_summary", "mainstay.core.circuit.snapshot", "CircuitSnapshot"),
    ("core.budget", "mainstay.core.limits.budget", "RatioRule TokenRule"),
    ("core.classify", "mainstay.core.retry.classify", "Classification"),
    ("core.energy", "mainstay.core.telemetry.energy", "EnergyModel Statement"),
    ("core.events", "mainstay.core.base.event", "Event"),
    ("core.events", "mainstay.core.analytics.events", "Alert AlertCleared AlertFired"),
    ("core.events", "mainstay.core.circuit.events", "CircuitOrdered CircuitStateChanged"),
    ("core.events", "mainstay.core.idempotency.events", "Idempotency"),
    (
        "core.events",
        "mainstay.core.inbox.events",
        ("InboxClosed InboxDecided InboxRaised OperatorAdded OperatorChanged OperatorRefused"),
    ),
    (
        "core.events",
        "mainstay.core.retry.events",
        (
            "AttemptFailed AttemptHedged CallFailed CallInterrupted CallRefused CallSucceeded "
            "CallsCounted FallbackUsed GivenUp HookFailed PlanDeclared RetryAttempt RetryExhausted"
        ),
    ),
    ("core.evidence", "mainstay.core.base.proof", "Evidence Opening Proof"),
    ("core.explain", "mainstay.core.explain.explain", "EngineExplanation Explanation"),
    ("core.explain_rules", "mainstay.core.explain.rules", "Remark"),
    ("core.fields", "mainstay.core.retry.policy_fields", "KindRule"),
    ("core.hooks", "mainstay.core.retry.hooks", "RetryInfo"),
    ("core.inbox", "mainstay.core.inbox.items", "Decision Happening Item"),
    ("core.inbox_acting", "mainstay.core.inbox.actions", "Already Gone Illegal Stale Won"),
    ("core.kinds", "mainstay.core.known.kind", "Kind"),
    ("core.limiter", "mainstay.core.limits.throttle", "Calendar MemoryRule RateRule ThrottleRule"),
    ("core.marks", "mainstay.core.retry.give_up", "GaveUp _rebuild"),
    ("core.operators", "mainstay.core.inbox.operators", "Hash Operator"),
    ("core.policy", "mainstay.core.retry.policy", "Policy _rebuild"),
    ("core.redact", "mainstay.core.redact.redactor", "Redactor"),
    ("core.replay", "mainstay.core.audit.replay", "Divergence ReplayReport"),
    ("core.retry_after", "mainstay.core.retry.retry_after", "Hint"),
    ("core.telemetry", "mainstay.core.telemetry.record", "StageTotals Telemetry TelemetryRecord"),
    ("core.value", "mainstay.core.base.value", "Value _rebuild"),
    ("core.window", "mainstay.core.circuit.window", "Evidence Window"),
    ("core.worst_case", "mainstay.core.explain.worst_case", "Case Curve"),
    ("drivers.bulkhead", "mainstay.drivers.layers.bulkhead", "BulkheadSnapshot"),
    ("drivers.circuits", "mainstay.drivers.guards.registry", "HealthReport"),
    ("drivers.credentials", "mainstay.drivers.inbox.credentials", "Signature"),
    ("drivers.fallback", "mainstay.drivers.layers.fallback", "Fallback"),
    ("drivers.hedge", "mainstay.drivers.layers.hedge", "HedgeSnapshot"),
    ("drivers.policy", "mainstay.drivers.policy", "RetryPolicy"),
    ("drivers.records", "mainstay.drivers.idempotency.keys", "KeyOptions"),
    ("drivers.result", "mainstay.drivers.call.result", "RetryResult"),
    ("profiles.agents", "mainstay.profiles.agents.tools", "ToolResult"),
    ("profiles.clients", "mainstay.profiles.clients.circuit", "CircuitBreakerConfiguration"),
    ("profiles.clients", "mainstay.profiles.clients.configuration", "RetryConfiguration"),
    (
        "profiles.control_plane.categories",
        "mainstay.profiles.control_plane.categories",
        "RetryCategory",
    ),
    ("profiles.control_plane.idempotency", "mainstay.profiles.control_plane.idempotency", "Hit"),
    ("profiles.control_plane.policies", "mainstay.profiles.control_plane.policies", "RetryPolicy"),
    ("profiles.effects", "mainstay.profiles.effects", "EffectRetryConfig"),
    ("profiles.pipelines", "mainstay.profiles.pipelines", "ComplianceRecord"),
    ("registry", "mainstay.engine.registry", "PolicyRegistry"),
    ("testing.scripts", "mainstay.testing.scripts", "ScriptEnded"),
)

LATER: tuple[tuple[str, str, str], ...] = ()
"""The same for names that later versions have pickled, and that have moved again since."""

HOMES = {(old, name): home for old, home, names in VERSION_1 + LATER for name in names.split()}
"""Where something is now: by the module and the name that it had then."""
_FIRST = {
    (home, name): f"mainstay.{old}" for old, home, names in VERSION_1 for name in names.split()
}
"""The module of version 1, by the module and name of now."""


def public_name(cls: type) -> tuple[str, str]:
    """The module and name by which records refer to a class of ours.

    A class that is not public has the name of version 1; one that is neither, its module.

    >>> from mainstay.core.known.kind import Kind
    >>> public_name(Kind)
    ('mainstay', 'Kind')
    """
    module, name = cls.__module__, cls.__qualname__
    if module in DOORS:
        return module, name
    for door in DOORS:
        if _behind(door, name) is cls:
            return door, name
    return _FIRST.get((module, name), module), name


def key_name(cls: type) -> str:
    """The name by which fingerprints refer to a class of ours: that of version 1, if it had one.

    >>> from mainstay import KindRule
    >>> key_name(KindRule).removeprefix("mainstay.")
    'core.fields.KindRule'
    """
    first = _FIRST.get((cls.__module__, cls.__qualname__))
    return ".".join(public_name(cls)) if first is None else f"{first}.{cls.__qualname__}"


def class_named(module: str, name: str) -> Any:
    """What a record means by a name of ours: a public class, or one of version 1; else None.

    Only a name that is listed here or in the door of a public module is looked up: nothing else is
    loaded because a record names it.

    >>> class_named("mainstay", "Kind")
    <enum 'Kind'>
    """
    if module in DOORS:
        return _behind(module, name)
    home = HOMES.get((module.removeprefix("mainstay."), name))
    if home is None:
        return None
    found = getattr(sys.modules.get(home), name, None)
    if found is not None:
        return found
    behind = (_behind(door, name) for door in DOORS)
    return next((each for each in behind if getattr(each, "__module__", "") == home), None)


def _behind(door: str, name: str) -> Any:
    """What a public module has under that name; those behind the door itself are loaded for it."""
    if door == "mainstay.events":
        holder: Any = sys.modules["mainstay"].events
    else:
        holder = sys.modules.get(door)
    is_public = name in getattr(holder, "__all__", ())
    return getattr(holder, name) if is_public else None
