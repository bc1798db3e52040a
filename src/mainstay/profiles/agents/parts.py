"""The parts of the agent document by their names: interfaces, registry, backoff, circuits."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from mainstay.core.base.validate import Checker
from mainstay.core.circuit.settings import BreakerSettings
from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.drivers.call.site import getrandbits
from mainstay.drivers.guards.named import CircuitsByName
from mainstay.drivers.guards.registry import CircuitRegistry
from mainstay.drivers.policy import RetryPolicy
from mainstay.engine import registry
from mainstay.sinks.logging import LoggingSink

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from typing import TypeVar

    from mainstay.core.base.types import Seconds
    from mainstay.core.retry.policy import Policy

    T = TypeVar("T")


AGGRESSIVE = RetryPolicy(
    name="aggressive",
    max_attempts=5,
    backoff=Backoff.exponential(0.05, max_delay=30.0),
    jitter=Jitter.percent(0.2),
)
"""The document's: 5 attempts, 0.05 s doubled up to 30 s, plus or minus 20 %."""
NO_RETRY = RetryPolicy(name="noRetry", max_attempts=1)
"""The document's: one attempt."""
CIRCUIT_BREAKER = BreakerSettings(
    failure_threshold=5, recovery_timeout=30.0, half_open_probes=1, count="all"
)
"""The document's, for `Engine(breaker=...)`: opens for 30 s after 5 failures in a row, retryable or
not. Circuits of `agent/config.yml` and of `mainstay exec` count the same failures."""


@runtime_checkable
class IRetryExecutor(Protocol):
    """Runs operations under the policy of their type.

    >>> from mainstay.profiles.agents import RetryExecutor
    >>> isinstance(RetryExecutor(escalate=False), IRetryExecutor)
    True
    """

    def execute(
        self,
        operation: Callable[[threading.Event], T],
        operation_type: str,
        token: threading.Event | None = None,
    ) -> T:
        """Calls the operation with the token, and again if it fails as its policy allows."""


@runtime_checkable
class ICircuitBreaker(Protocol):
    """Circuits by the type of an operation.

    >>> isinstance(CircuitBreaker(), ICircuitBreaker)
    True
    """

    def is_open(self, operation_type: str) -> bool:
        """Whether operations of the type fail fast."""

    def record_success(self, operation_type: str) -> None:
        """An operation of the type has succeeded."""

    def record_failure(self, operation_type: str) -> None:
        """An operation of the type has failed."""


@runtime_checkable
class IPolicyRegistry(Protocol):
    """Policies by the type of an operation.

    >>> isinstance(PolicyRegistry(), IPolicyRegistry)
    True
    """

    def get_policy(self, operation_type: str) -> RetryPolicy:
        """The policy that operations of the type run under."""


class PolicyRegistry(registry.PolicyRegistry):
    """Named policies, and which one each type of operation has.

    >>> from mainstay.profiles.agents import AGGRESSIVE
    >>> PolicyRegistry([AGGRESSIVE], {"network": "aggressive"}).get_policy("network").max_attempts
    5
    """

    __slots__ = ()

    def get_policy(self, operation_type: str) -> RetryPolicy:
        """The policy of a type; one that is not mapped gets the default, and a warning.

        >>> PolicyRegistry().get_policy("anything").name
        'standard'
        """
        return self.of(operation_type)


class BackoffStrategy(str, Enum):  # noqa: UP042 -- a word of configuration files
    """How delays grow; `backoff` makes the curve of a policy.

    >>> BackoffStrategy.LINEAR.backoff(0.1, step=0.2, max_delay=5.0).base(3)
    0.5
    """

    CONSTANT = "constant"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"

    def backoff(
        self, initial: Seconds, *, factor: float = 2.0, step: Seconds | None = None,
        max_delay: Seconds = 60.0,
    ) -> Backoff:  # fmt: skip
        """The curve, in seconds.

        >>> BackoffStrategy("exponential").backoff(0.05, max_delay=30.0).base(2)
        0.1
        """
        return Backoff(self.value, initial, factor=factor, step=step, max_delay=max_delay)


class BackoffCalculator:
    """The delay after an attempt; with a seed the same in every process.

    >>> from mainstay.profiles.agents import STANDARD
    >>> BackoffCalculator(seed=7).calculate(STANDARD, 2) == STANDARD.delays(seed=7)[1]
    True
    """

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed

    def calculate(self, policy: Policy, attempt: int) -> float:
        """Seconds to wait after an attempt that failed; attempts count from 1.

        >>> from mainstay.profiles.agents import STANDARD
        >>> 0.09 <= BackoffCalculator().calculate(STANDARD, 1) <= 0.11
        True
        """
        check = Checker("BackoffCalculator.calculate")
        check.attempts("attempt", attempt)
        check.close()
        seed = getrandbits(52) if self.seed is None else self.seed
        return policy.replace(max_attempts=attempt + 1).delays(seed)[attempt - 1]


class CircuitBreaker(CircuitsByName):
    """A circuit for each type of operation.

    Args:
        circuits: when they open and close; or those of an engine, `engine.circuits`.

    >>> breaker = CircuitBreaker()
    >>> for _ in range(5):
    ...     breaker.record_failure("network")
    >>> breaker.is_open("network"), breaker.is_open("file")
    (True, False)
    """

    def __init__(self, circuits: BreakerSettings | CircuitRegistry = CIRCUIT_BREAKER) -> None:
        if isinstance(circuits, BreakerSettings):
            circuits = CircuitRegistry(circuits, listeners=[LoggingSink()])
        super().__init__(circuits)
