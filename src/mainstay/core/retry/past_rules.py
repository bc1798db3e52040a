"""Earlier versions of the rules: what replay needs to decide as was decided then.

A call and a circuit that are recorded have the version of their rules (core/base/proof.py). By
version 1 an inner retry made one attempt if an enclosing one would have retried its failure, and
its own `nested` decided.
"""

from __future__ import annotations

from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.core.retry.effects import COLLAPSED, GIVEN_UP_INSIDE, Question
from mainstay.core.retry.give_up import newest_mark
from mainstay.errors import NestedRetryError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from typing import Any, Protocol

    from mainstay.core.base.types import Answer
    from mainstay.core.retry.effects import Stop
    from mainstay.core.retry.plan import Plan

    class Care(Protocol):
        """The call that is decided: its plan, and the retry around it if that is known."""

        plan: Plan
        outer: Answer


def backoff_of(plain: Mapping[str, Any], rule: int) -> Backoff:
    """The backoff of a record, as that version of the rules reads it.

    >>> plain = Backoff.chain(0.1, Backoff.exponential(1.0)).to_dict()
    >>> [backoff_of(plain, rule).part(2).kind for rule in (4, 3)]
    ['exponential', 'chain']
    """
    has_curve = rule < 4 and plain["kind"] == "chain" and plain.get("then") is not None
    return (_SpreadAsOne if has_curve else Backoff).from_dict(plain)


def jitter_of(plain: Mapping[str, Any], rule: int) -> Jitter:
    """The jitter of a record, as that version of the rules spreads a delay.

    >>> plain = {"kind": "decorrelated", "amount": 0.0}
    >>> curve = Backoff.exponential(1.0, max_delay=5.0)
    >>> for rule in (4, 3, 1):
    ...     jitter = jitter_of(plain, rule)
    ...     [jitter.spread(1.0, 0.5, previous, curve) for previous in (5.0, 0.1)]
    [3.0, 2.0]
    [3.0, 1.0]
    [5.0, 0.65]
    """
    if rule > 3 or plain["kind"] != "decorrelated":
        return Jitter.from_dict(plain)
    return (_FromTheOneBefore if rule > 1 else _CappedAfterwards).from_dict(plain)


class _SpreadAsOne(Backoff):
    """A chain of version 3: also the delays of the curve at its end were spread as fixed ones."""

    __slots__ = ()

    def part(self, _n: int) -> Backoff:
        return self


class _FromTheOneBefore(Jitter):
    """Decorrelated jitter of version 3: after a wait below the initial delay, nothing is drawn."""

    __slots__ = ()

    def spread(self, delay: float, u: float, previous: float, backoff: Backoff) -> float:
        initial = delay if backoff.kind == "chain" else backoff.base(1)
        longest = min(backoff.max_delay, 3.0 * (previous or initial))
        return initial + u * (max(longest, initial) - initial)


class _CappedAfterwards(Jitter):
    """Decorrelated jitter of version 1: all that is drawn above the cap is the cap."""

    __slots__ = ()

    def spread(self, _delay: float, u: float, previous: float, backoff: Backoff) -> float:
        initial = backoff.base(1)
        return min(backoff.max_delay, initial + u * (3.0 * (previous or initial) - initial))


def meet(
    care: Care, failure: BaseException, attempt: int
) -> Generator[Question | BaseException, Answer, Stop | None]:
    """Looks for another retry: one around this, or one inside that has given up."""
    if attempt == 1 and care.outer is Question.ENCLOSING:
        care.outer = yield Question.ENCLOSING
    mark = newest_mark(failure)
    is_inside = attempt == 1 and care.outer is not None
    if not is_inside and mark is None:
        return None
    mode = care.plan.policy.nested
    if mode == "refuse":
        yield NestedRetryError("", care.plan.operation, 0, 0)  # the end of that call has no event
    if mode == "warn":
        return None
    return COLLAPSED if is_inside else GIVEN_UP_INSIDE
