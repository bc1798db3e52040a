"""The front door for event-driven infrastructure: effects run once, orchestrators retry them.

The names are those of the effects document. What needs pydantic (the five settings models, the
envelope, the outbox entry) is loaded when it is asked for; without pydantic the error names the
extra, and everything else works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.effects.contract import OrchestratorContract
from mainstay.core.effects.result import EffectResult
from mainstay.core.effects.transport import EnumInfraTransportType, ModelInfraErrorContext
from mainstay.core.saga.definition import SagaStep
from mainstay.drivers.saga.executor import SagaExecutor
from mainstay.errors import CompensationFailedError, MissingExtraError
from mainstay.profiles.effects.circuit import MixinAsyncCircuitBreaker
from mainstay.profiles.effects.effect import effect, infra_error, is_retryable
from mainstay.profiles.effects.logs import (
    log_compensation_action,
    log_retry_attempt,
    log_retry_exhausted,
)
from mainstay.profiles.effects.orchestrator import Orchestrator
from mainstay.profiles.effects.outbox import outbox_publisher_worker
from mainstay.profiles.effects.parameters import (
    CIRCUIT_BREAKER,
    EffectRetryConfig,
    calculate_backoff_delay,
)
from mainstay.profiles.errors import (
    InfraAuthenticationError,
    InfraCircuitOpenError,
    InfraConnectionError,
    InfraDataIntegrityError,
    InfraError,
    InfraTimeoutError,
    InfraUnavailableError,
    ProtocolConfigurationError,
    SecretResolutionError,
)

if TYPE_CHECKING:
    from mainstay.profiles.effects.models import (
        ConsulRetryConfig,
        DatabaseRetryConfig,
        HttpRetryConfig,
        KafkaRetryConfig,
        ModelConsulRetryConfig,
        ModelDatabaseRetryConfig,
        ModelEventEnvelope,
        ModelHttpRetryConfig,
        ModelKafkaRetryConfig,
        ModelVaultRetryConfig,
        OutboxEntry,
        VaultRetryConfig,
    )

__all__ = [
    "CIRCUIT_BREAKER",
    "CompensationFailedError",
    "ConsulRetryConfig",
    "DatabaseRetryConfig",
    "EffectResult",
    "EffectRetryConfig",
    "EnumInfraTransportType",
    "HttpRetryConfig",
    "InfraAuthenticationError",
    "InfraCircuitOpenError",
    "InfraConnectionError",
    "InfraDataIntegrityError",
    "InfraError",
    "InfraTimeoutError",
    "InfraUnavailableError",
    "KafkaRetryConfig",
    "MixinAsyncCircuitBreaker",
    "ModelBackendResult",
    "ModelConsulRetryConfig",
    "ModelDatabaseRetryConfig",
    "ModelEventEnvelope",
    "ModelHttpRetryConfig",
    "ModelInfraErrorContext",
    "ModelKafkaRetryConfig",
    "ModelVaultRetryConfig",
    "Orchestrator",
    "OrchestratorContract",
    "OutboxEntry",
    "ProtocolConfigurationError",
    "SagaExecutor",
    "SagaStep",
    "SecretResolutionError",
    "VaultRetryConfig",
    "calculate_backoff_delay",
    "effect",
    "infra_error",
    "is_retryable",
    "log_compensation_action",
    "log_retry_attempt",
    "log_retry_exhausted",
    "outbox_publisher_worker",
]

ModelBackendResult = EffectResult


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from mainstay.profiles.effects import models
    except ModuleNotFoundError as error:
        if error.name != "pydantic":
            raise
        raise MissingExtraError("pydantic", "pydantic") from None
    return getattr(models, name)
