"""Carries out what core/pipeline/flow.py asks for: in the caller's thread, or awaited.

A plain function among async stages runs in a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.pipeline.flow import EmitRun, RunEnd, RunStage, WriteRun
from mainstay.drivers.idempotency.patience import aoffered, offered
from mainstay.runtime.loops import in_thread

if TYPE_CHECKING:
    from mainstay.core.base.types import Answer
    from mainstay.core.pipeline.flow import Effect
    from mainstay.core.pipeline.outcome import StageOutcome
    from mainstay.drivers.pipeline.session import PipelineRun


def drive(run: PipelineRun) -> RunEnd:
    """Performs what the flow yields, to its end."""
    answer: Answer = None
    try:
        while type(effect := _next(run, answer)) is not RunEnd:
            if type(effect) is RunStage:
                answer = _stage(run, effect)
            elif type(effect) is WriteRun:
                answer = _write(run, effect)
            else:
                _emit(run, effect)
                answer = None
    finally:
        answer = None
    return effect


async def adrive(run: PipelineRun) -> RunEnd:
    """The same, awaited."""
    answer: Answer = None
    try:
        while type(effect := _next(run, answer)) is not RunEnd:
            if type(effect) is RunStage:
                answer = await _astage(run, effect)
            elif type(effect) is WriteRun:
                answer = await _awrite(run, effect)
            else:
                _emit(run, effect)
                answer = None
    finally:
        answer = None
    return effect


def _next(run: PipelineRun, answer: Answer) -> Effect | RunEnd:
    """The next effect, or the end; only the flow itself ends it, and no StopIteration of others."""
    try:
        return run.flow.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def _emit(run: PipelineRun, effect: Effect) -> None:
    assert isinstance(effect, EmitRun)
    run.parts.emit(effect.event)


def _write(run: PipelineRun, effect: WriteRun) -> Answer:
    sent, records = clock.current.monotonic(), run.parts.records
    answer = offered(records, lambda: records.step(run.address, effect.command))
    return run.written(answer, sent)


async def _awrite(run: PipelineRun, effect: WriteRun) -> Answer:
    sent, records = clock.current.monotonic(), run.parts.records
    answer = await aoffered(records, lambda: records.astep(run.address, effect.command))
    return run.written(answer, sent)


def _stage(run: PipelineRun, effect: RunStage) -> StageOutcome:
    if not run.is_certain():
        sent = clock.current.monotonic()
        run.renewed(run.parts.records.step(run.address, run.renewal()), sent)
    call = run.call(effect.stage)
    try:
        call.prepare()
        value = call.operation.call(call.attempt)
    except Exception as error:
        return call.failed(error)
    return run.done(call.returned(value))


async def _astage(run: PipelineRun, effect: RunStage) -> StageOutcome:
    if not run.is_certain():
        sent = clock.current.monotonic()
        run.renewed(await run.parts.records.astep(run.address, run.renewal()), sent)
    call = await in_thread(lambda: run.call(effect.stage))
    try:
        await in_thread(call.prepare)
        if call.stage.is_async:
            value = await call.operation.acall(call.aattempt)
        else:
            value = await in_thread(lambda: call.operation.call(call.attempt))
    except Exception as error:
        return call.failed(error)
    return run.done(call.returned(value))
