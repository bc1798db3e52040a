"""Events of circuit breakers: state changes, and what operators ordered."""

from __future__ import annotations

from typing import ClassVar

from mainstay.core.base.event import Event

__all__ = ["CircuitCall", "CircuitOrdered", "CircuitStateChanged"]


class CircuitCall(Event, frozen=True, kw_only=True, tag="circuit_call"):
    """A circuit recorded one call, or refused it; `operation` is the circuit's name.

    `outcome` is "succeeded", "failed", "ignored" (a failure that does not count) or "refused";
    `state` is that of the circuit afterwards. Only listeners that ask for calls receive it.

    >>> CircuitCall(operation="pay", outcome="refused", state="open").event_type
    'circuit_call'
    """

    outcome: str = ""
    state: str = ""
    duration_seconds: float | None = None
    exception_type: str = ""
    exception_message: str = ""
    level: ClassVar[str] = "DEBUG"

    def sentence(self) -> str:
        ended = {"refused": "was refused", "ignored": "failed, which does not count"}
        failure = f" with {self.exception_type}" if self.exception_type else ""
        outcome = ended.get(self.outcome, self.outcome)
        return f"{self.operation}: a call {outcome}{failure}; the circuit is {self.state}"


class CircuitStateChanged(Event, frozen=True, kw_only=True, tag="circuit_state_changed"):
    """A circuit went from one state to another; `operation` is the circuit's name.

    In metrics-only both states are the same, and `reason` is what would have opened it.

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

    def sentence(self) -> str:
        return f"{self.operation}: circuit {self.from_state} -> {self.to_state} ({self.reason})"


class CircuitOrdered(Event, frozen=True, kw_only=True, tag="circuit_ordered"):
    """An operator gave an order to a circuit in every process; `operation` is the circuit's name.

    Each process that follows it emits a `circuit_state_changed` of its own.

    >>> CircuitOrdered(operation="pay", order="force open", operator="ann").event_type
    'circuit_ordered'
    """

    order: str = ""
    operator: str = ""
    why: str = ""
    level: ClassVar[str] = "WARNING"
    is_security: ClassVar[bool] = True

    def sentence(self) -> str:
        why = f": {self.why}" if self.why else ""
        return f"{self.operation}: {self.operator} ordered the circuit to {self.order}{why}"
