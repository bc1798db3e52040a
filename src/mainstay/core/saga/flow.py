"""The flow of a saga, as a generator: it asks for steps, compensations and writes, and is answered.

What is written is written before it is acted on. The end of a step and the beginning of the next
are one write: a saga of three steps writes four times. The generator has no clock and does no I/O;
`drivers/saga/` carries out what it yields, once in a thread and once in an event loop.

- A failure before the pivot undoes the steps that may have happened, the last done first. That
  includes a step that was started and has no outcome, or one that is in doubt.
- Behind the pivot there is only forward: a step that fails leaves the saga stuck. So does a pivot
  that is in doubt.
- A compensation that fails leaves the saga stuck, too: the others wait, since order was promised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import msgspec
from msgspec import Struct

from mainstay.core.base.clock_jumps import NO_TIME
from mainstay.core.base.printable import text_of
from mainstay.core.codec.outcome import (
    Failed,
    decode_outcome,
    encode_outcome,
    encode_shortened_failure,
    encode_value,
)
from mainstay.core.saga import progress as marks
from mainstay.core.saga.commands import Append, Written
from mainstay.core.saga.definition import outline_of
from mainstay.core.saga.events import (
    SagaEnded,
    SagaRecovered,
    SagaStepFailed,
    SagaStepUndone,
    SagaStuck,
)
from mainstay.core.saga.progress import NULL, Entry, Progress
from mainstay.core.saga.record import DEADLINE
from mainstay.core.saga.state import SagaState, Stuck
from mainstay.errors import CallCancelled, DeadlineExceeded, MainstayError, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import TypeAlias

    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Answer, UserValue
    from mainstay.core.saga.definition import Saga
    from mainstay.core.saga.state import SagaRecord

    SagaFlow: TypeAlias = Generator["Effect", Answer, "End"]

_STALLED = "look why the saga does not come to an end; it was taken over too often"
_LONGEST_FAILURE = 20_000
"""Bytes of a failure in the log."""
MAX_RESULT = 1 << 20
"""Bytes of the result of a step that are kept at most, unless the store takes less."""


# --- effects --------------------------------------------------------------------------------------


@final
class Write(Struct, frozen=True, gc=False):
    """Write this to the record; the answer is that of its reducer.

    The messages go to the outbox in the same transaction, if the command is carried out.
    """

    command: Append
    messages: tuple[UserValue, ...] = ()


@final
class RunSteps(Struct, frozen=True, gc=False):
    """Run the actions of these steps, several at the same time; the first Outcome is the answer."""

    steps: tuple[int, ...]
    left: float | None = None
    """Seconds to the deadline of the saga; behind the pivot it has none."""
    is_forward: bool = False
    """Whether they are behind the pivot: then nothing of the caller's ends them."""


@final
class AwaitStep(Struct, frozen=True, gc=False):
    """Wait for the next Outcome of those steps."""


@final
class UndoStep(Struct, frozen=True, gc=False):
    """Run the compensation of a step; its Outcome is the answer."""

    step: int


@final
class Escalate(Struct, frozen=True, gc=False):
    """Bring the saga, which is stuck, to a person; the answer is the id of the item."""

    stuck: Stuck


@final
class EmitSaga(Struct, frozen=True):
    """Emit an event."""

    event: Event


@final
class End(Struct, frozen=True):
    """The saga has ended, is stuck, or is another process's now (state None)."""

    state: SagaState | None
    failure: BaseException | None = None
    """What failed first."""
    step: str = ""
    error: BaseException | None = None
    """Why it is stuck."""
    item: str | None = None
    stuck: Stuck | None = None


Effect = Write | RunSteps | AwaitStep | UndoStep | Escalate | EmitSaga


@final
class Outcome(Struct, frozen=True):
    """How an action or a compensation has ended."""

    step: int
    value: UserValue = None
    error: BaseException | None = None
    attempts: int = 1
    in_doubt: bool = False
    """Whether it may have happened although it failed."""
    messages: tuple[UserValue, ...] = ()
    """What it has emitted, if it succeeded."""


class Plan(Struct, frozen=True):
    """What is known of a saga before it runs."""

    saga: Saga
    saga_id: str
    owner: str
    max_result: int = MAX_RESULT


class _LostError(Exception):
    """The lease was lost."""


# --- the flow -------------------------------------------------------------------------------------


def saga_flow(
    plan: Plan, record: SagaRecord, left: float | None = None, *, is_recovery: bool = False
) -> SagaFlow:
    """A saga, from where its record stands to its end.

    >>> from mainstay.core.saga.commands import Begin
    >>> from mainstay.core.saga.definition import Saga, SagaStep
    >>> from mainstay.core.saga.record import reduce
    >>> saga = Saga("transfer", [SagaStep("debit", print)])
    >>> begin = Begin("me", "transfer", 1, saga.shape, "f", b"null", (0,), lease=30.0)
    >>> flow = saga_flow(Plan(saga, "t-1", "me"), reduce(None, begin, 0.0)[1].record)
    >>> next(flow)
    RunSteps(steps=(0,), left=None, is_forward=False)
    >>> flow.send(Outcome(0, value=5)).command.state
    <SagaState.SUCCEEDED: 'succeeded'>
    """
    run = _Run(plan, record, left)
    try:
        if is_recovery:
            yield run.recovered()
            run.doubt_unsafe_steps()
        if record.state is SagaState.RUNNING:
            return (yield from _go_forward(run))
        order = run.progress.to_undo()
        if run.is_stalled and order:
            return (yield from _stuck(run, "undo", order[0], None))
        return (yield from _undo(run))
    except _LostError:
        return End(None, run.failure)


def _go_forward(run: _Run) -> SagaFlow:
    failed = run.progress.failed()
    if failed:  # found in the log, or just now by a recovery
        return (yield from _after_failure(run, failed[0]))
    if run.must_stop():
        return (yield from _after_stop(run, run.record.cancel or DEADLINE))
    for group in run.plan.saga.groups:
        todo, starts = run.progress.todo(group)
        if not todo:
            continue
        if starts or run.pending:
            stop = run.written((yield run.write(starts=starts)))
            if stop:
                return (yield from _after_stop(run, stop))
        is_forward = run.progress.is_past_pivot
        outcome: Outcome = yield RunSteps(todo, None if is_forward else run.left, is_forward)
        rest = len(todo)
        while True:
            run.note(outcome)
            if outcome.error is not None:
                failed.append(outcome.step)
                yield run.step_failed(outcome)
            rest -= 1
            if not rest:
                break
            run.written((yield run.write()))  # each end of a group is written when it comes
            outcome = yield AwaitStep()
        if failed:
            return (yield from _after_failure(run, run.progress.failed()[0]))
    stop = run.written((yield run.write(state=SagaState.SUCCEEDED)))
    if stop:  # it was cancelled in its last step
        return (yield from _after_stop(run, stop))
    yield run.ended(SagaState.SUCCEEDED)
    return End(SagaState.SUCCEEDED)


def _after_failure(run: _Run, step: int) -> SagaFlow:
    """A step has failed: back, or if that cannot be, to a person."""
    is_doubtful_pivot = (
        step == run.progress.outline.pivot and run.progress.status[step] is marks.IN_DOUBT
    )
    if run.progress.is_past_pivot or is_doubtful_pivot:
        phase = "pivot" if is_doubtful_pivot else "forward"
        return (yield from _stuck(run, phase, step, run.failure))
    return (yield from _undo(run))


def _after_stop(run: _Run, why: str) -> SagaFlow:
    """The saga is cancelled, or its deadline has passed: back."""
    saga = run.plan.saga
    if why == DEADLINE:
        run.failure = DeadlineExceeded(saga.deadline or 0.0)
    else:
        run.failure = CallCancelled(f"{saga.name} {run.plan.saga_id}", 1)
        run.failure.add_note(why)
    return (yield from _undo(run))


def _undo(run: _Run) -> SagaFlow:
    for step in run.progress.to_undo():
        is_noted = run.progress.status[step] is marks.UNDOING and not run.pending
        if not is_noted or run.state is not SagaState.COMPENSATING:
            run.add(Entry(marks.UNDOING, step))
            run.written((yield run.write(state=SagaState.COMPENSATING)))
        outcome: Outcome = yield UndoStep(step)
        yield run.step_undone(outcome)
        if outcome.error is not None:
            run.add(Entry(marks.UNDO_FAILED, step, data=_failure(outcome.error)))
            return (yield from _stuck(run, "undo", step, outcome.error))
        run.add(Entry(marks.UNDONE, step, attempts=outcome.attempts))
        run.messages += outcome.messages
    run.written((yield run.write(state=SagaState.COMPENSATED)))
    yield run.ended(SagaState.COMPENSATED)
    return End(SagaState.COMPENSATED, run.failure)


def _stuck(run: _Run, phase: str, step: int, error: BaseException | None) -> SagaFlow:
    name = run.plan.saga.steps[step].name
    stuck = Stuck(phase, step, _STUCK[phase].format(name, _shown(error)), run.state)
    run.written((yield run.write(state=SagaState.STUCK, stuck=stuck)))
    yield EmitSaga(
        SagaStuck(
            operation=run.plan.saga.name,
            saga_id=run.plan.saga_id,
            step=name,
            phase=phase,
            text=stuck.text,
        )
    )
    item = yield Escalate(stuck)
    return End(SagaState.STUCK, run.failure, name, error, item, stuck)


_STUCK = {
    "forward": "step {} failed behind the pivot: {}",
    "pivot": "step {} is the pivot, and may or may not have happened: {}",
    "undo": "the compensation of step {} failed: {}",
}


def _shown(error: BaseException | None) -> str:
    if error is None:
        return "its processes ended in it"
    return f"{type(error).__name__}: {text_of(error)}"


# --- where a run stands ---------------------------------------------------------------------------


class _Run:
    """One run of a saga: what is known, and what is not written yet."""

    __slots__ = ("command", "failure", "is_failure_new", "left", "messages", "number", "pending",
                 "plan", "progress", "record", "state")  # fmt: skip

    def __init__(self, plan: Plan, record: SagaRecord, left: float | None) -> None:
        self.plan = plan
        self.record = record
        self.left = left
        self.state = record.state
        self.number = record.writes
        self.progress = Progress(outline_of(record.shape), record.log)
        self.command: Append
        """What is being written."""
        self.pending: list[Entry] = []
        self.messages: list[UserValue] = []
        self.failure: BaseException | None = failure_of(record)
        self.is_failure_new = self.failure is None

    def must_stop(self) -> bool:
        """Whether a saga that is taken over goes no further."""
        return bool(self.record.cancel or self.left == 0.0) and not self.progress.is_past_pivot

    @property
    def is_stalled(self) -> bool:
        """Whether the saga was taken over too often without progress."""
        return self.record.stalled > self.plan.saga.max_recoveries

    def doubt_unsafe_steps(self) -> None:
        """Steps without an outcome that must not run again count as failed, in doubt."""
        saga = self.plan.saga
        for step in self.progress.unknown():
            if self.record.state is SagaState.RUNNING and (
                self.is_stalled or saga.steps[step].idempotency == "unsafe"
            ):
                hint = "" if saga.steps[step].idempotency == "unsafe" else _STALLED
                error = OutcomeUnknown(f"{saga.name}.{saga.steps[step].name}", hint=hint)
                error.add_note("the process that ran it is gone")
                self.note(Outcome(step, error=error, in_doubt=True))

    def note(self, outcome: Outcome) -> None:
        """Adds the end of a step to what is to be written."""
        if outcome.error is None:
            data, why = _result(outcome.value, self.plan.max_result)
            entry = Entry(marks.DONE, outcome.step, NO_TIME, outcome.attempts, data, why)
            if outcome.messages:
                self.messages += outcome.messages
        else:
            mark = marks.IN_DOUBT if outcome.in_doubt else marks.FAILED
            data = _failure(outcome.error)
            entry = Entry(mark, outcome.step, attempts=outcome.attempts, data=data)
            self.failure = outcome.error if self.failure is None else self.failure
        self.pending.append(entry)  # as `add`, without its frame
        self.progress.add(entry.what, outcome.step)

    def add(self, entry: Entry) -> None:
        """Adds an entry to what is known, and to what is to be written."""
        self.pending.append(entry)
        self.progress.add(entry.what, entry.step)

    def write(
        self,
        *,
        starts: tuple[int, ...] = (),
        state: SagaState | None = None,
        stuck: Stuck | None = None,
    ) -> Write:
        """What writes what is pending, and what comes next."""
        is_failure_due = self.failure is not None and self.is_failure_new and state is not None
        self.command = Append(
            self.plan.owner,
            self.record.epoch,
            self.number,
            tuple(self.pending),
            self.plan.saga.lease,
            starts,
            state,
            bytes(_failure(self.failure)) if is_failure_due else b"",
            stuck,
            not self.progress.is_past_pivot,
        )
        return Write(self.command, tuple(self.messages)) if self.messages else Write(self.command)

    def written(self, answer: Answer) -> str:
        """After that: why nothing may be started, if so."""
        if type(answer) is not Written:  # it is another process's, or gone
            raise _LostError
        stop: str = answer.stop
        command = self.command
        self.number += 1
        self.left = answer.left
        self.pending.clear()
        if self.messages:
            self.messages.clear()
        if not stop:
            for step in command.starts:
                self.progress.add(marks.STARTED, step)
            if command.state is not None:
                self.state, self.is_failure_new = command.state, False
        return stop

    # --- events -----------------------------------------------------------------------------------

    def recovered(self) -> EmitSaga:
        return EmitSaga(
            SagaRecovered(
                operation=self.plan.saga.name,
                saga_id=self.plan.saga_id,
                state=self.record.state.value,
                recoveries=self.record.recoveries,
            )
        )

    def step_failed(self, outcome: Outcome) -> EmitSaga:
        done = sum(mark is marks.DONE for mark in self.progress.status.values())
        return EmitSaga(
            SagaStepFailed(
                operation=self.plan.saga.name,
                saga_id=self.plan.saga_id,
                step=self.plan.saga.steps[outcome.step].name,
                exception_type=type(outcome.error).__name__,
                exception_message="" if outcome.error is None else text_of(outcome.error),
                completed=done,
                in_doubt=outcome.in_doubt,
            )
        )

    def step_undone(self, outcome: Outcome) -> EmitSaga:
        error = outcome.error
        return EmitSaga(
            SagaStepUndone(
                operation=self.plan.saga.name,
                saga_id=self.plan.saga_id,
                step=self.plan.saga.steps[outcome.step].name,
                success=error is None,
                exception_type="" if error is None else type(error).__name__,
                exception_message="" if error is None else text_of(error),
            )
        )

    def ended(self, state: SagaState) -> EmitSaga:
        return EmitSaga(
            SagaEnded(
                operation=self.plan.saga.name,
                saga_id=self.plan.saga_id,
                state=state._value_,  # in 3.11, `value` takes two frames
                recoveries=self.record.recoveries,
            )
        )


# --- results and failures as bytes ----------------------------------------------------------------


def _result(value: UserValue, limit: int) -> tuple[msgspec.Raw, str]:
    """The result as JSON; or, if it cannot be kept, nothing and why."""
    try:
        data = encode_value(value)
    except (MainstayError, ValueError, RecursionError) as error:
        return NULL, str(error)
    if len(data) > limit:
        return NULL, f"it has {len(data):,} bytes, more than {limit:,}"
    return msgspec.Raw(data), ""


def _failure(error: BaseException | None) -> msgspec.Raw:
    known = error if isinstance(error, Exception) else CallCancelled("the saga", 1)
    data = encode_outcome(Failed(known))
    if len(data) > _LONGEST_FAILURE:
        data = encode_shortened_failure(known)
    return msgspec.Raw(data)


def failure_of(record: SagaRecord) -> Exception | None:
    """What failed first, as the record has it; None if nothing has."""
    failure = record.failure
    if failure is NULL or bytes(failure) == bytes(NULL):
        for entry in record.log:
            if entry.what is marks.FAILED or entry.what is marks.IN_DOUBT:
                failure = entry.data
                break
    if failure is NULL or bytes(failure) == bytes(NULL):
        return None
    outcome = decode_outcome(bytes(failure))
    return outcome.exception if isinstance(outcome, Failed) else None
