"""Two orders to be charged: one is called twice, the other one needs a person.

Both are keyed calls, recorded in the demo's own store. What is said of them is what the service
counted, and what the inbox says.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstay.cli.demo.wire import StatusError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from mainstay import Engine, Item
    from mainstay.cli.demo.script import Order

    Charge = Callable[[int], str]

CHARGE = "charge"
OPERATOR = "demo-operator"
WHY = "the bank says that it is back"


@dataclass(frozen=True, slots=True)
class Charged:
    """What two calls with one key came to."""

    order: str
    receipts: tuple[str, ...]

    @property
    def is_replayed(self) -> bool:
        """Whether every call returned what the first one did."""
        return len(set(self.receipts)) == 1


@dataclass(frozen=True, slots=True)
class Resolved:
    """What became of an item of the inbox."""

    order: str
    raised: str
    actions: tuple[str, ...]
    decision: str
    by: str
    why: str
    result: str
    receipt: str
    still_open: int


class StoppedError(Exception):
    """The demo was interrupted: what comes next is not begun."""


class Desk:
    """Charges orders through the engine; blocks, so it is for a thread."""

    def __init__(self, engine: Engine, charge: Charge, cancel: threading.Event) -> None:
        self._engine = engine
        self._charge = charge
        self._cancel = cancel

    def charge(self, order: Order) -> str:
        """Charges an order under its key; brings it to a person where that fails."""
        self._go_on()
        operation = self._engine.operation(
            CHARGE, key=order.name, escalate=True, cancel=self._cancel
        )
        return operation.call(self._charge, order.call)

    def charge_twice(self, order: Order) -> Charged:
        """Two calls with one key, as of a user who pressed the button twice."""
        return Charged(order.name, (self.charge(order), self.charge(order)))

    def ask_a_person(self, order: Order) -> Resolved:
        """A charge that is given up, the operator who decides, and the charge again."""
        raised = self._give_up(order)
        inbox, secret = self._engine.inbox, secrets.token_urlsafe(16)
        self._go_on()
        self._engine.operators.add(OPERATOR, secret=secret)
        self._go_on()
        inbox.act(raised.id, "retry", by=OPERATOR, proof=secret, why=WHY)
        receipt, after = self.charge(order), inbox.get(raised.id)
        assert after is not None
        assert after.decision is not None
        return Resolved(
            order.name,
            raised.text,
            raised.actions,
            after.decision.action,
            after.decision.by,
            after.decision.why,
            after.result,
            receipt,
            len(list(inbox)),
        )

    def _give_up(self, order: Order) -> Item:
        """Charges in vain; the item that this raised."""
        with suppress(StatusError):
            self.charge(order)
        return next(item for item in self._engine.inbox if item.operation == CHARGE)

    def _go_on(self) -> None:
        """Raises once the demo is interrupted: hashing a secret would be waited for."""
        if self._cancel.is_set():
            raise StoppedError
