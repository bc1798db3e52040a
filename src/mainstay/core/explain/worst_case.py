"""What a policy comes to at worst: how many attempts, which waits, how long; nothing is called.

The longest wait is that of a u which is never drawn, u = 1; the shortest that of u = 0. Every
jitter grows or falls with u and with the wait before, so the corners hold all there is between.
"""

from __future__ import annotations

from itertools import islice, repeat

from msgspec import Struct

from mainstay.core.base.deadline import NEVER, fits
from mainstay.core.base.sums import in_order
from mainstay.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, TypeAlias

    from mainstay.core.circuit.settings import BreakerSettings
    from mainstay.core.limits.throttle import RateRule
    from mainstay.core.retry.backoff import Backoff, Jitter
    from mainstay.core.retry.policy import Policy

    Span: TypeAlias = tuple[float, float]

LAYERS = (
    "fallback",
    "retry",
    "breaker",
    "budget",
    "throttle",
    "rate limit",
    "memory guard",
    "hedge",
    "bulkhead",
    "function",
)
"""The order of everything around a function, the outermost first."""


# --- the numbers ----------------------------------------------------------------------------------


class Case(Struct, frozen=True, kw_only=True):
    """A policy with what stands beside and around it: what the numbers and the rules look at."""

    policy: Policy
    attempts: int
    breakers: tuple[tuple[str, BreakerSettings], ...]
    ratio: float | None
    idempotency: str
    around: tuple[Policy, ...]
    layers: frozenset[str]
    limits: tuple[RateRule, ...]

    @property
    def is_retried(self) -> bool:
        """Whether there is more than one attempt."""
        return self.policy.max_attempts > 1


def numbers(case: Case) -> dict[str, Any]:
    """The numbers of an Explanation, by its fields."""
    policy, retries = case.policy, case.attempts - 1
    waits = tuple(islice(_envelope(policy), retries))
    asked = tuple(islice(_envelope(policy, _longest_asked(policy)), retries))
    product, leaf = nesting(case)
    return {
        "attempts": case.attempts,
        "added_load": float(retries if case.ratio is None else min(retries, case.ratio)),
        "waits": waits,
        "waiting_seconds": min(_longest(waits, 0.0), policy.deadline or NEVER),
        "wall_seconds": _wall(policy, waits),
        "asked_seconds": _wall(policy, asked),
        "around": tuple(outer.name for outer in case.around),
        "nesting_product": product,
        "leaf_calls": leaf,
    }


def reach(policy: Policy, took: float) -> int:
    """How many attempts start before the deadline, if each takes that long and waits are short."""
    end = policy.deadline or NEVER
    if end == NEVER:
        return policy.max_attempts
    elapsed, made = took, 1
    for low, _ in _envelope(policy):
        if not fits(elapsed, low, end):
            break
        elapsed, made = elapsed + low + took, made + 1
    return made


def _longest(waits: Iterable[Span], took: float) -> float:
    """Attempts that take so long, with the longest waits, added up as a clock would."""
    elapsed = took
    for _, high in waits:
        elapsed = elapsed + high + took
    return elapsed


def _wall(policy: Policy, waits: Iterable[Span]) -> float | None:
    if policy.attempt_timeout is None:
        return policy.deadline
    return min(_longest(waits, policy.attempt_timeout), policy.deadline or NEVER)


def nesting(case: Case) -> tuple[int, int]:
    """The product, and the calls that are left of it if outer retries stand back.

    One that warns or allows it repeats what an inner one has given up on.
    """
    product = leaf = case.attempts
    for outer in case.around:
        attempts = reach(outer, 0.0)
        product *= attempts
        leaf = leaf * attempts if outer.nested in _BOTH_RUN else max(leaf, attempts)
    return product, leaf


_BOTH_RUN = ("warn", "allow")


def known_layers(layers: Iterable[str]) -> frozenset[str]:
    """The layers as a set; a name that is not in LAYERS is refused."""
    found = frozenset(layers)
    unknown = sorted(found - set(LAYERS))
    if unknown:
        raise UsageError(f"layers = {unknown}: not known", hint="known: " + ", ".join(LAYERS))
    return found


def order(case: Case) -> tuple[str, ...]:
    """The layers there are, the outermost first."""
    there = {
        *case.layers,
        "function",
        *["retry"] * case.is_retried,
        *["breaker"] * bool(case.breakers),
        *["budget"] * (case.ratio is not None),
    }
    return tuple(layer for layer in LAYERS if layer in there)


# --- the waits ------------------------------------------------------------------------------------


class Curve(Struct, frozen=True):
    """A backoff with its jitter: the policy's own, or that of one kind of failure."""

    kind: str
    backoff: Backoff
    jitter: Jitter
    retries: int
    """How many delays of it a call can come to wait."""


def _curves(policy: Policy) -> list[Curve]:
    """The curves a call can wait by, the policy's own first; none for a kind not retried."""
    retries = policy.max_attempts - 1
    found = [Curve("", policy.backoff, policy.jitter, retries)]
    for kind, rule in (policy.per_kind or {}).items():
        own = retries if rule.max_attempts is None else min(rule.max_attempts - 1, retries)
        backoff, jitter = rule.backoff or policy.backoff, rule.jitter or policy.jitter
        found.append(Curve(kind.value, backoff, jitter, own))
    return [curve for curve in found if curve.retries]


def own_curves(policy: Policy) -> list[Curve]:
    """The same without the kinds that wait as the policy does."""
    own = (policy.backoff, policy.jitter)
    return [each for each in _curves(policy) if not each.kind or (each.backoff, each.jitter) != own]


def _envelope(policy: Policy, asked: float = 0.0) -> Iterator[Span]:
    """The shortest and longest wait before each retry; the longest at least what is asked for.

    With limits by kind each kind counts its own failures: a late retry may wait by an early delay.
    """
    curves, is_mixed = _curves(policy), policy.per_kind is not None
    low, high, before = NEVER, asked, (0.0, 0.0)
    for n in range(1, policy.max_attempts):
        spans = [span(curve, min(n, curve.retries), before) for curve in curves]
        if not is_mixed:
            low, high = NEVER, asked
        low = min(low, *(each[0] for each in spans))
        high = max(high, *(each[1] for each in spans))
        if before == (low, high) and all(_is_level(curve, n) for curve in curves):
            yield from repeat(before, policy.max_attempts - n)
            return
        before = (low, high)
        yield before


def _is_level(curve: Curve, n: int) -> bool:
    """Whether the delays from the n-th on are all alike; of a curve that never falls."""
    if n >= curve.retries:
        return True
    backoff = curve.backoff
    is_known = backoff.kind != "custom" and n > len(backoff.delays)
    return is_known and backoff.base(n) == backoff.base(curve.retries)


def _longest_asked(policy: Policy) -> float:
    """The longest wait that the other side can ask for, with the jitter on top."""
    if not policy.respect_retry_after:
        return 0.0
    asked = policy.max_retry_after
    tops = [each.jitter.on_top(asked, 1.0, each.backoff.max_delay) for each in _curves(policy)]
    return asked + max(tops, default=0.0)


def span(curve: Curve, n: int, before: Span = (0.0, 0.0)) -> Span:
    """The shortest and longest n-th delay of a curve, after a wait between those given."""
    backoff = curve.backoff
    try:
        base = backoff.base(n)
        corners = [
            curve.jitter.spread(base, u, previous, backoff.part(n))
            for u in (0.0, 1.0)
            for previous in before
        ]
    except Exception:  # of the user's own function; then a call waits so long, too
        return backoff.max_delay, backoff.max_delay
    return min(corners), max(corners)


def fit(case: Case, settings: BreakerSettings, failures: int) -> bool:
    """Whether that number of failures of one call comes within the breaker's window."""
    if settings.window is None or settings.window.kind == "calls":
        return True
    shortest = in_order(low for low, _ in islice(_envelope(case.policy), failures - 1))
    return shortest < settings.window.size


def attempt_limit(policy: Policy) -> float | None:
    """How long an attempt may take, of a policy that has a word on that."""
    return None if policy.attempt_timeout is None else policy.first_limit


# --- seconds as text ------------------------------------------------------------------------------


def s(seconds: float | None) -> str:
    """Seconds with their unit."""
    return f"{number(seconds or 0.0)} s"


def number(seconds: float) -> str:
    """Seconds to the thousandth, without idle zeros; what is less is not shown as nothing."""
    if 0.0 < seconds < 0.001:
        return f"{seconds:.1g}"
    return f"{seconds:,.3f}".rstrip("0").rstrip(".")
