"""The front door for S3 and HTTP API clients: their configuration, as a policy of the engine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from mainstay.core.base.validate import MAX_ATTEMPTS, MAX_SECONDS, Checker, in_seconds
from mainstay.core.circuit.breaker import CircuitState
from mainstay.core.circuit.settings import BreakerSettings
from mainstay.core.known.http import status_of
from mainstay.core.known.kind import RETRIED_KINDS
from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.core.retry.kinds import kind_of
from mainstay.drivers.guards.breaker import CircuitBreaker as _CircuitBreaker
from mainstay.drivers.guards.shared import Sharing
from mainstay.drivers.policy import RetryPolicy
from mainstay.errors import CircuitOpenError, StoreError
from mainstay.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstay.core.retry.classify import Rule
    from mainstay.core.retry.hooks import Hook


__all__ = [
    "CircuitBreaker",
    "CircuitBreakerConfiguration",
    "CircuitOpenException",
    "CircuitState",
    "RetryConfiguration",
    "is_server_error",
]


def is_server_error(error: Exception) -> bool:
    """Whether an HTTP error is the server's doing, or asks us to slow down: 5xx and 429.

    >>> error = RuntimeError()
    >>> error.status_code = 503
    >>> is_server_error(error)
    True
    """
    status = status_of(error)
    return status is not None and (status == 429 or 500 <= status < 600)


def is_transient(error: Exception) -> bool:
    """Whether its library's table has it as worth repeating: S3's SlowDown, a reset, a timeout.

    An HTTP status decides alone, as the document has it; AWS's error codes decide before it. A
    request whose answer was lost and that must not be sent twice is not worth repeating.
    """
    known = kind_of(error)
    is_decided = status_of(error) is None or known.table == "botocore"
    return bool(known.table) and is_decided and known.kind in RETRIED_KINDS and not known.unsafe


RETRY_ON: tuple[Rule, ...] = (
    "ThrottlingException",
    "ProvisionedThroughputExceededException",
    "InternalError",
    "ServiceUnavailable",
    "requests.exceptions.ConnectionError",
    "requests.exceptions.Timeout",
    is_server_error,
    is_transient,
)
IGNORE_ON: tuple[Rule, ...] = (
    "AccessDeniedException",
    "NoSuchKey",
    "InvalidSignatureException",
    ValueError,
    TypeError,
)


@dataclass(frozen=True, slots=True)
class RetryConfiguration:
    """How a client's calls are retried; `policy()` makes the engine's policy of it.

    >>> RetryConfiguration(max_attempts=3, base_delay=0.5, max_delay=10.0).policy().max_attempts
    3
    """

    max_attempts: int = 5
    base_delay: float = 1.0
    max_delay: float = 30.0
    exponential_base: float = 2.0
    jitter: float = 1.0
    retry_on_exceptions: tuple[Rule, ...] = RETRY_ON
    ignore_on_exceptions: tuple[Rule, ...] = IGNORE_ON
    log_level: str | int = "WARNING"
    before_retry_hook: Hook | None = None
    after_retry_hook: Hook | None = None

    def __post_init__(self) -> None:
        check = Checker("RetryConfiguration")
        for name in ("base_delay", "max_delay", "jitter"):
            object.__setattr__(self, name, in_seconds(getattr(self, name)))
        for name, (is_right, allowed) in _RULES.items():
            value = getattr(self, name)
            if type(value) not in (int, float) or not math.isfinite(value) or not is_right(value):
                check.note(name, value, allowed)
        if not check.problems and self.max_delay < self.base_delay:
            check.note("max_delay", self.max_delay, f"at least base_delay, {self.base_delay:g}")
        check.close()
        self.policy()  # raises if the rest is wrong

    def policy(self, name: str = "client") -> RetryPolicy:
        """The engine's policy with these values."""
        return RetryPolicy(
            name=name,
            max_attempts=self.max_attempts,
            backoff=Backoff.exponential(
                self.base_delay, factor=self.exponential_base, max_delay=self.max_delay
            ),
            jitter=Jitter.additive(self.jitter),
            retry_on=self.retry_on_exceptions,
            never_retry_on=self.ignore_on_exceptions,
            log_level=self.log_level,
            before_retry=self.before_retry_hook,
            after_retry=self.after_retry_hook,
        )


_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "max_attempts": (
        lambda value: type(value) is int and 1 <= value <= MAX_ATTEMPTS,
        "an integer of at least 1",
    ),
    "base_delay": (lambda value: 0 <= value <= MAX_SECONDS, "at least 0"),
    "max_delay": (lambda value: 0 <= value <= MAX_SECONDS, "at least base_delay"),
    "exponential_base": (lambda value: 1 <= value <= 1000, "at least 1.0"),
    "jitter": (lambda value: 0 <= value <= MAX_SECONDS, "at least 0"),
}


@dataclass(frozen=True, slots=True)
class CircuitBreakerConfiguration:
    """When a client's circuit opens and closes; `settings()` makes the engine's settings of it.

    >>> CircuitBreakerConfiguration(failure_threshold=3).settings().failure_threshold
    3
    """

    failure_threshold: int = 5
    recovery_timeout_seconds: float = 30.0
    success_threshold: int = 1
    state_persistence: str = "memory"
    redis_key_prefix: str = "circuit_breaker:"

    def __post_init__(self) -> None:
        check = Checker("CircuitBreakerConfiguration")
        check.count("failure_threshold", self.failure_threshold, 1_000_000)
        name = "recovery_timeout_seconds"
        object.__setattr__(self, name, in_seconds(self.recovery_timeout_seconds))
        check.seconds(name, self.recovery_timeout_seconds, zero=False)
        check.count("success_threshold", self.success_threshold, 1_000_000)
        check.choice("state_persistence", self.state_persistence, ("memory", "redis"))
        check.name("redis_key_prefix", self.redis_key_prefix)
        check.close()

    def settings(self) -> BreakerSettings:
        """The engine's settings with these values.

        >>> CircuitBreakerConfiguration().settings().success_threshold
        1
        """
        return BreakerSettings(
            failure_threshold=self.failure_threshold,
            recovery_timeout=self.recovery_timeout_seconds,
            success_threshold=self.success_threshold,
        )


class CircuitOpenException(CircuitOpenError):
    """Raised when the circuit breaker of an operation is open; with the document's arguments.

    A `CircuitOpenError` with the document's wording; `retry_after` is there too.

    >>> error = CircuitOpenException("s3.get", CircuitState.OPEN)
    >>> print(error)
    Circuit breaker open for s3.get
    >>> error.operation_name, error.state.value
    ('s3.get', 'open')
    """

    def __init__(
        self,
        operation_name: str,
        state: CircuitState,
        retry_after: float | None = None,
        opened_by: str | None = None,
    ) -> None:
        super().__init__(operation_name, state, retry_after, opened_by)

    @property
    def message(self) -> str:  # type: ignore[override]
        """What happened, in the document's words."""
        return f"Circuit breaker open for {self.operation_name}"

    def __str__(self) -> str:
        return self.message


class CircuitBreaker(_CircuitBreaker):
    """The breaker of the client document: by the operation's name, with its configuration.

    In half open it lets one probe through, where the document's sketch would let everything. With
    `state_persistence="redis"` the circuit is shared with other processes and outlives this one.

    >>> breaker = CircuitBreaker("s3.get", CircuitBreakerConfiguration(failure_threshold=1))
    >>> breaker.record_failure(); breaker.allow_request()
    False
    """

    _refusal_type = CircuitOpenException

    def __init__(
        self,
        operation_name: str,
        config: CircuitBreakerConfiguration | None = None,
        *,
        redis_url: str | None = None,
    ) -> None:
        self.operation_name = operation_name
        self.config = config or CircuitBreakerConfiguration()
        super().__init__(operation_name, self.config.settings())
        self._sharing: Sharing | None = None
        if self.config.state_persistence == "redis":
            self._sharing = self._share(redis_url)

    def _share(self, redis_url: str | None) -> Sharing:
        """Keeps the circuit in Redis, in the background; no call waits for it."""
        if redis_url is None:
            raise StoreError(
                "a circuit kept in Redis needs to know where that is",
                hint='CircuitBreaker(name, config, redis_url="redis://localhost:6379")',
            )
        sign = "&" if "?" in redis_url else "?"
        store = open_store(f"{redis_url}{sign}prefix={quote(self.config.redis_key_prefix)}")
        sharing = Sharing(store, [self])
        sharing.start()
        return sharing

    def close(self) -> None:
        """Leaves the circuit in Redis for the next process; in memory there is nothing to do.

        >>> CircuitBreaker("s3.get").close()
        """
        if self._sharing is not None:
            self._sharing.close()
