"""Reads what `mainstay comply` checks: runs of a store, then the files, then the audit log.

Runs are read before the files: what a run has carried over by then is in them.
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainstay.cli.comply.files import (
    add_telemetry,
    kind_of,
    lines_of,
    read_found,
    read_ledger,
    read_named,
)
from mainstay.cli.errors import CommandError
from mainstay.cli.screen.progress import Watch, watched
from mainstay.core.base.spaces import Space
from mainstay.core.comply.audit_facts import AuditFacts
from mainstay.core.comply.evidence import (
    Evidence,
    LedgerFile,
    StoredRun,
    TelemetryFile,
)
from mainstay.core.comply.telemetry_facts import TelemetryFacts
from mainstay.core.pipeline.state import NULL, decode
from mainstay.errors import StoredValueError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.audit import Record
    from mainstay.core.base.event import Event
    from mainstay.core.comply.finding import Finding
    from mainstay.core.pipeline.state import RunRecord
    from mainstay.ports import Store

TELEMETRY = "releases/v10.3.0/focus-telemetry.json"
"""Where the document has it; each release has a file of its own."""
LEDGERS = (
    "docs/reports/audit/pipeline_retry_log.json",
    "docs/reports/audit/versioning_ledger.json",
)
_PAGE = 1000


@dataclass
class Sources:
    """What to read, as the command line names it; and what was read."""

    telemetry: list[str] = field(default_factory=list)
    ledgers: list[str] = field(default_factory=list)
    audit: list[str] = field(default_factory=list)
    store: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    content: dict[str, bytes] = field(default_factory=dict)
    """Of the files whose lines may be asked for."""
    found: dict[str, str] = field(default_factory=dict)
    """The folder in which each file was searched for that the command line does not name."""

    def sort(self, files: tuple[str, ...]) -> None:
        """Adds files by what they hold."""
        places = {"telemetry": self.telemetry, "ledger": self.ledgers, "audit": self.audit}
        for path in files:
            places[kind_of(path)].append(path)

    def complete(self, stored: list[StoredRun]) -> None:
        """Adds the files at the places of the document, for what the command line does not name.

        If no ledger is there, those of the folders that the stored runs name.
        """
        if not self.ledgers:
            self.found |= dict.fromkeys(filter(os.path.exists, LEDGERS), os.curdir)
            self.found |= {} if self.found else _of_runs(stored)
            self.ledgers += self.found
        if not self.telemetry:
            self.telemetry += sorted(_releases())
            self.found |= dict.fromkeys(self.telemetry, os.curdir)
        if not (self.telemetry or self.ledgers or self.store):
            raise CommandError(
                f"there is nothing to check: neither {TELEMETRY} nor a ledger is here",
                hint="name the files, or --store URL, or --config FILE",
            )
        self.telemetry += [] if self.telemetry else [TELEMETRY]

    def read(self, path: str) -> bytes | None:
        """The content of a file; None if it is not there."""
        root = self.found.get(path)
        return read_named(path) if root is None else read_found(path, root)

    def lined(self, findings: list[Finding]) -> list[Finding]:
        """The findings with the lines of their files."""
        wanted: dict[str, set[int]] = {}
        for each in findings:
            if each.index is not None and each.file in self.content:
                wanted.setdefault(each.file, set()).add(each.index)
        lines = {file: lines_of(self.content[file], wanted[file]) for file in wanted}
        return [_lined(each, lines) for each in findings]


def _of_runs(stored: list[StoredRun]) -> dict[str, str]:
    """The ledgers of runs whose end is carried over, with their folders.

    A folder on another machine is passed over.
    """
    folders = dict.fromkeys(each.record.ledgers for each in stored if not each.is_open)
    return {
        os.path.join(folder, os.path.basename(name)): folder  # noqa: PTH118, PTH119  see above
        for folder in folders
        if folder and os.path.isdir(folder)  # noqa: PTH112
        for name in LEDGERS
    }


def _releases() -> list[str]:
    """The telemetry of every release, and that of none."""
    name, found = "focus-telemetry.json", []
    for folder, folders, files in os.walk("releases"):
        found += [f"{folder}/{name}"] if name in files else []
        folders[:] = folders if folder == "releases" else []
    return found


def _lined(finding: Finding, lines: dict[str, dict[int, int]]) -> Finding:
    found = lines.get(finding.file)
    if found is None or finding.index is None:
        return finding
    return replace(finding, line=found[finding.index])


def gathered(
    sources: Sources,
    stored: list[StoredRun],
    *,
    run: str,
    since: str,
    max_attempts: int,
    cooldown: float,
) -> Evidence:
    """Everything that is to be checked, as evidence."""
    ledgers = [_ledger(sources, path) for path in dict.fromkeys(sources.ledgers)]
    facts = TelemetryFacts()
    files = [_telemetry(sources, facts, path) for path in dict.fromkeys(sources.telemetry)]
    found = Evidence(
        telemetry=files,
        calls=facts.calls,
        ledgers=ledgers,
        store=sources.store,
        stored=stored,
        run=run,
        since=since,
        max_attempts=max_attempts,
        cooldown=cooldown,
    )
    if run and not found.checked:
        raise CommandError(
            f"no ledger and no store has a run {run!r}",
            hint="a run is named by its id, or as PIPELINE/ID",
        )
    for log in dict.fromkeys(sources.audit):
        _audit(sources, found, log)
    entries = sum(len(each.retries) + len(each.versions) for each in found.checked)
    sources.counts |= {"runs": len(found.checked), "ledger_entries": entries}
    return found


def _telemetry(sources: Sources, facts: TelemetryFacts, path: str) -> TelemetryFile:
    data = sources.read(path)
    if data is None:
        return TelemetryFile(path=path, is_there=False)
    sources.content[path] = data
    records = add_telemetry(facts, path, data)
    sources.counts["telemetry_records"] = sources.counts.get("telemetry_records", 0) + records
    left_out = facts.files[-1].left_out
    if left_out:
        sources.notes.append(
            f"{path}: {left_out:,} older records were left out; the totals have them, and their"
            " calls were not checked one by one"
        )
    return facts.files[-1]


def _ledger(sources: Sources, path: str) -> LedgerFile:
    data = sources.read(path)
    if data is None:
        return LedgerFile(path=path, ledger=None)
    sources.content[path] = data
    folder = os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120  pathlib loads slowly
    return LedgerFile(path=path, ledger=read_ledger(path, data), folder=folder)


def stored_runs(store: Store) -> list[StoredRun]:
    """The runs of a store; to be read before the files, and to be given to gathered()."""
    runs = [_run(key, value) for key, value in watched(_scanned(store, Space.RUNS), "runs")]
    left = {key for key, _ in _scanned(store, Space.OPEN_RUNS)}
    return [
        StoredRun(record=record, is_open=f"{record.pipeline}/{record.run}" in left)
        for record in runs
    ]


def _scanned(store: Store, space: Space) -> Iterator[tuple[str, bytes]]:
    after = ""
    while True:
        page = store.scan(space, after, _PAGE)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1][0]


def _run(key: str, value: bytes) -> RunRecord:
    """A run without the data of its stages, which no rule asks for."""
    try:
        record = decode(value)
    except StoredValueError as error:
        message = f"run {key} of the store cannot be read: {error.message}"
        raise CommandError(message, hint="nothing was changed; restore the store") from error
    stages = {name: replace(stage, data=NULL) for name, stage in record.stages.items()}
    return replace(record, given=NULL, stages=stages)


def _event(log: str, record: Record) -> Event:
    try:
        return record.event
    except (ValueError, RecursionError) as error:
        message = f"{log}, record {record.number}: it cannot be read: {error}"
        raise CommandError(message, hint=f"mainstay audit verify {log}") from error


def _audit(sources: Sources, evidence: Evidence, log: str) -> None:
    from mainstay.audit import read_log
    from mainstay.audit.open import open_journal

    with closing(open_journal(log, reads_only=True)) as journal:
        total = journal.tail().number
    facts = AuditFacts(evidence, log)
    with closing(Watch("audit records", total)) as watch:
        for record in read_log(log):
            facts.take(record.number, record.writer, _event(log, record))
            watch(record.number)
    evidence.audit += facts.facts
    evidence.audited |= facts.audited
    sources.counts["audit_records"] = sources.counts.get("audit_records", 0) + total
