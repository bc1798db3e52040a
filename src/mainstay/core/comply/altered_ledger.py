"""`altered-ledger`: a ledger whose entries are not chained, were altered, or are missing."""

from __future__ import annotations

from msgspec.structs import replace

from mainstay.core.base.timestamps import sortable
from mainstay.core.comply.finding import Finding
from mainstay.core.comply.rule import Rule
from mainstay.core.pipeline.ledger import (
    RETRY_LOG,
    VERSIONING,
    chains_of,
    ledger_of,
    verify,
    verify_together,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.core.comply.evidence import Evidence, LedgerFile, StoredRun
    from mainstay.core.pipeline.ledger import Flaw, LedgerEntry

ID = "altered-ledger"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Verifies each file, both files together, the chains of the store, and files against it."""
    for file in evidence.ledgers:
        if file.ledger is None:
            yield Finding(rule=ID, text="there is no such file", file=file.path)
        else:
            yield from _found(evidence, verify(file.ledger), file.path)
    yield from _together(evidence)
    for stored in evidence.stored:
        if evidence.is_checked(stored.record.pipeline, stored.record.run):
            yield from _in_store(evidence, stored)
            for file in evidence.ledgers:
                yield from _in_file(file, stored)


def _found(evidence: Evidence, flaws: list[Flaw], path: str) -> Iterator[Finding]:
    for flaw in flaws:
        is_known = (flaw.pipeline_id, flaw.run_id) in evidence.runs
        if not is_known or evidence.is_checked(flaw.pipeline_id, flaw.run_id):
            yield Finding(
                rule=ID,
                text=flaw.text,
                file=path,
                index=flaw.index,
                pipeline_id=flaw.pipeline_id,
                run_id=flaw.run_id,
            )


def _together(evidence: Evidence) -> Iterator[Finding]:
    """Each versioning ledger against the retry log; with several logs, only the store shows it."""
    logs, ledgers = evidence.files(RETRY_LOG), evidence.files(VERSIONING)
    if len(logs) == len(ledgers) == 1 and logs[0].ledger and ledgers[0].ledger:
        flaws = verify_together(logs[0].ledger, ledgers[0].ledger)
        yield from _found(evidence, flaws, ledgers[0].path)


def _in_store(evidence: Evidence, stored: StoredRun) -> Iterator[Finding]:
    record = stored.record
    log = ledger_of("pipeline_retry_log", [record.retries])
    ledger = ledger_of("versioning_ledger", [record.versions])
    flaws = [*verify(log), *verify(ledger), *verify_together(log, ledger)]
    yield from _found(evidence, [replace(each, index=None) for each in flaws], evidence.store)


def _in_file(file: LedgerFile, stored: StoredRun) -> Iterator[Finding]:
    """The file has what the store has; what is not carried over yet may be missing at its end."""
    if file.ledger is None:
        return
    record = stored.record
    chain = record.retries if file.ledger.ledger == RETRY_LOG else record.versions
    copy = chains_of(file.ledger).get((record.pipeline, record.run), ())
    text = _difference(file, stored, chain, copy)
    if text:
        yield Finding(
            rule=ID,
            text=f"run {record.run} of {record.pipeline}: {text}",
            file=file.path,
            pipeline_id=record.pipeline,
            run_id=record.run,
        )


def _difference(
    file: LedgerFile,
    stored: StoredRun,
    chain: tuple[LedgerEntry, ...],
    copy: tuple[LedgerEntry, ...],
) -> str:
    if copy != chain[: len(copy)]:
        return "its entries are not those of the store"
    if len(copy) < len(chain) and not stored.is_open and _is_due(file, stored):
        return f"it has {len(copy)} entries, and the store has {len(chain)}"
    return ""


def _is_due(file: LedgerFile, stored: StoredRun) -> bool:
    """Whether the run belongs into this file, by its folder or its pipeline, and is kept."""
    assert file.ledger is not None
    record = stored.record
    is_there = bool(file.folder) and file.folder == record.ledgers
    if not is_there and all(each.pipeline_id != record.pipeline for each in file.ledger.runs):
        return False
    at = sortable(record.versions[-1].timestamp) if record.versions else ""
    return not at or at >= sortable(file.ledger.kept_since)


RULE = Rule(
    id=ID,
    finds="A ledger that is not as it was written: entries that are altered, exchanged, unchained"
    " or missing, in a file or in the store; a file that differs from the store.",
    fix="keep a copy, compare it with the store and with older copies, and find out who could"
    " write to it; a file that is moved aside is written anew from the store",
    check=check,
)
