"""The commands on the record of a run, and what its reducer replies."""

from __future__ import annotations

from typing import final

from msgspec import Struct

from mainstay.core.pipeline.ledger import LedgerEntry  # noqa: TC001  msgspec reads the annotation
from mainstay.core.pipeline.state import Halt, Quarantine, RunRecord, StageRecord  # noqa: TC001

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    Command: TypeAlias = "Begin | Take | Append | Renew | Release | Close | Review"


@final
class Begin(Struct, frozen=True, gc=False):
    """May I run this pipeline, beginning with these stages?"""

    owner: str
    pipeline: str
    run: str
    shape: str
    fingerprint: str
    given: bytes
    starts: tuple[str, ...]
    lease: float
    datasets: tuple[str, ...] = ()
    ledgers: str = ""
    council: tuple[str, ...] = ()
    keep: float | None = None
    parallel: int = 1
    tenant: str | None = None
    correlation: str | None = None
    trace: str | None = None


@final
class Take(Struct, frozen=True, gc=False):
    """May I go on with this run, which is halted or whose process is gone?"""

    owner: str
    shape: str
    lease: float
    most: int
    """Resumptions without progress that are allowed."""
    unsafe: tuple[str, ...] = ()
    """Stages that must not be begun twice."""
    by: str = ""


@final
class Append(Struct, frozen=True, gc=False):
    """Writes what became of a stage and begins the next ones; or halts or ends the run.

    If other stages are under way, the run is halted when the last of them has ended: the halt is
    written at once, and no stage is begun after it.

    Entries of the ledgers are drafts: the reducer numbers, dates and chains them.
    """

    owner: str
    epoch: int
    number: int
    lease: float
    stage: str = ""
    became: StageRecord | None = None
    starts: tuple[str, ...] = ()
    is_pending: bool = False
    """Whether other stages are under way."""
    is_over: bool = False
    halt: Halt | None = None
    quarantine: Quarantine | None = None
    retries: tuple[LedgerEntry, ...] = ()
    versions: tuple[LedgerEntry, ...] = ()
    council: tuple[str, ...] | None = None
    """Of a halt: who decides about conflicts now; None if it stays as it was."""


@final
class Renew(Struct, frozen=True, gc=False):
    """Renews the lease."""

    owner: str
    epoch: int
    lease: float


@final
class Release(Struct, frozen=True, gc=False):
    """Gives the lease up: any process may take over at once."""

    owner: str
    epoch: int


@final
class Close(Struct, frozen=True, gc=False):
    """Halts a run whose process is gone after it has written a halt, with stages under way."""


@final
class Review(Struct, frozen=True, gc=False):
    """A person has reviewed what halted a run: "release" lets it be resumed, "abandon" ends it."""

    action: str
    occasion: str
    token: str
    by: str
    why: str


# --- replies --------------------------------------------------------------------------------------


@final
class Claimed(Struct, frozen=True, gc=False):
    """The run is yours."""

    record: RunRecord


@final
class Found(Struct, frozen=True, gc=False):
    """It has ended, is halted, or was left by a process that is gone: see its state."""

    record: RunRecord


@final
class Busy(Struct, frozen=True, gc=False):
    """Another process runs it, for `retry_after` seconds at most unless it renews its lease."""

    retry_after: float


@final
class Mismatch(Struct, frozen=True, gc=False):
    """The id was used for another input."""


@final
class Written(Struct, frozen=True, gc=False):
    """It was written."""

    record: RunRecord


@final
class Done(Struct, frozen=True, gc=False):
    """The command was carried out."""

    record: RunRecord


@final
class Refusal(Struct, frozen=True, gc=False):
    """The command was not carried out, and why."""

    why: str
    record: RunRecord | None = None


@final
class Lost(Struct, frozen=True, gc=False):
    """The run is not yours any more."""


Answer = Claimed | Found | Busy | Mismatch | Written | Done | Refusal | Lost
