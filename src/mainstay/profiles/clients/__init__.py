"""The front door for S3 and HTTP API clients: configuration, presets, decorators, breaker.

What is retried, waited for and refused is decided by the engine. Here the names of the client
document lead to its policies, sites and circuits.
"""

from __future__ import annotations

from mainstay.core.circuit.breaker import CircuitState
from mainstay.drivers.call.result import RetryResult
from mainstay.profiles.clients.circuit import CircuitBreaker, CircuitBreakerConfiguration
from mainstay.profiles.clients.configuration import (
    RetryConfiguration,
    RetryPresets,
    is_server_error,
)
from mainstay.profiles.clients.decorators import RetryDecorator, with_api_retry, with_s3_retry
from mainstay.profiles.errors import CircuitOpenException

__all__ = [
    "CircuitBreaker",
    "CircuitBreakerConfiguration",
    "CircuitOpenException",
    "CircuitState",
    "RetryConfiguration",
    "RetryDecorator",
    "RetryPresets",
    "RetryResult",
    "is_server_error",
    "with_api_retry",
    "with_s3_retry",
]
