"""The front door for event-driven infrastructure: the document's parameters and its delay formula.

Attempts are counted from 0 here, as its tables do.
"""

from __future__ import annotations

from dataclasses import dataclass

from mainstay.core.backoff import Backoff, Jitter
from mainstay.core.validate import Checker
from mainstay.drivers.policy import RetryPolicy
from mainstay.drivers.site import getrandbits


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
        if not check.problems and self.max_delay_seconds < self.initial_delay_seconds:
            low = self.initial_delay_seconds
            check.note("max_delay_seconds", self.max_delay_seconds, f"at least {low:g}")
        check.close()

    def policy(self, name: str = "effect") -> RetryPolicy:
        """The engine's policy with these values."""
        return RetryPolicy(
            name=name,
            max_attempts=self.max_attempts,
            backoff=Backoff.exponential(
                self.initial_delay_seconds,
                factor=self.exponential_base,
                max_delay=self.max_delay_seconds,
            ),
            jitter=Jitter.percent(self.jitter_factor),
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

    >>> calculate_backoff_delay(2, u=0.5)
    4.0
    """
    check = Checker("calculate_backoff_delay")
    if type(attempt) is not int or attempt < 0:
        check.note("attempt", attempt, "an integer of at least 0")
    check.close()
    backoff = Backoff.exponential(initial_delay, factor=exponential_base, max_delay=max_delay)
    drawn = getrandbits(52) * 2.0**-52 if u is None else u
    return Jitter.percent(jitter_factor).spread(backoff.base(attempt + 1), drawn, 0.0, backoff)
