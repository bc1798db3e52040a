"""The front door for event-driven infrastructure: effects run once, orchestrators retry them.

The names are those of the effects document. What needs pydantic (the five settings models, the
envelope, the outbox entry) is loaded when it is asked for; without pydantic the error names the
extra, and everything else works.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstay.core.base.validate import Checker
from mainstay.core.effects.contract import OrchestratorContract
from mainstay.core.effects.result import EffectResult
from mainstay.core.effects.settings import CIRCUIT_BREAKER, RANGES, curve, numeric, status_fields
from mainstay.core.effects.taxonomy import STATUSES
from mainstay.core.effects.transport import EnumInfraTransportType, ModelInfraErrorContext
from mainstay.core.retry.backoff import Jitter
from mainstay.core.saga.definition import SagaStep
from mainstay.drivers.compensation import PartialFailure
from mainstay.drivers.effects.delay import calculate_backoff_delay
from mainstay.drivers.effects.logs import (
    log_compensation_action,
    log_retry_attempt,
    log_retry_exhausted,
)
from mainstay.drivers.policy import RetryPolicy
from mainstay.drivers.saga.executor import SagaExecutor
from mainstay.errors import CompensationFailedError, MissingExtraError
from mainstay.profiles.effects.circuit import MixinAsyncCircuitBreaker
from mainstay.profiles.effects.effect import effect, infra_error, is_retryable
from mainstay.profiles.effects.orchestrator import Orchestrator
from mainstay.profiles.effects.outbox import outbox_publisher_worker
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
    from mainstay.core.base.types import Seconds
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
    "CIRCUIT_BREAKER", "CompensationFailedError", "ConsulRetryConfig", "DatabaseRetryConfig",
    "EffectResult", "EffectRetryConfig", "EnumInfraTransportType", "HttpRetryConfig",
    "InfraAuthenticationError", "InfraCircuitOpenError", "InfraConnectionError",
    "InfraDataIntegrityError", "InfraError", "InfraTimeoutError", "InfraUnavailableError",
    "KafkaRetryConfig", "MixinAsyncCircuitBreaker", "ModelBackendResult", "ModelConsulRetryConfig",
    "ModelDatabaseRetryConfig", "ModelEventEnvelope", "ModelHttpRetryConfig",
    "ModelInfraErrorContext", "ModelKafkaRetryConfig", "ModelVaultRetryConfig", "Orchestrator",
    "OrchestratorContract", "OutboxEntry", "PartialFailure", "ProtocolConfigurationError",
    "SagaExecutor", "SagaStep", "SecretResolutionError", "VaultRetryConfig",
    "calculate_backoff_delay", "effect", "infra_error", "is_retryable", "log_compensation_action",
    "log_retry_attempt", "log_retry_exhausted", "outbox_publisher_worker",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class EffectRetryConfig:
    """The parameter table of the document: its defaults, and its ranges.

    >>> EffectRetryConfig().policy().delays(seed=1)[0] < 1.25
    True
    """

    max_attempts: int = 3
    initial_delay_seconds: float = 1.0
    max_delay_seconds: float = 60.0
    exponential_base: float = 2.0
    jitter_factor: float = 0.25

    if TYPE_CHECKING:  # fields are floats, whatever is given

        def __init__(
            self,
            max_attempts: int = 3,
            initial_delay_seconds: Seconds = 1.0,
            max_delay_seconds: Seconds = 60.0,
            exponential_base: float = 2.0,
            jitter_factor: float = 0.25,
        ) -> None: ...

    def __post_init__(self) -> None:
        check = Checker("EffectRetryConfig")
        if type(self.max_attempts) is not int or not 1 <= self.max_attempts <= 10:
            check.note("max_attempts", self.max_attempts, "an integer from 1 to 10")
        for name, (low, high) in RANGES.items():
            object.__setattr__(self, name, numeric(check, name, getattr(self, name), low, high))
        check.close()

    def policy(self, name: str = "effect", log_level: str | int = "WARNING") -> RetryPolicy:
        """The engine's policy with these values; a scheduled retry is logged at the level."""
        return RetryPolicy(
            name=name,
            max_attempts=self.max_attempts,
            backoff=curve(
                self.initial_delay_seconds, self.exponential_base, self.max_delay_seconds
            ),
            jitter=Jitter.percent(self.jitter_factor),
            log_level=log_level,
            **status_fields(STATUSES),
        )


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


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
