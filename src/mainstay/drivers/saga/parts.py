"""What sagas need of their engine, and the items of those that are stuck."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.inbox.items import Item
from mainstay.core.saga.flow import MAX_RESULT
from mainstay.drivers.call.emit import emit
from mainstay.drivers.saga.records import SagaRecords
from mainstay.drivers.saga.steps import Operations
from mainstay.errors import UsageError
from mainstay.ports import max_value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from mainstay.core.base.change import Decide, Reply
    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Fields, UserValue
    from mainstay.core.redact.redactor import Redactor
    from mainstay.core.saga.definition import Saga
    from mainstay.core.saga.state import Stuck
    from mainstay.drivers.inbox.inbox import Inbox
    from mainstay.drivers.policy import RetryPolicy
    from mainstay.drivers.saga.steps import Operate
    from mainstay.ports import Sink, Store

    class Messages(Protocol):
        """An outbox in the database of the store."""

        def make(self, topic: str, payload: UserValue, fields: Fields) -> tuple[UserValue, str]: ...
        def transact(
            self, space: str, key: str, decide: Decide[Reply], messages: Sequence[UserValue]
        ) -> Reply: ...


KIND = "stuck_saga"


class SagaParts:
    """The store, the inbox, the listeners and the operations of an engine; and the definitions."""

    def __init__(
        self,
        store: Store,
        inbox: Inbox,
        operate: Operate,
        policy_of: Callable[[str], RetryPolicy],
        *,
        listeners: tuple[Sink, ...] = (),
        redact: Redactor | None = None,
        store_wait: float = 0.0,
        messages: Messages | None = None,
    ) -> None:
        self.records = SagaRecords(store, store_wait=store_wait)
        self.inbox = inbox
        self.operations = Operations(operate, policy_of)
        self.listeners = listeners
        self.redact = redact
        self.messages = messages
        """Adds what steps emit to the outbox."""
        self.definitions: dict[tuple[str, int], Saga] = {}
        self.unbegun: dict[tuple[str, str], float] = {}
        """Entries without a saga, and when recovery has first seen each."""

    @property
    def max_result(self) -> int:
        """Bytes of a result that are kept at most: the record holds those of all steps."""
        limit = max_value_of(self.records.store)
        return MAX_RESULT if limit is None else min(MAX_RESULT, limit // 8)

    def emit(self, event: Event) -> None:
        """Sends an event to every listener."""
        if self.listeners:
            emit(event, self.listeners, self.redact)

    def register(self, saga: Saga) -> None:
        """Makes a definition known; of one name and version there is one."""
        known = self.definitions.get((saga.name, saga.version))
        if known is saga:
            return
        if known is not None and known.shape != saga.shape:
            raise UsageError(
                f"two definitions are named {saga.name!r}, version {saga.version}:"
                f" {known.shape!r} and {saga.shape!r}",
                hint="give one of them another version",
            )
        self.definitions[saga.name, saga.version] = saga


def stuck_item(name: str, saga_id: str, address: str, stuck: Stuck, step: str) -> Item:
    """The item of a saga that can go on only if a person decides how.

    >>> from mainstay.core.saga.state import SagaState, Stuck
    >>> stuck = Stuck("undo", 0, "the compensation of step debit failed", SagaState.COMPENSATING)
    >>> stuck_item("transfer", "t-1", "transfer/t-1", stuck, "debit").actions
    ('retry', 'skip', 'mark_done')
    """
    return Item(
        kind=KIND,
        subject=address,
        operation=name,
        text=f"{name} {saga_id}: {stuck.text}",
        occasion=stuck.item,
        data={"address": address, "step": step, "phase": stuck.phase, "occasion": stuck.item},
    )
