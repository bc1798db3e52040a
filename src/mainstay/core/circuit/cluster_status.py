"""The status of a shared circuit, by the table of its nodes: for people, and for programs."""

from __future__ import annotations

from msgspec import Struct

from mainstay.core.circuit.breaker import CAUTION, CircuitState
from mainstay.core.circuit.cluster import Order, Seat, Table, is_live

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class NodeStatus(Struct, frozen=True):
    """One node's circuit, as it was when the node last renewed its seat."""

    node: str
    state: CircuitState
    reason: str
    failures: int
    seconds_in_state: float
    retry_after: float | None
    """Seconds until asking again may help; None if it depends on an operator."""
    seen: float
    """Seconds since it renewed its seat."""
    is_live: bool
    has_order: bool
    """Whether it has followed the last order, if there is one."""


class Standing(Struct, frozen=True):
    """A circuit in all its processes; its state is the worst of the live nodes."""

    name: str
    places: tuple[NodeStatus, ...] = ()
    """The worst first."""
    order: Order | None = None

    @property
    def live(self) -> tuple[NodeStatus, ...]:
        """The live nodes."""
        return tuple(each for each in self.places if each.is_live)

    @property
    def worst(self) -> NodeStatus | None:
        """The worst of the live nodes; if there is none, of those that have left."""
        return next(iter(self.live or self.places), None)

    @property
    def state(self) -> CircuitState:
        """The worst one's state."""
        return CircuitState.CLOSED if self.worst is None else self.worst.state

    @property
    def is_open(self) -> bool:
        """Whether a node refuses calls, or lets only probes through."""
        return self.state.gauge > 0

    @property
    def pending_nodes(self) -> int:
        """How many live nodes have yet to follow the last order."""
        return sum(not each.has_order for each in self.live)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, without the nodes.

        >>> Standing("pay").to_dict()["state"]
        'closed'
        """
        worst = self.worst
        return {
            "name": self.name,
            "state": self.state.value,
            "is_open": self.is_open,
            "nodes": len(self.live),
            "states": self.states(),
            "reason": "" if worst is None else worst.reason,
            "seconds_in_state": None if worst is None else worst.seconds_in_state,
            "retry_after": 0.0 if worst is None else worst.retry_after,
            "order": None if self.order is None else _order_to_dict(self),
        }

    def states(self) -> dict[str, int]:
        """How many live nodes are in each state, the worst first."""
        found: dict[str, int] = {}
        for each in self.live:
            found[each.state.value] = found.get(each.state.value, 0) + 1
        return found


def _order_to_dict(standing: Standing) -> dict[str, Any]:
    order = standing.order
    assert order is not None
    return {
        "number": order.number, "order": order.signal.value, "by": order.by, "at": order.at,
        "why": order.why, "unheard": standing.pending_nodes,
    }  # fmt: skip


def standing(name: str, table: Table, now: float) -> Standing:
    """How a circuit stands at a moment of the store's clock.

    >>> standing("pay", Table(), 0.0).live
    ()
    """
    last = 0 if table.order is None else table.order.number
    seats = [(node, seat) for node, seat in table.seats.items() if seat.circuit is not None]
    places = [_node_status(node, seat, last, now) for node, seat in seats]
    return Standing(name, tuple(sorted(places, key=_rank)), table.order)


def _node_status(node: str, seat: Seat, last: int, now: float) -> NodeStatus:
    circuit = seat.circuit
    assert circuit is not None
    state, wait = circuit.state, 0.0
    if state is CircuitState.OPEN:
        wait = max(0.0, min(circuit.since, now) + circuit.open_seconds - now)
        state = CircuitState.OPEN if wait else CircuitState.HALF_OPEN
    return NodeStatus(
        node=node,
        state=state,
        reason=circuit.reason,
        failures=circuit.failures or circuit.weight,
        seconds_in_state=max(0.0, now - circuit.since),
        retry_after=None if state is CircuitState.FORCED_OPEN else wait,
        seen=max(0.0, now - seat.seen),
        is_live=is_live(seat, now, seat.silence),
        has_order=last in (0, seat.obeyed),
    )


def _rank(place: NodeStatus) -> tuple[bool, int, float, str]:
    return not place.is_live, -CAUTION.index(place.state), place.seconds_in_state, place.node
