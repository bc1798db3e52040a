"""Circuits as a store knows them, and orders for those of every process that shares them.

Nothing here takes part in sharing: it looks at the tables, and lays an operator's order on one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.base.change import KEEP
from mainstay.core.circuit import cluster as core
from mainstay.core.circuit.breaker import Signal
from mainstay.core.circuit.cluster_status import Standing, standing
from mainstay.core.circuit.events import CircuitOrdered
from mainstay.core.events.describe import usual_redactor
from mainstay.drivers.guards.shared import CIRCUITS
from mainstay.drivers.inbox.authentication import writable
from mainstay.drivers.inbox.private_store import private_owner
from mainstay.drivers.inbox.scan import listed
from mainstay.errors import IdentityRefused

if TYPE_CHECKING:
    from mainstay.core.base.change import Change
    from mainstay.drivers.inbox.authentication import Credential
    from mainstay.drivers.inbox.operators import Operators
    from mainstay.ports import Store


def shared_circuits(store: Store) -> list[Standing]:
    """Every circuit that processes share through the store, by name; damaged ones are reported.

    >>> from mainstay.stores.memory import MemoryStore
    >>> shared_circuits(MemoryStore())
    []
    """
    now = store.read(CIRCUITS, "")[1]
    return [standing(name, table, now) for name, table in listed(store, CIRCUITS, core.decode)]


def shared_circuit(store: Store, name: str) -> Standing | None:
    """The circuit of that name; None if no process has ever shared one."""
    value, now = store.read(CIRCUITS, writable(name))
    return None if value is None else standing(name, core.decode(value), now)


def order_circuit(
    store: Store,
    operators: Operators,
    name: str,
    signal: Signal,
    *,
    by: str = "",
    proof: Credential | None = None,
    why: str = "",
) -> Standing | None:
    """Gives an order to a circuit in every process, if the operator proves who they are.

    Each process follows it at its next step, and its audit holds who gave it and why. None if
    there is no such circuit. Without `by` and `proof` the owner of a private store may reset a
    circuit while the store has no operator: see owner_without_account().
    """
    name, why = writable(name), writable(why)
    about, act = (name, signal.name, why), f"circuit {name}: {signal.value}"
    if by or proof is not None:
        operators.verify(by, proof, "circuit", about, act)
    else:
        by, reason = owner_without_account(store, operators, signal)
        if not by:
            operators.refuse("", act, reason)
            raise IdentityRefused(reason, hint="identify yourself with by= and proof=")
    reason = usual_redactor().text(why)
    found = _laid(store, name, signal, by, reason)
    if found is not None:
        operators.tell(CircuitOrdered(operation=name, order=signal.value, operator=by, why=reason))
    return found


def owner_without_account(store: Store, operators: Operators, signal: Signal) -> tuple[str, str]:
    """Who may give this order without an account, and if no one may, why.

    >>> from mainstay.drivers.inbox.operators import Operators
    >>> from mainstay.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> owner_without_account(store, Operators(store), Signal.RESET)
    ('', 'only the owner of a private SQLite file (mode 0600) resets a circuit without an operator')
    """
    if signal is not Signal.RESET:
        return "", f"{signal.value}: an operator must order it"
    if not operators.is_empty:
        return "", "the store has operators: one of them must order it"
    owner = private_owner(store)
    return owner, "" if owner else _NOT_PRIVATE


_NOT_PRIVATE = (
    "only the owner of a private SQLite file (mode 0600) resets a circuit without an operator"
)


def reset_circuit(store: Store, name: str, *, by: str, why: str = "") -> str:
    """Resets a circuit in every process, by a decision that was verified; what came of it.

    An order of an operator stays. Returns nothing if there is no such circuit.
    """
    reason = usual_redactor().text(why)

    def decide(value: bytes | None, now: float) -> tuple[Change, str]:
        order = None if value is None else core.decode(value).order
        if order is not None and order.is_standing:
            return KEEP, f"the circuit {name} stays as {order.by} ordered: {order.signal.value}"
        change, table = core.give(value, Signal.RESET, by, reason, now)
        return change, "" if table is None else f"the circuit {name} is reset in every process"

    return store.transact(CIRCUITS, name, decide)


def _laid(store: Store, name: str, signal: Signal, by: str, why: str) -> Standing | None:
    def decide(value: bytes | None, now: float) -> tuple[Change, Standing | None]:
        change, table = core.give(value, signal, by, why, now)
        return change, None if table is None else standing(name, table, now)

    return store.transact(CIRCUITS, name, decide)
