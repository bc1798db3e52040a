"""Carries out what core/pipeline/flow.py asks for: in the caller's thread, or awaited.

Stages at the same time run in threads, or in tasks of the event loop. A plain function among async
stages runs in a thread.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mainstay.core.pipeline.flow import EmitRun, RunEnd, RunStages, WriteRun
from mainstay.drivers.idempotency.groups import Group, Threads
from mainstay.drivers.idempotency.patience import aoffered, offered
from mainstay.drivers.pipeline.stages import RunTaken
from mainstay.runtime.loops import in_thread, shielded
from mainstay.runtime.reports.tracebacks import leave_out

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from mainstay.core.base.types import Answer, UserValue
    from mainstay.core.pipeline.flow import Effect
    from mainstay.core.pipeline.outcome import StageOutcome
    from mainstay.drivers.pipeline.session import PipelineRun
    from mainstay.drivers.pipeline.stages import StageCall

    R = TypeVar("R")


def drive(run: PipelineRun) -> RunEnd:
    """Performs what the flow yields, to its end; waits for every stage that it has begun."""
    group: Threads[StageOutcome] = Threads("mainstay-stage")
    answer: Answer = None
    try:
        while type(effect := _next(run, answer)) is not RunEnd:
            if type(effect) is RunStages:
                answer = run.done(_stages(run, effect, group))
            elif type(effect) is WriteRun:
                answer = _write(run, effect)
            else:
                _emit(run, effect)
                answer = None
    finally:
        answer = None
        group.rest()
    return effect


async def adrive(run: PipelineRun) -> RunEnd:
    """The same, awaited; if it is cancelled, so are the stages that it has begun."""
    group = Group()
    answer: Answer = None
    try:
        while type(effect := _next(run, answer)) is not RunEnd:
            if type(effect) is RunStages:
                answer = run.done(await _astages(run, effect, group))
            elif type(effect) is WriteRun:
                answer = await _awrite(run, effect)
            else:
                _emit(run, effect)
                answer = None
    finally:
        answer = None
        if group.running:
            group.cancel()
            await shielded(group.rest)
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
    sent, records = run.sending(), run.parts.records
    answer = offered(records, lambda: records.step(run.address, effect.command))
    return run.written(answer, sent)


async def _awrite(run: PipelineRun, effect: WriteRun) -> Answer:
    sent, records = run.sending(), run.parts.records
    answer = await aoffered(records, lambda: records.astep(run.address, effect.command))
    return run.written(answer, sent)


def _stages(run: PipelineRun, effect: RunStages, group: Threads[StageOutcome]) -> StageOutcome:
    """The outcome of one that ends; a single one runs in this thread."""
    if effect.stages and not run.is_certain():
        run.renew()
    calls = [run.call(name) for name in effect.stages]
    if len(calls) == 1 and not group.running:
        return _called(calls[0])
    for call in calls:
        group.start(call.stage.name, partial(_called, call))
    return group.next()


def _called(call: StageCall) -> StageOutcome:
    try:
        call.prepare()
        value = call.operation.call(call.attempt)
    except RunTaken as taken:
        raise taken.lost from None
    except Exception as error:
        leave_out(error)
        return call.failed(error)
    return call.returned(value)


async def _astages(run: PipelineRun, effect: RunStages, group: Group) -> StageOutcome:
    if effect.stages and not run.is_certain():
        await run.arenew()
    calls = [await in_thread(partial(run.call, name)) for name in effect.stages]
    if len(calls) == 1 and not group.running:
        return await _acalled(calls[0])
    for call in calls:
        group.start(partial(_acalled, call))
    return await group.next()  # type: ignore[no-any-return]


async def _acalled(call: StageCall) -> StageOutcome:
    try:
        await _in_thread(call.prepare)
        if call.stage.is_async:
            value = await call.operation.acall(call.aattempt)
        else:
            value = await _in_thread(partial(_value, call))
    except RunTaken as taken:
        raise taken.lost from None
    except Exception as error:
        leave_out(error)
        return call.failed(error)
    return call.returned(value)


def _value(call: StageCall) -> UserValue:
    try:
        return call.operation.call(call.attempt)
    except Exception as error:
        leave_out(error)
        raise


async def _in_thread(function: Callable[[], R]) -> R:
    """The result of a function that runs in a thread; a failure has no frame of the way there."""
    try:
        return await in_thread(function)
    except Exception as error:
        leave_out(error, 2)
        raise
