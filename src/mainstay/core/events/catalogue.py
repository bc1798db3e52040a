"""Every event: its name, version and exact fields; the codec; and the Teller who makes them.

An event is a fact in the past tense, frozen, with a version. Recorded versions are immutable: a
field is never renamed or given another meaning; new fields have a default, so that old records
decode for ever. `tests/core/recorded/` holds a record of every version there ever was.

The names of retry_attempt, retry_exhausted and idempotency are those of the control-plane
specification, with all its fields.

Where a listener wants evidence, an event's `proof` holds what replay needs; see core/events/evidence.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from mainstay.core.events.evidence import Opening, Proof, evidence_of
from mainstay.core.retry.effects import (
    COLLAPSED,
    GIVEN_UP_INSIDE,
    MAY_BE_APPLIED,
    NOT_RETRYABLE,
    Returned,
)
from mainstay.core.retry.kinds import qualified_name

if TYPE_CHECKING:
    from mainstay.core.events.evidence import Evidence
    from mainstay.core.redact.redactor import Redactor
    from mainstay.core.retry.classify import Classification
    from mainstay.core.retry.effects import Stop
    from mainstay.core.retry.plan import Plan


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event_type"):
    """What every event carries.

    `attempt_number` in an event is the attempt that has just ended; `delay_seconds` the wait
    before the next one.

    >>> decode(b'{"event_type":"call_succeeded","operation":"fetch","total_attempts":2}').operation
    'fetch'
    """

    version: int = 1
    operation: str = ""
    policy: str = ""
    call_id: str = ""
    retry_category: str | None = None
    tenant_id: str | None = None
    correlation_id: str | None = None
    trace_id: str | None = None
    timestamp: str = ""
    proof: Proof | msgspec.UnsetType = msgspec.UNSET
    """Where a listener wants evidence; elsewhere it is no field of the record at all."""
    level: ClassVar[str] = "DEBUG"
    is_security: ClassVar[bool] = False
    """Whether it tells who may do what: a circuit that opens, an order, an operator."""

    @property
    def event_type(self) -> str:
        """The event's name, as records spell it."""
        return str(type(self).__struct_config__.tag)

    @property
    def proved(self) -> Proof | None:
        """The proof, where there is one."""
        return self.proof or None

    def to_dict(self) -> dict[str, Any]:
        """The event as plain data, `event_type` first."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


class AttemptFailed(Event, frozen=True, kw_only=True, tag="attempt_failed"):
    """An attempt ended in a failure, and was classified.

    >>> AttemptFailed(attempt_number=1, kind="transient").event_type
    'attempt_failed'
    """

    attempt_number: int = 0
    max_attempts: int = 0
    exception_type: str = ""
    exception_message: str = ""
    kind: str = ""
    reason: str = ""
    retryable: bool = False
    retry_after_seconds: float | None = None
    attempt_seconds: float | None = None


class RetryAttempt(Event, frozen=True, kw_only=True, tag="retry_attempt"):
    """A retry is scheduled.

    >>> RetryAttempt(attempt_number=1, delay_seconds=0.1).event_type
    'retry_attempt'
    """

    attempt_number: int = 0
    max_attempts: int = 0
    delay_seconds: float = 0.0
    exception_type: str = ""
    exception_message: str = ""
    kind: str = ""
    key: int = 0
    log_level: str = "WARNING"
    level: ClassVar[str] = "WARNING"


class GivenUp(Event, frozen=True, kw_only=True):
    """What the two ends of a failed call have in common."""

    total_attempts: int = 0
    total_seconds: float = 0.0
    final_exception_type: str = ""
    final_exception_message: str = ""
    kind: str = ""
    reason: str = ""
    level: ClassVar[str] = "ERROR"


class RetryExhausted(GivenUp, frozen=True, kw_only=True, tag="retry_exhausted"):
    """A call was given up after its retries ran out, of attempts or of time.

    >>> RetryExhausted(total_attempts=3).event_type
    'retry_exhausted'
    """


class CallFailed(GivenUp, frozen=True, kw_only=True, tag="call_failed"):
    """A call failed and was not retried: the failure is final, or left to an enclosing retry.

    >>> CallFailed(kind="permanent").event_type
    'call_failed'
    """


class CallSucceeded(Event, frozen=True, kw_only=True, tag="call_succeeded"):
    """A call returned; INFO where it took retries, DEBUG where it did not.

    >>> CallSucceeded(total_attempts=2).event_type
    'call_succeeded'
    """

    total_attempts: int = 0
    total_seconds: float = 0.0
    level: ClassVar[str] = "INFO"


class CallInterrupted(Event, frozen=True, kw_only=True, tag="call_interrupted"):
    """A call was cancelled: by its task, by Ctrl+C, or by the caller's cancel event.

    >>> CallInterrupted(total_attempts=1).event_type
    'call_interrupted'
    """

    total_attempts: int = 0
    by: str = ""
    level: ClassVar[str] = "INFO"


class HookFailed(Event, frozen=True, kw_only=True, tag="hook_failed"):
    """A hook raised; the outcome of the call is not changed by it.

    >>> HookFailed(hook="before_retry").event_type
    'hook_failed'
    """

    hook: str = ""
    exception_type: str = ""
    exception_message: str = ""
    level: ClassVar[str] = "ERROR"


class Idempotency(Event, frozen=True, kw_only=True, tag="idempotency"):
    """An idempotency record was hit or written (`action` is "hit" or "record").

    >>> Idempotency(action="hit", idempotency_key="abc").event_type
    'idempotency'
    """

    idempotency_key: str = ""
    action: str = ""


class CircuitStateChanged(Event, frozen=True, kw_only=True, tag="circuit_state_changed"):
    """A circuit went from one state to another; `operation` is the circuit's name.

    In metrics-only both states are the same, and `reason` says what would have opened it.

    >>> CircuitStateChanged(from_state="closed", to_state="open").event_type
    'circuit_state_changed'
    """

    from_state: str = ""
    to_state: str = ""
    reason: str = ""
    failure_count: int = 0
    success_count: int = 0
    generation: int = 0
    retry_after_seconds: float | None = None
    level: ClassVar[str] = "INFO"
    is_security: ClassVar[bool] = True


class CircuitOrdered(Event, frozen=True, kw_only=True, tag="circuit_ordered"):
    """An operator gave an order to a circuit in every process; `operation` is the circuit's name.

    Each process that follows it tells of that by a `circuit_state_changed` of its own.

    >>> CircuitOrdered(operation="pay", order="force open", operator="ann").event_type
    'circuit_ordered'
    """

    order: str = ""
    operator: str = ""
    why: str = ""
    level: ClassVar[str] = "WARNING"
    is_security: ClassVar[bool] = True


class CallRefused(Event, frozen=True, kw_only=True, tag="call_refused"):
    """A call was not made, because a guard refused its first attempt.

    >>> CallRefused(by="CircuitOpenError").event_type
    'call_refused'
    """

    by: str = ""
    reason: str = ""
    retry_after_seconds: float | None = None
    level: ClassVar[str] = "WARNING"


class AttemptHedged(Event, frozen=True, kw_only=True, tag="attempt_hedged"):
    """A second attempt was started beside one that took long.

    >>> AttemptHedged(waited_seconds=0.2).event_type
    'attempt_hedged'
    """

    waited_seconds: float = 0.0
    hedge_number: int = 0


class FallbackUsed(Event, frozen=True, kw_only=True, tag="fallback_used"):
    """A call failed, and its fallback answered in its place.

    >>> FallbackUsed(exception_type="ConnectionError").event_type
    'fallback_used'
    """

    exception_type: str = ""
    exception_message: str = ""
    level: ClassVar[str] = "WARNING"


class Alert(Event, frozen=True, kw_only=True):
    """What the two ends of an alert have in common; whom it is about stands in the fields above."""

    alert: str = ""
    metric: str = ""
    value: float = 0.0
    threshold: float = 0.0
    window_seconds: float = 0.0
    group: str = ""


class AlertFired(Alert, frozen=True, kw_only=True, tag="alert_fired"):
    """A metric has gone past the threshold of an alert rule.

    >>> AlertFired(alert="failing", metric="failure_rate", value=0.7).event_type
    'alert_fired'
    """

    level: ClassVar[str] = "WARNING"


class AlertCleared(Alert, frozen=True, kw_only=True, tag="alert_cleared"):
    """A metric that had fired an alert is well back.

    >>> AlertCleared(alert="failing", lasted_seconds=90.0).event_type
    'alert_cleared'
    """

    lasted_seconds: float = 0.0
    level: ClassVar[str] = "INFO"


class PlanDeclared(Event, frozen=True, kw_only=True, tag="plan_declared"):
    """A plan that proofs refer to: the policy, how safe repeating is, and the guards.

    >>> PlanDeclared(plan="3f2a", fields={"max_attempts": 3}).event_type
    'plan_declared'
    """

    plan: str = ""
    fields: dict[str, Any] = {}
    idempotency: str = "idempotent"
    guards: list[dict[str, Any]] = []


class CallsCounted(Event, frozen=True, kw_only=True, tag="calls_counted"):
    """So many calls of an operation succeeded at once since the last count.

    >>> CallsCounted(operation="fetch", calls=1200).event_type
    'calls_counted'
    """

    calls: int = 0


class InboxRaised(Event, frozen=True, kw_only=True, tag="inbox_raised"):
    """A matter for a person has come up; the same one again is not told again.

    >>> InboxRaised(item="3f2a", item_kind="exhausted").event_type
    'inbox_raised'
    """

    item: str = ""
    item_kind: str = ""
    severity: str = ""
    text: str = ""
    level: ClassVar[str] = "WARNING"


class InboxDecided(Event, frozen=True, kw_only=True, tag="inbox_decided"):
    """A person has decided what becomes of a matter.

    >>> InboxDecided(item="3f2a", decision="retry", operator="ann").event_type
    'inbox_decided'
    """

    item: str = ""
    item_kind: str = ""
    decision: str = ""
    operator: str = ""
    why: str = ""
    decided_evidence: str = ""
    revision: int = 0
    level: ClassVar[str] = "INFO"
    is_security: ClassVar[bool] = True


class InboxClosed(Event, frozen=True, kw_only=True, tag="inbox_closed"):
    """What was decided about a matter was carried out.

    >>> InboxClosed(item="3f2a", decision="retry", result="the circuit was reset").event_type
    'inbox_closed'
    """

    item: str = ""
    item_kind: str = ""
    decision: str = ""
    operator: str = ""
    result: str = ""
    level: ClassVar[str] = "INFO"
    is_security: ClassVar[bool] = True


class OperatorRefused(Event, frozen=True, kw_only=True, tag="operator_refused"):
    """Somebody who wanted to act was not let: a wrong secret, a name nobody has, too many tries.

    >>> OperatorRefused(operator="ann", about="retry 3f2a").event_type
    'operator_refused'
    """

    operator: str = ""
    about: str = ""
    reason: str = ""
    level: ClassVar[str] = "WARNING"
    is_security: ClassVar[bool] = True


class OperatorAdded(Event, frozen=True, kw_only=True, tag="operator_added"):
    """Somebody may act on the inbox from now on.

    >>> OperatorAdded(operator="bob", authorised_by="ann").event_type
    'operator_added'
    """

    operator: str = ""
    authorised_by: str = ""
    level: ClassVar[str] = "INFO"
    is_security: ClassVar[bool] = True


class OperatorChanged(Event, frozen=True, kw_only=True, tag="operator_changed"):
    """An operator was disabled, enabled or removed, or has another secret.

    >>> OperatorChanged(operator="bob", change="disabled").event_type
    'operator_changed'
    """

    operator: str = ""
    change: str = ""
    authorised_by: str = ""
    level: ClassVar[str] = "INFO"
    is_security: ClassVar[bool] = True


CATALOGUE: dict[str, type[Event]] = {
    str(cls.__struct_config__.tag): cls
    for cls in (
        AlertCleared,
        AlertFired,
        AttemptFailed,
        AttemptHedged,
        CallFailed,
        CallInterrupted,
        CallRefused,
        CallSucceeded,
        CallsCounted,
        CircuitOrdered,
        CircuitStateChanged,
        FallbackUsed,
        HookFailed,
        Idempotency,
        InboxClosed,
        InboxDecided,
        InboxRaised,
        OperatorAdded,
        OperatorChanged,
        OperatorRefused,
        PlanDeclared,
        RetryAttempt,
        RetryExhausted,
    )
}
"""Every event by its name."""

_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder(
    AlertCleared
    | AlertFired
    | AttemptFailed
    | AttemptHedged
    | CallFailed
    | CallInterrupted
    | CallRefused
    | CallSucceeded
    | CallsCounted
    | CircuitOrdered
    | CircuitStateChanged
    | FallbackUsed
    | HookFailed
    | Idempotency
    | InboxClosed
    | InboxDecided
    | InboxRaised
    | OperatorAdded
    | OperatorChanged
    | OperatorRefused
    | PlanDeclared
    | RetryAttempt
    | RetryExhausted
)


def encode(event: Event) -> bytes:
    """The event as canonical JSON: sorted keys, UTF-8.

    >>> decode(encode(CallSucceeded(total_attempts=1))).total_attempts
    1
    """
    return _encoder.encode(event)


def decode(data: bytes | str) -> Event:
    """The event of a recorded line, of any version.

    >>> decode('{"event_type":"idempotency","action":"hit"}').action
    'hit'
    """
    event: Event = _decoder.decode(data)
    return event


class Teller:
    """Makes the events of one call, with who and what filled in.

    With an opening it also keeps what the call was told, and hands it on with the next event.
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
        """Seconds the last attempt took, where that was looked at."""
        self._plan_id = plan_id
        self._opening = opening
        self._answers: list[Any] | None = None if opening is None else []
        self.witness: list[Any] | None = None if opening is None else []
        """What the guards looked at since the last event."""
        self._same: dict[str, Any] = {
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
        """Whether somebody wants to know what the call was told."""
        return self._answers is not None

    def heard(self, answer: Any) -> None:
        """Keeps what the call was told, where somebody wants to know."""
        if self._answers is not None:
            self._answers.append(answer)

    def goes_on(self, key: Any, attempts: int) -> None:
        """The key was drawn before; after the first attempt, the beginning was told before too."""
        if attempts == 1:
            self.heard(key)
        else:
            self._opening = None

    def saw(self, guard: str, state: Any, said: Any) -> None:
        """Keeps what a guard looked at and said."""
        if self.witness is not None:
            self.witness.append([guard, state, said])

    def _proof(
        self, outcome: Any = None, verdict: Classification | None = None
    ) -> Proof | msgspec.UnsetType:
        """What was told and seen since the last event."""
        answers, witness = self._answers, self.witness
        if answers is None:
            return msgspec.UNSET
        opening, self._opening = self._opening, None
        self._answers = []
        if witness:
            self.witness = []
        return Proof(
            self._plan_id,
            opening if verdict is not None else None,
            None if verdict is None else self._evidence(outcome, verdict),
            answers,
            witness or None,
        )

    def _describe(self, outcome: Any) -> tuple[str, str]:
        return describe(outcome, self.plan.redact)

    def _evidence(self, outcome: Any, verdict: Classification, /) -> Evidence:
        return evidence_of(outcome, verdict, self.plan.redact)

    def attempt_failed(
        self, outcome: Any, verdict: Classification, attempt: int, limit: int, key: int
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
            proof=self._proof(outcome, verdict),
            **self._same,
        )

    def retry_scheduled(
        self,
        outcome: Any,
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
        self, outcome: Any, verdict: Classification, attempt: int, stop: Stop, now: float
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

    def hook_failed(self, hook: str, trouble: BaseException) -> Event:
        name, message = describe(trouble, self.plan.redact)
        return HookFailed(hook=hook, exception_type=name, exception_message=message, **self._same)


_NOT_FOR_US = (NOT_RETRYABLE, COLLAPSED, GIVEN_UP_INSIDE, MAY_BE_APPLIED)
"""Why a call is not retried that nobody ran out of means for."""


def describe(outcome: Any, redact: Redactor | None = None) -> tuple[str, str]:
    """The type and message of a failure, without secrets; a result not accepted has no message."""
    if isinstance(outcome, Returned):
        return "", "the result was not accepted"
    try:
        return name_of(type(outcome)), shown(str(outcome), redact)
    except Exception:  # a broken __str__ must not cost the event
        return name_of(type(outcome)), ""


def name_of(cls: type) -> str:
    """A class as events name it."""
    return cls.__name__ if cls.__module__ == "builtins" else qualified_name(cls)


def shown(text: str, redact: Redactor | None = None) -> str:
    """A text as events hold it, without secrets; stray bytes without a UTF-8 form are shown."""
    from mainstay.core.redact.redactor import (
        REDACTOR,  # when it is needed: its expressions take a moment
    )

    return (redact or REDACTOR).text(text.encode("utf-8", "backslashreplace").decode())
