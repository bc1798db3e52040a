"""A run of a pipeline as a store keeps it: its stages, its lease, what halted it, its ledgers."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from mainstay.core.base.change import read_as
from mainstay.core.base.clock_jumps import NO_TIME
from mainstay.core.pipeline.ledger import LedgerEntry  # noqa: TC001  msgspec reads the annotation

NULL = msgspec.Raw(b"null")


class RunState(Enum):
    """Where a run stands.

    >>> RunState.HALTED.is_ended, RunState.ABANDONED.is_ended
    (False, True)
    """

    RUNNING = "running"
    HALTED = "halted"
    SUCCEEDED = "succeeded"
    ABANDONED = "abandoned"

    @property
    def is_ended(self) -> bool:
        """Whether nothing is left to do; a run that is halted may be resumed."""
        return self is SUCCEEDED or self is ABANDONED


RUNNING, HALTED, SUCCEEDED, ABANDONED = RunState

FAIL_FAST, EXHAUSTED, REFUSED, UNKNOWN = "fail_fast", "exhausted", "refused", "unknown"
STALLED = "stalled"
"""It was resumed too often without progress."""
"""Why a run is halted: a class that is never retried; retries that ran out; a call that was not
made (an open circuit); a stage that may have happened and must not happen twice."""


class StageRecord(Struct, frozen=True, omit_defaults=True, gc=False):
    """One stage of a run: `status` is "started", "done" or "failed"."""

    status: str
    began: float = NO_TIME
    ended: float = NO_TIME
    attempts: int = 0
    """Calls that were made, over all resumptions."""
    data: msgspec.Raw = NULL
    """What it returned, as JSON; null if that is not kept."""
    note: str = ""
    """Why the result is not kept, or the stage failed."""


class Halt(Struct, frozen=True, omit_defaults=True, gc=False):
    """What halted a run."""

    stage: str
    cause: str
    error_class: str
    text: str
    at: float = NO_TIME
    occasion: str = ""
    """Distinguishes the times at which the run was halted: the inbox item has it."""


class Quarantine(Struct, frozen=True, omit_defaults=True, gc=False):
    """What is held back until a person has reviewed it."""

    stage: str
    datasets: tuple[str, ...]
    error_class: str
    text: str
    attempts: int = 0
    care_labels: tuple[str, ...] = ()
    is_escalated: bool = False
    """Whether it is for the council: a conflict with governance during a retry or a re-run."""
    is_blocked: bool = False
    """Whether the data sets were blocked before: what is known of them stays as it is."""
    status: str = "held"
    """"held", "released" or "abandoned"."""
    names: tuple[str, ...] = ()
    """The data sets as a person may read them, if that is not how they are."""

    @property
    def shown(self) -> tuple[str, ...]:
        """The data sets as a person may read them."""
        return self.names or self.datasets


class RunRecord(Struct, frozen=True, omit_defaults=True, gc=False):
    """A run as a store keeps it; halt, quarantine and ledger entries are written as one."""

    pipeline: str
    run: str
    shape: str
    """The stages and what each comes after, as text: `poll;validate<poll`."""
    fingerprint: str
    state: RunState
    owner: str
    epoch: int
    began: float
    given: msgspec.Raw = NULL
    """What it was started with, as JSON."""
    stages: dict[str, StageRecord] = {}
    writes: int = 0
    lease_until: float = NO_TIME
    lease: float = NO_TIME
    boot: str = ""
    uptime: float = NO_TIME
    halt: Halt | None = None
    """What halted it; of a run under way, what will once other stages of it have ended."""
    quarantine: Quarantine | None = None
    retries: tuple[LedgerEntry, ...] = ()
    """The entries of this run in the retry log: the truth, of which the file is a copy."""
    versions: tuple[LedgerEntry, ...] = ()
    """The same of the versioning ledger."""
    ledgers: str = ""
    """The folder of the ledger files."""
    council: tuple[str, ...] = ()
    """The operators to whom conflicts with governance go; empty for every operator."""
    resumes: int = 0
    stalled: Annotated[int, Meta(ge=0)] = 0
    """Resumptions since a stage was last done, or a person decided."""
    reviewed: str = ""
    """The decision of a person that was last carried out."""
    ended: float = NO_TIME
    keep: float | None = None
    parallel: int = 1
    """Stages at the same time, at most: as many as it began with, over all resumptions."""
    tenant: str | None = None
    correlation: str | None = None
    trace: str | None = None

    @property
    def is_held(self) -> bool:
        """Whether data sets of it are in quarantine."""
        return self.quarantine is not None and self.quarantine.status == "held"


def address_of(pipeline: str, run: str) -> str:
    """Where the record of a run is; a pipeline's name has no slash.

    >>> address_of("etl", "2026-11-17/a")
    'etl/2026-11-17/a'
    """
    return f"{pipeline}/{run}"


encode = msgspec.json.Encoder().encode
"""The record as JSON."""
_decoder = msgspec.json.Decoder(RunRecord)


def decode(value: bytes) -> RunRecord:
    """The record of such a text; one that is damaged raises StoredValueError."""
    try:
        return _decoder.decode(value)
    except (ValueError, RecursionError):
        return read_as(RunRecord, value, "run")
