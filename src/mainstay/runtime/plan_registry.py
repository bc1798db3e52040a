"""The plans that proofs refer to, by number: code that writes events down asks for their content.

A number is made of the content, so the same plan has the same number in every process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainstay.core.audit.plan_codec import declared

if TYPE_CHECKING:
    from collections.abc import MutableSet

    from mainstay.core.base.event import Event
    from mainstay.core.base.value import Value
    from mainstay.core.retry.events import PlanDeclared
    from mainstay.core.retry.policy import Policy

_MOST = 10_000
_plans: dict[str, PlanDeclared] = {}
_numbers: dict[tuple[int, str, tuple[tuple[str, int], ...]], tuple[object, str]] = {}
"""By identity, so that a policy that serves many functions is written out once."""


def register(policy: Policy, idempotency: str, guards: tuple[tuple[str, Value | None], ...]) -> str:
    """The number of a plan.

    >>> from mainstay import RetryPolicy
    >>> register(RetryPolicy(), "keyed", ()) == register(RetryPolicy(), "keyed", ())
    True
    """
    key = (id(policy), idempotency, tuple((label, id(rule)) for label, rule in guards))
    found = _numbers.get(key)
    if found is not None:
        return found[1]
    plan = declared(policy, idempotency, guards)
    if len(_plans) >= _MOST:
        _plans.clear()
        _numbers.clear()
    _plans[plan.plan] = plan
    _numbers[key] = ((policy, guards), plan.plan)  # held, or an id might come back as another's
    return plan.plan


def plan_numbered(number: str) -> PlanDeclared | None:
    """The plan of that number, if this process has it.

    >>> plan_numbered("none such") is None
    True
    """
    return _plans.get(number)


def plan_before(event: Event, known: MutableSet[str]) -> PlanDeclared | None:
    """The plan an event refers to, if it is not among the known ones; then it is.

    >>> from mainstay.events import CallSucceeded
    >>> plan_before(CallSucceeded(), set()) is None
    True
    """
    proof = event.proved
    if proof is None or not proof.plan or proof.plan in known:
        return None
    plan = _plans.get(proof.plan)
    if plan is None:
        return None
    known.add(proof.plan)
    return replace(plan, timestamp=event.timestamp)
