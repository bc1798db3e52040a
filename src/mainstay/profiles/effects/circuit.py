"""The document's mixin: a client that asks a circuit before a call, and records how it ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mainstay.core.circuit.settings import BreakerSettings
from mainstay.core.effects.transport import (
    EnumInfraTransportType,
    ModelInfraErrorContext,
    transport_of,
)
from mainstay.drivers.guards.breaker import CircuitBreaker
from mainstay.errors import UsageError
from mainstay.profiles.errors import InfraCircuitOpenError

if TYPE_CHECKING:
    from uuid import UUID


class MixinAsyncCircuitBreaker:
    """Five members for clients with a retry loop of their own: check, record, reset, a lock.

    In half open one call is let through; a success closes the circuit. `_circuit_breaker` is the
    breaker itself, for its state and for an operator.

    >>> class Client(MixinAsyncCircuitBreaker):
    ...     def __init__(self):
    ...         self._init_circuit_breaker(threshold=1, service_name="postgresql-primary")
    ...     async def query(self):
    ...         async with self._circuit_breaker_lock:
    ...             await self._check_circuit_breaker("query")
    ...         async with self._circuit_breaker_lock:
    ...             await self._record_circuit_failure("query")
    >>> client = Client()
    >>> asyncio.run(client.query()); client._circuit_breaker.state.name
    'OPEN'
    """

    _circuit_breaker: CircuitBreaker
    _circuit_breaker_lock: asyncio.Lock
    _transport_type: EnumInfraTransportType

    def _init_circuit_breaker(
        self,
        threshold: int = 5,
        reset_timeout: float = 60.0,
        service_name: str = "unknown",
        transport_type: EnumInfraTransportType = EnumInfraTransportType.HTTP,
    ) -> None:
        """Creates the circuit, closed: it opens after `threshold` failures in a row."""
        self._transport_type = transport_of(transport_type)
        settings = BreakerSettings(
            failure_threshold=threshold, recovery_timeout=reset_timeout, count="all"
        )
        self._circuit_breaker = CircuitBreaker(service_name, settings)
        self._circuit_breaker_lock = asyncio.Lock()

    async def _check_circuit_breaker(
        self, operation: str, correlation_id: UUID | None = None
    ) -> None:
        """Raises InfraCircuitOpenError, an InfraUnavailableError, if no call may be made now."""
        breaker = self._breaker()
        if breaker.allow_request():
            return
        context = ModelInfraErrorContext(
            transport_type=self._transport_type, operation=operation, target_name=breaker.name,
            correlation_id=correlation_id,
        )  # fmt: skip
        raise InfraCircuitOpenError(
            breaker.name, breaker.state, breaker.retry_after, context=context
        )

    async def _record_circuit_failure(
        self,
        operation: str,  # noqa: ARG002 -- the document's arguments
        correlation_id: UUID | None = None,  # noqa: ARG002 -- the same
    ) -> None:
        """Counts a failure, whichever it is; it may open the circuit."""
        self._breaker().record_failure()

    async def _reset_circuit_breaker(self) -> None:
        """A call has succeeded: failures are counted from zero, and a half-open circuit closes."""
        self._breaker().record_success()

    def _breaker(self) -> CircuitBreaker:
        found: CircuitBreaker | None = getattr(self, "_circuit_breaker", None)
        if found is None:
            raise UsageError(
                f"{type(self).__name__} has no circuit yet",
                hint="call self._init_circuit_breaker(...) in __init__",
            )
        return found
