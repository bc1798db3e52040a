"""The service goes down, and comes back: a circuit for each operation opens, and recovers.

Each operation is called by one caller, one call after the other, so that the counts are the same
each time. The circuits count 502 alone, which the service answers only while it is down: which of
the calls before that would have been refused would depend on milliseconds.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mainstay import BreakerSettings, CircuitState
from mainstay.cli.demo.wire import ServiceDown
from mainstay.events import CallRefused, CircuitStateChanged

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from mainstay import CircuitBreaker
    from mainstay.events import Event

    Call = Callable[[str], Awaitable[object]]

SETTINGS = BreakerSettings(failure_threshold=3, recovery_timeout=2.0, count_on=ServiceDown)
REFUSED = 5
"""Calls of each operation while its circuit is open."""
_MOST = 10
"""Calls until a circuit opens or closes; far fewer are needed."""


@dataclass(slots=True)
class Circuits:
    """A listener that remembers how each circuit went, and which calls were refused."""

    operations: Iterable[str]
    say: Callable[[str], object]
    states: dict[str, list[str]] = field(init=False)
    refused: dict[str, int] = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.states = {name: ["closed"] for name in self.operations}
        self.refused = dict.fromkeys(self.states, 0)

    def __call__(self, event: Event) -> None:
        if event.operation not in self.states:
            return
        with self._lock:
            if isinstance(event, CircuitStateChanged):
                self._change(event)
            elif isinstance(event, CallRefused):
                self.refused[event.operation] += 1

    def _change(self, event: CircuitStateChanged) -> None:
        states = self.states[event.operation]
        states.append(event.to_state.replace("_", "-"))
        self.say(f"  circuit of {event.operation}: {states[-2]} → {states[-1]}")

    @property
    def opened(self) -> int:
        """How often a circuit opened."""
        return sum(states.count("open") for states in self.states.values())

    @property
    def recovered(self) -> int:
        """How many circuits opened, and let calls through again."""
        return sum("open" in states and states[-1] == "closed" for states in self.states.values())


async def break_all(circuits: Iterable[CircuitBreaker], call: Call) -> None:
    """Calls until every circuit is open, and then some more, which are refused."""
    await asyncio.gather(*(_break(circuit, call) for circuit in circuits))


async def _break(circuit: CircuitBreaker, call: Call) -> None:
    await _until(CircuitState.OPEN, circuit, call)
    for _ in range(REFUSED):
        await call(circuit.name)


async def recover_all(circuits: Iterable[CircuitBreaker], call: Call) -> None:
    """Waits until each circuit lets a probe through, and makes it."""
    await asyncio.gather(*(_recover(circuit, call) for circuit in circuits))


async def _recover(circuit: CircuitBreaker, call: Call) -> None:
    await asyncio.sleep((circuit.retry_after or 0.0) + 0.05)
    await _until(CircuitState.CLOSED, circuit, call)


async def _until(state: CircuitState, circuit: CircuitBreaker, call: Call) -> None:
    for _ in range(_MOST):
        if circuit.state is state:
            return
        await call(circuit.name)
