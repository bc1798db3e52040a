"""Events to telemetry records: one for each attempt, with what retrying it took.

An attempt is recorded when it is known what follows: a wait, the end, or nothing. What is
remembered of calls under way is bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

import mainstay.runtime.clock as clock
from mainstay.core.circuit.events import CircuitStateChanged
from mainstay.core.retry.events import (
    AttemptFailed,
    CallFailed,
    CallInterrupted,
    CallRefused,
    CallSucceeded,
    RetryAttempt,
    RetryExhausted,
)
from mainstay.core.telemetry.record import first_try, label_of
from mainstay.runtime.context import is_in_event_loop
from mainstay.runtime.plan_registry import plan_numbered
from mainstay.sinks.telemetry.cpu_meter import Meters

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mainstay.core.base.event import Event
    from mainstay.core.telemetry.record import TelemetryRecord
    from mainstay.sinks.telemetry.cpu_meter import CpuMeter

_MOST = 10_000
"""Calls and circuits of which something is remembered; one that never ends must not stay."""
_OPEN = ("open", "forced_open")
_BY_CIRCUIT = ("CircuitOpenError", "CircuitOpenException")


class Recorder:
    """Receives events, one at a time, and makes records of them, without energy.

    >>> recorder = Recorder("etl", cpu=lambda: 0.0)
    >>> recorder.record_of(AttemptFailed(operation="poll", call_id="7f", attempt_number=1,
    ...                                  exception_type="TimeoutError", retryable=True))
    >>> first = RetryAttempt(operation="poll", call_id="7f", attempt_number=1, delay_seconds=0.5)
    >>> record = recorder.record_of(first)
    >>> record.attempt, record.delay_ms, record.error_class, record.is_final
    (1, 500.0, 'TimeoutError', False)
    """

    def __init__(self, pipeline_id: str, cpu: Callable[[], float]) -> None:
        self._pipeline_id = pipeline_id
        self._meters = Meters(cpu)
        self._sequences: dict[tuple[str, str], _Sequence] = {}
        self._open_circuits: dict[str, None] = {}
        self._does: dict[type[Event], Callable[[Any], TelemetryRecord | None]] = {
            AttemptFailed: self._attempt_failed,
            CallFailed: self._gave_up,
            CallInterrupted: self._interrupted,
            CallRefused: self._refused,
            CallSucceeded: self._succeeded,
            CircuitStateChanged: self._circuit_changed,
            RetryAttempt: self._retry_scheduled,
            RetryExhausted: self._gave_up,
        }

    def record_of(self, event: Event) -> TelemetryRecord | None:
        """The record that an event completes, if it does."""
        does = self._does.get(type(event))
        record = None if does is None else does(event)
        if record is None:
            return None
        return replace(
            record,
            stage_name=event.operation.removeprefix(f"{self._pipeline_id}."),
            sequence=event.call_id,
            timestamp=event.timestamp,
            policy=event.policy,
            retry_policy=_label(event) or record.retry_policy or event.policy,
        )

    def _attempt_failed(self, event: AttemptFailed) -> None:
        key = (event.operation, event.call_id)
        sequence, cpu, waited = self._sequences.get(key), 0.0, 0.0
        if sequence is not None:
            cpu, waited = sequence.used()
        else:  # of its first attempt nothing is known, and nothing is due to retrying
            if len(self._sequences) >= _MOST:
                self._sequences.pop(next(iter(self._sequences))).end()
            sequence = self._sequences[key] = _Sequence(self._meters.meter, _label(event))
        sequence.failed = replace(
            self._failure(event, event.attempt_number, _error_class(event)),
            retryable=event.retryable,
            cpu_seconds=cpu,
            waiting_seconds=waited,
            is_final=False,
        )

    def _retry_scheduled(self, event: RetryAttempt) -> TelemetryRecord | None:
        sequence = self._sequences.get((event.operation, event.call_id))
        if sequence is None or sequence.failed is None:
            return None
        failed, sequence.failed = sequence.failed, None
        sequence.delay = event.delay_seconds
        return replace(failed, delay_ms=event.delay_seconds * 1000.0)

    def _gave_up(self, event: CallFailed | RetryExhausted) -> TelemetryRecord:
        record = self._ended(event, event.final_exception_type)
        met_circuit = event.reason.startswith("circuit ")
        return replace(record, circuit_open=record.circuit_open or met_circuit)

    def _interrupted(self, event: CallInterrupted) -> TelemetryRecord:
        return self._ended(event, event.by)

    def _ended(
        self, event: CallFailed | RetryExhausted | CallInterrupted, error_class: str
    ) -> TelemetryRecord:
        """The last record of a call that failed: its last attempt, or the wait that was cut."""
        sequence = self._sequences.pop((event.operation, event.call_id), None)
        if sequence is None:
            return self._failure(event, event.total_attempts, error_class)
        cpu, waited = sequence.used()
        sequence.end()
        if sequence.failed is not None:
            return replace(sequence.failed, is_final=True, retry_policy=sequence.retry_policy)
        last = self._failure(event, event.total_attempts, error_class)
        return replace(
            last, cpu_seconds=cpu, waiting_seconds=waited, retry_policy=sequence.retry_policy
        )

    def _succeeded(self, event: CallSucceeded) -> TelemetryRecord:
        record = first_try(self._pipeline_id, event.operation)
        sequence = self._sequences.pop((event.operation, event.call_id), None)
        if sequence is None:
            return record
        cpu, waited = sequence.used()
        sequence.end()
        return replace(
            record, attempt=event.total_attempts, cpu_seconds=cpu, waiting_seconds=waited
        )

    def _refused(self, event: CallRefused) -> TelemetryRecord:
        name = event.by.rpartition(".")[2]
        record = self._failure(event, 0, name)
        return replace(record, circuit_open=record.circuit_open or name in _BY_CIRCUIT)

    def _circuit_changed(self, event: CircuitStateChanged) -> None:
        self._open_circuits.pop(event.operation, None)
        if event.to_state in _OPEN and len(self._open_circuits) < _MOST:
            self._open_circuits[event.operation] = None

    def _failure(self, event: Event, attempt: int, error_class: str) -> TelemetryRecord:
        return replace(
            first_try(self._pipeline_id, event.operation),
            attempt=attempt,
            outcome="failure",
            error_class=error_class or "ResultNotAccepted",
            circuit_open=event.operation in self._open_circuits,
        )


class _Sequence:
    """A call that is being retried: what it has used up to the last event of it."""

    __slots__ = ("_at", "_mark", "_meter", "delay", "failed", "retry_policy")

    def __init__(self, meter: CpuMeter, retry_policy: str) -> None:
        self._meter = meter
        self._mark = meter.begin()
        self._at = clock.current.monotonic()
        self.failed: TelemetryRecord | None = None
        """The attempt that has failed, until it is known what follows."""
        self.delay = 0.0
        """The wait that was to follow the last attempt."""
        self.retry_policy = retry_policy
        """An interruption has no proof, and so no plan: the failures before it had."""

    def used(self) -> tuple[float, float]:
        """The CPU seconds since the last event of it, and the seconds waited.

        In an event loop the thread went on while the call waited: that is not the call's doing.
        """
        share, now = self._meter.read(), clock.current.monotonic()
        cpu, elapsed = share - self._mark, max(0.0, now - self._at)
        waited = min(self.delay, elapsed)
        if waited and is_in_event_loop():
            cpu *= (elapsed - waited) / elapsed
        self._mark, self._at, self.delay = share, now, 0.0
        return cpu, waited

    def end(self) -> None:
        self._meter.end()


def _error_class(event: AttemptFailed) -> str:
    """The class of a failure, or its HTTP status if it has one."""
    proof = event.proved
    evidence = None if proof is None else proof.evidence
    if evidence is None or evidence.status is None:
        return event.exception_type
    return f"HTTP_{evidence.status}"


def _label(event: Event) -> str:
    """The policy of a call by its curve and jitter; empty if the event does not refer to it."""
    proof = event.proved
    plan = None if proof is None else plan_numbered(proof.plan)
    if plan is None:
        return ""
    return label_of(plan.fields["backoff"]["kind"], plan.fields["jitter"]["kind"])
