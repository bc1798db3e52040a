"""What actions on inbox items do, in the rooms that raised them.

Each may come twice, because a process did it and died before the item was closed: the second has
the same answer. None changes what has moved on since the item was raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mainstay.core.base.spaces import Space
from mainstay.core.circuit.breaker import ORDERS, Signal
from mainstay.core.codec.outcome import Failed, Succeeded, encode_outcome
from mainstay.core.idempotency.record import Done, Forget, RecordState, Resolve, reduce
from mainstay.drivers.inbox.circuit_admin import reset_circuit
from mainstay.errors import CallAbandoned

if TYPE_CHECKING:
    from mainstay.core.idempotency.record import Answer
    from mainstay.core.inbox.items import Decision, Item
    from mainstay.drivers.guards.registry import CircuitRegistry
    from mainstay.drivers.inbox.inbox import Room
    from mainstay.ports import Store

_RECORDS = Space.RECORDS.value
_FORCED = frozenset(state for signal, state in ORDERS.items() if signal is not Signal.RESET)
_DAY = 86_400.0
_RESULTS = {
    "mark_done": "the outcome is recorded: calls with the key return it",
    "abandon": "the call is recorded as failed: calls with the key raise that",
    "retry": "the record is released: the next call with the key runs",
}
MOVED_ON = "nothing was changed: the record has moved on"


def unknown_outcomes(store: Store) -> Room:
    """Settles the idempotency record of an unknown outcome, by the record's own reducer."""

    def settle(item: Item, decision: Decision) -> str:
        command = _resolving(item, decision)
        answer = _step(store, item, command)
        return _RESULTS[decision.action] if isinstance(answer, Done) else MOVED_ON

    return settle


def _resolving(item: Item, decision: Decision) -> Resolve:
    state, outcome = None, b"null"
    if decision.action == "mark_done":
        state = RecordState.SUCCEEDED
        outcome = encode_outcome(Succeeded(msgspec.json.decode(decision.evidence)))
    elif decision.action == "abandon":
        state = RecordState.FAILED
        error = CallAbandoned(item.operation, decision.by, decision.why)
        outcome = encode_outcome(Failed(error))
    return Resolve(
        item.id,
        owner=str(item.data.get("owner", "")),
        epoch=int(item.data.get("epoch", 0)),
        state=state,
        outcome=outcome,
        ttl=item.data.get("ttl", _DAY),
    )


def exhausted_calls(store: Store, circuits: CircuitRegistry) -> Room:
    """Lets an operation begin again: counted attempts are forgotten, its circuits are reset."""

    def settle(item: Item, decision: Decision) -> str:
        if decision.action != "retry":
            return "given up"
        results = []
        if "address" in item.data:
            is_done = isinstance(_step(store, item, Forget()), Done)
            results.append("counted attempts are forgotten" if is_done else MOVED_ON)
        results += _reset(store, circuits, item, decision)
        return "; ".join(results) or "it may be called again"

    return settle


def _reset(store: Store, circuits: CircuitRegistry, item: Item, decision: Decision) -> list[str]:
    """Resets the operation's circuits, here and wherever they are shared; a forced one stays.

    An item may name circuits that do not have the operation's name: those of commands.
    """
    why = f"the inbox: {decision.why}" if decision.why else "the inbox"
    results = dict.fromkeys((item.operation, *map(str, item.data.get("circuits", ()))), "")
    for circuit in circuits.of(item.operation):
        if circuit.state in _FORCED:
            results[circuit.name] = f"the circuit {circuit.name} stays {circuit.state.value}"
        else:
            circuit.reset()
            results[circuit.name] = f"the circuit {circuit.name} is reset"
    found = (
        reset_circuit(store, name, by=decision.by, why=why) or own for name, own in results.items()
    )
    return [each for each in found if each]


def _step(store: Store, item: Item, command: Resolve | Forget) -> Answer:
    address = str(item.data.get("address", item.subject))
    return store.transact(_RECORDS, address, lambda value, now: reduce(value, command, now))
