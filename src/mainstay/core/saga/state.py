"""A saga as a store keeps it: its state, its log, its lease."""

from __future__ import annotations

from enum import Enum

import msgspec
from msgspec import Struct

from mainstay.core.base.change import read_as
from mainstay.core.base.clock_jumps import NO_TIME
from mainstay.core.saga.definition import outline_of
from mainstay.core.saga.progress import NULL, Entry, Progress


class SagaState(Enum):
    """Where a saga stands.

    >>> SagaState.COMPENSATED.is_ended, SagaState.STUCK.is_ended
    (True, False)
    """

    RUNNING = "running"
    COMPENSATING = "compensating"
    SUCCEEDED = "succeeded"
    COMPENSATED = "compensated"
    STUCK = "stuck"

    @property
    def is_ended(self) -> bool:
        """Whether nothing is left to do; a saga that is stuck waits for a person."""
        return self in ENDED


RUNNING, COMPENSATING, SUCCEEDED, COMPENSATED, STUCK = SagaState
OPEN = (RUNNING, COMPENSATING)
"""The states in which a process may run it."""
ENDED = (SUCCEEDED, COMPENSATED)
"""The states in which nothing is left to do."""


class Stuck(Struct, frozen=True, gc=False):
    """Why a saga waits for a person.

    `phase` is "forward" (a step behind the pivot), "pivot" (whose outcome is not known), "undo" or
    "definition".
    """

    phase: str
    step: int
    text: str
    state: SagaState
    """The state in which it was."""
    item: str = ""
    """Distinguishes the times at which the saga was stuck."""


class SagaRecord(Struct, frozen=True, omit_defaults=True, gc=False):
    """A saga as a store keeps it."""

    saga: str
    version: int
    shape: str
    fingerprint: str
    state: SagaState
    owner: str
    epoch: int
    began: float
    given: msgspec.Raw = NULL
    """What it was started with, as JSON."""
    log: tuple[Entry, ...] = ()
    writes: int = 0
    """Writes of the present owner, counted."""
    lease_until: float = NO_TIME
    lease: float = NO_TIME
    boot: str = ""
    uptime: float = NO_TIME
    until: float | None = None
    """The moment of the deadline."""
    recoveries: int = 0
    stalled: int = 0
    """Recoveries since the last progress."""
    cancel: str = ""
    """Why it is to be cancelled."""
    failure: msgspec.Raw = NULL
    """What failed first, as JSON."""
    stuck: Stuck | None = None
    resolved: str = ""
    """The decision of a person by which it last went on."""
    ended: float = NO_TIME
    keep: float | None = None
    tenant: str | None = None
    correlation: str | None = None
    trace: str | None = None

    @property
    def progress(self) -> Progress:
        """What the log shows."""
        return Progress(outline_of(self.shape), self.log)


encode = msgspec.json.Encoder().encode
"""The record as JSON."""
_decoder = msgspec.json.Decoder(SagaRecord)


def decode(value: bytes) -> SagaRecord:
    """The record of such a text; one that is damaged raises StoredValueError."""
    try:
        return _decoder.decode(value)
    except (ValueError, RecursionError):
        return read_as(SagaRecord, value, "saga")
