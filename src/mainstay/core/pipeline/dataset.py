"""What a store knows of a data set: quarantine, its strongest masking, calls while restricted.

It outlives runs and processes, so that a re-run finds it. Masking only grows. A restricted data set
is given to the stages of one run of a pipeline, to each once: a second call, in this run or a later
one, is a matter for the council, also under another name of the stage. A stage that has masked it
masks it in every later run as well.
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

    Command: TypeAlias = "Hold | Free | Admit"


class DatasetRecord(Struct, frozen=True, omit_defaults=True):
    """What is known of one data set."""

    held: dict[str, str] = {}
    """The addresses of the runs that hold it in quarantine, and why."""
    masking: int = 0
    used: dict[str, str] = {}
    """Stages that were given it while it was restricted (`etl/load`), and the call of each."""
    masked_by: tuple[str, ...] = ()
    """Stages that have masked it."""


@final
class Hold(Struct, frozen=True, gc=False):
    """A run puts it into quarantine."""

    address: str
    why: str


@final
class Free(Struct, frozen=True, gc=False):
    """A person has released it: the run does not hold it any more."""

    address: str
    is_council: bool = False
    """Whether the council has: then no run holds it any more, and the stages of the pipeline may be
    given it once more if it is restricted."""


@final
class Admit(Struct, frozen=True, gc=False):
    """A stage is about to be given it: may it, and what is to be remembered of that?"""

    stage: str
    """The pipeline and the stage: `etl/load`."""
    call: str
    """This very attempt, which begins with its run."""
    is_restricted: bool = False
    masking: int | None = None
    """The masking with which the stage leaves it; None if it does not mask."""


def reduce(value: bytes | None, command: Command, _now: float = 0.0) -> tuple[Change, str]:
    """What a command does to the record of a data set; why it is refused, or "".

    >>> change, why = reduce(None, Admit("etl/mask", "r-1", masking=3))
    >>> reduce(change.value, Admit("etl/mask", "r-2", masking=2))[1]
    'it is masked at level 3, and level 2 would weaken that'
    """
    record = DatasetRecord() if value is None else decode(value)
    if type(command) is Hold:
        return _written(record, held={**record.held, command.address: command.why}), ""
    if type(command) is Free:
        kept = () if command.is_council else record.held.items()
        held = {at: why for at, why in kept if at != command.address}
        pipeline = _pipeline(command.address)
        used = {
            at: call
            for at, call in record.used.items()
            if not command.is_council or _pipeline(at) != pipeline
        }
        return _written(record, held=held, used=used), ""
    return _admit(record, command)


def _admit(record: DatasetRecord, command: Admit) -> tuple[Change, str]:
    if record.held:
        address, why = next(iter(record.held.items()))
        return KEEP, f"it is in quarantine since run {address}: {why}"
    if command.is_restricted and (before := _before(record, command)):
        return KEEP, f"it is restricted, and stage {before}"
    masks, masked_by = command.masking is not None, record.masked_by
    level = record.masking if command.masking is None else command.masking
    if level < record.masking:
        text = f"it is masked at level {record.masking}, and level {level} would weaken that"
        return KEEP, text
    if not masks and command.stage in masked_by:
        return KEEP, f"it is masked by stage {command.stage}, which does not mask it any more"
    if masks and command.stage not in masked_by:
        masked_by = (*masked_by, command.stage)
    used = {**record.used, command.stage: command.call} if command.is_restricted else record.used
    return _written(record, masking=level, used=used, masked_by=masked_by), ""


def _before(record: DatasetRecord, command: Admit) -> str:
    """The stage that was given it before this call; "" if none was.

    Of another run any stage of the pipeline counts: one that was renamed is the same to the data.
    """
    pipeline, run = _pipeline(command.stage), _run(command.call)
    for stage, call in record.used.items():
        is_earlier = stage == command.stage and call != command.call
        if is_earlier or (_pipeline(stage) == pipeline and _run(call) != run):
            return f"{stage} was given it before ({call})"
    return ""


def _pipeline(stage: str) -> str:
    return stage.partition("/")[0]


def _run(call: str) -> str:
    """The run of an attempt: `<run>.<epoch>.<attempt>.<owner>`."""
    return call.rsplit(".", 3)[0]


def _written(record: DatasetRecord, **fields: object) -> Change:
    kept = replace(record, **fields)
    if kept == record:
        return KEEP
    return DROP if kept == DatasetRecord() else Change(msgspec.json.encode(kept))


def decode(value: bytes) -> DatasetRecord:
    """The record of such a text; one that is damaged raises StoredValueError."""
    return read_as(DatasetRecord, value, "data set")


ready(DatasetRecord)
