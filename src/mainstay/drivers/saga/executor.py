"""The plain executor of the effects document: steps in memory, undone if one fails. No store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.base.functions import is_awaitable
from mainstay.core.saga.context import SagaContext, key_of
from mainstay.core.saga.definition import takes_context
from mainstay.errors import CompensationFailedError
from mainstay.runtime.reports.logs import logger

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from mainstay.core.base.types import UserValue
    from mainstay.core.saga.definition import Action, SagaStep

_log = logger()


class SagaExecutor:
    """Runs steps in their order; if one fails, undoes the completed ones in reverse order.

    Nothing is kept: if the process ends, so does the saga. `engine.sagas` has those that are
    recovered. Each action runs once; actions and compensations may be async or plain.

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

    async def execute(self, steps: Iterable[SagaStep], correlation_id: object) -> None:
        """Runs the steps; raises the original failure, or CompensationFailedError from it.

        Args:
            steps: SagaSteps, in their order.
            correlation_id: of the request; it is logged with each compensation that fails.

        >>> import asyncio
        >>> from mainstay import SagaStep
        >>> asyncio.run(SagaExecutor().execute([SagaStep("debit", lambda: None)], "c-1"))
        """
        completed: list[SagaStep] = []
        results: dict[str, UserValue] = {}
        try:
            for step in steps:
                results[step.name] = await _call(step.action, step, correlation_id, results)
                completed.append(step)
        except Exception as error:
            failed = await _undo(completed, correlation_id, results)
            if failed:
                raise CompensationFailedError(
                    f"Saga failed and {len(failed)} compensation(s) also failed",
                    failed_steps=[name for name, _ in failed],
                    errors=[each for _, each in failed],
                ) from error
            raise


async def _undo(
    completed: list[SagaStep], correlation_id: object, results: dict[str, UserValue]
) -> list[tuple[str, Exception]]:
    """Undoes the steps, the last first; the names of those that failed, in that order."""
    failed: list[tuple[str, Exception]] = []
    for step in reversed(completed):
        if step.compensate is None:
            continue
        try:
            await _call(step.compensate, step, correlation_id, results, is_undo=True)
        except Exception as error:
            failed.append((step.name, error))
            _log.error(
                "Compensation failed for step %s",
                step.name,
                extra={"correlation_id": str(correlation_id), "error": str(error)},
            )
    return failed


async def _call(
    function: Action,
    step: SagaStep,
    correlation_id: object,
    results: dict[str, UserValue],
    *,
    is_undo: bool = False,
) -> Any:
    given: tuple[SagaContext, ...] = ()
    if takes_context(function):
        name = str(correlation_id)
        key = key_of(name, step.name, is_undo=is_undo)
        given = (SagaContext("", name, step.name, None, results, key),)
        given[0].attempt = 1
    value = function(*given)
    return await value if is_awaitable(value) else value
