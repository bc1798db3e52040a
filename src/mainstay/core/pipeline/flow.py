"""The run of a pipeline as a generator: it asks for stages and writes, and two drivers obey.

    RunStages -> StageOutcome -> Write -> the next ones, or the end

What became of a stage, its entries in the ledgers and the beginning of the next ones are one write.
"""

from __future__ import annotations

from typing import final

from msgspec import Struct

from mainstay.core.pipeline.commands import Append, Lost
from mainstay.core.pipeline.events import (
    GovernanceEscalated,
    PipelineRunEnded,
    PipelineRunHalted,
    PipelineRunResumed,
)
from mainstay.core.pipeline.ledger import LedgerEntry
from mainstay.core.pipeline.outcome import StageOutcome, appended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Answer
    from mainstay.core.pipeline.definition import PipelineDefinition
    from mainstay.core.pipeline.state import RunRecord


@final
class RunStages(Struct, frozen=True, gc=False):
    """Begin these stages, each under its policy and gate.

    The outcome of one that ends, of these or of those under way, is the answer.
    """

    stages: tuple[str, ...]


@final
class WriteRun(Struct, frozen=True, gc=False):
    """Write this to the record; the answer is that of its reducer."""

    command: Append


@final
class EmitRun(Struct, frozen=True):
    """Emit an event."""

    event: Event


@final
class RunEnd(Struct, frozen=True):
    """The run has ended or is halted; or it is another process's now (`is_lost`)."""

    outcome: StageOutcome | None = None
    """Of the last stage; or of the first that failed."""
    is_lost: bool = False
    others: tuple[StageOutcome, ...] = ()
    """Of stages that failed beside it."""


Effect = RunStages | WriteRun | EmitRun


def run_flow(
    definition: PipelineDefinition, record: RunRecord, lease: float, most: int = 1
) -> Generator[Effect, Answer, RunEnd]:
    """From the record on: each stage that is not done, once those before it are.

    At most `most` of them at the same time. After one has failed none is begun, and those under
    way are waited for.
    """
    plan, number, failed = _Plan(definition, record, most), 0, list[StageOutcome]()
    starts, outcome = plan.begin(), None
    if record.resumes:
        first = starts[0] if starts else ""
        yield EmitRun(_event(PipelineRunResumed, record, stage=first, resumes=record.resumes))
    if not starts or not all(_is_started(record, name) for name in starts):
        if type((yield WriteRun(_started(record, number, lease, starts)))) is Lost:
            return RunEnd(is_lost=True)
        number += 1
    while plan.under_way:
        outcome = yield RunStages(starts)
        plan.ended(outcome)
        starts = () if failed or outcome.error is not None else plan.begin()
        command = appended(
            record, outcome, number, lease, starts=starts, is_halting=bool(failed),
            is_pending=len(plan.under_way) > len(starts),
        )  # fmt: skip
        if type((yield WriteRun(command))) is Lost:
            return RunEnd(outcome, is_lost=True)
        number += 1
        if outcome.error is not None:
            failed.append(outcome)
            yield EmitRun(_halted(record, outcome))
            if outcome.is_conflict:
                yield EmitRun(_escalated(record, outcome))
    if failed:
        return RunEnd(failed[0], others=tuple(failed[1:]))
    yield EmitRun(_event(PipelineRunEnded, record, stages=len(definition.stages)))
    return RunEnd(outcome)


class _Plan:
    """Which stages are done, under way, and to be begun."""

    def __init__(self, definition: PipelineDefinition, record: RunRecord, most: int) -> None:
        self._most = most
        self._done = {each.name for each in definition.stages if _is_done(record, each.name)}
        self._todo = {
            each.name: set(each.after) for each in definition.stages if each.name not in self._done
        }
        self.under_way: set[str] = set()

    def begin(self) -> tuple[str, ...]:
        """The stages that begin now, in the order of the pipeline; they are under way then."""
        ready = [name for name, after in self._todo.items() if after <= self._done]
        starts = tuple(ready[: self._most - len(self.under_way)])
        for name in starts:
            del self._todo[name]
        self.under_way.update(starts)
        return starts

    def ended(self, outcome: StageOutcome) -> None:
        """A stage has ended."""
        self.under_way.remove(outcome.stage)
        if outcome.error is None:
            self._done.add(outcome.stage)


def first_of(definition: PipelineDefinition, most: int) -> tuple[str, ...]:
    """The stages that a run of a pipeline begins with."""
    return tuple([each.name for each in definition.stages if not each.after][:most])


def _started(record: RunRecord, number: int, lease: float, starts: tuple[str, ...]) -> Append:
    """The beginning of stages; or the end, if the pipeline has no other stage any more."""
    end = LedgerEntry(kind="completed", pipeline_id=record.pipeline, run_id=record.run)
    return Append(
        record.owner,
        record.epoch,
        number,
        lease,
        starts=starts,
        is_over=not starts,
        versions=() if starts else (end,),
    )


def _is_started(record: RunRecord, name: str) -> bool:
    found = record.stages.get(name)
    return found is not None and found.status == "started"


def _is_done(record: RunRecord, name: str) -> bool:
    found = record.stages.get(name)
    return found is not None and found.status == "done"


def _halted(record: RunRecord, outcome: StageOutcome) -> Event:
    return _event(
        PipelineRunHalted,
        record,
        stage=outcome.stage,
        cause=outcome.cause,
        exception_type=type(outcome.error).__name__,
        exception_message=outcome.text,
        total_attempts=outcome.attempts,
        datasets=list(outcome.names),
        care_labels=list(outcome.care_labels),
    )


def _escalated(record: RunRecord, outcome: StageOutcome) -> Event:
    names, text = list(outcome.names), outcome.text
    return _event(GovernanceEscalated, record, stage=outcome.stage, datasets=names, text=text)


def _event(kind: type[Event], record: RunRecord, **fields: object) -> Event:
    return kind(operation=record.pipeline, run_id=record.run, **fields)  # type: ignore[call-arg,arg-type]
