"""The parameter table of the effects document, its delay formula and its circuit.

Attempts are counted from 0 here, as its tables do.
"""

from __future__ import annotations

from dataclasses import dataclass

from mainstay.core.base.validate import Checker
from mainstay.core.circuit.settings import BreakerSettings
from mainstay.core.effects.settings import RANGES, curve, status_fields
from mainstay.core.effects.taxonomy import STATUSES
from mainstay.core.retry.backoff import Jitter
from mainstay.drivers.call.site import getrandbits
from mainstay.drivers.policy import RetryPolicy

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
            backoff=curve(
                self.initial_delay_seconds, self.exponential_base, self.max_delay_seconds
            ),
            jitter=Jitter.percent(self.jitter_factor),
            log_level=log_level,
            **status_fields(STATUSES),
        )


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
    backoff = curve(initial_delay, exponential_base, max_delay)
    drawn = getrandbits(52) * 2.0**-52 if u is None else u
    return Jitter.percent(jitter_factor).spread(backoff.base(attempt + 1), drawn, 0.0, backoff)
