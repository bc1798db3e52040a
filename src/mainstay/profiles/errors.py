"""Exceptions of the front doors. Records name them by this module, so they stay in it."""

from __future__ import annotations

from typing import Any

from mainstay.core.base.validate import Checker
from mainstay.core.circuit.breaker import CircuitState
from mainstay.core.effects.transport import ModelInfraErrorContext
from mainstay.errors import CircuitOpenError, DependencyError


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


class InfraError(DependencyError):
    """What the errors of the effects document have in common: a message, and where it happened.

    Args:
        message: what happened.
        context: a ModelInfraErrorContext.
        details: anything else that is worth keeping, by its name; they become attributes.

    >>> from mainstay.profiles.effects import ModelInfraErrorContext
    >>> error = InfraError("no answer", context=ModelInfraErrorContext(operation="publish"))
    >>> error.context.operation
    'publish'
    """

    def __init__(
        self, message: str = "", *, context: ModelInfraErrorContext | None = None, **details: Any
    ) -> None:
        check = Checker(type(self).__name__)
        check.instance("context", context, ModelInfraErrorContext)
        check.close()
        super().__init__(message)
        self.context = context
        for name, value in details.items():
            setattr(self, name, value)

    @property
    def correlation_id(self) -> object:
        """That of the context.

        >>> InfraError("no answer").correlation_id is None
        True
        """
        return None if self.context is None else self.context.correlation_id


class InfraConnectionError(InfraError):
    """The service cannot be reached for now, or asks to slow down. Retried.

    >>> issubclass(InfraConnectionError, InfraError)
    True
    """


class InfraTimeoutError(InfraError):
    """No answer in time. Retried.

    >>> issubclass(InfraTimeoutError, InfraError)
    True
    """


class InfraUnavailableError(InfraError):
    """The service is there and cannot serve for now. Retried.

    >>> issubclass(InfraUnavailableError, InfraError)
    True
    """


class InfraAuthenticationError(InfraError):
    """Credentials, permissions or keys are not right. Never retried.

    >>> issubclass(InfraAuthenticationError, InfraError)
    True
    """


class InfraDataIntegrityError(InfraConnectionError):
    """A constraint of the data is violated. Never retried, although its base is.

    >>> from mainstay.profiles.effects import is_retryable
    >>> is_retryable(InfraDataIntegrityError("duplicate key"))
    False
    """


class ProtocolConfigurationError(InfraError):
    """The request, the schema or the configuration is wrong. Never retried.

    >>> issubclass(ProtocolConfigurationError, InfraError)
    True
    """


class SecretResolutionError(InfraError):
    """What was asked for does not exist. Never retried.

    >>> issubclass(SecretResolutionError, InfraError)
    True
    """


class InfraCircuitOpenError(InfraUnavailableError, CircuitOpenException):
    """A circuit of an effect is open: the call was not made.

    Both the document's InfraUnavailableError and a CircuitOpenError, with `retry_after`.

    >>> error = InfraCircuitOpenError("postgresql-primary", retry_after=60.0)
    >>> print(error)
    Circuit breaker open for postgresql-primary
    >>> error.retry_after
    60.0
    """

    def __init__(
        self,
        operation_name: str,
        state: CircuitState = CircuitState.OPEN,
        retry_after: float | None = None,
        opened_by: str | None = None,
        *,
        context: ModelInfraErrorContext | None = None,
    ) -> None:
        CircuitOpenException.__init__(self, operation_name, state, retry_after, opened_by)
        self.context = context
