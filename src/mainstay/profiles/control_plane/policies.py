"""The document's policy, by its own field names, and its matrix: one policy for each category."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstay.core.base.validate import Checker
from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.drivers.policy import RetryPolicy as EnginePolicy
from mainstay.errors import PolicyError
from mainstay.profiles.control_plane.categories import RetryCategory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstay.core.base.types import Seconds
    from mainstay.core.retry.classify import Rule


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How an operation of the control plane is retried; `policy()` is the engine's policy of it.

    What is not retryable is looked at first, and is final; then what is. If no exception is
    named retryable, each is. An authentication failure is retried only if its own class is
    named: a base of it, such as Exception, is not enough.

    Args:
        max_attempts: the most attempts, the first included.
        base_delay: seconds before the first retry.
        max_delay: the longest delay, before jitter.
        backoff_multiplier: by what the delay grows from one retry to the next.
        jitter_enabled: whether delays are spread.
        jitter_factor: by what share of it: 0.1 is plus or minus 10 %.
        retryable_exceptions: classes, names or error codes of what is retried.
        non_retryable_exceptions: the same for what never is.

    >>> RetryPolicy(max_attempts=4, jitter_enabled=False).policy().delays()
    [1.0, 2.0, 4.0]
    """

    max_attempts: int = 3
    base_delay: float = 1.0
    max_delay: float = 30.0
    backoff_multiplier: float = 2.0
    jitter_enabled: bool = True
    jitter_factor: float = 0.1
    retryable_exceptions: Sequence[Rule] = (Exception,)
    non_retryable_exceptions: Sequence[Rule] = ()

    if TYPE_CHECKING:  # fields are floats, whatever is given

        def __init__(
            self,
            max_attempts: int = 3,
            base_delay: Seconds = 1.0,
            max_delay: Seconds = 30.0,
            backoff_multiplier: float = 2.0,
            jitter_enabled: bool = True,
            jitter_factor: float = 0.1,
            retryable_exceptions: Sequence[Rule] = (Exception,),
            non_retryable_exceptions: Sequence[Rule] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        check = Checker("RetryPolicy")
        check.attempts("max_attempts", self.max_attempts)
        for name in ("base_delay", "max_delay"):
            object.__setattr__(self, name, check.seconds(name, getattr(self, name)))
        check.number("backoff_multiplier", self.backoff_multiplier, 1.0, 1000.0)
        check.number("jitter_factor", self.jitter_factor, 0.0, 1.0)
        if not isinstance(self.jitter_enabled, bool):
            check.note("jitter_enabled", self.jitter_enabled, "True or False")
        for name in ("retryable_exceptions", "non_retryable_exceptions"):
            rules = getattr(self, name)
            if not isinstance(rules, list | tuple):
                check.note(name, rules, "a list of exception classes, names or codes")
            else:
                object.__setattr__(self, name, tuple(rules))
        if not any(problem.field.endswith("exceptions") for problem in check.problems):
            self._check_rules(check)
        check.close()

    def _check_rules(self, check: Checker) -> None:
        own = {"retry_on": "retryable_exceptions", "never_retry_on": "non_retryable_exceptions"}
        try:
            EnginePolicy(**{field: getattr(self, name) for field, name in own.items()})
        except PolicyError as error:
            check.include(error, own)

    def policy(self, name: str = "control_plane", log_level: str | int = "WARNING") -> EnginePolicy:
        """The engine's policy with these values; a scheduled retry is logged at the level.

        >>> RetryPolicy(max_attempts=5).policy("RETRY_KV_GET").max_attempts
        5
        """
        return EnginePolicy(
            name=name,
            max_attempts=self.max_attempts,
            backoff=Backoff.exponential(
                min(self.base_delay, self.max_delay),
                factor=self.backoff_multiplier,
                max_delay=self.max_delay,
            ),
            jitter=Jitter.percent(self.jitter_factor) if self.jitter_enabled else Jitter.none(),
            retry_on=self.retryable_exceptions or (Exception,),
            never_retry_on=self.non_retryable_exceptions,
            log_level=log_level,
        )


_CATEGORY = RetryCategory
POLICIES = {
    category: RetryPolicy(attempts, base, longest, backoff_multiplier=2.0, jitter_factor=0.1)
    for category, attempts, base, longest in (
        (_CATEGORY.NATS_CONNECT, 5, 1.0, 30.0),
        (_CATEGORY.NATS_PUBLISH, 3, 0.5, 10.0),
        (_CATEGORY.NATS_SUBSCRIBE, 3, 0.5, 10.0),
        (_CATEGORY.NATS_STREAM_CREATE, 2, 2.0, 60.0),
        (_CATEGORY.KV_CREATE, 2, 1.0, 30.0),
        (_CATEGORY.KV_GET, 3, 0.5, 10.0),
        (_CATEGORY.KV_PUT, 3, 0.5, 10.0),
        (_CATEGORY.KV_DELETE, 2, 1.0, 30.0),
        (_CATEGORY.EXECUTION_INTENT, 2, 2.0, 60.0),
        (_CATEGORY.EXECUTION_CONTAINMENT, 2, 2.0, 60.0),
        (_CATEGORY.EXECUTION_EXPIRATION, 1, 1.0, 30.0),
        (_CATEGORY.APPROVAL_CHECK, 3, 1.0, 30.0),
        (_CATEGORY.APPROVAL_GRANT, 2, 2.0, 60.0),
        (_CATEGORY.REPLAY_PROCESSING, 1, 1.0, 30.0),
        (_CATEGORY.REPLAY_VALIDATION, 2, 1.0, 30.0),
        (_CATEGORY.API_REQUEST, 3, 1.0, 30.0),
        (_CATEGORY.API_VALIDATION, 2, 0.5, 10.0),
    )
}
"""The matrix: what each category is retried with, unless a manager has other policies."""

BATCHES = (_CATEGORY.EXECUTION_EXPIRATION.value, _CATEGORY.REPLAY_PROCESSING.value)
"""Categories of batches and large replays, whose attempts may take longer."""


def default_timeout(code: str) -> float:
    """Seconds for one attempt of a category: the document bounds all, and names no number."""
    return 300.0 if code in BATCHES else 30.0
