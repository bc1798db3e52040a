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


def jitter_of(plain: Mapping[str, Any], rule: int) -> Jitter:
    """The jitter of a record, as that version of the rules spreads a delay.

    >>> now, then = (jitter_of({"kind": "decorrelated", "amount": 0.0}, rule) for rule in (2, 1))
    >>> curve = Backoff.exponential(1.0, max_delay=5.0)
    >>> [each.spread(5.0, u=0.5, previous=5.0, backoff=curve) for each in (now, then)]
    [3.0, 5.0]
    """
    if rule == 1 and plain["kind"] == "decorrelated":
        return _CappedAfterwards.from_dict(plain)
    return Jitter.from_dict(plain)


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
