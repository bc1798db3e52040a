"""Predicates of the user's that return something to await: the effect that asks a driver for it.

A predicate is asked by the core, like any function that a policy holds. If what it returned must be
awaited, the flow yields `AwaitAnswer`, and the driver answers: what it came to, what it raised, or
None in a sync call. A coroutine object is never taken for an answer: it would count as true.
"""

from __future__ import annotations

from mainstay.core.base.functions import is_async, is_awaitable
from mainstay.core.retry.classify import UNANSWERABLE, Answers, Unanswered, classify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

    from mainstay.core.base.types import Answer, UserValue
    from mainstay.core.retry.classify import Classification
    from mainstay.core.retry.policy import Policy


class AwaitAnswer:
    """Asks the driver to await what a predicate returned.

    The answer is a bool, the exception that was raised, or None if nothing can await it here.
    """

    __slots__ = ("awaitable",)

    def __init__(self, awaitable: UserValue) -> None:
        self.awaitable = awaitable


def judged(
    exception: BaseException, policy: Policy
) -> Generator[AwaitAnswer, Answer, Classification]:
    """The classification of a failure; what predicates return is awaited where it must be."""
    answers = Answers(waits=True)
    while True:
        try:
            return classify(exception, policy._rules, answers)
        except Unanswered as unanswered:
            awaitable = unanswered.awaitable
        answers.begin_again((yield AwaitAnswer(awaitable)))


def truth_of(answer: UserValue) -> Generator[AwaitAnswer, Answer, bool]:
    """Whether what a predicate returned is true, awaited if it must be; raises what that raised.

    Raises:
        TypeError: if it must be awaited, and nothing can await it.
    """
    if not is_awaitable(answer):
        return bool(answer)
    answer = yield AwaitAnswer(answer)
    if isinstance(answer, Exception):
        raise answer
    if answer is None:
        raise TypeError(UNANSWERABLE)
    return bool(answer)


def async_fields(policy: Policy) -> list[str]:
    """The fields of a policy that hold a predicate which is declared as async.

    >>> from mainstay.core.retry.policy import Policy
    >>> async def is_busy(error): ...
    >>> async_fields(Policy(retry_on=is_busy))
    ['retry_on']
    """
    names = ("retry_on", "never_retry_on", "classify") if policy._rules.functions else ()
    found = [name for name in names if any(map(is_async, getattr(policy, name) or ()))]
    if policy.retry_if_result is not None and is_async(policy.retry_if_result):
        found.append("retry_if_result")
    return found
