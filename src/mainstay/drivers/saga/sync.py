"""The sync driver: carries out what core/saga/flow.py asks for, in the caller's own thread.

The steps of a group run in threads of their own, with the caller's context.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from mainstay.core.saga.flow import AwaitStep, EmitSaga, RunSteps, UndoStep, Write
from mainstay.deadline import within
from mainstay.drivers.idempotency.patience import offered
from mainstay.drivers.saga.escalation import escalate
from mainstay.drivers.saga.steps import SagaTaken
from mainstay.runtime.context import carry

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstay.core.base.types import Answer
    from mainstay.core.saga.flow import Effect, End, Outcome
    from mainstay.drivers.saga.session import SagaRun
    from mainstay.drivers.saga.steps import StepCall


def drive(run: SagaRun) -> End:
    """Performs what the flow yields, to its end."""
    group = _Threads()
    answer: Answer = None
    try:
        while True:
            effect: Effect = run.flow.send(answer)
            if type(effect) is Write:
                answer = _write(run, effect)
            elif type(effect) is RunSteps:
                answer = _run_steps(run, effect, group)
            elif type(effect) is AwaitStep:
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
    records, address, kept = run.parts.records, run.address, run.kept
    if effect.messages:
        reply = offered(records, lambda: run.step_emitting(effect))
    else:
        reply = offered(records, lambda: records.step(address, effect.command, kept))
    return run.written(reply, sent)


def _run_steps(run: SagaRun, effect: RunSteps, group: _Threads) -> Outcome:
    if effect.is_forward:
        run.free_of_caller()
    calls = [run.call(number) for number in effect.steps]
    if len(calls) == 1:
        return run.done(_called(calls[0], effect.left))
    for call in calls:
        group.start(call.context.step, partial(_called, call, effect.left))
    return run.done(group.next())


def _undo(run: SagaRun, effect: UndoStep) -> Outcome:
    run.free_of_caller()
    return _called(run.call(effect.step, is_undo=True), None)


def _called(call: StepCall, limit: float | None) -> Outcome:
    try:
        with nullcontext() if limit is None else within(limit):
            return call.returned(call.operation.call(call.attempt))
    except SagaTaken as taken:
        raise taken.lost from None
    except Exception as error:
        return call.failed(error)


class _Threads:
    """Steps at the same time: each outcome, as it comes.

    What ends a thread and is no outcome, such as SystemExit, is raised in the thread that waits
    once the other steps have ended and their outcomes were returned. So is a Ctrl+C while it waits;
    a second one does not wait for them.
    """

    __slots__ = ("_is_interrupted", "_queue", "_raised", "_running")

    def __init__(self) -> None:
        self._queue: SimpleQueue[Outcome | BaseException] = SimpleQueue()
        self._running = 0
        self._raised: BaseException | None = None
        self._is_interrupted = False
        """Whether the thread that waits was: the last outcome is then not returned."""

    def start(self, name: str, work: Callable[[], Outcome]) -> None:
        """Starts one step."""

        def run() -> None:
            try:
                self._queue.put(work())
            except BaseException as error:
                self._queue.put(error)

        thread = threading.Thread(target=carry(run), name=f"mainstay-saga-{name}", daemon=True)
        thread.start()
        self._running += 1

    def next(self) -> Outcome:
        """The next outcome."""
        while self._running:
            found = self._found()
            if found is None:
                continue
            self._running -= 1
            if isinstance(found, BaseException):
                self._raised = self._raised or found
            elif self._running or not self._is_interrupted:
                return found
        assert self._raised is not None
        raise self._raised

    def _found(self) -> Outcome | BaseException | None:
        try:
            return self._queue.get()
        except BaseException as error:
            if self._is_interrupted:
                raise
            self._raised, self._is_interrupted = error, True
            return None
