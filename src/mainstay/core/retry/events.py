"""Events of one call: its attempts, retries, end, and what stood in for it."""

from __future__ import annotations

from typing import Any, ClassVar

from mainstay.core.base.event import Event

__all__ = [
    "AttemptFailed",
    "AttemptHedged",
    "CallFailed",
    "CallInterrupted",
    "CallRefused",
    "CallSucceeded",
    "CallsCounted",
    "FallbackUsed",
    "HookFailed",
    "PlanDeclared",
    "RecordsLost",
    "RetryAttempt",
    "RetryExhausted",
]


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

    def sentence(self) -> str:
        return (
            f"{self.operation}: attempt {self.attempt_number} of {self.max_attempts} failed"
            f" ({self.kind}; {self.reason}): {self.exception_type}: {self.exception_message}"
        )


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

    @property
    def logged_at(self) -> str:
        return self.log_level

    def sentence(self) -> str:
        return (
            f"{self.operation}: attempt {self.attempt_number} of {self.max_attempts} failed with"
            f" {self.exception_type}: {self.exception_message}; next in {self.delay_seconds:.3f} s"
        )


class GivenUp(Event, frozen=True, kw_only=True):
    """What the two ends of a failed call have in common."""

    total_attempts: int = 0
    total_seconds: float = 0.0
    final_exception_type: str = ""
    final_exception_message: str = ""
    kind: str = ""
    reason: str = ""
    level: ClassVar[str] = "ERROR"

    @property
    def stop_reason(self) -> str:
        """Why there was no further attempt: the first part of `reason`."""
        return self.reason.partition("; ")[0]

    @property
    def failure_reason(self) -> str:
        """Why the last failure was classified as it was: the rest of `reason`."""
        return self.reason.partition("; ")[2]

    def sentence(self) -> str:
        attempts = "1 attempt" if self.total_attempts == 1 else f"{self.total_attempts} attempts"
        return (
            f"{self.operation}: gave up after {attempts} in {self.total_seconds:.3f} s"
            f" ({self.reason}):"
            f" {self.final_exception_type}: {self.final_exception_message}"
        )


class RetryExhausted(GivenUp, frozen=True, kw_only=True, tag="retry_exhausted"):
    """A call was given up after its retries ran out, of attempts or of time.

    >>> RetryExhausted(total_attempts=3).event_type
    'retry_exhausted'
    """


class CallFailed(GivenUp, frozen=True, kw_only=True, tag="call_failed"):
    """A call failed and was not retried: the failure is final, or given up on by a retry inside.

    >>> CallFailed(kind="permanent").event_type
    'call_failed'
    """


class CallSucceeded(Event, frozen=True, kw_only=True, tag="call_succeeded"):
    """A call returned; INFO if it took retries, DEBUG if it did not.

    >>> CallSucceeded(total_attempts=2).event_type
    'call_succeeded'
    """

    total_attempts: int = 0
    total_seconds: float = 0.0
    level: ClassVar[str] = "INFO"

    @property
    def logged_at(self) -> str:
        return self.level if self.total_attempts > 1 else "DEBUG"

    def sentence(self) -> str:
        return (
            f"{self.operation}: succeeded on attempt {self.total_attempts}"
            f" after {self.total_seconds:.3f} s"
        )


class CallInterrupted(Event, frozen=True, kw_only=True, tag="call_interrupted"):
    """A call was cancelled: by its task, by Ctrl+C, or by the caller's cancel event.

    >>> CallInterrupted(total_attempts=1).event_type
    'call_interrupted'
    """

    total_attempts: int = 0
    by: str = ""
    level: ClassVar[str] = "INFO"

    def sentence(self) -> str:
        return f"{self.operation}: cancelled by {self.by} after {self.total_attempts} attempt(s)"


class HookFailed(Event, frozen=True, kw_only=True, tag="hook_failed"):
    """A hook raised; the outcome of the call is not changed by it.

    >>> HookFailed(hook="before_retry").event_type
    'hook_failed'
    """

    hook: str = ""
    exception_type: str = ""
    exception_message: str = ""
    level: ClassVar[str] = "ERROR"

    def sentence(self) -> str:
        return (
            f"{self.operation}: {self.hook} raised {self.exception_type}: {self.exception_message}"
        )


class CallRefused(Event, frozen=True, kw_only=True, tag="call_refused"):
    """A call was not made, because a guard refused its first attempt.

    >>> CallRefused(by="CircuitOpenError").event_type
    'call_refused'
    """

    by: str = ""
    reason: str = ""
    retry_after_seconds: float | None = None
    level: ClassVar[str] = "WARNING"

    def sentence(self) -> str:
        return f"{self.operation}: not called; {self.reason}"


class AttemptHedged(Event, frozen=True, kw_only=True, tag="attempt_hedged"):
    """A second attempt was started beside one that took long.

    >>> AttemptHedged(waited_seconds=0.2).event_type
    'attempt_hedged'
    """

    waited_seconds: float = 0.0
    hedge_number: int = 0

    def sentence(self) -> str:
        return (
            f"{self.operation}: no answer after {self.waited_seconds:.3f} s,"
            f" hedge {self.hedge_number} started"
        )


class FallbackUsed(Event, frozen=True, kw_only=True, tag="fallback_used"):
    """A call failed, and its fallback answered in its place.

    >>> FallbackUsed(exception_type="ConnectionError").event_type
    'fallback_used'
    """

    exception_type: str = ""
    exception_message: str = ""
    level: ClassVar[str] = "WARNING"

    def sentence(self) -> str:
        return (
            f"{self.operation}: the fallback answered for {self.exception_type}:"
            f" {self.exception_message}"
        )


class PlanDeclared(Event, frozen=True, kw_only=True, tag="plan_declared"):
    """A plan that proofs refer to: the policy, how safe repeating is, and the guards.

    >>> PlanDeclared(plan="3f2a", fields={"max_attempts": 3}).event_type
    'plan_declared'
    """

    plan: str = ""
    fields: dict[str, Any] = {}  # noqa: RUF012  msgspec copies it
    idempotency: str = "idempotent"
    guards: list[dict[str, Any]] = []  # noqa: RUF012  the same

    def sentence(self) -> str:
        name, most = self.fields.get("name", ""), self.fields.get("max_attempts", "?")
        whose = f"{self.operation}: " if self.operation else ""
        return (
            f"{whose}by the policy {name!r} from here on: {most} attempts at most"
            f" (plan {self.plan})"
        )


class RecordsLost(Event, frozen=True, kw_only=True, tag="records_lost"):
    """Records that an audit log could not keep: how many, from when to when, and why.

    >>> RecordsLost(records=3, reason="the disk is full").event_type
    'records_lost'
    """

    records: int = 0
    first_at: str = ""
    last_at: str = ""
    reason: str = ""
    level: ClassVar[str] = "ERROR"

    def sentence(self) -> str:
        return (
            f"{self.operation or 'audit log'}: {self.records:,} records were lost from"
            f" {self.first_at} to {self.last_at}: {self.reason}"
        )


class CallsCounted(Event, frozen=True, kw_only=True, tag="calls_counted"):
    """Calls of an operation succeeded at the first attempt since the last count.

    >>> CallsCounted(operation="fetch", calls=1200).event_type
    'calls_counted'
    """

    calls: int = 0

    def sentence(self) -> str:
        return f"{self.operation}: {self.calls:,} calls succeeded at once"
