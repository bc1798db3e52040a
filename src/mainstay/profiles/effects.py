"""The front door for event-driven infrastructure: its parameters, delay formula and log records.

Attempts are counted from 0 here, as its tables do.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstay.core.base.validate import Checker
from mainstay.core.circuit.settings import BreakerSettings
from mainstay.core.events.describe import describe
from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.drivers.call.site import getrandbits
from mainstay.drivers.policy import RetryPolicy
from mainstay.runtime.reports import logs

if TYPE_CHECKING:
    from uuid import UUID

__all__ = [
    "CIRCUIT_BREAKER",
    "EffectRetryConfig",
    "calculate_backoff_delay",
    "log_compensation_action",
    "log_retry_attempt",
    "log_retry_exhausted",
]

logger = logs.logger(__name__)

CIRCUIT_BREAKER = BreakerSettings(failure_threshold=5, recovery_timeout=60.0, count="all")
"""The document's, for a `CircuitBreaker` or an engine: opens for 60 s after 5 failures in a row.

Every failure is recorded, before it is asked whether it is retryable."""


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

    def __post_init__(self) -> None:
        check = Checker("EffectRetryConfig")
        if type(self.max_attempts) is not int or not 1 <= self.max_attempts <= 10:
            check.note("max_attempts", self.max_attempts, "an integer from 1 to 10")
        for name, (low, high) in RANGES.items():
            check.number(name, getattr(self, name), low, high)
        check.close()

    def policy(self, name: str = "effect", log_level: str | int = "WARNING") -> RetryPolicy:
        """The engine's policy with these values; a scheduled retry is logged at the level."""
        return RetryPolicy(
            name=name,
            max_attempts=self.max_attempts,
            backoff=_curve(
                self.initial_delay_seconds, self.exponential_base, self.max_delay_seconds
            ),
            jitter=Jitter.percent(self.jitter_factor),
            log_level=log_level,
        )


RANGES = {
    "initial_delay_seconds": (0.01, 60.0),
    "max_delay_seconds": (1.0, 300.0),
    "exponential_base": (1.5, 4.0),
    "jitter_factor": (0.0, 0.5),
}


def calculate_backoff_delay(
    attempt: int,
    initial_delay: float = 1.0,
    max_delay: float = 60.0,
    exponential_base: float = 2.0,
    jitter_factor: float = 0.25,
    *,
    u: float | None = None,
) -> float:
    """The delay after an attempt, counted from 0; `u` in [0, 1) makes it reproducible.

    The cap holds from the first delay on, also if `initial_delay` is above it.

    >>> calculate_backoff_delay(2, u=0.5)
    4.0
    >>> calculate_backoff_delay(0, initial_delay=90.0, u=0.5)
    60.0
    """
    check = Checker("calculate_backoff_delay")
    if type(attempt) is not int or attempt < 0:
        check.note("attempt", attempt, "an integer of at least 0")
    check.close()
    backoff = _curve(initial_delay, exponential_base, max_delay)
    drawn = getrandbits(52) * 2.0**-52 if u is None else u
    return Jitter.percent(jitter_factor).spread(backoff.base(attempt + 1), drawn, 0.0, backoff)


def _curve(initial: float, base: float, most: float) -> Backoff:
    """The document's formula, `min(initial × base^attempt, most)`: `most` may be the lower one."""
    if type(initial) in (int, float) and type(most) in (int, float):
        initial = min(initial, most)
    return Backoff.exponential(initial, factor=base, max_delay=most)


def log_retry_attempt(
    effect_type: str,
    attempt: int,
    max_attempts: int,
    delay: float,
    error: Exception,
    correlation_id: UUID,
) -> None:
    """Logs a retry at WARNING; `attempt` counts from 0, the record's from 1.

    Of the error only its type is logged: its text may hold a secret.

    >>> from uuid import UUID
    >>> log_retry_attempt("database", 0, 3, 1.0, TimeoutError(), UUID(int=7))
    """
    logger.warning(
        "Retrying %s operation (attempt %d/%d) after %.2fs delay",
        effect_type,
        attempt + 1,
        max_attempts,
        delay,
        extra={
            "effect_type": effect_type,
            "attempt": attempt + 1,
            "max_attempts": max_attempts,
            "delay_seconds": delay,
            "error_type": type(error).__name__,
            "correlation_id": str(correlation_id),
        },
    )


def log_retry_exhausted(
    effect_type: str,
    max_attempts: int,
    total_time: float,
    error: Exception,
    correlation_id: UUID,
) -> None:
    """Logs at ERROR that no attempt is left.

    The document's `error_message` is there, with its secrets taken out; the message itself has none
    of the error's text.

    >>> from uuid import UUID
    >>> log_retry_exhausted("database", 3, 4.2, TimeoutError("no reply"), UUID(int=7))
    """
    _, text = describe(error)
    logger.error(
        "All retry attempts exhausted for %s after %d attempts (%.2fs total)",
        effect_type,
        max_attempts,
        total_time,
        extra={
            "effect_type": effect_type,
            "max_attempts": max_attempts,
            "total_time_seconds": total_time,
            "error_type": type(error).__name__,
            "error_message": text,
            "correlation_id": str(correlation_id),
        },
    )


def log_compensation_action(
    effect_type: str, action: str, success: bool, correlation_id: UUID
) -> None:
    """Logs that an effect was undone, at INFO, or could not be, at ERROR.

    >>> from uuid import UUID
    >>> log_compensation_action("database", "delete_user", True, UUID(int=7))
    """
    logger.log(
        logging.INFO if success else logging.ERROR,
        "Compensation %s for %s: %s",
        "succeeded" if success else "failed",
        effect_type,
        action,
        extra={
            "effect_type": effect_type,
            "compensation_action": action,
            "compensation_success": success,
            "correlation_id": str(correlation_id),
        },
    )
