"""What a person's decision does to a saga that is stuck: retry, skip with a reason, mark done.

The decision changes the record; the saga then goes on where it is recovered: the process of the
person who decides need not know its functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mainstay.core.codec.outcome import encode_value
from mainstay.core.saga.commands import Done, Resolve
from mainstay.drivers.inbox.resolution import MOVED_ON

if TYPE_CHECKING:
    from mainstay.core.inbox.items import Decision, Item
    from mainstay.drivers.inbox.inbox import Room
    from mainstay.drivers.saga.records import SagaRecords

_RESULTS = {
    "retry": "it is tried again",
    "skip": "the saga goes on without it",
    "mark_done": "the saga goes on as if it was done",
}


def stuck_sagas(records: SagaRecords, forwarded: set[str]) -> Room:
    """Lets a saga go on as was decided; recovery carries it out.

    A decision on a saga of another executor is carried out when it was forwarded, which its token
    shows: the saga may be stuck again, and the item of that has the same id.
    """

    def settle(item: Item, decision: Decision) -> str | None:
        if item.data.get("temporal"):
            return "the workflow was signalled" if decision.token in forwarded else None
        address = str(item.data.get("address", item.subject))
        command = Resolve(
            decision.action,
            str(item.data.get("occasion", item.occasion)),
            decision.token or f"{decision.by} {decision.at}",
            f"{decision.by}: {decision.why or decision.evidence}",
            _result(decision.evidence) if decision.action == "mark_done" else b"",
        )
        records.enter(address, f"inbox {command.token}")  # first: recovery must find what goes on
        answer, _ = records.step(address, command)
        if not isinstance(answer, Done):
            return MOVED_ON
        return f"{_RESULTS[decision.action]}, when the saga is recovered"

    return settle


def _result(evidence: str) -> bytes:
    """The result of a step that was marked done: its evidence, as JSON if it is JSON."""
    try:
        return encode_value(msgspec.json.decode(evidence))
    except (ValueError, RecursionError):
        return encode_value(evidence)
