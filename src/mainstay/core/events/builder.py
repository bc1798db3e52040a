"""Builds the events of one call, with the fields that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import force_setattr

from mainstay.core.base.proof import RULE, Opening, Proof, stated
from mainstay.core.events.describe import describe
from mainstay.core.events.evidence import evidence_of
from mainstay.core.retry.effects import (
    COLLAPSED,
    EXHAUSTED,
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
    from mainstay.core.base.event import Event
    from mainstay.core.base.proof import Evidence
    from mainstay.core.base.types import Answer, Json
    from mainstay.core.retry.classify import Classification
    from mainstay.core.retry.effects import Outcome, Stop
    from mainstay.core.retry.plan import Plan


_STATED = stated(RULE)
_NO_PROOF = msgspec.UNSET


class EventBuilder:
    """Makes the events of one call, with the fields that they share.

    With an opening it also keeps the answers that the flow received, for the next proof.
    """

    __slots__ = (
        "_answers", "_attempt", "_call_id", "_described", "_opening", "_plan_id", "_who", "at",
        "plan", "started", "took", "witness",
    )  # fmt: skip

    def __init__(
        self,
        plan: Plan,
        started: float,
        opening: Opening | None = None,
        plan_id: str = "",
        call_id: str = "",
        category: str | None = None,
        tenant_id: str | None = None,
        correlation_id: str | None = None,
        trace_id: str | None = None,
    ) -> None:
        self.plan = plan
        self.started = started
        self.took: float | None = None
        """Seconds the last attempt took, if that was looked at."""
        self.at = ""
        """The timestamp of the events; the flow's have theirs when they are emitted."""
        self._plan_id = plan_id
        self._opening = opening
        self._answers: list[Answer] | None = None if opening is None else [*_STATED]
        self.witness: list[list[Json]] | None = None if opening is None else []
        """What the guards looked at since the last event."""
        self._described, self._attempt = ("", ""), 0
        """The type and the text of the last failure, looked at once for all its events, and the
        number of its attempt."""
        self._call_id = call_id
        """Known from the first failure on."""
        self._who: tuple[tuple[str, str | None], ...] = ()
        """Who the call is made for, if that is known."""
        if category or tenant_id or correlation_id or trace_id:
            self.make_for(category, tenant_id, correlation_id, trace_id)

    def make_for(
        self,
        category: str | None,
        tenant_id: str | None,
        correlation_id: str | None,
        trace_id: str | None,
    ) -> None:
        """States who the call is made for."""
        self._who = (
            ("retry_category", category), ("tenant_id", tenant_id),
            ("correlation_id", correlation_id), ("trace_id", trace_id),
        )  # fmt: skip

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
        """The answers and the witness since the last event; most calls keep none."""
        answers, witness = self._answers, self.witness
        if answers is None:
            return _NO_PROOF
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

    def _evidence(self, outcome: Outcome, verdict: Classification, /) -> Evidence:
        return evidence_of(outcome, verdict, self.plan.redact)

    def attempt_failed(
        self, outcome: Outcome, verdict: Classification, attempt: int, limit: int, key: int
    ) -> Event:
        if not self._call_id:
            self._call_id = f"{key:x}"
        if self._attempt != attempt:
            self._attempt, self._described = attempt, describe(outcome, self.plan.redact)
        name, message = self._described
        event = AttemptFailed(
            attempt_number=attempt,
            max_attempts=limit,
            exception_type=name,
            exception_message=message,
            kind=verdict.kind._value_,
            reason=verdict.reason,
            retryable=verdict.retryable,
            retry_after_seconds=None if verdict.hint is None else verdict.hint.seconds,
            attempt_seconds=self.took,
            proof=_NO_PROOF if self._answers is None else self._proof((outcome, verdict)),
            operation=self.plan.operation,
            policy=self.plan.policy.name,
            call_id=self._call_id,
            timestamp=self.at,
        )
        return self._placed(event) if self._who else event

    def retry_scheduled(
        self,
        outcome: Outcome,
        verdict: Classification,
        attempt: int,
        limit: int,
        delay: float,
        key: int,
    ) -> Event:
        return self.next_step(outcome, verdict, attempt, delay, key, 0.0, limit)

    def next_step(
        self,
        outcome: Outcome,
        verdict: Classification,
        attempt: int,
        delay: float,
        key: int,
        now: float,
        limit: int = 0,
    ) -> Event:
        """What follows a failure by `fast_decision`: a retry after the delay; the end below 0.

        The flow has a limit of its own, since a kind may have one.
        """
        if delay < 0.0:
            stop = EXHAUSTED if verdict.retryable else NOT_RETRYABLE
            return self.gave_up(outcome, verdict, attempt, stop, now)
        if self._attempt != attempt:
            self._attempt, self._described = attempt, describe(outcome, self.plan.redact)
        name, message = self._described
        policy = self.plan.policy
        event = RetryAttempt(
            attempt_number=attempt,
            max_attempts=limit or policy.max_attempts,
            delay_seconds=delay,
            exception_type=name,
            exception_message=message,
            kind=verdict.kind._value_,
            key=key,
            log_level=policy.log_level,
            proof=_NO_PROOF if self._answers is None else self._proof(),
            operation=self.plan.operation,
            policy=policy.name,
            call_id=self._call_id,
            timestamp=self.at,
        )
        return self._placed(event) if self._who else event

    def gave_up(
        self, outcome: Outcome, verdict: Classification, attempt: int, stop: Stop, now: float
    ) -> Event:
        if self._attempt != attempt:
            self._attempt, self._described = attempt, describe(outcome, self.plan.redact)
        name, message = self._described
        kind = CallFailed if stop in _NOT_FOR_US else RetryExhausted
        event = kind(
            total_attempts=attempt,
            total_seconds=max(0.0, now - self.started),
            final_exception_type=name,
            final_exception_message=message,
            kind=verdict.kind._value_,
            reason=f"{stop.text}; {verdict.reason}",
            proof=_NO_PROOF if self._answers is None else self._proof(),
            operation=self.plan.operation,
            policy=self.plan.policy.name,
            call_id=self._call_id,
            timestamp=self.at,
        )
        return self._placed(event) if self._who else event

    def call_succeeded(self, attempt: int, now: float) -> Event:
        seconds = now - self.started
        event = CallSucceeded(
            total_attempts=attempt,
            total_seconds=seconds if seconds > 0.0 else 0.0,  # noqa: FURB136 -- max() costs a third
            proof=_NO_PROOF if self._answers is None else self._proof(),
            operation=self.plan.operation,
            policy=self.plan.policy.name,
            call_id=self._call_id,
            timestamp=self.at,
        )
        return self._placed(event) if self._who else event

    def call_interrupted(self, attempt: int, by: str) -> Event:
        event = CallInterrupted(total_attempts=attempt, by=by, timestamp=self.at)
        return self._placed(event, is_bare=True)

    def call_refused(self, refusal: BaseException) -> Event:
        name, message = describe(refusal, self.plan.redact)
        wait = getattr(refusal, "retry_after", None)
        proof = self._proof()
        event = CallRefused(by=name, reason=message, retry_after_seconds=wait, proof=proof)
        return self._placed(event, is_bare=True)

    def hook_failed(self, hook: str, error: BaseException) -> Event:
        name, message = describe(error, self.plan.redact)
        event = HookFailed(hook=hook, exception_type=name, exception_message=message)
        return self._placed(event, is_bare=True)

    def _placed(self, event: Event, *, is_bare: bool = False) -> Event:
        """An event with whom its call is made for; a bare one also gets operation and call.

        They are set one by one, since keywords in a dictionary cost an event as much again.
        """
        if is_bare:
            force_setattr(event, "operation", self.plan.operation)
            force_setattr(event, "policy", self.plan.policy.name)
            force_setattr(event, "call_id", self._call_id)
        for name, value in self._who:
            force_setattr(event, name, value)
        return event


_NOT_FOR_US = (NOT_RETRYABLE, COLLAPSED, GIVEN_UP_INSIDE, MAY_BE_APPLIED, REFUSED)
"""Reasons for which a call is not retried though attempts are left."""
