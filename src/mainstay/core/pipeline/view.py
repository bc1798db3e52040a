"""A run as people look at it: its stages and what became of each, from the record alone."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from mainstay.core.pipeline.ledger import LedgerEntry  # noqa: TC001  a field's type
from mainstay.core.pipeline.shape import parents_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.pipeline.state import RunRecord


class StageView(Struct, frozen=True, kw_only=True):
    """One stage of a run: `status` is "pending", "started", "done" or "failed".

    >>> StageView(name="poll").status
    'pending'
    """

    name: str
    status: str = "pending"
    after: tuple[str, ...] = ()
    attempts: int = 0
    seconds: float | None = None
    note: str = ""


class RunView(Struct, frozen=True, kw_only=True):
    """A run of a pipeline, as its record shows it.

    Attributes:
        state: "running", "halted", "succeeded" or "abandoned"; "damaged" if its record cannot be
            read, and then `why` is the reason.
        cause: why it is halted: "fail_fast", "exhausted", "refused", "unknown", "stalled" (resumed
            too often without progress), or "reviewed" once a person has released it.
        quarantine: the data sets that are held back.
        retries: its entries in the retry log.
        versions: its entries in the versioning ledger.

    >>> view = RunView(pipeline_id="etl", run_id="r-1", state="running", stages=(), began=0.0,
    ...                ended=None, resumes=0)
    >>> view.to_dict()["state"]
    'running'
    """

    pipeline_id: str
    run_id: str
    state: str
    stages: tuple[StageView, ...]
    began: float
    ended: float | None
    resumes: int
    halted_at: str = ""
    cause: str = ""
    why: str = ""
    quarantine: tuple[str, ...] = ()
    quarantine_status: str = ""
    is_leased: bool = False
    retries: tuple[LedgerEntry, ...] = ()
    versions: tuple[LedgerEntry, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


def damaged_view(address: str, why: str) -> RunView:
    """The view of a run whose record cannot be read.

    >>> damaged_view("etl/r-1", "its record is damaged").state
    'damaged'
    """
    pipeline, _, run = address.partition("/")
    return RunView(
        pipeline_id=pipeline,
        run_id=run,
        state="damaged",
        stages=(),
        began=0.0,
        ended=None,
        resumes=0,
        why=why,
    )


def view_of(record: RunRecord, lease_left: float = 0.0) -> RunView:
    """The view of a record."""
    halt, quarantine = record.halt, record.quarantine
    return RunView(
        pipeline_id=record.pipeline,
        run_id=record.run,
        state=record.state.value,
        stages=tuple([_stage(record, *each) for each in parents_of(record.shape).items()]),
        began=record.began,
        ended=record.ended or None,
        resumes=record.resumes,
        halted_at=halt.stage if halt else "",
        cause=halt.cause if halt else "",
        why=f"{halt.error_class}: {halt.text}" if halt else "",
        quarantine=quarantine.shown if quarantine else (),
        quarantine_status=quarantine.status if quarantine else "",
        is_leased=lease_left > 0.0,
        retries=record.retries,
        versions=record.versions,
    )


def _stage(record: RunRecord, name: str, after: tuple[str, ...]) -> StageView:
    found = record.stages.get(name)
    if found is None:
        return StageView(name=name, after=after)
    return StageView(
        name=name,
        status=found.status,
        after=after,
        attempts=found.attempts,
        seconds=max(0.0, found.ended - found.began) if found.ended else None,
        note=found.note,
    )
