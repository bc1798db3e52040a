"""Exceptions of the front doors. Records name them by this module, so they stay in it."""

from __future__ import annotations

from mainstay.core.circuit.breaker import CircuitState
from mainstay.errors import CircuitOpenError


class CircuitOpenException(CircuitOpenError):
    """Raised when the circuit breaker of an operation is open; with the documents' arguments.

    A `CircuitOpenError` with the client document's wording; `retry_after` is there too.

    >>> error = CircuitOpenException("s3.get", CircuitState.OPEN)
    >>> print(error)
    Circuit breaker open for s3.get
    >>> error.operation_name, error.state.value
    ('s3.get', 'open')
    """

    def __init__(
        self,
        operation_name: str,
        state: CircuitState = CircuitState.OPEN,
        retry_after: float | None = None,
        opened_by: str | None = None,
    ) -> None:
        super().__init__(operation_name, state, retry_after, opened_by)

    @property
    def message(self) -> str:  # type: ignore[override]
        """What happened, in the client document's words."""
        return f"Circuit breaker open for {self.operation_name}"

    def __str__(self) -> str:
        return self.message
