"""From audit events to what rules ask, one event at a time: only what breaks a rule is kept.

Circuits are followed writer by writer, because each process has its own view of a circuit and
records its changes itself.
"""

from __future__ import annotations

from msgspec import Struct

from mainstay.core.base.timestamps import sortable
from mainstay.core.circuit.events import CircuitStateChanged
from mainstay.core.comply.evidence import AuditFact
from mainstay.core.comply.forbidden_names import is_forbidden
from mainstay.core.comply.moments import moment
from mainstay.core.retry.events import (
    AttemptFailed,
    CallFailed,
    CallInterrupted,
    CallSucceeded,
    RetryAttempt,
    RetryExhausted,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mainstay.core.base.event import Event
    from mainstay.core.comply.evidence import At, Evidence

MOST = 10_000
_OPEN = ("open", "forced_open")
_SLACK = 1.0
"""Seconds after a circuit opened within which an attempt may begin that was let through before."""


class _Call(Struct):
    """A call under way."""

    most: int = 0
    is_final: bool = False
    """Whether its last failure may not be retried."""
    earliest: float | None = None
    """The earliest moment at which its next attempt can begin."""


class AuditFacts:
    """Receives the events of an audit log, in order.

    Args:
        evidence: what telemetry, ledgers and store have shown before.
        log: the name of the log.
        most: facts that are kept, and calls under way that are remembered.

    >>> from mainstay.core.comply.evidence import Evidence
    >>> AuditFacts(Evidence(), "audit.jsonl").facts
    []
    """

    def __init__(self, evidence: Evidence, log: str, most: int = MOST) -> None:
        self.facts: list[AuditFact] = []
        self.audited: set[At] = set()
        self._evidence = evidence
        self._log = log
        self._most = most
        self._telemetered = _telemetered(evidence)
        self._calls: dict[tuple[str, str, str], _Call] = {}
        self._opened: dict[tuple[str, str], str] = {}
        self._places = {
            f"{pipeline}.{stage}": (pipeline, stage)
            for pipeline, stage in evidence.stages
            if evidence.has_pipeline(pipeline)
        }
        self._does: dict[type[Event], Callable[[int, str, At, Any], None]] = {
            AttemptFailed: self._attempt_failed,
            CallFailed: self._ended,
            CallInterrupted: self._interrupted,
            CallSucceeded: self._ended,
            CircuitStateChanged: self._circuit_changed,
            RetryAttempt: self._retried,
            RetryExhausted: self._ended,
        }

    def take(self, number: int, writer: str, event: Event) -> None:
        """The next event, by its number and its writer."""
        does = self._does.get(type(event))
        if does is None:
            return
        at = self._places.get(event.operation)
        if at is not None:
            does(number, writer, at, event)

    def _attempt_failed(self, number: int, writer: str, at: At, event: AttemptFailed) -> None:
        key = (writer, event.operation, event.call_id)
        if key not in self._calls and len(self._calls) >= self._most:
            self._calls.pop(next(iter(self._calls)))
        call = self._calls.setdefault(key, _Call())
        call.most, call.is_final = event.max_attempts, not event.retryable
        if event.attempt_seconds is not None:
            began = _shifted(event.timestamp, -event.attempt_seconds)
            self._check_circuit(number, writer, at, event, event.attempt_number, began)

    def _retried(self, number: int, writer: str, at: At, event: RetryAttempt) -> None:
        call = self._calls.get((writer, event.operation, event.call_id))
        if (call is not None and call.is_final) or is_forbidden(event.exception_type):
            self._keep("retried", number, at, event, event.attempt_number,
                       error_class=event.exception_type)  # fmt: skip
        if call is not None:
            call.earliest = _shifted(event.timestamp, event.delay_seconds)

    def _ended(
        self, number: int, writer: str, at: At, event: CallFailed | CallSucceeded | RetryExhausted
    ) -> None:
        call = self._calls.pop((writer, event.operation, event.call_id), None)
        if isinstance(event, CallSucceeded):
            began = call.earliest if call else _shifted(event.timestamp, -event.total_seconds)
            self._check_circuit(number, writer, at, event, event.total_attempts, began)
            if event.total_attempts <= 1:
                return
        if self._is_before(event) or not event.call_id:
            return
        if self._telemetered is not None and (*at, event.call_id) not in self._telemetered:
            self._keep("missing", number, at, event, event.total_attempts)
        if self._needs_entry(at, event):
            most = call.most if call else 0
            is_used_up = isinstance(event, RetryExhausted)
            is_exceeded = is_used_up or 0 < most < event.total_attempts
            kind = "exceeded" if is_exceeded else "unlogged"
            self._keep(kind, number, at, event, event.total_attempts, most=most)

    def _interrupted(self, _number: int, writer: str, _at: At, event: CallInterrupted) -> None:
        self._calls.pop((writer, event.operation, event.call_id), None)

    def _circuit_changed(
        self, _number: int, writer: str, at: At, event: CircuitStateChanged
    ) -> None:
        self.audited.add(at)
        key = (writer, event.operation)
        if event.to_state not in _OPEN:
            self._opened.pop(key, None)
        elif event.from_state not in _OPEN:
            self._opened[key] = event.timestamp

    def _check_circuit(
        self, number: int, writer: str, at: At, event: Event, attempt: int, began: float | None
    ) -> None:
        since = self._opened.get((writer, event.operation), "")
        opened = _shifted(since, _SLACK)
        if opened is not None and began is not None and began > opened:
            self._keep("passed", number, at, event, attempt, since=since)

    def _needs_entry(self, at: At, event: Event) -> bool:
        evidence = self._evidence
        if not evidence.has_ledger or at[0] not in evidence.pipelines:
            return False
        is_logged = (*at, event.call_id) in evidence.logged
        return not is_logged and evidence.is_kept(at[0], event.timestamp)

    def _is_before(self, event: Event) -> bool:
        at = sortable(event.timestamp)
        return bool(self._evidence.since and at and at < self._evidence.since)

    def _keep(
        self,
        kind: str,
        number: int,
        at: At,
        event: Event,
        attempts: int,
        *,
        most: int = 0,
        error_class: str = "",
        since: str = "",
    ) -> None:
        if len(self.facts) < self._most and not self._is_before(event):
            self.facts.append(
                AuditFact(
                    kind=kind,
                    log=self._log,
                    number=number,
                    pipeline_id=at[0],
                    stage=at[1],
                    call_id=event.call_id,
                    attempts=attempts,
                    most=most,
                    error_class=error_class,
                    since=since,
                )
            )


def _telemetered(evidence: Evidence) -> frozenset[tuple[str, str, str]] | None:
    """The calls in the telemetry; None if it is not checked, or has left some out."""
    files = evidence.telemetry
    if not files or any(each.left_out or not each.is_there for each in files):
        return None
    return frozenset(call.key for call in evidence.calls)


def _shifted(timestamp: str, seconds: float) -> float | None:
    """A moment some seconds later."""
    at = moment(timestamp)
    return None if at is None else at + seconds
