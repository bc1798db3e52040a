"""What a store knows of a data set: quarantine, its strongest masking, calls while restricted.

It outlives runs and processes, so that a re-run finds it. Masking only grows. A restricted data set
is given to a stage once: a second call, in this run or a later one, is a matter for the council.
"""

from __future__ import annotations

from typing import final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainstay.core.base.change import DROP, KEEP, Change, read_as, ready

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    Command: TypeAlias = "Hold | Free | Mask | Use"


class DatasetRecord(Struct, frozen=True, omit_defaults=True):
    """What is known of one data set."""

    held: dict[str, str] = {}
    """The addresses of the runs that hold it in quarantine, and why."""
    masking: int = 0
    used: dict[str, str] = {}
    """Stages that were given it while it was restricted (`etl/load`), and the call of each."""


@final
class Hold(Struct, frozen=True, gc=False):
    """A run puts it into quarantine."""

    address: str
    why: str


@final
class Free(Struct, frozen=True, gc=False):
    """A person has released it: the run does not hold it any more, and its stages may use it."""

    address: str


@final
class Mask(Struct, frozen=True, gc=False):
    """A stage is about to write it with this masking."""

    level: int


@final
class Use(Struct, frozen=True, gc=False):
    """A stage is about to be given it, although it is restricted."""

    stage: str
    call: str


def reduce(value: bytes | None, command: Command, _now: float = 0.0) -> tuple[Change, str]:
    """What a command does to the record of a data set; why it is refused, or "".

    >>> change, why = reduce(None, Mask(3))
    >>> reduce(change.value, Mask(2))[1]
    'it is masked at level 3, and level 2 would weaken that'
    """
    record = DatasetRecord() if value is None else decode(value)
    if type(command) is Hold:
        return _written(record, held={**record.held, command.address: command.why}), ""
    if type(command) is Free:
        held = {at: why for at, why in record.held.items() if at != command.address}
        pipeline = command.address.partition("/")[0]
        used = {at: it for at, it in record.used.items() if at.partition("/")[0] != pipeline}
        return _written(record, held=held, used=used), ""
    if type(command) is Mask:
        if command.level < record.masking:
            text = f"it is masked at level {record.masking}, and level {command.level} would weaken"
            return KEEP, f"{text} that"
        return _written(record, masking=command.level), ""
    before = record.used.get(command.stage, command.call)
    if before != command.call:
        return KEEP, f"it is restricted, and stage {command.stage} was given it before ({before})"
    return _written(record, used={**record.used, command.stage: command.call}), ""


def _written(record: DatasetRecord, **fields: object) -> Change:
    kept = replace(record, **fields)
    if kept == record:
        return KEEP
    return DROP if kept == DatasetRecord() else Change(msgspec.json.encode(kept))


def decode(value: bytes) -> DatasetRecord:
    """The record of such a text; one that is damaged raises StoredValueError."""
    return read_as(DatasetRecord, value, "data set")


ready(DatasetRecord)
