"""A client's circuit: its configuration, its exception, and the breaker in memory or in Redis."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import mainstay.runtime.clock as clock
from mainstay.core.base.validate import Checker, in_seconds
from mainstay.core.circuit.breaker import CircuitState
from mainstay.core.circuit.settings import BreakerSettings
from mainstay.drivers.guards.breaker import CircuitBreaker as _CircuitBreaker
from mainstay.drivers.guards.shared import Sharing
from mainstay.errors import StoreError
from mainstay.profiles.errors import CircuitOpenException
from mainstay.runtime.reports import logs
from mainstay.stores.open import open_store

if TYPE_CHECKING:
    from mainstay.core.base.types import Seconds
    from mainstay.core.circuit.events import CircuitStateChanged
    from mainstay.drivers.call.guard import GuardTicket
    from mainstay.ports import Store

logger = logs.logger(f"{logs.NAME}.security")


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

    if TYPE_CHECKING:  # the field is a float, whatever is given

        def __init__(
            self,
            failure_threshold: int = 5,
            recovery_timeout_seconds: Seconds = 30.0,
            success_threshold: int = 1,
            state_persistence: str = "memory",
            redis_key_prefix: str = "circuit_breaker:",
        ) -> None: ...

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


class CircuitBreaker(_CircuitBreaker):
    """The breaker of the client document: by the operation's name, with its configuration.

    In half open it lets one probe through, where the document's sketch would let everything. With
    `state_persistence="redis"` the circuit is shared with other processes and outlives this one: if
    it opens in one of them, it is open in all within a second.
    Each change of its state is logged at INFO.

    Args:
        operation_name: what errors, events and the log call it.
        config: when it opens and closes, and where it is kept.
        redis_url: the Redis or Valkey of a shared circuit; by default the environment's REDIS_URL.

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
        self._failed_at: float | None = None
        self._sharing: Sharing | None = None
        self._store: Store | None = None
        if self.config.state_persistence == "redis":
            self._share(redis_url)

    def _share(self, redis_url: str | None) -> None:
        """Keeps the circuit in Redis, in the background; no call waits for it."""
        redis_url = redis_url or os.environ.get("REDIS_URL")
        if not redis_url:
            raise StoreError(
                f"circuit {self.operation_name!r} is to be kept in Redis, and no URL is given",
                hint="set REDIS_URL=redis://localhost:6379 in the environment, or give redis_url=",
            )
        sign = "&" if "?" in redis_url else "?"
        self._store = open_store(f"{redis_url}{sign}prefix={quote(self.config.redis_key_prefix)}")
        # In the document it is one circuit for all.
        self._sharing = Sharing(self._store, [self], quorum=1)
        self._sharing.start()

    @property
    def failure_count(self) -> int:
        """Failures in a row; while it is not closed, those that opened it.

        >>> breaker = CircuitBreaker("s3.get")
        >>> breaker.record_failure(); breaker.failure_count
        1
        """
        circuit = self._now()
        is_closed = circuit.state is CircuitState.CLOSED
        return circuit.failures if is_closed else circuit.weight

    @property
    def last_failure_time(self) -> float | None:
        """When this process last recorded a failure, in Unix seconds; None if it never did.

        Nothing is decided by it: open times are measured on a clock that is never set back.

        >>> CircuitBreaker("s3.get").last_failure_time is None
        True
        """
        return self._failed_at

    def record_failure(self, failure: BaseException | None = None) -> None:
        """A call that was allowed has failed; an exception that does not count is not counted.

        >>> breaker = CircuitBreaker("s3.get", CircuitBreakerConfiguration(failure_threshold=1))
        >>> breaker.record_failure(); breaker.state.name
        'OPEN'
        """
        self._keep_time(failure)
        super().record_failure(failure)

    def left(
        self, ticket: GuardTicket, failure: BaseException | None, seconds: float, now: float
    ) -> None:
        """Counts how an attempt has ended."""
        if failure is not None:
            self._keep_time(failure)
        super().left(ticket, failure, seconds, now)

    def _keep_time(self, failure: BaseException | None) -> None:
        if failure is None or self.settings.counts(failure):
            self._failed_at = clock.current.wall()

    def _notify(self, event: CircuitStateChanged) -> None:
        """Logs the change in the document's words, unless a listener writes a log of its own."""
        if self._listeners:
            super()._notify(event)
        if not any(getattr(listener, "is_log", False) for listener in self._listeners):
            logs.write(
                logger.info,
                "Circuit breaker '%s' transitioned from %s to %s",
                event.operation,
                event.from_state,
                event.to_state,
                extra={"mainstay": event.to_dict()},
            )

    def close(self) -> None:
        """Leaves the circuit in Redis for the next process; in memory there is nothing to do.

        >>> CircuitBreaker("s3.get").close()
        """
        if self._sharing is not None and self._store is not None:
            self._sharing.close()
            self._store.close()
