"""The decision of a guard, made again from its rule and the state that it looked at.

A witness is [guard, state, answer]; the guard is its class and name, the rule is in the plan.
The same plain functions decide here and in the guard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mainstay.core.base.rule import RULE
from mainstay.core.circuit import breaker
from mainstay.core.circuit.breaker import Circuit, Refusal
from mainstay.core.circuit.commands import settings_from_plain
from mainstay.core.limits.budget import RatioRule, TokenRule
from mainstay.core.limits.throttle import Calendar, MemoryRule, RateRule, ThrottleRule

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from mainstay.core.base.types import Answer

    GuardRule: TypeAlias = dict[str, Any]
    """The settings of a guard, by the names of its rule's arguments."""
    GuardState: TypeAlias = list[Any]
    """What the guard looked at, in the order of its function's arguments."""

UNKNOWN = object()
"""The answer for a guard that is not one of ours, or whose rule is not in the record."""


def decide_again(
    guard: str, rule: GuardRule | None, state: GuardState, version: int = RULE
) -> Answer:
    """The answer of the guard's rule to the state, by that version of the rules.

    >>> rule = {"name": "retries", "ratio": 0.5, "floor": 1, "window": 10.0}
    >>> decide_again("RetryBudget:retries", rule, [4, 2])
    False
    """
    does = _GUARDS.get(guard.partition(":")[0])
    if does is None or rule is None:
        return UNKNOWN
    return does(rule, state) if does is not _circuit else _circuit(rule, state, version)


def _circuit(rule: GuardRule, state: GuardState, version: int = RULE) -> Answer:
    """Asked whether an attempt may start: how long until it may; or whether waiting is of use."""
    settings, circuit = settings_from_plain(rule, version), msgspec.convert(state[0], Circuit)
    if len(state) == 3:
        _, now, delay = state
        return breaker.is_worth_waiting(settings, circuit, delay, now)
    _, answer = breaker.admit(settings, circuit, state[1])
    return answer.retry_after if isinstance(answer, Refusal) else "admitted"


def _ratio(rule: GuardRule, state: GuardState) -> bool:
    return RatioRule(**rule).allows(*state)


def _tokens(rule: GuardRule, state: GuardState) -> bool:
    return TokenRule(**rule).spent(*state) is not None


def _throttle(rule: GuardRule, state: GuardState) -> bool:
    requests, accepts, u = state
    throttle = ThrottleRule(**rule)
    return throttle.sheds(throttle.probability(requests, accepts), u)


def _rate(rule: GuardRule, state: GuardState) -> float | None:
    due, seen, starts, now, delay = state
    never = float("-inf")
    calendar = Calendar(
        never if due is None else due, tuple(starts), never if seen is None else seen
    )
    return calendar.reserve(RateRule(**rule), now, delay)[0]


def _memory(rule: GuardRule, state: GuardState) -> bool:
    return MemoryRule(rule["limit"]).allows(*state)


_GUARDS: dict[str, Callable[[GuardRule, GuardState], Answer]] = {
    "AdaptiveThrottle": _throttle,
    "CircuitBreaker": _circuit,
    "MemoryGuard": _memory,
    "RateLimit": _rate,
    "RetryBudget": _ratio,
    "TokenBudget": _tokens,
}
