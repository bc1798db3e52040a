"""Builds the events of one call, with the fields that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mainstay.core.base.proof import RULE, Opening, Proof, stated
from mainstay.core.events.describe import describe
from mainstay.core.events.evidence import evidence_of
from mainstay.core.retry.effects import (
    COLLAPSED,
    GIVEN_UP_INSIDE,
    MAY_BE_APPLIED,
    NOT_RETRYABLE,
    REFUSED,
)
from mainstay.core.retry.events import (
    AttemptFailed,
    CallFailed,
    CallInterrupted,
    CallRefused,
    CallSucceeded,
    HookFailed,
    RetryAttempt,
    RetryExhausted,
)

if TYPE_CHECKING:
    from typing import TypedDict

    from mainstay.core.base.event import Event
    from mainstay.core.base.proof import Evidence
    from mainstay.core.base.types import Answer, Json
    from mainstay.core.retry.classify import Classification
    from mainstay.core.retry.effects import Outcome, Stop
    from mainstay.core.retry.plan import Plan

    class _Common(TypedDict):
        """The fields that every event of a call has."""

        operation: str
        policy: str
        call_id: str
        retry_category: str | None
        tenant_id: str | None
        correlation_id: str | None
        trace_id: str | None


_STATED = stated(RULE)


class EventBuilder:
    """Makes the events of one call, with the fields that they share.

    With an opening it also keeps the answers that the flow received, for the next proof.
    """

    __slots__ = ("_answers", "_opening", "_plan_id", "_same", "plan", "started", "took", "witness")

    def __init__(
        self,
        plan: Plan,
        started: float,
        *,
        category: str | None = None,
        tenant_id: str | None = None,
        correlation_id: str | None = None,
        trace_id: str | None = None,
        opening: Opening | None = None,
        plan_id: str = "",
    ) -> None:
        self.plan = plan
        self.started = started
        self.took: float | None = None
        """Seconds the last attempt took, if that was looked at."""
        self._plan_id = plan_id
        self._opening = opening
        self._answers: list[Answer] | None = None if opening is None else [*_STATED]
        self.witness: list[list[Json]] | None = None if opening is None else []
        """What the guards looked at since the last event."""
        self._same: _Common = {
            "operation": plan.operation,
            "policy": plan.policy.name,
            "call_id": "",  # known from the first failure on
            "retry_category": category,
            "tenant_id": tenant_id,
            "correlation_id": correlation_id,
            "trace_id": trace_id,
        }

    @property
    def keeps(self) -> bool:
        """Whether a listener wants the answers that the flow received."""
        return self._answers is not None

    def record_answer(self, answer: Answer) -> None:
        """Keeps an answer, if a listener wants evidence."""
        if self._answers is not None:
            self._answers.append(answer)

    def goes_on(self, key: Answer, attempts: int) -> None:
        """The key was drawn before; after the first attempt, the opening was emitted before too."""
        if attempts == 1:
            self.record_answer(key)
            return
        self._opening = None  # with which the version of the rules was stated
        self._answers = None if self._answers is None else []

    def saw(self, guard: str, state: list[Json], answer: Json) -> None:
        """Keeps what a guard looked at and answered."""
        if self.witness is not None:
            self.witness.append([guard, state, answer])

    def _proof(
        self, failed: tuple[Outcome, Classification] | None = None
    ) -> Proof | msgspec.UnsetType:
        """The answers and the witness since the last event."""
        answers, witness = self._answers, self.witness
        if answers is None:
            return msgspec.UNSET
        opening, self._opening = self._opening, None
        self._answers = []
        if witness:
            self.witness = []
        return Proof(
            self._plan_id,
            None if failed is None else opening,
            None if failed is None else self._evidence(*failed),
            answers,
            witness or None,
        )

    def _describe(self, outcome: Outcome) -> tuple[str, str]:
        return describe(outcome, self.plan.redact)

    def _evidence(self, outcome: Outcome, verdict: Classification, /) -> Evidence:
        return evidence_of(outcome, verdict, self.plan.redact)

    def attempt_failed(
        self, outcome: Outcome, verdict: Classification, attempt: int, limit: int, key: int
    ) -> Event:
        self._same["call_id"] = f"{key:x}"
        name, message = self._describe(outcome)
        return AttemptFailed(
            attempt_number=attempt,
            max_attempts=limit,
            exception_type=name,
            exception_message=message,
            kind=verdict.kind.value,
            reason=verdict.reason,
            retryable=verdict.retryable,
            retry_after_seconds=verdict.retry_after,
            attempt_seconds=self.took,
            proof=self._proof((outcome, verdict)),
            **self._same,
        )

    def retry_scheduled(
        self,
        outcome: Outcome,
        verdict: Classification,
        attempt: int,
        limit: int,
        delay: float,
        key: int,
    ) -> Event:
        name, message = self._describe(outcome)
        return RetryAttempt(
            attempt_number=attempt,
            max_attempts=limit,
            delay_seconds=delay,
            exception_type=name,
            exception_message=message,
            kind=verdict.kind.value,
            key=key,
            log_level=self.plan.policy.log_level,
            proof=self._proof(),
            **self._same,
        )

    def gave_up(
        self, outcome: Outcome, verdict: Classification, attempt: int, stop: Stop, now: float
    ) -> Event:
        name, message = self._describe(outcome)
        kind = CallFailed if stop in _NOT_FOR_US else RetryExhausted
        return kind(
            total_attempts=attempt,
            total_seconds=max(0.0, now - self.started),
            final_exception_type=name,
            final_exception_message=message,
            kind=verdict.kind.value,
            reason=f"{stop.text}; {verdict.reason}",
            proof=self._proof(),
            **self._same,
        )

    def call_succeeded(self, attempt: int, now: float) -> Event:
        seconds = max(0.0, now - self.started)
        return CallSucceeded(
            total_attempts=attempt, total_seconds=seconds, proof=self._proof(), **self._same
        )

    def call_interrupted(self, attempt: int, by: str) -> Event:
        return CallInterrupted(total_attempts=attempt, by=by, **self._same)

    def call_refused(self, refusal: BaseException) -> Event:
        name, message = describe(refusal, self.plan.redact)
        wait = getattr(refusal, "retry_after", None)
        proof = self._proof()
        return CallRefused(
            by=name, reason=message, retry_after_seconds=wait, proof=proof, **self._same
        )

    def hook_failed(self, hook: str, error: BaseException) -> Event:
        name, message = describe(error, self.plan.redact)
        return HookFailed(hook=hook, exception_type=name, exception_message=message, **self._same)


_NOT_FOR_US = (NOT_RETRYABLE, COLLAPSED, GIVEN_UP_INSIDE, MAY_BE_APPLIED, REFUSED)
"""Reasons for which a call is not retried though attempts are left."""
