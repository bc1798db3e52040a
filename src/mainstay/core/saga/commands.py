"""The commands on the record of a saga, and what its reducer replies."""

from __future__ import annotations

from typing import final

from msgspec import Struct

from mainstay.core.saga.progress import Entry  # noqa: TC001  msgspec reads the annotation
from mainstay.core.saga.state import SagaRecord, SagaState, Stuck  # noqa: TC001

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    Command: TypeAlias = "Begin | Take | Append | Renew | Release | Cancel | Resolve"


@final
class Begin(Struct, frozen=True, gc=False):
    """May I run this saga, beginning with these steps?"""

    owner: str
    saga: str
    version: int
    shape: str
    fingerprint: str
    given: bytes
    starts: tuple[int, ...]
    lease: float
    deadline: float | None = None
    keep: float | None = None
    tenant: str | None = None
    correlation: str | None = None
    trace: str | None = None


@final
class Take(Struct, frozen=True, gc=False):
    """May I go on with this saga, whose process is gone?"""

    owner: str
    shape: str
    lease: float


@final
class Append(Struct, frozen=True, gc=False):
    """Adds to the log; and `starts`, unless the saga is to stop before them."""

    owner: str
    epoch: int
    number: int
    entries: tuple[Entry, ...]
    lease: float
    starts: tuple[int, ...] = ()
    state: SagaState | None = None
    failure: bytes = b""
    stuck: Stuck | None = None
    stops: bool = True
    """Whether a cancellation or the deadline stops it: not behind the pivot."""


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
    is_counted: bool = True
    """Whether to take over counts as a recovery: not if only the store has failed."""


@final
class Cancel(Struct, frozen=True, gc=False):
    """Begins no further step, and undoes what was done."""

    why: str


@final
class Resolve(Struct, frozen=True, gc=False):
    """A person decides what becomes of a saga that is stuck: "retry", "skip" or "mark_done"."""

    action: str
    item: str
    token: str
    why: str
    result: bytes = b""


# --- replies --------------------------------------------------------------------------------------


@final
class Claimed(Struct, frozen=True, gc=False):
    """The saga is yours; `left` are the seconds to its deadline."""

    record: SagaRecord
    left: float | None = None


@final
class Found(Struct, frozen=True, gc=False):
    """It has ended, is stuck, or was left by a process that is gone: see its state."""

    record: SagaRecord


@final
class Busy(Struct, frozen=True, gc=False):
    """Another process runs it, for `retry_after` seconds at most unless it renews its lease."""

    retry_after: float


@final
class Mismatch(Struct, frozen=True, gc=False):
    """The id was used for another input."""


@final
class Written(Struct, frozen=True, gc=False):
    """It was added. `left` are the seconds to the deadline, `stop` why nothing was started.

    `record` is what the store has now.
    """

    left: float | None = None
    stop: str = ""
    record: SagaRecord | None = None


@final
class Done(Struct, frozen=True, gc=False):
    """The command was carried out."""


@final
class Refusal(Struct, frozen=True, gc=False):
    """The command was not carried out, and why."""

    why: str


@final
class Lost(Struct, frozen=True, gc=False):
    """The saga is not yours any more."""


Answer = Claimed | Found | Busy | Mismatch | Written | Done | Refusal | Lost
