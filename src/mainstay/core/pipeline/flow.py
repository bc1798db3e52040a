"""The run of a pipeline as a generator: it asks for stages and writes, and two drivers obey.

    RunStage -> StageOutcome -> Write -> the next one, or the end

What became of a stage, its entries in the ledgers and the beginning of the next are one write.
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
class RunStage(Struct, frozen=True, gc=False):
    """Call this stage under its policy and gate; a StageOutcome is the answer."""

    stage: str


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
    is_lost: bool = False


Effect = RunStage | WriteRun | EmitRun


def run_flow(
    definition: PipelineDefinition, record: RunRecord, lease: float
) -> Generator[Effect, Answer, RunEnd]:
    """From the record on: each stage that is not done, in order, until one fails."""
    todo = [stage.name for stage in definition.stages if not _is_done(record, stage.name)]
    number, outcome = 0, None
    if record.resumes:
        yield EmitRun(_event(PipelineRunResumed, record, stage=todo[0] if todo else "",
                             resumes=record.resumes))  # fmt: skip
    if not todo or record.stages.get(todo[0]) is None or record.stages[todo[0]].status != "started":
        start = _started(record, number, lease, todo)
        if type((yield WriteRun(start))) is Lost:
            return RunEnd(is_lost=True)
        number += 1
    for index, name in enumerate(todo):
        outcome = yield RunStage(name)
        following = todo[index + 1] if index + 1 < len(todo) else ""
        command = appended(record, outcome, number, following, lease)
        if type((yield WriteRun(command))) is Lost:
            return RunEnd(outcome, is_lost=True)
        number += 1
        if outcome.error is not None:
            yield EmitRun(_halted(record, outcome))
            if outcome.is_conflict:
                yield EmitRun(_escalated(record, outcome))
            return RunEnd(outcome)
    yield EmitRun(_event(PipelineRunEnded, record, stages=len(definition.stages)))
    return RunEnd(outcome)


def _started(record: RunRecord, number: int, lease: float, todo: list[str]) -> Append:
    """The beginning of the first stage; or the end, if the pipeline has no other stage any more."""
    end = LedgerEntry(kind="completed", pipeline_id=record.pipeline, run_id=record.run)
    return Append(
        record.owner,
        record.epoch,
        number,
        lease,
        start=todo[0] if todo else "",
        is_over=not todo,
        versions=() if todo else (end,),
    )


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
