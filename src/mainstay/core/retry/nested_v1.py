"""Nested retries by version 1 of the rules, for the replay of calls that were recorded under it.

By that version an inner retry made one attempt if an enclosing one would have retried its failure,
and its own `nested` decided. No call is decided so now.
"""

from __future__ import annotations

from mainstay.core.retry.effects import COLLAPSED, GIVEN_UP_INSIDE, Question
from mainstay.core.retry.give_up import newest_mark
from mainstay.errors import NestedRetryError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Protocol

    from mainstay.core.base.types import Answer
    from mainstay.core.retry.effects import Stop
    from mainstay.core.retry.plan import Plan

    class Care(Protocol):
        """The call that is decided: its plan, and the retry around it if that is known."""

        plan: Plan
        outer: Answer


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
