"""Carries over what a run ended with: to its data sets, the inbox and the ledger files.

Every step may come twice. The entry of a run is removed when all of them are done; so whatever a
kill has left out is done before the next run of any pipeline begins.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mainstay.core.inbox.items import Item
from mainstay.core.pipeline.commands import Done, Review
from mainstay.core.pipeline.dataset import Free, Hold
from mainstay.core.pipeline.state import HALTED, RUNNING, UNKNOWN, address_of
from mainstay.drivers.inbox.resolution import MOVED_ON
from mainstay.drivers.pipeline.ledger_files import LedgerFiles

if TYPE_CHECKING:
    from mainstay.core.inbox.items import Decision
    from mainstay.core.pipeline.state import RunRecord
    from mainstay.drivers.pipeline.parts import PipelineParts

_RESULTS = {
    "release": "released: the run may be resumed",
    "mark_done": "released by the council: the run may be resumed",
    "abandon": "the run is abandoned; its data sets stay in quarantine",
}


class CarryOver:
    """What follows from the end of a run."""

    def __init__(self, parts: PipelineParts) -> None:
        self._parts = parts
        self._files: dict[str, LedgerFiles] = {}

    def know(self, files: LedgerFiles) -> None:
        """Has the files of a folder written as its pipeline wants them."""
        self._files[str(files.folder)] = files

    def all(self) -> None:
        """Carries over whatever was left."""
        for address, token in list(self._parts.records.entries()):
            self.one(address, token)

    def one(self, address: str, token: str) -> str | None:
        """Carries over one run, unless it is under way; the id of its inbox item, if it has one."""
        record, _ = self._parts.records.get(address)
        if record is None or record.state is RUNNING:
            return None
        self._quarantine(address, record)
        item = self._item(address, record)
        if self._write(record):
            self._parts.records.leave(address, token)
        return item

    def _quarantine(self, address: str, record: RunRecord) -> None:
        held, records = record.quarantine, self._parts.records
        if held is None or (held.is_blocked and held.status != "released"):
            return
        command: Hold | Free = Hold(address, f"{held.error_class}: {held.text}")
        if held.status == "released":
            command = Free(address, held.is_escalated)
        for dataset in held.datasets:
            records.dataset(dataset, command)

    def _item(self, address: str, record: RunRecord) -> str | None:
        item = item_of(address, record)
        return None if item is None else self._parts.inbox.put(item, is_new=False).id

    def _write(self, record: RunRecord) -> bool:
        """Writes the files, if their folder is there: a person may decide on another machine."""
        folder = record.ledgers
        files = self._files.get(folder)
        if files is None:
            if not folder or not Path(folder).is_dir():
                return not folder
            files = LedgerFiles(folder, record.keep)

        def every() -> list[RunRecord]:
            return [each for each in self._parts.records.all() if each.ledgers == folder]

        files.write([record], every, self._parts.records.now())
        return True

    def settle(self, item: Item, decision: Decision) -> str | None:
        """Carries out what a person has decided about a run; None if the item is of no run."""
        address = str(item.data.get("address", ""))
        if not address:
            return None
        command = Review(
            "abandon" if decision.action == "abandon" else "release",
            str(item.data.get("occasion", item.occasion)),
            decision.token or f"{decision.by} {decision.at}",
            decision.by,
            decision.why or decision.evidence,
        )
        token = self._parts.records.enter(address)  # first: what follows must not be lost
        answer = self._parts.records.step(address, command)
        if not isinstance(answer, Done):
            return MOVED_ON
        self.one(address, token)
        return _RESULTS[decision.action]


def item_of(address: str, record: RunRecord) -> Item | None:
    """The item of a run that only a person lets go on; None if it may be resumed."""
    halt, quarantine = record.halt, record.quarantine
    is_unknown = halt is not None and halt.cause == UNKNOWN
    if record.state is not HALTED or halt is None or not (record.is_held or is_unknown):
        return None
    is_council = quarantine is not None and quarantine.is_escalated
    datasets = quarantine.datasets if quarantine is not None and record.is_held else ()
    return Item(
        kind="governance" if is_council else "quarantine",
        subject=address,
        operation=f"{record.pipeline}.{halt.stage}",
        text=f"run {record.run} of {record.pipeline} is halted at stage {halt.stage}:"
        f" {halt.error_class}: {halt.text}; in quarantine: {', '.join(datasets) or 'the run'}",
        attempts=quarantine.attempts if quarantine is not None else 1,
        occasion=halt.occasion,
        data={
            "deciders": list(record.council) if is_council else [],
            "address": address_of(record.pipeline, record.run),
            "occasion": halt.occasion,
            "stage": halt.stage,
            "datasets": list(datasets),
            "care_labels": list(quarantine.care_labels) if quarantine is not None else [],
            "council": list(record.council),
        },
    )
