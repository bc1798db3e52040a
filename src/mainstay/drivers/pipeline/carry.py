"""Carries over what a run ended with: to its data sets, the inbox and the ledger files.

Every step may come twice. The entry of a run is removed when all of them are done; so whatever a
kill has left out is done before the next run of any pipeline begins.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainstay.core.events.describe import shown
from mainstay.core.inbox.items import Item
from mainstay.core.pipeline.commands import Close, Done, Review
from mainstay.core.pipeline.dataset import Free, Hold
from mainstay.core.pipeline.open_run import read
from mainstay.core.pipeline.state import (
    HALTED,
    RUNNING,
    STALLED,
    UNKNOWN,
    RunRecord,
    address_of,
)
from mainstay.drivers.inbox.resolution import MOVED_ON
from mainstay.drivers.pipeline.ledger_files import LedgerFiles
from mainstay.errors import LedgerError, StoredValueError
from mainstay.runtime.reports.report_failure import report

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstay.core.inbox.items import Decision
    from mainstay.core.pipeline.state import Quarantine
    from mainstay.drivers.pipeline.parts import PipelineParts

_NOT_CARRIED = "the ledger files of run %s were not written; they will be before its next run"
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

    def all(self, files: LedgerFiles, pipeline: str) -> None:
        """Carries over whatever was left, before a run of a pipeline that has these files.

        If files of another folder cannot be written, that is reported: data sets and the inbox have
        what follows by then. If a record cannot be read, what it holds in quarantine is not known:
        the data sets of that run are held. Only if these are not known either, it is an error, for
        its pipeline.
        """
        folder = str(files.folder)
        is_known, self._files[folder] = folder in self._files, files
        files.check()
        for address, text in list(self._parts.records.entries()):
            try:
                self.one(address, text)
            except StoredValueError as error:
                self._parts.inbox.put_damage(error, _damaged(address))
                if not self._contain(address, error) and address.startswith(f"{pipeline}/"):
                    raise
            except _NotWritten as error:
                if error.folder == folder:
                    raise error.why from None
                report(error.why, _NOT_CARRIED, address, redact=self._parts.redact)
        if not is_known:
            self._renew(files)

    def _renew(self, files: LedgerFiles) -> None:
        """Brings files up to date with every run: they may be of an older backup."""
        every = self._every(str(files.folder))
        if every:
            files.write(every, lambda: every, self._parts.records.now())

    def _contain(self, address: str, error: StoredValueError) -> bool:
        """Holds the data sets of a run that cannot be read; False if they are not known."""
        entry = self._parts.records.hold(address)  # first: what is held must be freed again
        if entry is not None and entry.datasets is None:
            return False
        datasets = () if entry is None else entry.datasets or ()
        self._command(datasets, Hold(address, error.message))
        return True

    def _freed(self, address: str, text: str, record: RunRecord | None) -> str:
        """Frees what was held while the record could not be read; the text of its entry now."""
        entry = read(text)
        if not entry.is_held:
            return text
        held = None if record is None else record.quarantine
        kept = () if held is None or not _holds(held) else held.datasets
        others = [each for each in entry.datasets or () if each not in kept]
        if not self._command(others, Free(address)):
            return text
        return self._parts.records.exchange(address, text, replace(entry, is_held=False))

    def one(self, address: str, text: str) -> str | None:
        """Carries over one run, unless it is under way; the id of its inbox item, if it has one."""
        record, left = self._parts.records.get(address)
        text = self._freed(address, text, record)
        if record is not None and record.state is RUNNING and record.halt is not None:
            self._quarantine(address, record)  # at once: other stages of it are under way
            if left <= 0.0:
                self._parts.records.step(address, Close())
                record, left = self._parts.records.get(address)
        if record is None or record.state is RUNNING:
            return None
        is_held = self._quarantine(address, record)
        item = self._item(address, record)
        try:
            is_written = self._write(record)
        except (LedgerError, OSError) as error:
            raise _NotWritten(record.ledgers, error) from error
        if is_written and is_held:
            self._parts.records.leave(address, text)
        return item

    def _quarantine(self, address: str, record: RunRecord) -> bool:
        """Writes a quarantine to its data sets; False if one of them has to be written later."""
        held = record.quarantine
        if held is None or not (_holds(held) or held.status == "released"):
            return True
        command: Hold | Free = Hold(address, f"{held.error_class}: {held.text}")
        if held.status == "released":
            command = Free(address, held.is_escalated)
        return self._command(held.datasets, command)

    def _command(self, datasets: Iterable[str], command: Hold | Free) -> bool:
        """Writes to data sets; False if the record of one is damaged.

        Nothing is lost by that: no stage is given it until its record is restored or removed.
        """
        is_written = True
        for dataset in datasets:
            try:
                self._parts.records.dataset(dataset, command)
            except StoredValueError as error:
                if not error.is_damaged:
                    raise
                name, is_written = shown(dataset, self._parts.redact), False
                self._parts.inbox.put_damage(error, _damaged_dataset(name, command.address))
        return is_written

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
        files.write([record], lambda: self._every(folder), self._parts.records.now())
        return True

    def _every(self, folder: str) -> list[RunRecord]:
        """Every run of a folder that is not under way, and can be read."""
        found = [record for _, record in self._parts.records.all() if isinstance(record, RunRecord)]
        return [each for each in found if each.ledgers == folder and each.state is not RUNNING]

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
        text = self._parts.records.enter(address)  # first: what follows must not be lost
        answer = self._parts.records.step(address, command)
        if not isinstance(answer, Done):
            return MOVED_ON
        try:
            self.one(address, text)
        except _NotWritten as error:
            raise error.why from None
        return _RESULTS[decision.action]


class _NotWritten(Exception):
    """The files of a folder were not written; all else was carried over."""

    def __init__(self, folder: str, why: Exception) -> None:
        super().__init__(folder)
        self.folder = folder
        self.why = why


def _holds(held: Quarantine) -> bool:
    """Whether a run holds its data sets itself; blocked ones were held before."""
    return held.status != "released" and not held.is_blocked


def _damaged(address: str) -> Item:
    pipeline, _, run = address.partition("/")
    return Item(
        kind="corrupted_state",
        subject=f"run {address}",
        operation=pipeline,
        text=f"run {run} of {pipeline}: its record is damaged, and so it is not known what it holds"
        " in quarantine. Its data sets are held until it is restored or removed; if they are not"
        f" known, {pipeline} does not run",
        data={"address": address},
    )


def _damaged_dataset(name: str, address: str) -> Item:
    return Item(
        kind="corrupted_state",
        subject=f"data set {name}",
        operation=address.partition("/")[0],
        text=f"data set {name}: its record is damaged, and so no stage is given it until the record"
        " is restored or removed. Removed, its masking and what held it before are lost",
        data={"dataset": name},
    )


def item_of(address: str, record: RunRecord) -> Item | None:
    """The item of a run that only a person lets go on; None if it may be resumed."""
    halt, quarantine = record.halt, record.quarantine
    needs_person = halt is not None and halt.cause in (UNKNOWN, STALLED)
    if record.state is not HALTED or halt is None or not (record.is_held or needs_person):
        return None
    is_council = quarantine is not None and quarantine.is_escalated
    datasets = quarantine.shown if quarantine is not None and record.is_held else ()
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
