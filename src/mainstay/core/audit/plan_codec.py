"""A plan as a record holds it, and back: the policy, how safe repeating is, the guards' rules.

Other than a policy's own plain form this one leaves nothing out: a class, a name, a kind and a
function are distinguished, since each is matched in its own way. A function is kept by its name
only; what it answered is in the evidence of each failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from mainstay.core.circuit.settings import BreakerSettings
from mainstay.core.known.kind import Kind
from mainstay.core.retry.events import PlanDeclared
from mainstay.core.retry.kinds import spelled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstay.core.base.types import Fields
    from mainstay.core.base.value import Value
    from mainstay.core.retry.backoff import Backoff
    from mainstay.core.retry.policy import Policy
    from mainstay.core.retry.policy_fields import KindRule

RULES = ("retry_on", "never_retry_on")
PLAIN = (
    "name", "max_attempts", "attempt_timeout", "timeout_by", "deadline", "max_retry_after",
    "nested", "log_level",
)  # fmt: skip


def declared(
    policy: Policy, idempotency: str, guards: Iterable[tuple[str, Value | None]] = ()
) -> PlanDeclared:
    """The plan as an event; its number is made of what it holds.

    >>> from mainstay import RetryPolicy
    >>> one, other = (declared(RetryPolicy(max_attempts=n), "keyed") for n in (2, 3))
    >>> one.plan == other.plan
    False
    """
    fields = _fields(policy)
    rules = [{"guard": label, "rule": _rule_fields(rule)} for label, rule in guards]
    content = msgspec.json.encode([fields, idempotency, rules], order="sorted")
    import hashlib  # loads OpenSSL; a plan is declared when a call fails

    number = hashlib.sha256(content).hexdigest()[:16]
    return PlanDeclared(
        plan=number, policy=policy.name, fields=fields, idempotency=idempotency, guards=rules
    )


def _fields(policy: Policy) -> Fields:
    fields: Fields = {name: getattr(policy, name) for name in PLAIN}
    for name in RULES:
        rules = getattr(policy, name)
        fields[name] = None if rules is None else [_tagged(rule) for rule in rules]
    fields["classify"] = [[_tagged(r), k.value] for r, k in (policy.classify or {}).items()]
    fields["backoff"], fields["jitter"] = _backoff(policy.backoff), policy.jitter.to_dict()
    per_kind = policy.per_kind or {}
    fields["per_kind"] = {kind.value: _kind_rule(rule) for kind, rule in per_kind.items()}
    fields["retry_if_result"] = policy.retry_if_result is not None
    if policy.wait_from is not None:
        fields["wait_from"] = True
    if not policy.respect_retry_after:
        fields["respect_retry_after"] = False
    return fields


def _tagged(rule: Any) -> list[str]:
    if isinstance(rule, Kind):
        return ["kind", rule.value]
    if isinstance(rule, type):
        is_group = issubclass(rule, BaseExceptionGroup)
        return ["group" if is_group else "class", spelled(rule)]
    if isinstance(rule, str):
        return ["name", rule]
    return ["function", getattr(rule, "__qualname__", "") or type(rule).__qualname__]


def _backoff(backoff: Backoff | None) -> Fields | None:
    return None if backoff is None else backoff.to_dict()


def _kind_rule(rule: KindRule) -> Fields:
    jitter = None if rule.jitter is None else rule.jitter.to_dict()
    return {
        "max_attempts": rule.max_attempts,
        "backoff": _backoff(rule.backoff),
        "jitter": jitter,
    }


def _rule_fields(rule: Value | None) -> Fields | None:
    if rule is None:
        return None
    if isinstance(rule, BreakerSettings):
        from mainstay.core.circuit.commands import settings_to_plain

        return settings_to_plain(rule)
    return {name: getattr(rule, name) for name in rule._fields()}
