"""Events of sagas, and of a partial failure that is compensated without one."""

from __future__ import annotations

from typing import ClassVar

from mainstay.core.base.event import Event

__all__ = [
    "EffectCompensated",
    "EffectPartiallyFailed",
    "SagaEnded",
    "SagaRecovered",
    "SagaStepFailed",
    "SagaStepUndone",
    "SagaStuck",
]


class EffectPartiallyFailed(Event, frozen=True, kw_only=True, tag="effect_partially_failed"):
    """An effect has failed after a part of it was applied: that part is undone now.

    >>> EffectPartiallyFailed(operation="create_user", effect_key="u-1").event_type
    'effect_partially_failed'
    """

    level: ClassVar[str] = "WARNING"
    effect_key: str = ""
    exception_type: str = ""
    exception_message: str = ""

    def sentence(self) -> str:
        return (
            f"{self.operation}: {self.effect_key} failed after a part of it was applied:"
            f" {self.exception_type}: {self.exception_message}"
        )


class EffectCompensated(Event, frozen=True, kw_only=True, tag="effect_compensated"):
    """The compensation of a partial failure has ended.

    It is a `success` if the undo has run, and so has the publication of the compensating event, if
    there is one; `item` is that of the inbox.

    >>> EffectCompensated(operation="create_user", effect_key="u-1", success=True).event_type
    'effect_compensated'
    """

    level: ClassVar[str] = "INFO"
    effect_key: str = ""
    success: bool = False
    is_undone: bool = False
    is_published: bool = False
    exception_type: str = ""
    exception_message: str = ""
    item: str = ""

    @property
    def logged_at(self) -> str:
        return "INFO" if self.success else "ERROR"

    def sentence(self) -> str:
        if self.success:
            return f"{self.operation}: {self.effect_key} is compensated"
        what = "its compensating event was not published" if self.is_undone else "it is not undone"
        return (
            f"{self.operation}: {self.effect_key} is not compensated: {what}:"
            f" {self.exception_type}: {self.exception_message}"
        )


class SagaStepFailed(Event, frozen=True, kw_only=True, tag="saga_step_failed"):
    """A step of a saga has failed, after its retries.

    `completed` is the number of steps that were done before; `in_doubt` if it may have happened.

    >>> SagaStepFailed(operation="transfer", saga_id="t-1", step="credit").event_type
    'saga_step_failed'
    """

    level: ClassVar[str] = "WARNING"
    saga_id: str = ""
    step: str = ""
    exception_type: str = ""
    exception_message: str = ""
    completed: int = 0
    in_doubt: bool = False

    def sentence(self) -> str:
        doubt = ", and may have happened" if self.in_doubt else ""
        return (
            f"{self.operation}: saga {self.saga_id}: step {self.step} failed{doubt}:"
            f" {self.exception_type}: {self.exception_message}"
        )


class SagaStepUndone(Event, frozen=True, kw_only=True, tag="saga_step_undone"):
    """The compensation of a step has ended: `success` if the step is undone.

    >>> SagaStepUndone(operation="transfer", saga_id="t-1", step="debit", success=True).event_type
    'saga_step_undone'
    """

    level: ClassVar[str] = "INFO"
    saga_id: str = ""
    step: str = ""
    success: bool = False
    exception_type: str = ""
    exception_message: str = ""

    @property
    def logged_at(self) -> str:
        return "INFO" if self.success else "ERROR"

    def sentence(self) -> str:
        what = "is undone" if self.success else "could not be undone:"
        error = "" if self.success else f" {self.exception_type}: {self.exception_message}"
        return f"{self.operation}: saga {self.saga_id}: step {self.step} {what}{error}"


class SagaRecovered(Event, frozen=True, kw_only=True, tag="saga_recovered"):
    """A saga was taken over from a process that is gone.

    >>> SagaRecovered(operation="transfer", saga_id="t-1", recoveries=1).event_type
    'saga_recovered'
    """

    level: ClassVar[str] = "INFO"
    saga_id: str = ""
    state: str = ""
    recoveries: int = 0

    def sentence(self) -> str:
        return (
            f"{self.operation}: saga {self.saga_id}: recovered while {self.state}"
            f" (recovery {self.recoveries})"
        )


class SagaStuck(Event, frozen=True, kw_only=True, tag="saga_stuck"):
    """A saga can go on only if a person decides how.

    >>> SagaStuck(operation="transfer", saga_id="t-1", step="debit", phase="undo").event_type
    'saga_stuck'
    """

    level: ClassVar[str] = "ERROR"
    saga_id: str = ""
    step: str = ""
    phase: str = ""
    text: str = ""

    def sentence(self) -> str:
        return f"{self.operation}: saga {self.saga_id}: stuck: {self.text}"


class SagaEnded(Event, frozen=True, kw_only=True, tag="saga_ended"):
    """A saga has ended: `state` is "succeeded" or "compensated".

    >>> SagaEnded(operation="transfer", saga_id="t-1", state="compensated").logged_at
    'WARNING'
    """

    level: ClassVar[str] = "DEBUG"
    saga_id: str = ""
    state: str = ""
    recoveries: int = 0

    @property
    def logged_at(self) -> str:
        return "DEBUG" if self.state == "succeeded" else "WARNING"

    def sentence(self) -> str:
        return f"{self.operation}: saga {self.saga_id}: {self.state}"
