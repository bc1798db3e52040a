"""Circuits of a user's own, known by a name: each attempt is refused, or recorded as it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mainstay.core.base.functions import is_async
from mainstay.core.circuit.breaker import CircuitState

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstay.core.base.types import UserValue
    from mainstay.drivers.call.callables import Function
    from mainstay.drivers.guards.registry import CircuitRegistry
    from mainstay.errors import CircuitOpenError


class NamedCircuits(Protocol):
    """What such circuits can do."""

    def is_open(self, operation_type: str, /) -> bool:
        """Whether calls under the name are refused."""

    def record_success(self, operation_type: str, /) -> None:
        """A call under the name has succeeded."""

    def record_failure(self, operation_type: str, /) -> None:
        """A call under the name has failed."""


class CircuitsByName:
    """The circuits of a registry, by what they guard."""

    def __init__(self, circuits: CircuitRegistry) -> None:
        self.circuits = circuits

    def state(self, operation_type: str) -> CircuitState:
        """The state of a circuit.

        >>> from mainstay.profiles.agents import CircuitBreaker
        >>> CircuitBreaker().state("network").name
        'CLOSED'
        """
        return self.circuits[operation_type].state

    def is_open(self, operation_type: str) -> bool:
        """Whether operations of the type fail fast; a half-open circuit lets a probe through.

        >>> from mainstay.profiles.agents import CircuitBreaker
        >>> CircuitBreaker().is_open("network")
        False
        """
        return self.state(operation_type) in (CircuitState.OPEN, CircuitState.FORCED_OPEN)

    def record_success(self, operation_type: str) -> None:
        """An operation of the type has succeeded.

        >>> from mainstay.profiles.agents import CircuitBreaker
        >>> CircuitBreaker().record_success("network")
        """
        self.circuits[operation_type].record_success()

    def record_failure(self, operation_type: str) -> None:
        """An operation of the type has failed.

        >>> from mainstay.profiles.agents import CircuitBreaker
        >>> CircuitBreaker().record_failure("network")
        """
        self.circuits[operation_type].record_failure()

    def reset(self, operation_type: str) -> None:
        """Closes a circuit.

        >>> from mainstay.profiles.agents import CircuitBreaker
        >>> CircuitBreaker().reset("network")
        """
        self.circuits[operation_type].reset()


def recorded(
    function: Function,
    circuits: NamedCircuits,
    name: str,
    refusal: Callable[[str], CircuitOpenError],
) -> Function:
    """The function, sync or async, with every call of it seen by the circuits.

    A cancellation is recorded neither as a success nor as a failure.
    """

    def attempt(*args: UserValue) -> UserValue:
        with _Attempt(circuits, name, refusal):
            return function(*args)

    async def async_attempt(*args: UserValue) -> UserValue:
        with _Attempt(circuits, name, refusal):
            return await function(*args)

    return async_attempt if is_async(function) else attempt


class _Attempt:
    def __init__(
        self, circuits: NamedCircuits, name: str, refusal: Callable[[str], CircuitOpenError]
    ) -> None:
        self._circuits, self._name, self._refusal = circuits, name, refusal

    def __enter__(self) -> None:
        if self._circuits.is_open(self._name):
            raise self._refusal(self._name)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._circuits.record_success(self._name)
        elif issubclass(kind, Exception):
            self._circuits.record_failure(self._name)
