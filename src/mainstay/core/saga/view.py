"""A saga as people look at it: its steps and what became of each, from the record alone."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from mainstay.core.base.timestamps import stamp
from mainstay.core.saga.context import parts_of
from mainstay.core.saga.definition import outline_of
from mainstay.core.saga.flow import failure_of
from mainstay.core.saga.progress import DONE, STARTED, UNDO_FAILED, Mark
from mainstay.errors import MainstayError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.saga.progress import Entry
    from mainstay.core.saga.state import SagaRecord

_FAILURES = (Mark.STEP_FAILED, Mark.STEP_IN_DOUBT, UNDO_FAILED)


class StepView(Struct, frozen=True, kw_only=True):
    """One step of a saga.

    `status` is "pending", or what the last entry about it in the log is: "started", "done",
    "failed", "in_doubt", "skipped", "undo_started", "undo_done", "undo_failed" or "undo_skipped".
    """

    name: str
    status: str
    group: int
    pivot: bool = False
    undoable: bool = False
    attempts: int = 0
    began: float | None = None
    seconds: float | None = None
    note: str = ""


class LogEntry(Struct, frozen=True, kw_only=True):
    """One entry of the log of a saga."""

    at: float
    what: str
    step: str
    attempts: int = 0
    note: str = ""


class SagaView(Struct, frozen=True, kw_only=True):
    """A saga, as its record shows it.

    >>> from mainstay import Engine, Saga, SagaStep
    >>> with Engine(sinks=[]) as engine:
    ...     result = engine.sagas.run(Saga("transfer", [SagaStep("debit", lambda: 5)]), id="t-1")
    ...     view = engine.sagas.get("transfer", "t-1")
    >>> view.state, [(step.name, step.status) for step in view.steps]
    ('succeeded', [('debit', 'done')])
    """

    address: str
    saga: str
    id: str
    tenant_id: str | None
    version: int
    state: str
    steps: tuple[StepView, ...]
    log: tuple[LogEntry, ...]
    began: float
    ended: float | None
    recoveries: int
    cancelled: str
    failure: str
    stuck: str
    is_leased: bool
    """Whether a process runs it now."""

    def to_dict(self) -> dict[str, Any]:
        """The saga as JSON can hold it; times as text.

        >>> view = SagaView(address="a/1", saga="a", id="1", tenant_id=None, version=1, steps=(),
        ...     state="running", log=(), began=0.0, ended=None, recoveries=0, cancelled="",
        ...     failure="", stuck="", is_leased=True)
        >>> view.to_dict()["began"]
        '1970-01-01T00:00:00Z'
        """
        shown: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__}
        shown["began"] = stamp(self.began)
        shown["ended"] = None if self.ended is None else stamp(self.ended)
        shown["steps"] = [_plain(step) for step in self.steps]
        shown["log"] = [{**_plain(each), "at": stamp(each.at)} for each in self.log]
        return shown


def _plain(part: Struct) -> dict[str, Any]:
    return {name: getattr(part, name) for name in part.__struct_fields__}


def view_of(address: str, record: SagaRecord, now: float | None = None) -> SagaView:
    """The view of a record; `now` is the store's clock, by which the lease is judged."""
    saga, saga_id, tenant = parts_of(address)
    failure = _failure(record)
    return SagaView(
        address=address,
        saga=saga,
        id=saga_id,
        tenant_id=tenant,
        version=record.version,
        state=record.state.value,
        steps=tuple(_steps(record)),
        log=tuple(_logged(record)),
        began=record.began,
        ended=record.ended or None,
        recoveries=record.recoveries,
        cancelled=record.cancel,
        failure="" if failure is None else f"{type(failure).__name__}: {failure}",
        stuck="" if record.stuck is None else record.stuck.text,
        is_leased=now is not None and record.lease_until > now,
    )


def _failure(record: SagaRecord) -> Exception | None:
    try:
        return failure_of(record)
    except MainstayError as error:  # what is shown need not be rebuilt
        return error


def _steps(record: SagaRecord) -> list[StepView]:
    outline, progress = outline_of(record.shape), record.progress
    found = []
    for group, steps in enumerate(outline.groups):
        for step in steps:
            own = [entry for entry in record.log if entry.step == step]
            mark = progress.status.get(step)
            found.append(
                StepView(
                    name=outline.names[step],
                    status="pending" if mark is None else mark.value,
                    group=group,
                    pivot=step == outline.pivot,
                    undoable=step in outline.undoable,
                    attempts=sum(entry.attempts for entry in own),
                    began=next((entry.at for entry in own if entry.what is STARTED), None),
                    seconds=_seconds(own),
                    note=next((entry.note for entry in reversed(own) if entry.note), ""),
                )
            )
    return found


def _seconds(own: list[Entry]) -> float | None:
    """From the beginning of a step to its end."""
    began = [entry.at for entry in own if entry.what is STARTED]
    ended = [entry.at for entry in own if entry.what is DONE or entry.what in _FAILURES[:2]]
    return ended[-1] - began[0] if began and ended else None


def _logged(record: SagaRecord) -> list[LogEntry]:
    names = outline_of(record.shape).names
    return [
        LogEntry(
            at=each.at,
            what=each.what.value,
            step=names[each.step] if 0 <= each.step < len(names) else "",
            attempts=each.attempts,
            note=each.note,
        )
        for each in record.log
    ]
