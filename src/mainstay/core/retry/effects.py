"""What the flow of a call yields and receives: questions, outcomes, reasons to stop.

A bare float means "wait, then invoke"; it is the only effect without an object of its own.
"""

from __future__ import annotations

from enum import Enum

from mainstay.errors import MainstayWarning

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol, TypeAlias

    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Answer, UserValue
    from mainstay.core.retry.classify import Classification
    from mainstay.core.retry.policy import Policy

    Outcome: TypeAlias = "Returned | BaseException"
    """How an attempt ended."""

    class CallEvents(Protocol):
        """Builds the events of one call; core/events/builder.py is one."""

        def record_answer(self, answer: Answer) -> None: ...
        def attempt_failed(
            self, outcome: Outcome, verdict: Classification, attempt: int, limit: int, key: int
        ) -> Event: ...
        def retry_scheduled(
            self,
            outcome: Outcome,
            verdict: Classification,
            attempt: int,
            limit: int,
            delay: float,
            key: int,
        ) -> Event: ...
        def gave_up(
            self, outcome: Outcome, verdict: Classification, attempt: int, stop: Stop, now: float
        ) -> Event: ...
        def call_succeeded(self, attempt: int, now: float) -> Event: ...


class Question(Enum):
    """What only a driver can answer."""

    NOW = "the monotonic clock"
    WALL = "the wall clock"
    DRAW = "the key of this call"
    ENCLOSING = "the retry that encloses this one and refuses it, if any"
    SINCE = "the moment at which the attempt began, as marks count moments"
    LEFT = "the seconds that the caller has left"

    __hash__ = object.__hash__  # that of an enum is a Python function, and a driver looks it up


class Returned:
    """A value the function returned; not accepted if `retry_if_result` wanted another."""

    __slots__ = ("is_accepted", "value")

    def __init__(self, value: UserValue, is_accepted: bool = True) -> None:
        self.value = value
        self.is_accepted = is_accepted


class Warn:
    """Asks the driver to warn once of something a developer should change."""

    __slots__ = ("category", "subjects", "text")

    def __init__(self, category: type[Warning], text: str, *subjects: object) -> None:
        self.category = category
        self.text = text
        self.subjects = subjects
        """What it is about; if there was a warning about the first, there is no other."""


def function_warning(policy: Policy, error: Exception) -> Warn:
    """Warns that a function of the user's raised, and that the call goes on without it."""
    text = f"a function of policy {policy.name!r} raised {_shown(error)} and was not heeded"
    return Warn(MainstayWarning, text, (policy.name, type(error)))


def _shown(error: Exception) -> str:
    try:
        return repr(error)
    except Exception:
        return f"a {type(error).__name__} that cannot be shown"


class Enclosing:
    """The answer to Question.ENCLOSING: an outer retry that would retry this failure too."""

    __slots__ = ("attempts", "operation")

    def __init__(self, operation: str, attempts: int) -> None:
        self.operation = operation
        self.attempts = attempts

    @property
    def plain(self) -> list[str | int]:
        """As a record holds it."""
        return [self.operation, self.attempts]


class Consult:
    """Asks the guards whether a failed attempt may be repeated.

    The answer is the delay, a longer one, or a Stop. The failure is None for a result that was not
    accepted.
    """

    __slots__ = ("delay", "failure")

    def __init__(self, failure: BaseException | None, delay: float) -> None:
        self.failure = failure
        self.delay = delay


class Stop:
    """Why a call is given up; one object for each reason there is, and guards have their own."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


NOT_RETRYABLE = Stop("not retryable")
EXHAUSTED = Stop("no attempt left")
KIND_EXHAUSTED = Stop("no attempt left for this kind of failure")
OUT_OF_TIME = Stop("the deadline leaves no time for another attempt")
RETRY_AFTER = Stop("the server asked for a longer wait than allowed")
COLLAPSED = Stop("left to the enclosing retry")
GIVEN_UP_INSIDE = Stop("an inner retry has given up on it")
REFUSED = Stop("the enclosing retry refuses a retry inside it")
MAY_BE_APPLIED = Stop("it may have been applied")
CUT = Stop("it was cancelled")

TOO_LATE = Stop("there was no time left to start the attempt")
"""A driver's answer if the time ran out in a hook or a wait, and nothing was invoked. If a
guard refused the attempt, the answer is that guard's Stop."""
