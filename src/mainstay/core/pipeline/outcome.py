"""What became of one stage, and what follows from it: ledger entries, halt, quarantine."""

from __future__ import annotations

from msgspec import Raw, Struct

from mainstay.core.pipeline.commands import Append
from mainstay.core.pipeline.ledger import LedgerEntry
from mainstay.core.pipeline.state import (
    EXHAUSTED,
    FAIL_FAST,
    NULL,
    REFUSED,
    UNKNOWN,
    Halt,
    Quarantine,
    StageRecord,
)
from mainstay.errors import GovernanceViolation, OutcomeUnknown, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.base.types import UserValue
    from mainstay.core.pipeline.ledger import RetryKind
    from mainstay.core.pipeline.state import RunRecord

_KINDS: dict[str, RetryKind] = {
    FAIL_FAST: "failed_fast",
    EXHAUSTED: "exhausted",
    REFUSED: "refused",
    UNKNOWN: "unknown",
}


class StageOutcome(Struct, frozen=True, kw_only=True):
    """How a stage ended, with what its listeners saw of it.

    >>> StageOutcome(stage="poll", error=KeyError("x"), attempts=1).cause
    'fail_fast'
    """

    stage: str
    value: UserValue = None
    data: bytes = bytes(NULL)
    """What it returned, as JSON; null if that is not kept, and then `note` is why."""
    note: str = ""
    error: BaseException | None = None
    text: str = ""
    """The failure in words that a person may read."""
    attempts: int = 0
    """Calls of the function."""
    error_classes: tuple[str, ...] = ()
    retryable: bool = False
    """Whether the last failure may be retried."""
    circuit_open: bool = False
    is_probe_failed: bool = False
    call_id: str = ""
    policy: str = ""
    retry_policy: str = ""
    max_attempts: int = 0
    datasets: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """The data sets as a person may read them."""
    care_labels: tuple[str, ...] = ()
    council: tuple[str, ...] = ()
    """The operators to whom conflicts go."""
    masking: int | None = None
    is_given: bool = False
    """Whether the stage was given a restricted data set: it is not given it again."""
    is_retry: bool = False
    """Whether the stage was tried before, in this run."""
    is_rerun: bool = False
    """Whether what is known of its data sets from an earlier call forbids this one."""

    @property
    def cause(self) -> str:
        """Why it halts the run; what may not be retried fails fast."""
        if isinstance(self.error, OutcomeUnknown):
            return UNKNOWN
        if isinstance(self.error, Refused) and not self.attempts:
            return REFUSED
        return EXHAUSTED if self.retryable or isinstance(self.error, Refused) else FAIL_FAST

    @property
    def is_conflict(self) -> bool:
        """Whether governance is in conflict with a retry or a re-run: a matter for the council.

        What has failed with a restricted data set can only go on if it is given it again.
        """
        if self.is_given and self.cause == FAIL_FAST:
            return True
        is_governance = isinstance(self.error, GovernanceViolation)
        return is_governance and (self.is_retry or self.is_rerun)


def appended(
    record: RunRecord,
    outcome: StageOutcome,
    number: int,
    lease: float,
    *,
    starts: tuple[str, ...] = (),
    is_pending: bool = False,
    is_halting: bool = False,
) -> Append:
    """The one write that follows from a stage: with the next ones, the end, or the halt.

    Args:
        record: the run.
        outcome: what became of the stage.
        number: of the write.
        lease: its length.
        starts: the stages that begin now.
        is_pending: whether other stages are under way.
        is_halting: whether another stage has failed before.
    """
    is_over = not (starts or is_pending or is_halting or outcome.error is not None)
    halted = outcome.error is not None
    is_held = halted and outcome.cause == FAIL_FAST
    return Append(
        record.owner,
        record.epoch,
        number,
        lease,
        stage=outcome.stage,
        became=_became(outcome),
        starts=starts,
        is_pending=is_pending,
        is_over=is_over,
        halt=_halt(outcome) if halted else None,
        quarantine=_quarantine(outcome) if is_held else None,
        retries=_retries(record, outcome),
        versions=_versions(record, outcome, is_over=is_over),
        council=outcome.council if halted else None,
    )


def _became(outcome: StageOutcome) -> StageRecord:
    failed = outcome.error is not None
    return StageRecord(
        "failed" if failed else "done",
        attempts=outcome.attempts,
        data=NULL if failed else Raw(outcome.data),
        note=outcome.text if failed else outcome.note,
    )


def _halt(outcome: StageOutcome) -> Halt:
    return Halt(outcome.stage, outcome.cause, _class_of(outcome), outcome.text)


def _quarantine(outcome: StageOutcome) -> Quarantine:
    return Quarantine(
        outcome.stage,
        outcome.datasets,
        _class_of(outcome),
        outcome.text,
        outcome.attempts,
        outcome.care_labels,
        outcome.is_conflict,
        outcome.is_rerun,
        names=() if outcome.names == outcome.datasets else outcome.names,
    )


def _retries(record: RunRecord, outcome: StageOutcome) -> tuple[LedgerEntry, ...]:
    """An entry of the retry log, unless the stage succeeded at once."""
    if outcome.error is not None:
        kind = "probe_failed" if outcome.is_probe_failed else _KINDS[outcome.cause]
    elif outcome.error_classes:
        kind = "retried"
    else:
        return ()
    return (_entry(record, outcome, kind),)


def _versions(
    record: RunRecord, outcome: StageOutcome, *, is_over: bool
) -> tuple[LedgerEntry, ...]:
    kinds = []
    if outcome.error is None:
        kinds += ["masked"] if outcome.masking is not None else []
        kinds += ["completed"] if is_over else []
    else:
        kinds += ["halted"]
        kinds += ["quarantined"] if outcome.cause == FAIL_FAST else []
        kinds += ["escalated"] if outcome.is_conflict else []
    return tuple([_entry(record, outcome, kind) for kind in kinds])


def _entry(record: RunRecord, outcome: StageOutcome, kind: str) -> LedgerEntry:
    return LedgerEntry(
        kind=kind,  # type: ignore[arg-type]
        pipeline_id=record.pipeline,
        run_id=record.run,
        stage=outcome.stage,
        attempts=outcome.attempts,
        max_attempts=outcome.max_attempts,
        error_classes=outcome.error_classes,
        dataset_ids=outcome.names,
        care_labels=outcome.care_labels,
        retryable=outcome.retryable,
        circuit_open=outcome.circuit_open,
        policy=outcome.policy,
        retry_policy=outcome.retry_policy,
        call_id=outcome.call_id,
        masking=outcome.masking or 0,
        reason=outcome.text,
    )


def _class_of(outcome: StageOutcome) -> str:
    if outcome.error_classes:
        return outcome.error_classes[-1]
    return type(outcome.error).__name__
