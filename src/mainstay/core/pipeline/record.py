"""The record of a run: a reducer over commands, run by a store as one step on its own clock.

    absent -> RUNNING -> SUCCEEDED
    RUNNING -> HALTED -> RUNNING (resumed)
    HALTED -> ABANDONED, as a person decides

What halts a run, what is put into quarantine for it and the entries of both ledgers are one write.
The process that runs it has a lease, with an owner of its own and an epoch; what it writes carries
both, and the number of the write. A command may arrive twice, if its reply was lost: the second has
the same answer and changes nothing.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from mainstay.core.base.change import KEEP, Change
from mainstay.core.base.clock_jumps import NO_TIME, NO_VIEW, lease_left, leased, unleased
from mainstay.core.pipeline.commands import (
    Append,
    Begin,
    Busy,
    Claimed,
    Close,
    Done,
    Found,
    Lost,
    Mismatch,
    Refusal,
    Release,
    Review,
    Take,
    Written,
)
from mainstay.core.pipeline.ledger import RETRY_LOG, VERSIONING, LedgerEntry, head_of, sealed
from mainstay.core.pipeline.shape import changed, parents_of
from mainstay.core.pipeline.state import (
    ABANDONED,
    EXHAUSTED,
    FAIL_FAST,
    HALTED,
    REFUSED,
    RUNNING,
    STALLED,
    SUCCEEDED,
    UNKNOWN,
    Halt,
    Quarantine,
    RunRecord,
    StageRecord,
    decode,
    encode,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstay.core.base.clock_jumps import ClockView
    from mainstay.core.pipeline.commands import Answer, Command, Renew

_LOST, GONE = Lost(), Refusal("there is no such run")
_GRAVITY = {REFUSED: 0, EXHAUSTED: 1, FAIL_FAST: 2, UNKNOWN: 3}


def reduce(
    value: bytes | None, command: Command, now: float, view: ClockView = NO_VIEW
) -> tuple[Change, Answer]:
    """What a command does to a record, and its answer; `view` is what is known of the clock.

    >>> begin = Begin("me", "etl", "r-1", "poll", "f", b"null", "poll", lease=30.0)
    >>> change, answer = reduce(None, begin, now=0.0)
    >>> answer.record.state, [entry.kind for entry in answer.record.versions]
    (<RunState.RUNNING: 'running'>, ['began'])
    """
    record = None if value is None else decode(value)
    if type(command) is Begin:
        return _begin(record, command, now, view)
    if record is None:
        return KEEP, GONE
    if type(command) is Append:
        return _append(record, command, now, view)
    if type(command) is Take:
        return _take(record, command, now, view)
    if type(command) is Review:
        return _review(record, command, now)
    return _held(record, command, now, view)


def _held(
    record: RunRecord, command: Renew | Release | Close, now: float, view: ClockView
) -> tuple[Change, Answer]:
    """What becomes of the lease."""
    if type(command) is Close:
        return _close(record, now, view)
    is_owner = record.owner == command.owner and record.epoch == command.epoch
    if not is_owner or record.state is not RUNNING:
        return KEEP, _LOST
    if type(command) is Release:
        record = replace(record, owner="", lease_until=NO_TIME, lease=NO_TIME)
    else:
        record = leased(record, command.lease, now, view)
    return _written(record), Done(record)


def _begin(
    record: RunRecord | None, command: Begin, now: float, view: ClockView
) -> tuple[Change, Answer]:
    if record is None or is_expired(record, now):
        new = RunRecord(
            pipeline=command.pipeline,
            run=command.run,
            shape=command.shape,
            fingerprint=command.fingerprint,
            state=RUNNING,
            owner=command.owner,
            epoch=1,
            began=now,
            given=msgspec.Raw(command.given),
            stages={name: StageRecord("started", now) for name in command.starts},
            ledgers=command.ledgers,
            council=command.council,
            keep=command.keep,
            parallel=command.parallel,
            tenant=command.tenant,
            correlation=command.correlation,
            trace=command.trace,
        )
        began = _draft(new, "began", dataset_ids=command.datasets)
        new = leased(_entered(new, (), (began,), now), command.lease, now, view)
        return _written(new), Claimed(new)
    if record.fingerprint != command.fingerprint:
        return KEEP, Mismatch()
    if record.owner == command.owner and record.state is RUNNING:
        return KEEP, Claimed(record)  # the reply to the first was lost
    left = lease_of(record, now, view)
    return KEEP, Busy(left) if left > 0.0 else Found(record)


def _take(record: RunRecord, command: Take, now: float, view: ClockView) -> tuple[Change, Answer]:
    if record.state.is_ended:
        return KEEP, Found(record)
    if record.owner == command.owner and record.state is RUNNING:
        return KEEP, Claimed(record)  # the reply to the first was lost
    left = lease_of(record, now, view)
    if left > 0.0:
        return KEEP, Busy(left)
    halted = _left_to_a_person(record, command, now)
    why = _why_not(halted or record, command)
    if why:
        return KEEP if halted is None else _written(halted), Refusal(why, halted or record)
    taken = replace(
        record,
        state=RUNNING,
        shape=command.shape,
        owner=command.owner,
        epoch=record.epoch + 1,
        writes=0,
        resumes=record.resumes + 1,
        stalled=record.stalled + 1,
        halt=None,
    )
    resumed = _draft(
        taken, "resumed", by=command.by, stage=record.halt.stage if record.halt else ""
    )
    taken = leased(_entered(taken, (), (resumed,), now), command.lease, now, view)
    return _written(taken), Claimed(taken)


def _left_to_a_person(record: RunRecord, command: Take, now: float) -> RunRecord | None:
    """The record of a run that is halted now, when it was to be resumed; None if it is not."""
    doubtful = _doubtful(record, command)
    if doubtful:
        return _in_doubt(record, doubtful, now)
    if record.stalled >= command.most and not _why_not(record, command):
        return _stalled(record, now)
    return None


def _doubtful(record: RunRecord, command: Take) -> str:
    """The stage that was begun by a process that is gone, and must not be begun twice.

    Of one that the pipeline does not have any more nothing is known: it may have a new name.
    """
    known, halt = parents_of(command.shape), record.halt
    begun = [name for name, each in record.stages.items() if each.status == "started"]
    if halt is not None and halt.cause == "reviewed":
        begun = [name for name in begun if name != halt.stage]  # a person has decided about it
    return next((name for name in begun if name in command.unsafe or name not in known), "")


def _in_doubt(record: RunRecord, stage: str, now: float) -> RunRecord:
    text, before = f"the process ended during stage {stage}, which may have happened", record.halt
    if before is not None and before.stage != stage:
        text += f"; stage {before.stage}: {before.error_class}: {before.text}"
    halt = Halt(stage, UNKNOWN, "OutcomeUnknown", text, now, _occasion(record))
    unknown = _draft(record, "unknown", stage=stage, attempts=1, reason=text)
    halted = _draft(record, "halted", stage=stage, reason=text)
    ended = replace(record.stages[stage], status="failed", ended=now, note=text)
    record = replace(record, state=HALTED, halt=halt, stages={**record.stages, stage: ended})
    return unleased(_entered(record, (unknown,), (halted,), now))


def _stalled(record: RunRecord, now: float) -> RunRecord:
    """The record of a run that only a person lets go on: retries are bounded."""
    begun = [name for name, each in record.stages.items() if each.status == "started"]
    text, before = f"it was resumed {record.stalled} times without progress", record.halt
    name = before.stage if before else begun[0] if begun else ""
    error_class = before.error_class if before else "OutcomeUnknown"
    text += f"; the last time: {before.text}" if before else "; its process ended each time"
    halt = Halt(name, STALLED, error_class, text, now, _occasion(record))
    halted = _draft(record, "halted", stage=name, reason=text)
    record = replace(record, state=HALTED, halt=halt)
    return unleased(_entered(record, (), (halted,), now))


def _why_not(record: RunRecord, command: Take) -> str:
    """Why a run is not resumed; empty if it may be."""
    halt = record.halt
    if record.is_held and record.quarantine is not None:
        names = ", ".join(record.quarantine.shown) or "the run"
        return f"{names} is in quarantine until a person has reviewed it"
    if halt is not None and halt.cause == UNKNOWN:
        return f"{halt.text}: a person must decide"
    if halt is not None and halt.cause == STALLED:
        return f"{halt.text}: a person must release it"
    text = changed(record.shape, command.shape, _done(record))
    if text:
        return text
    return ""


def _append(
    record: RunRecord, command: Append, now: float, view: ClockView
) -> tuple[Change, Answer]:
    if record.owner != command.owner or record.epoch != command.epoch:
        return KEEP, _LOST
    if record.writes == command.number + 1:  # the reply to the first was lost
        return KEEP, Written(record)
    if record.state is not RUNNING or record.writes != command.number:
        return KEEP, _LOST
    stages = dict(record.stages)
    if command.became is not None:
        stages[command.stage] = _became(stages.get(command.stage), command.became, now)
    for name in command.starts:
        before = stages.get(name)
        stages[name] = StageRecord("started", now, attempts=before.attempts if before else 0)
    is_done = command.became is not None and command.became.status == "done"
    halt = _graver(record, command, now)
    is_halted = halt is not None and not command.is_pending
    state = HALTED if is_halted else SUCCEEDED if command.is_over else RUNNING
    written = replace(
        record,
        state=state,
        stages=stages,
        writes=command.number + 1,
        stalled=0 if is_done else record.stalled,
        halt=halt,
        quarantine=_more_held(record, command),
        council=record.council if command.council is None else command.council,
        ended=now if state.is_ended else NO_TIME,
    )
    written = _entered(written, command.retries, command.versions, now)
    is_mine = state is RUNNING
    written = leased(written, command.lease, now, view) if is_mine else unleased(written)
    return _written(written, now), Written(written)


def _graver(record: RunRecord, command: Append, now: float) -> Halt | None:
    """What halts a run of which several stages have failed: what a person has to look at, if any.

    The occasion is that of the first.
    """
    before, after = record.halt, command.halt
    if after is None:
        return before
    after = replace(after, at=now, occasion=before.occasion if before else _occasion(record))
    if before is None or _GRAVITY[after.cause] > _GRAVITY[before.cause]:
        return after
    return before


def _more_held(record: RunRecord, command: Append) -> Quarantine | None:
    """What is held back, by all the stages that have failed since the run went on."""
    before, after = record.quarantine, command.quarantine
    if after is None or before is None or record.halt is None or not record.is_held:
        return after or before
    first, second = (
        (before, after) if before.is_escalated >= after.is_escalated else (after, before)
    )
    return replace(
        first,
        datasets=tuple(dict.fromkeys([*first.datasets, *second.datasets])),
        names=tuple(dict.fromkeys([*first.shown, *second.shown])),
        care_labels=tuple(dict.fromkeys([*first.care_labels, *second.care_labels])),
        is_blocked=first.is_blocked and second.is_blocked,
    )


def _close(record: RunRecord, now: float, view: ClockView) -> tuple[Change, Answer]:
    is_left = record.state is RUNNING and lease_of(record, now, view) <= 0.0
    if not is_left or record.halt is None:
        return KEEP, _LOST
    record = unleased(replace(record, state=HALTED))
    return _written(record), Done(record)


def _became(before: StageRecord | None, after: StageRecord, now: float) -> StageRecord:
    began, attempts = (before.began, before.attempts) if before else (now, 0)
    return replace(after, began=began, ended=now, attempts=attempts + after.attempts)


def _review(record: RunRecord, command: Review, now: float) -> tuple[Change, Answer]:
    if record.reviewed == command.token:
        return KEEP, Done(record)  # the reply to the first was lost
    halt = record.halt
    if record.state is not HALTED or halt is None or halt.occasion != command.occasion:
        return KEEP, _LOST
    is_release = command.action == "release"
    status = "released" if is_release else "abandoned"
    quarantine = record.quarantine
    entry = _draft(
        record,
        "reviewed",
        stage=halt.stage,
        dataset_ids=quarantine.shown if quarantine else (),
        care_labels=quarantine.care_labels if quarantine else (),
        reason=f"{command.action}: {command.why}" if command.why else command.action,
        by=command.by,
    )
    kept = replace(
        record,
        state=HALTED if is_release else ABANDONED,
        halt=replace(halt, cause="reviewed") if is_release else halt,
        quarantine=quarantine and replace(quarantine, status=status),
        stalled=0,
        reviewed=command.token,
        ended=NO_TIME if is_release else now,
    )
    kept = _entered(kept, (), (entry,), now)
    return _written(kept, now), Done(kept)


def lease_of(record: RunRecord, now: float, view: ClockView = NO_VIEW) -> float:
    """The seconds that are left of the lease of a run; 0.0 if no process has it.

    >>> lease_of(RunRecord("etl", "r-1", "poll", "f", RUNNING, "me", 1, 0.0), 5.0)
    0.0
    """
    return lease_left(record, now, view) if record.state is RUNNING else 0.0


# --- ledgers --------------------------------------------------------------------------------------


def _draft(record: RunRecord, kind: str, **fields: object) -> LedgerEntry:
    return LedgerEntry(
        kind=kind,  # type: ignore[arg-type]
        pipeline_id=record.pipeline,
        run_id=record.run,
        **fields,  # type: ignore[arg-type]
    )


def _entered(
    record: RunRecord,
    retries: Iterable[LedgerEntry],
    versions: Iterable[LedgerEntry],
    now: float,
) -> RunRecord:
    """The record with more entries in its ledgers; those of the second refer to the first."""
    log = sealed(retries, RETRY_LOG, record.retries, now)
    length, head = len(log), head_of(log)
    dated = [replace(each, retry_log_length=length, retry_log_head=head) for each in versions]
    return replace(record, retries=log, versions=sealed(dated, VERSIONING, record.versions, now))


# --- parts ----------------------------------------------------------------------------------------


def _done(record: RunRecord) -> list[str]:
    return [name for name, stage in record.stages.items() if stage.status == "done"]


def _occasion(record: RunRecord) -> str:
    """Distinguishes the times at which a run is halted."""
    return f"{record.epoch}.{record.writes}"


def is_expired(record: RunRecord, now: float) -> bool:
    """Whether a run that has ended is not kept any longer.

    >>> is_expired(RunRecord("etl", "r-1", "poll", "f", RUNNING, "me", 1, 0.0, keep=5.0), 9.0)
    False
    """
    if record.keep is None or not record.state.is_ended:
        return False
    return record.ended + record.keep <= now


def _written(record: RunRecord, now: float = NO_TIME) -> Change:
    ends = record.state.is_ended and record.keep is not None
    return Change(encode(record), now + record.keep if ends and record.keep else None)
