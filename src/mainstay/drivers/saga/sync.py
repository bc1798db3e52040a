"""The sync driver: carries out what core/saga/flow.py asks for, in the caller's own thread.

The steps of a group run in threads of their own, with the caller's context.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mainstay.core.saga.flow import AwaitStep, EmitSaga, RunSteps, UndoStep, Write
from mainstay.deadline import within
from mainstay.drivers.idempotency.groups import Threads
from mainstay.drivers.idempotency.patience import offered_again
from mainstay.drivers.saga.escalation import escalate
from mainstay.drivers.saga.steps import SagaTaken, StepAwaits
from mainstay.runtime.context import is_in_event_loop

if TYPE_CHECKING:
    from mainstay.core.base.types import Answer, UserValue
    from mainstay.core.saga.flow import Effect, End, Outcome
    from mainstay.drivers.saga.records import Reply
    from mainstay.drivers.saga.session import SagaRun
    from mainstay.drivers.saga.steps import StepCall


def drive(run: SagaRun) -> End:
    """Performs what the flow yields, to its end."""
    group: Threads[Outcome] | None = None
    answer: Answer = None
    try:
        while True:
            effect: Effect = run.flow.send(answer)
            if type(effect) is Write:
                answer = _write(run, effect)
            elif type(effect) is RunSteps:
                if len(effect.steps) == 1:
                    answer = _run_step(run, effect)
                else:
                    group = group or Threads("mainstay-saga")
                    answer = _run_group(run, effect, group)
            elif type(effect) is AwaitStep:
                assert group is not None
                answer = run.done(group.next())
            elif type(effect) is UndoStep:
                answer = _undo(run, effect)
            elif type(effect) is EmitSaga:
                run.parts.emit(effect.event)
                answer = None
            else:
                answer = escalate(run, effect)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        answer = None


def _write(run: SagaRun, effect: Write) -> object:
    sent = run.sending(effect.command)
    try:  # as `offered`, without its frame
        reply = _asked(run, effect)
    except Exception as error:
        failure = error
    else:
        return run.written(reply, sent)
    ask = partial(_asked, run, effect)
    return run.written(offered_again(run.parts.records, failure, ask), sent)


def _asked(run: SagaRun, effect: Write) -> Reply:
    if effect.messages:
        return run.step_emitting(effect)
    return run.parts.records.step(run.address, effect.command, run.kept)


def _run_step(run: SagaRun, effect: RunSteps) -> Outcome:
    if effect.is_forward:
        run.free_of_caller()
    return run.done(_called(run, run.call(effect.steps[0]), effect.left))


def _run_group(run: SagaRun, effect: RunSteps, group: Threads[Outcome]) -> Outcome:
    if effect.is_forward:
        run.free_of_caller()
    for call in [run.call(number) for number in effect.steps]:
        group.start(call.name, partial(_called, run, call, effect.left))
    return run.done(group.next())


def _undo(run: SagaRun, effect: UndoStep) -> Outcome:
    run.free_of_caller()
    return _called(run, run.call(effect.step, is_undo=True), None)


def _called(run: SagaRun, call: StepCall, limit: float | None) -> Outcome:
    try:
        if limit is None:
            return call.returned(call.known.operation.call(call.attempt))
        with within(limit):
            return call.returned(call.known.operation.call(call.attempt))
    except SagaTaken as taken:
        raise taken.lost from None
    except StepAwaits as found:
        if not run.may_await or is_in_event_loop():
            return call.refused(found.value)
        return _awaited(call, found.value, limit)
    except Exception as error:
        return call.failed(error)


def _awaited(call: StepCall, value: UserValue, limit: float | None) -> Outcome:
    """The outcome of a function that only its call has shown to be async, in a loop of its own."""
    import asyncio

    from mainstay.drivers.saga import aio

    call.go_on(value)
    return asyncio.run(aio.called(call, limit))
