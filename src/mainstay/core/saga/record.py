"""The record of a saga: a reducer over commands, run by a store as one step on its own clock.

    absent -> RUNNING -> SUCCEEDED
    RUNNING -> COMPENSATING -> COMPENSATED
    RUNNING, COMPENSATING -> STUCK -> RUNNING | COMPENSATING, as a person decides

The process that runs a saga has a lease, with an owner of its own and an epoch; what it writes
carries both, and the number of the write. A command may arrive twice, if its reply was lost: the
second has the same answer and changes nothing. Another process takes over once the lease is over,
with the next epoch.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from mainstay.core.base.change import KEEP, Change
from mainstay.core.base.clock_jumps import (
    NO_TIME,
    NO_VIEW,
    TOLERANCE,
    lease_left,
    leased,
)
from mainstay.core.saga.commands import (
    Append,
    Begin,
    Busy,
    Cancel,
    Claimed,
    Done,
    Found,
    Lost,
    Mismatch,
    Refusal,
    Release,
    Resolve,
    Take,
    Written,
)
from mainstay.core.saga.definition import difference
from mainstay.core.saga.progress import NULL, STARTED, Entry, Mark
from mainstay.core.saga.state import (
    COMPENSATED,
    COMPENSATING,
    ENDED,
    OPEN,
    RUNNING,
    STUCK,
    SUCCEEDED,
    SagaRecord,
    Stuck,
    decode,
    encode,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.base.clock_jumps import ClockView
    from mainstay.core.saga.commands import Answer, Command, Renew
    from mainstay.core.saga.state import SagaState

_LOST, _DONE, GONE = Lost(), Done(), Refusal("there is no such saga")
DEADLINE = "its deadline has passed"
_RELEASED = "released"
"""In the place of an owner: none has it, and to take over counts as after a kill."""


def reduce(
    value: bytes | None,
    command: Command,
    now: float,
    view: ClockView = NO_VIEW,
    known: SagaRecord | None = None,
) -> tuple[Change, Answer]:
    """What a command does to a record, and its answer; `view` is what is known of the clock.

    `known` is the record whose text the value is, if the caller has both.

    >>> begin = Begin("me", "transfer", 1, "debit~", "f", b"null", (0,), lease=30.0)
    >>> change, answer = reduce(None, begin, now=0.0)
    >>> answer.record.state
    <SagaState.RUNNING: 'running'>
    >>> reduce(change.value, Release("you", 1), now=1.0)[1]
    Lost()
    """
    record = known if known is not None or value is None else decode(value)
    if type(command) is Append:  # three of the four writes of most sagas
        return (KEEP, GONE) if record is None else _append(record, command, now, view)
    if type(command) is Begin:
        return _begin(record, command, now, view)
    if record is None:
        return KEEP, GONE
    if type(command) is Take:
        return _take(record, command, now, view)
    if type(command) is Cancel or type(command) is Resolve:
        return _ordered(record, command, now)
    return _held(record, command, now, view)


def _ordered(record: SagaRecord, command: Cancel | Resolve, now: float) -> tuple[Change, Answer]:
    """What a person commands."""
    if type(command) is Cancel:
        return _cancel(record, command)
    return _resolve(record, command, now)


def _held(
    record: SagaRecord, command: Renew | Release, now: float, view: ClockView
) -> tuple[Change, Answer]:
    """What becomes of the lease."""
    is_owner = record.owner == command.owner and record.epoch == command.epoch
    if not is_owner or record.state not in OPEN:
        return KEEP, _LOST
    if type(command) is Release:
        owner = _RELEASED if command.is_counted else ""
        return _written(replace(record, owner=owner, lease_until=NO_TIME, lease=NO_TIME)), _DONE
    return _written(leased(record, command.lease, now, view)), _DONE


def _begin(
    record: SagaRecord | None, command: Begin, now: float, view: ClockView
) -> tuple[Change, Answer]:
    if record is None or _is_expired(record, now):
        # By position: more than fifteen keywords are a dictionary first. `leased` would copy it.
        new = SagaRecord(
            command.saga,
            command.version,
            command.shape,
            command.fingerprint,
            RUNNING,
            command.owner,
            1,  # the epoch
            now,
            msgspec.Raw(command.given),
            tuple([Entry(STARTED, step, now) for step in command.starts]),
            0,  # writes
            now + command.lease,
            command.lease,
            view.boot,
            view.uptime,
            None if command.deadline is None else now + command.deadline,
            keep=command.keep,
            tenant=command.tenant,
            correlation=command.correlation,
            trace=command.trace,
        )
        return Change(encode(new)), Claimed(new, _left(new, now))
    if record.fingerprint != command.fingerprint:
        return KEEP, Mismatch()
    if record.owner == command.owner and record.state in OPEN:
        return KEEP, Claimed(record, _left(record, now))  # the reply to the first was lost
    change, left = lease_of(record, now, view)
    return (change, Busy(left)) if left > 0.0 else (KEEP, Found(record))


def _take(record: SagaRecord, command: Take, now: float, view: ClockView) -> tuple[Change, Answer]:
    if record.state not in OPEN:
        return KEEP, Found(record)
    if record.owner == command.owner:
        return KEEP, Claimed(record, _left(record, now))  # the reply to the first was lost
    change, left = lease_of(record, now, view)
    if left > 0.0:
        return change, Busy(left)
    if record.shape != command.shape:
        text = (
            f"version {record.version} of the definition has changed since the saga was begun:"
            f" {difference(record.shape, command.shape)}"
        )
        stuck = Stuck("definition", -1, text, record.state, _occasion(record))
        record = replace(record, state=STUCK, stuck=stuck, owner="")
        return _written(record), Found(record)
    is_left = int(bool(record.owner))  # or the store failed, or a person let it go on
    taken = replace(
        record,
        owner=command.owner,
        epoch=record.epoch + 1,
        writes=0,
        recoveries=record.recoveries + is_left,
        stalled=record.stalled + is_left,
    )
    taken = leased(taken, command.lease, now, view)
    return _written(taken), Claimed(taken, _left(taken, now))


def _append(
    record: SagaRecord, command: Append, now: float, view: ClockView
) -> tuple[Change, Answer]:
    if record.owner != command.owner or record.epoch != command.epoch:
        return KEEP, _LOST
    if record.writes == command.number + 1:  # the reply to the first was lost
        return KEEP, Written(_left(record, now), _stopped(record, command), record)
    if record.state not in OPEN or record.writes != command.number:
        return KEEP, _LOST
    stop = ""
    if command.stops and (record.cancel or record.until is not None):
        stop = _stop(record, command, now)
    starts = () if stop else command.starts
    state = (None if stop else command.state) or record.state
    is_open, log = state in OPEN, record.log
    for each in command.entries:
        log += (Entry(each.what, each.step, now, each.attempts, each.data, each.note),)
    for step in starts:
        log += (Entry(STARTED, step, now),)
    written = replace(  # with what `leased` or `unleased` changes, as one copy
        record,
        state=state,
        log=log,
        writes=command.number + 1,
        stalled=0 if command.entries else record.stalled,
        failure=msgspec.Raw(command.failure) if command.failure else record.failure,
        stuck=command.stuck and replace(command.stuck, item=_occasion(record)),
        ended=now if not is_open and state in ENDED else NO_TIME,
        lease_until=now + command.lease if is_open else NO_TIME,
        lease=command.lease if is_open else NO_TIME,
        boot=view.boot if is_open else "",
        uptime=view.uptime if is_open else NO_TIME,
    )
    left = None if written.until is None else _left(written, now)
    change = Change(encode(written)) if is_open else _written(written, now)
    return change, Written(left, stop, written)


def _stop(record: SagaRecord, command: Append, now: float) -> str:
    """Why nothing more is begun, or, if it was cancelled in its last step, why it is undone."""
    if not command.starts:
        return record.cancel if command.state is SUCCEEDED else ""
    if record.cancel:
        return record.cancel
    return DEADLINE if record.until is not None and record.until <= now else ""


def _stopped(record: SagaRecord, command: Append) -> str:
    """The same of a write that was carried out before."""
    if command.state is SUCCEEDED:
        return "" if record.state is SUCCEEDED else record.cancel
    last = [(each.what, each.step) for each in record.log[-1:]]
    is_stopped = bool(command.starts) and last != [(STARTED, command.starts[-1])]
    return (record.cancel or DEADLINE) if is_stopped else ""


def _left(record: SagaRecord, now: float) -> float | None:
    return None if record.until is None else max(0.0, record.until - now)


def _cancel(record: SagaRecord, command: Cancel) -> tuple[Change, Answer]:
    if record.cancel and record.state in OPEN:
        return KEEP, _DONE
    if record.state is not RUNNING:
        return KEEP, Refusal(f"it is {record.state.value}")
    progress = record.progress
    if progress.is_past_pivot:
        return KEEP, Refusal("its pivot is done: from there on it only goes forward")
    if any(step == progress.outline.pivot for step in progress.unknown()):
        return KEEP, Refusal("its pivot was begun: once it is done, the saga only goes forward")
    return _written(replace(record, cancel=command.why)), _DONE


# --- a person decides -----------------------------------------------------------------------------


def _resolve(record: SagaRecord, command: Resolve, now: float) -> tuple[Change, Answer]:
    if record.resolved == command.token:
        return KEEP, _DONE  # the reply to the first was lost
    stuck = record.stuck
    if record.state is not STUCK or stuck is None or stuck.item != command.item:
        return KEEP, _LOST
    entry, state = _decided(stuck, command, now)
    kept = replace(
        record,
        state=state,
        log=(*record.log, entry),
        stuck=None,
        owner="",
        stalled=0,
        resolved=command.token,
        lease_until=NO_TIME,
        ended=now if state.is_ended else NO_TIME,
    )
    return _written(kept, now), _DONE


def _decided(stuck: Stuck, command: Resolve, now: float) -> tuple[Entry, SagaState]:
    """What is added to the log, and the state in which the saga goes on."""
    is_retry, is_done = command.action == "retry", command.action == "mark_done"
    result = msgspec.Raw(command.result) if is_done and command.result else NULL
    if stuck.phase == "definition":
        if is_retry:
            return Entry(Mark.STEP_RETRIED, -1, now, note=command.why), stuck.state
        ended = SUCCEEDED if is_done else COMPENSATED
        return Entry(Mark.ENDED, -1, now, note=command.why), ended
    if stuck.phase == "undo":
        mark = Mark.UNDO_RETRIED if is_retry else Mark.UNDO_DONE if is_done else Mark.UNDO_SKIPPED
        return Entry(mark, stuck.step, now, note=command.why), COMPENSATING
    if stuck.phase == "pivot" and not is_retry and not is_done:  # it has not happened
        return Entry(Mark.STEP_FAILED, stuck.step, now, note=command.why), COMPENSATING
    mark = Mark.STEP_RETRIED if is_retry else Mark.STEP_DONE if is_done else Mark.STEP_SKIPPED
    return Entry(mark, stuck.step, now, data=result, note=command.why), RUNNING


def _occasion(record: SagaRecord) -> str:
    """Distinguishes the times at which a saga is stuck."""
    return f"{record.epoch}.{len(record.log)}"


# --- leases, on a clock that may have been set ----------------------------------------------------


def lease_of(record: SagaRecord, now: float, view: ClockView = NO_VIEW) -> tuple[Change, float]:
    """The seconds that are left of a lease, never more than its length.

    If it lies further ahead than its length, the record is changed so that it ends after that.

    >>> record = SagaRecord("transfer", 1, "debit", "f", RUNNING, "me", 1, 0.0)
    >>> lease_of(record, 5.0)[1]
    0.0
    """
    left = lease_left(record, now, view) if record.state in OPEN else 0.0
    if left <= 0.0 or record.lease_until - now <= record.lease + TOLERANCE:
        return KEEP, left
    return _written(replace(record, lease_until=now + left)), left


def _is_expired(record: SagaRecord, now: float) -> bool:
    if record.keep is None or not record.state.is_ended:
        return False
    return record.ended + record.keep <= now


# --- bytes ----------------------------------------------------------------------------------------


def _written(record: SagaRecord, now: float = NO_TIME) -> Change:
    ends = record.state in ENDED and record.keep is not None
    return Change(encode(record), now + record.keep if ends and record.keep else None)
