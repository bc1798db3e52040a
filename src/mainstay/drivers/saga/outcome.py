"""What a saga comes to: its result, or what it raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.base.attributes import add_note
from mainstay.core.base.value import Value
from mainstay.core.saga.context import Results
from mainstay.core.saga.definition import outline_of
from mainstay.core.saga.flow import failure_of
from mainstay.core.saga.state import SagaState
from mainstay.drivers.saga.escalation import item_of
from mainstay.errors import CallCancelled, CompensationFailedError, LeaseLost, SagaStuckError
from mainstay.runtime.reports.tracebacks import shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstay.core.base.types import UserValue
    from mainstay.core.saga.flow import End
    from mainstay.core.saga.state import SagaRecord
    from mainstay.drivers.saga.session import SagaRun


class SagaResult(Value):
    """A saga that has succeeded.

    Attributes:
        saga: its name.
        saga_id: its id.
        results: what each step returned, by the name of the step.

    >>> SagaResult("transfer", "t-1", {"debit": 5}).results["debit"]
    5
    """

    __slots__ = ("results", "saga", "saga_id")
    saga: str
    saga_id: str
    results: Mapping[str, UserValue]

    def __init__(self, saga: str, saga_id: str, results: Mapping[str, UserValue]) -> None:
        self._fill(saga=saga, saga_id=saga_id, results=results)

    __hash__ = None  # type: ignore[assignment]  # results are the user's


def result_of(end: End, run: SagaRun) -> SagaResult:
    """The result of a run; raises what failed, or that the saga is stuck."""
    saga, saga_id = run.saga.name, run.saga_id
    for failed in (end.failure, end.error):
        if failed is not None:
            shorten(failed)
    if end.state is None:
        raise LeaseLost(saga, saga_id) from end.failure
    if end.state is SagaState.SUCCEEDED:
        return SagaResult(saga, saga_id, run.results)
    if end.state is SagaState.COMPENSATED:
        raise _compensated(end.failure, saga, saga_id)
    assert end.stuck is not None
    if end.stuck.phase != "undo":
        raise SagaStuckError(saga, saga_id, end.stuck.text, end.item) from end.failure
    error = end.error or CallCancelled(f"{saga}.{end.step}.undo", 1)
    raise _undo_failed(saga, saga_id, end.step, error, end.item) from end.failure


def recorded_result(record: SagaRecord, saga_id: str, address: str) -> SagaResult:
    """The same of a record: what the saga came to before, perhaps in another process."""
    names = outline_of(record.shape).names
    if record.state is SagaState.SUCCEEDED:
        found = Results(record.saga, saga_id, names, record.log)
        return SagaResult(record.saga, saga_id, found)
    failure = failure_of(record)
    if record.state is SagaState.COMPENSATED:
        raise _compensated(failure, record.saga, saga_id)
    item, stuck = item_of(record, saga_id, address), record.stuck
    assert stuck is not None
    if stuck.phase != "undo":
        raise SagaStuckError(record.saga, saga_id, stuck.text, item.id) from failure
    error = CallCancelled(f"{record.saga}.{names[stuck.step]}.undo", 1)
    raise _undo_failed(record.saga, saga_id, names[stuck.step], error, item.id) from failure


def _compensated(failure: BaseException | None, saga: str, saga_id: str) -> BaseException:
    found = failure or CallCancelled(f"{saga} {saga_id}", 1)
    add_note(found, f"the saga {saga} {saga_id} was compensated")
    return found


def _undo_failed(
    saga: str, saga_id: str, step: str, error: BaseException, item: str | None
) -> CompensationFailedError:
    raised = CompensationFailedError(
        f"{saga} {saga_id} failed, and the compensation of step {step} failed too: a person must"
        f" decide (mainstay inbox show {item})",
        [step],
        [error],
    )
    raised.saga_id, raised.item_id = saga_id, item
    return raised
