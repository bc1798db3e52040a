"""Predicates of the user's that return something to await: the effect that asks a driver for it.

A predicate is asked by the core, like any function that a policy holds. If what it returned must be
awaited, the flow yields `AwaitAnswer`, and the driver answers: what it came to, what it raised, or
None in a sync call. A coroutine object is never taken for an answer: it would count as true.
"""

from __future__ import annotations

from mainstay.core.base.functions import discard, is_awaitable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import TypeVar

    from mainstay.core.base.types import Answer, UserValue

    R = TypeVar("R")

UNANSWERABLE = "a predicate returned something to await, and nothing awaits it in a sync call"


class AwaitAnswer:
    """Asks the driver to await what a predicate returned.

    The answer is a bool, the exception that was raised, or None if nothing can await it here.
    """

    __slots__ = ("awaitable",)

    def __init__(self, awaitable: UserValue) -> None:
        self.awaitable = awaitable


class Unanswered(Exception):
    """A predicate returned something to await; there is no answer yet."""

    def __init__(self, awaitable: UserValue) -> None:
        super().__init__()
        self.awaitable = awaitable


class Unanswerable(Exception):
    """Nothing can await what a predicate returned, so the failure is final."""


class Answers:
    """What predicates have answered in one classification, in the order they were asked.

    With `waits` it is begun again after one was awaited: those before it are not asked again.
    """

    __slots__ = ("errors", "given", "used", "waits")

    def __init__(self, *, waits: bool = False) -> None:
        self.given: list[bool | None] = []
        self.errors: list[Exception] = []
        """What predicates raised."""
        self.used = 0
        self.waits = waits

    def ask(self, predicate: Callable[[Exception], object], exception: BaseException) -> bool:
        """What it answers, now or earlier; one that raises has not matched, and is reported."""
        if self.used == len(self.given):
            self.given.append(self._ask(predicate, exception))
        answer = self.given[self.used]
        self.used += 1
        if answer is None:
            raise Unanswerable
        return answer

    def begin_again(self, answer: bool | Exception | None) -> None:
        """Takes what was awaited: an answer, what it raised, or None if nothing can await it."""
        if isinstance(answer, Exception):
            self.errors.append(answer)
            answer = False
        elif answer is None:
            self.errors.append(TypeError(UNANSWERABLE))
        self.given.append(answer)
        self.used = 0

    def _ask(self, predicate: UserValue, exception: BaseException) -> bool | None:
        try:
            answer = predicate(exception)
            if answer is False or answer is True or not is_awaitable(answer):
                return bool(answer)
        except Exception as error:
            self.errors.append(error)
            return False
        if self.waits:
            raise Unanswered(answer)
        discard(answer)
        self.errors.append(TypeError(UNANSWERABLE))
        return None


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


def functions_in(*rules: tuple[R, ...] | None) -> tuple[R, ...]:
    """The rules that are functions of the user's.

    >>> [each.__name__ for each in functions_in((OSError, "SlowDown", callable), None)]
    ['callable']
    """
    each = (rule for some in rules for rule in some or ())
    return tuple(rule for rule in each if not isinstance(rule, type | str))
