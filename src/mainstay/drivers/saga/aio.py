"""The async driver: carries out what core/saga/flow.py asks for, under asyncio or trio.

A plain function among the steps runs in a thread. If the task is cancelled, the step that it was in
counts as failed, in doubt; the saga is compensated all the same, shielded from further
cancellation, and the cancellation is raised at the end. A thread cannot be cancelled: what undoes
its step waits for its end. Behind the pivot the saga goes on to its end.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from mainstay.core.saga.flow import (
    AwaitStep,
    EmitSaga,
    Escalate,
    Outcome,
    RunSteps,
    UndoStep,
    Write,
)
from mainstay.deadline import within
from mainstay.drivers.idempotency.groups import Group
from mainstay.drivers.idempotency.patience import aoffered
from mainstay.drivers.saga.escalation import aescalate
from mainstay.drivers.saga.steps import SagaTaken, StepAwaits
from mainstay.runtime.loops import in_thread, is_cancellation, is_trio, shielded

if TYPE_CHECKING:
    from mainstay.core.base.types import Answer
    from mainstay.core.saga.flow import Effect, End
    from mainstay.drivers.saga.session import SagaRun
    from mainstay.drivers.saga.steps import StepCall


async def drive(run: SagaRun) -> End:
    """Performs what the flow yields, to its end."""
    driver = _Driver(run)
    end = await driver.drive()
    if driver.cancelled is not None:
        raise driver.cancelled
    return end


class _Driver:
    """One run, and whether it was cancelled."""

    def __init__(self, run: SagaRun) -> None:
        self.run = run
        self.group = Group()
        self.cancelled: BaseException | None = None
        self.is_shielded = False
        self._calls: list[StepCall] = []
        """Those of the steps that were begun last."""
        self._is_forward = False
        """Whether those are behind the pivot."""
        self._unbegun: list[int] = []

    async def drive(self, effect: Effect | None = None) -> End:
        """From the next effect on; or from one that was cut off."""
        answer: Answer = None
        try:
            if effect is not None:
                answer = await self.perform(effect)
            while True:
                effect = self.run.flow.send(answer)
                if self.must_go_on(effect) and not self.is_shielded:
                    return await self.drive_shielded(effect)
                try:
                    answer = await self.perform(effect)
                except BaseException as error:
                    if self.is_shielded or not is_cancellation(error):
                        raise
                    self.cancelled = error
                    return await self.drive_shielded(effect)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            answer = None

    def must_go_on(self, effect: Effect) -> bool:
        """Whether no cancellation ends this: a compensation, and steps behind the pivot."""
        return type(effect) is UndoStep or (type(effect) is RunSteps and effect.is_forward)

    async def drive_shielded(self, effect: Effect) -> End:
        """Goes on so that no cancellation ends it."""
        self.is_shielded = True

        async def work() -> End:
            if is_trio():
                self.run.free_of_caller()
            else:
                self.run.free_in_task()
            return await self.drive(effect)

        end, cancelled = await shielded(work)
        self.cancelled = self.cancelled or cancelled
        return end

    async def perform(self, effect: Effect) -> Answer:
        """What one effect asks for."""
        if type(effect) is Write:
            return await self._write(effect)
        if type(effect) is RunSteps:
            return await self._run_steps(effect)
        if type(effect) is AwaitStep:
            return await self._await_step()
        if type(effect) is UndoStep:
            return await called(self.run.call(effect.step, is_undo=True), None)
        if type(effect) is EmitSaga:
            self.run.parts.emit(effect.event)
            return None
        assert type(effect) is Escalate
        return await aescalate(self.run, effect)

    async def _write(self, effect: Write) -> object:
        run = self.run
        sent, records = run.sending(effect.command), run.parts.records
        if effect.messages:
            reply = await aoffered(records, lambda: in_thread(lambda: run.step_emitting(effect)))
        else:
            reply = await aoffered(records, lambda: records.astep(run.address, effect.command))
        return run.written(reply, sent)

    async def _run_steps(self, effect: RunSteps) -> Outcome:
        if self.cancelled is not None and not effect.is_forward:
            return await self._cut_off(effect)
        calls = [self.run.call(number) for number in effect.steps]
        self._calls, self._is_forward = calls, effect.is_forward
        if len(calls) == 1:
            return self.run.done(await called(calls[0], effect.left))
        for call in calls:
            self.group.start(partial(_guarded, call, effect.left))
        return self.run.done(await self.group.next())

    async def _cut_off(self, effect: RunSteps) -> Outcome:
        """The outcome of steps that the cancellation has cut off, or that were not begun."""
        begun = [call.step for call in self._calls]
        if begun == list(effect.steps) and len(begun) > 1:
            return await self._await_step()
        if begun == list(effect.steps):
            return self._calls[0].failed(self.cancelled)  # type: ignore[arg-type]
        self._unbegun = list(effect.steps)
        return await self._await_step()

    async def _await_step(self) -> Outcome:
        if self._unbegun:
            return Outcome(self._unbegun.pop(0), error=self.cancelled, attempts=0)
        if self.cancelled is not None and not self._is_forward:
            self.group.cancel()
        return self.run.done(await self.group.next())


async def called(call: StepCall, limit: float | None) -> Outcome:
    """The outcome of an action or a compensation."""
    try:
        with nullcontext() if limit is None else within(limit):
            operation = call.known.operation
            if not call.known.is_async:
                try:
                    return call.returned(await in_thread(lambda: operation.call(call.attempt)))
                except StepAwaits as found:
                    call.go_on(found.value)
            return call.returned(await operation.acall(call.aattempt))
    except SagaTaken as taken:
        raise taken.lost from None
    except Exception as error:
        return call.failed(error)


async def _guarded(call: StepCall, limit: float | None) -> Outcome:
    """The same for a step of a group: also one that is cancelled has an outcome."""
    try:
        return await called(call, limit)
    except BaseException as error:
        if not is_cancellation(error):
            raise
        return call.failed(error)
