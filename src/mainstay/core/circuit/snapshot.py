"""The state of a circuit, for people and health checks."""

from __future__ import annotations

from msgspec import Struct

from mainstay.core.circuit.breaker import Circuit, CircuitState, retry_after, sums_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mainstay.core.circuit.settings import BreakerSettings

_UNWELL = frozenset({CircuitState.OPEN, CircuitState.HALF_OPEN, CircuitState.FORCED_OPEN})


class CircuitSnapshot(Struct, frozen=True, kw_only=True):
    """A circuit at one moment.

    >>> CircuitSnapshot(name="payments", state=CircuitState.OPEN).is_healthy
    False
    """

    name: str
    state: CircuitState
    reason: str = ""
    failure_count: int = 0
    """Failures in a row; with a window, the failures in it."""
    success_count: int = 0
    """Probes that succeeded, while half open."""
    calls: int = 0
    """In the window; 0 if there is none."""
    failure_rate: float | None = None
    slow_rate: float | None = None
    refused: int = 0
    """Calls refused since it was made."""
    openings: int = 0
    """In a row, without a stable time between them."""
    probes: int = 0
    generation: int = 0
    seconds_in_state: float = 0.0
    retry_after: float | None = 0.0

    @property
    def is_healthy(self) -> bool:
        """Whether calls go through as usual."""
        return self.state not in _UNWELL

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data.

        >>> CircuitSnapshot(name="payments", state=CircuitState.OPEN).to_dict()["state"]
        'open'
        """
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return {**values, "state": self.state.value}


def summary(
    name: str, settings: BreakerSettings, circuit: Circuit, now: float, refused: int
) -> CircuitSnapshot:
    """The circuit as a snapshot."""
    sums = sums_of(settings, circuit, now)
    is_windowed = settings.window is not None
    return CircuitSnapshot(
        name=name,
        state=circuit.state,
        reason=circuit.reason,
        failure_count=sums.failed if is_windowed else circuit.failures,
        success_count=circuit.successes,
        calls=sums.calls,
        failure_rate=sums.failed / sums.calls if sums.calls else None,
        slow_rate=sums.slow / sums.calls if sums.calls else None,
        refused=refused,
        openings=circuit.openings,
        probes=len(circuit.probes),
        generation=circuit.generation,
        seconds_in_state=max(0.0, now - circuit.since) if circuit.generation else 0.0,
        retry_after=retry_after(settings, circuit, now),
    )
