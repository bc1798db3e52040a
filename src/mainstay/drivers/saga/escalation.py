"""Brings a saga that is stuck to a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.saga.definition import outline_of
from mainstay.core.saga.state import SagaState
from mainstay.drivers.saga.parts import stuck_item

if TYPE_CHECKING:
    from mainstay.core.inbox.items import Item
    from mainstay.core.saga.flow import Escalate
    from mainstay.core.saga.state import SagaRecord, Stuck
    from mainstay.drivers.saga.session import SagaRun


def escalate(run: SagaRun, effect: Escalate) -> str:
    """Puts the item into the inbox; its id."""
    return run.parts.inbox.put(_item(run, effect)).id


async def aescalate(run: SagaRun, effect: Escalate) -> str:
    """The same, awaited."""
    return (await run.parts.inbox.aput(_item(run, effect))).id


def _item(run: SagaRun, effect: Escalate) -> Item:
    """The item; which occasion it is, was decided when the record was written."""
    record = None if run.kept is None else run.kept[1]
    if record is None or record.state is not SagaState.STUCK:
        record, _ = run.parts.records.get(run.address)
    assert record is not None
    return item_of(record, run.saga_id, run.address, effect.stuck)


def item_of(record: SagaRecord, saga_id: str, address: str, stuck: Stuck | None = None) -> Item:
    """The item of a record that is stuck."""
    found = record.stuck or stuck
    assert found is not None
    names = outline_of(record.shape).names
    step = names[found.step] if 0 <= found.step < len(names) else ""
    return stuck_item(record.saga, saga_id, address, found, step)
