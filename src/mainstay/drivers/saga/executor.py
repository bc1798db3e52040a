"""The plain executor of the effects document: steps in memory, undone if one fails. No store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.base.functions import is_awaitable, takes_context
from mainstay.core.base.validate import Checker
from mainstay.core.events.describe import describe
from mainstay.core.saga.context import SagaContext, key_of
from mainstay.core.saga.events import SagaStepFailed, SagaStepUndone
from mainstay.drivers.call.emit import emit
from mainstay.errors import CompensationFailedError
from mainstay.runtime.reports.logs import logger

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from mainstay.core.base.types import UserValue
    from mainstay.core.saga.definition import Action, SagaStep
    from mainstay.ports import Sink

_log = logger()


class SagaExecutor:
    """Runs steps in their order; if one fails, undoes the completed ones in reverse order.

    Nothing is kept: if the process ends, so does the saga. `engine.sagas` has those that are
    recovered. Each action runs once; actions and compensations may be async or plain.

    Args:
        name: what its events are called; metrics have it as the effect type.
        sinks: receive an event for a step that failed and for each compensation that has ended.

    >>> import asyncio
    >>> from mainstay import SagaStep
    >>> async def debit(): print("debit")
    >>> async def undo(): print("undo")
    >>> async def credit(): raise OSError("down")
    >>> steps = [SagaStep("debit", debit, undo), SagaStep("credit", credit)]
    >>> asyncio.run(SagaExecutor().execute(steps, "c-1"))
    Traceback (most recent call last):
    OSError: down
    """

    def __init__(self, name: str = "saga", *, sinks: Iterable[Sink] = ()) -> None:
        check = Checker("SagaExecutor")
        self.name = check.name("name", name)
        check.close()
        self._sinks = tuple(sinks)

    async def execute(self, steps: Iterable[SagaStep], correlation_id: object) -> None:
        """Runs the steps; raises the original failure, or CompensationFailedError from it.

        Args:
            steps: SagaSteps, in their order.
            correlation_id: of the request; it is logged with each compensation that fails.

        >>> import asyncio
        >>> from mainstay import SagaStep
        >>> asyncio.run(SagaExecutor().execute([SagaStep("debit", lambda: None)], "c-1"))
        """
        run = _Run(self.name, correlation_id, self._sinks)
        try:
            for step in steps:
                run.step = step
                run.results[step.name] = await run.call(step.action)
                run.completed.append(step)
        except Exception as error:
            run.report_failure(error)
            failed = await run.undo()
            if failed:
                raise CompensationFailedError(
                    f"Saga failed and {len(failed)} compensation(s) also failed",
                    failed_steps=[name for name, _ in failed],
                    errors=[each for _, each in failed],
                ) from error
            raise


class _Run:
    """One saga under way."""

    def __init__(self, name: str, correlation_id: object, sinks: tuple[Sink, ...]) -> None:
        self._name, self._id, self._sinks = name, str(correlation_id), sinks
        self.completed: list[SagaStep] = []
        self.results: dict[str, UserValue] = {}
        self.step: SagaStep | None = None

    async def undo(self) -> list[tuple[str, Exception]]:
        """Undoes the steps, the last first; the names of those that failed, in that order."""
        failed: list[tuple[str, Exception]] = []
        for step in reversed(self.completed):
            if step.compensate is None:
                continue
            self.step = step
            error = await self._undo(step.compensate)
            self._report(SagaStepUndone, error, success=error is None)
            if error is not None:
                failed.append((step.name, error))
                extra = {"correlation_id": self._id, "error": str(error)}
                _log.error("Compensation failed for step %s", step.name, extra=extra)
        return failed

    async def _undo(self, compensate: Action) -> Exception | None:
        try:
            await self.call(compensate, is_undo=True)
        except Exception as error:
            return error
        return None

    async def call(self, function: Action, *, is_undo: bool = False) -> Any:
        """Calls a function of the step at hand, with a context if it takes one."""
        assert self.step is not None
        given: tuple[SagaContext, ...] = ()
        if takes_context(function):
            key = key_of(self._id, self.step.name, is_undo=is_undo)
            given = (SagaContext("", self._id, self.step.name, None, self.results, key),)
            given[0].attempt = 1
        value = function(*given)
        return await value if is_awaitable(value) else value

    def report_failure(self, error: Exception) -> None:
        """Emits that a step has failed, and how much of the saga was applied before."""
        if self.step is not None:
            self._report(SagaStepFailed, error, completed=len(self.completed))

    def _report(
        self,
        sort: type[SagaStepFailed | SagaStepUndone],
        error: Exception | None,
        **fields: int,
    ) -> None:
        if not self._sinks or self.step is None:
            return
        name, text = ("", "") if error is None else describe(error)
        event = sort(
            operation=self._name, saga_id=self._id, correlation_id=self._id, step=self.step.name,
            exception_type=name, exception_message=text, **fields,  # type: ignore[arg-type]
        )  # fmt: skip
        emit(event, self._sinks)
