"""What is known of the runs that are checked: telemetry, ledgers, stored runs, audit events.

Calls that succeeded at once are counted and not kept: they are nearly all, and no rule asks for
more of them than their number.
"""

from __future__ import annotations

from functools import cached_property

import msgspec
from msgspec import Struct

from mainstay.core.base.timestamps import sortable
from mainstay.core.comply.finding import Finding
from mainstay.core.pipeline.ledger import RETRY_LOG, VERSIONING, Ledger, chains_of
from mainstay.core.pipeline.rules import COOLDOWN, MAX_ATTEMPTS
from mainstay.core.pipeline.shape import parents_of
from mainstay.core.pipeline.state import RunRecord, RunState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from mainstay.core.pipeline.ledger import LedgerEntry

    At: TypeAlias = tuple[str, str]
    """A pipeline, and a run or a stage of it."""


class Attempt(Struct, frozen=True, gc=False):
    """One telemetry record of a call that did not succeed at once, and where it is."""

    number: int
    delay: float
    error_class: str
    retryable: bool
    is_success: bool
    circuit_open: bool
    is_final: bool
    timestamp: str
    file: str
    index: int


class Call(Struct, frozen=True):
    """The records of one call, in the order of its attempts."""

    pipeline_id: str
    stage: str
    call_id: str
    attempts: tuple[Attempt, ...]

    @property
    def key(self) -> tuple[str, str, str]:
        """Pipeline, stage and id."""
        return self.pipeline_id, self.stage, self.call_id

    @property
    def last(self) -> Attempt:
        """The record with which it ended, if it has."""
        return self.attempts[-1]

    def finding(self, rule: str, text: str, at: Attempt | None = None) -> Finding:
        """The finding of a rule about it, or about one of its attempts."""
        record = at or self.last
        return Finding(
            rule=rule,
            text=f"stage {self.stage}: {text}",
            file=record.file,
            index=record.index,
            pipeline_id=self.pipeline_id,
            stage=self.stage,
            call_id=self.call_id,
        )


class TelemetryFile(Struct, kw_only=True):
    """What a telemetry file adds up to; None for counts that nothing states."""

    path: str
    is_there: bool = True
    left_out: int = 0
    found: dict[At, int] = {}
    """Records by pipeline and stage."""
    stated: dict[At, int] = {}
    """Records by pipeline and stage, as the totals count them."""
    successes: dict[At, int] = {}
    """Calls that succeeded, as the totals count them."""


class LedgerFile(Struct, frozen=True, kw_only=True):
    """A ledger, and the file that it is in; without a ledger the file is not there."""

    path: str
    ledger: Ledger | None
    folder: str = ""
    """Its folder as runs of a store name it; empty if that is not known."""


class StoredRun(Struct, frozen=True, kw_only=True):
    """A run as the store has it."""

    record: RunRecord
    is_open: bool = False
    """Whether its end is still to be carried over to the files."""


class Run(Struct, frozen=True, kw_only=True):
    """A run: both of its chains, from the store if that has it, otherwise from the files."""

    pipeline_id: str
    run_id: str
    retries: tuple[LedgerEntry, ...]
    versions: tuple[LedgerEntry, ...]
    record: RunRecord | None
    retry_file: str
    version_file: str

    @property
    def is_running(self) -> bool:
        """Whether a process has it, or had it when it was killed."""
        if self.record is not None:
            return self.record.state is RunState.RUNNING
        last = self.versions[-1].kind if self.versions else "began"
        return last in ("began", "resumed", "masked")


class AuditFact(Struct, frozen=True, kw_only=True):
    """What breaks a rule.

    `kind` is "retried" (a forbidden class), "missing" (no telemetry), "unlogged", "exceeded" (no
    ledger entry) or "passed" (an open circuit).
    """

    kind: str
    log: str
    number: int
    pipeline_id: str
    stage: str
    call_id: str
    attempts: int = 0
    most: int = 0
    error_class: str = ""
    since: str = ""

    def finding(self, rule: str, text: str) -> Finding:
        """The finding of a rule about it."""
        return Finding(
            rule=rule,
            text=f"stage {self.stage}: {text}",
            file=self.log,
            index=self.number,
            pipeline_id=self.pipeline_id,
            stage=self.stage,
            call_id=self.call_id,
        )


class Evidence:
    """Everything that was read, and the questions that rules ask of it.

    Args:
        telemetry: the telemetry files; None if telemetry is not checked.
        calls: the calls in them that did not succeed at once.
        ledgers: the ledger files.
        store: the name of the store, if there is one.
        stored: the runs in it.
        audit: what the audit log shows.
        audited: the circuits whose changes are in the audit log, by pipeline and stage.
        run: the one run to check, `<pipeline>/<run>` or the run alone.
        since: what ended before this moment is not checked.
        max_attempts: attempts of a call beyond which a ledger entry must be there.
        cooldown: seconds for which a circuit stays open.

    >>> Evidence(telemetry=[]).runs
    {}
    """

    def __init__(
        self,
        *,
        telemetry: list[TelemetryFile] | None = None,
        calls: list[Call] | None = None,
        ledgers: list[LedgerFile] | None = None,
        store: str = "",
        stored: list[StoredRun] | None = None,
        audit: list[AuditFact] | None = None,
        audited: frozenset[At] = frozenset(),
        run: str = "",
        since: str = "",
        max_attempts: int = MAX_ATTEMPTS,
        cooldown: float = COOLDOWN,
    ) -> None:
        self.telemetry = telemetry
        self.calls = calls or []
        self.ledgers = ledgers or []
        self.store = store
        self.stored = stored or []
        self.audit = audit or []
        self.audited = audited
        self.run = run
        self.since = sortable(since)
        self.max_attempts = max_attempts
        self.cooldown = cooldown

    @cached_property
    def runs(self) -> dict[At, Run]:
        """Every run that a ledger or the store knows of."""
        found: dict[At, Run] = {}
        for name, field, file in (
            (RETRY_LOG, "retries", "retry_file"),
            (VERSIONING, "versions", "version_file"),
        ):
            for each in self.files(name):
                for at, chain in chains_of(each.ledger).items() if each.ledger else ():
                    before = found.get(at, _empty(at))
                    found[at] = msgspec.structs.replace(before, **{field: chain, file: each.path})
        for stored in self.stored:
            record = stored.record
            at = (record.pipeline, record.run)
            found[at] = Run(
                pipeline_id=at[0],
                run_id=at[1],
                retries=record.retries,
                versions=record.versions,
                record=record,
                retry_file=self.store,
                version_file=self.store,
            )
        return found

    @cached_property
    def checked(self) -> list[Run]:
        """The runs that are checked."""
        return [run for at, run in self.runs.items() if self.is_checked(*at)]

    @cached_property
    def pipelines(self) -> frozenset[str]:
        """The pipelines that a ledger or the store knows of."""
        return frozenset(pipeline for pipeline, _ in self.runs)

    @cached_property
    def stages(self) -> frozenset[At]:
        """The stages that anything knows of, by pipeline and name."""
        files, runs = self.telemetry or [], self.runs.values()
        return frozenset(
            [
                *[at for file in files for at in (*file.found, *file.stated)],
                *[(run.pipeline_id, each.stage) for run in runs for each in run.retries],
                *[(r.pipeline, name) for r in self._records for name in parents_of(r.shape)],
            ]
        )

    @cached_property
    def logged(self) -> dict[tuple[str, str, str], At]:
        """The run of each call that has an entry in a retry log, by pipeline, stage and id."""
        return {
            (run.pipeline_id, entry.stage, entry.call_id): at
            for at, run in self.runs.items()
            for entry in run.retries
            if entry.call_id
        }

    @cached_property
    def has_ledger(self) -> bool:
        """Whether a retry log is at hand, in a file or in the store."""
        return bool(self.store or any(each.ledger for each in self.files(RETRY_LOG)))

    @cached_property
    def checked_calls(self) -> list[Call]:
        """The calls that are checked: of the runs that are, or of no run that is known."""
        return [call for call in self.calls if self._is_call_checked(call)]

    @cached_property
    def _dropping(self) -> frozenset[str]:
        """The pipelines whose runs a store drops some time after their end."""
        return frozenset(each.pipeline for each in self._records if each.keep is not None)

    @property
    def _records(self) -> list[RunRecord]:
        return [each.record for each in self.stored]

    def files(self, ledger: str) -> list[LedgerFile]:
        """The files of one of the two ledgers."""
        return [each for each in self.ledgers if each.ledger and each.ledger.ledger == ledger]

    def index_of(self, path: str, entry: LedgerEntry) -> int | None:
        """Which entry of a ledger file it is; None if it is one of the store."""
        entries = [
            each for file in self.ledgers if file.path == path and file.ledger
            for each in file.ledger.entries
        ]  # fmt: skip
        return next((index for index, each in enumerate(entries) if each is entry), None)

    def is_checked(self, pipeline_id: str, run_id: str) -> bool:
        """Whether a run is checked."""
        if self.run and self.run not in (run_id, f"{pipeline_id}/{run_id}"):
            return False
        versions = self.runs[pipeline_id, run_id].versions
        return not (versions and self._is_before(versions[-1].timestamp))

    def has_pipeline(self, pipeline_id: str) -> bool:
        """Whether what belongs to a pipeline and to no known run is checked."""
        return not self.run or pipeline_id in {run.pipeline_id for run in self.checked}

    def is_kept(self, pipeline_id: str, timestamp: str) -> bool:
        """Whether what ended at a moment is still in a retry log: files state since when."""
        at, files = sortable(timestamp), self.files(RETRY_LOG)
        if not files and pipeline_id in self._dropping:
            return False
        since = max((sortable(each.ledger.kept_since) for each in files if each.ledger), default="")
        return not at or at >= since

    def _is_call_checked(self, call: Call) -> bool:
        if self._is_before(call.last.timestamp):
            return False
        at = self.logged.get(call.key)
        return self.has_pipeline(call.pipeline_id) if at is None else self.is_checked(*at)

    def _is_before(self, timestamp: str) -> bool:
        at = sortable(timestamp)
        return bool(self.since and at and at < self.since)


def _empty(at: At) -> Run:
    return Run(
        pipeline_id=at[0],
        run_id=at[1],
        retries=(),
        versions=(),
        record=None,
        retry_file="",
        version_file="",
    )
