"""The worst case of a call under a policy, as text or as plain data.

`explain_policy` works out the numbers of a case, then asks each of the rules about it.
"""

from __future__ import annotations

from msgspec import Struct

from mainstay.core.base.deadline import NEVER
from mainstay.core.explain.rules import Remark, remarks
from mainstay.core.explain.worst_case import Case, known_layers, number, numbers, order, reach, s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from mainstay.core.circuit.settings import BreakerSettings
    from mainstay.core.explain.worst_case import Span
    from mainstay.core.limits.throttle import RateRule
    from mainstay.core.retry.policy import Policy

_WIDTH = 96
_SHOWN = 6


class Explanation(Struct, frozen=True, kw_only=True):
    """What a call under a policy comes to at worst.

    `str()` is a text for a terminal, `to_dict()` plain data. What makes an attempt wait its
    turn, such as a rate limit, and the second attempts of a hedge are not counted.

    >>> from mainstay.core.retry.policy import Policy
    >>> explanation = explain_policy(Policy(name="api", max_attempts=4, attempt_timeout=2.0))
    >>> explanation.attempts, explanation.added_load, round(explanation.wall_seconds, 2)
    (4, 3.0, 8.77)
    """

    subject: str
    attempts: int
    """The most attempts, the first included; fewer than max_attempts if the deadline allows no
    more even if each fails at once."""
    added_load: float
    """Retries per call, while everything fails: 2.0 is three calls instead of one."""
    waits: tuple[tuple[float, float], ...]
    """The shortest and the longest delay before each retry, by the policy alone."""
    waiting_seconds: float
    """The longest delays together, within the deadline."""
    wall_seconds: float | None
    """The longest a call takes if its limits are heeded; None if it has none."""
    asked_seconds: float | None
    """The same if the other side asks, before each retry, for the longest wait there may be."""
    around: tuple[str, ...]
    """The enclosing policies, the nearest first."""
    nesting_product: int
    """The attempts of this policy and those around it, multiplied."""
    leaf_calls: int
    """What is left of that: calls of the function for one of the outermost, while a failure that
    all of them retry lasts."""
    order: tuple[str, ...]
    """The layers there are, the outermost first."""
    warnings: tuple[Remark, ...]
    """What is wrong or risky."""
    notes: tuple[Remark, ...]
    """What is worth knowing."""

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON can hold it.

        >>> from mainstay.core.retry.policy import Policy
        >>> explain_policy(Policy(max_attempts=1, deadline=5.0)).to_dict()["wall_seconds"]
        5.0
        """
        return {name: _plain(getattr(self, name)) for name in self.__struct_fields__}

    def __str__(self) -> str:
        lines = [self.subject]
        for label, text in _rows(self):
            lines += _wrapped(f"  {label:<10} ", text)
        return "\n".join(lines)


def explain_policy(
    policy: Policy,
    *,
    breakers: Iterable[tuple[str, BreakerSettings]] = (),
    budget_ratio: float | None = None,
    idempotency: str = "idempotent",
    around: Iterable[Policy] = (),
    layers: Iterable[str] = (),
    limits: Iterable[RateRule] = (),
    subject: str = "",
) -> Explanation:
    """Explains a policy with what stands beside and around it.

    Args:
        policy: the policy.
        breakers: the names and settings of its breakers.
        budget_ratio: retries per call that its budget allows; None if there is no budget.
        idempotency: how safe repeating is.
        around: the policies of the retries that enclose it, the nearest first.
        layers: what else there is, by the names of worst_case.LAYERS.
        limits: the rules of its rate limits.
        subject: what it is called, if not by the policy's name.

    >>> from mainstay.core.retry.policy import Policy
    >>> for warning in explain_policy(Policy(attempt_timeout=10.0, deadline=8.0)).warnings:
    ...     print(warning.text.partition(":")[0])
    attempt_timeout 10 s exceeds deadline 8 s
    """
    case = Case(
        policy=policy,
        attempts=reach(policy, 0.0),
        breakers=tuple(breakers),
        ratio=budget_ratio,
        idempotency=idempotency,
        around=tuple(around),
        layers=known_layers(layers),
        limits=tuple(limits),
    )
    return Explanation(
        subject=subject or policy.name,
        **numbers(case),
        order=order(case),
        warnings=remarks(case, "warning"),
        notes=remarks(case, "note"),
    )


class EngineExplanation(Struct, frozen=True):
    """What the operations of an engine come to: each of them, and the worst.

    >>> from mainstay.core.retry.policy import Policy
    >>> bounded = explain_policy(Policy(name="bounded", deadline=9.0))
    >>> endless = explain_policy(Policy(name="endless"))
    >>> engine = explain_engine([("read", bounded), ("write", endless)])
    >>> engine.worst, [(name, warning.code) for name, warning in engine.warnings]
    ('write', [('write', 'unbounded')])
    """

    operations: tuple[tuple[str, Explanation], ...]
    worst: str | None
    """The operation that may take longest; of several, the one with the most attempts."""
    warnings: tuple[tuple[str, Remark], ...]
    """Each warning with its operation."""

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON can hold it.

        >>> explain_engine([]).to_dict()
        {'operations': {}, 'worst': None, 'warnings': []}
        """
        return {
            "operations": {name: each.to_dict() for name, each in self.operations},
            "worst": self.worst,
            "warnings": [{"operation": name, **_plain(each)} for name, each in self.warnings],
        }

    def __str__(self) -> str:
        if not self.operations:
            return "no operations"
        texts = [
            str(each) if each.subject == name else f"{name}, under {each}"
            for name, each in self.operations
        ]
        return "\n\n".join([*texts, f"worst: {self.worst}; warnings: {len(self.warnings)}"])


def explain_engine(operations: Iterable[tuple[str, Explanation]]) -> EngineExplanation:
    """Puts the explanations of an engine's operations together.

    >>> print(explain_engine([]))
    no operations
    """
    pairs = tuple(operations)
    worst = max(pairs, key=_badness, default=None)
    warnings = tuple((name, warning) for name, each in pairs for warning in each.warnings)
    return EngineExplanation(pairs, worst[0] if worst else None, warnings)


def _badness(pair: tuple[str, Explanation]) -> tuple[float, int]:
    seconds = pair[1].wall_seconds
    return (NEVER if seconds is None else seconds), pair[1].attempts


# --- as text and as plain data --------------------------------------------------------------------


def _rows(it: Explanation) -> Iterator[tuple[str, str]]:
    extra = f"; {it.added_load * 100:+g} % load while all fail" if it.added_load else ""
    yield "attempts", f"at most {it.attempts}{extra}"
    if it.waits:
        yield "waits", f"{_describe_waits(it.waits)}; {s(it.waiting_seconds)} in all"
    yield "wall time", _describe_wall(it)
    if it.around:
        chain = " in ".join([it.subject, *it.around])
        saved = it.nesting_product > it.leaf_calls
        instead = f" instead of {it.nesting_product}" if saved else ""
        yield "nesting", f"{chain}: at most {it.leaf_calls} calls{instead}"
    yield "order", " > ".join(it.order)
    for label, found in (("warning", it.warnings), ("note", it.notes)):
        for remark in found:
            yield label, str(remark)


def _describe_wall(it: Explanation) -> str:
    if it.wall_seconds is None or it.asked_seconds is None:
        return "without limit"
    text = f"at most {s(it.wall_seconds)}"
    if it.asked_seconds > it.wall_seconds:
        text += f"; {s(it.asked_seconds)} if the other side asks for it (Retry-After)"
    return text


def _describe_waits(waits: tuple[Span, ...]) -> str:
    shown = waits if len(waits) <= _SHOWN else waits[: _SHOWN - 1]
    texts = [s(low) if low == high else f"{number(low)}–{s(high)}" for low, high in shown]
    if shown is not waits:
        low, high = waits[-1]
        texts += ["…", f"{number(low)}–{s(high)}"]
    return ", ".join(texts)


def _wrapped(start: str, text: str) -> list[str]:
    from textwrap import wrap

    return wrap(text, _WIDTH, initial_indent=start, subsequent_indent=" " * len(start))


def _plain(value: Any) -> Any:
    if isinstance(value, Remark):
        return {"code": value.code, "text": value.text}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value
