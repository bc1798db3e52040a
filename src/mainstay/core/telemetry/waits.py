"""The waits of one process, as a store keeps them for the status command in another terminal."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from mainstay.core.base.change import DROP, Change, read_as, ready

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstay.core.base.change import Decide

_KEPT = 60.0
"""Seconds after the end of the last wait from which on the record may be purged."""


class Wait(Struct, frozen=True):
    """A call between two attempts.

    Before it is written `until` is the seconds that are left, and then a moment of the store's
    clock.
    """

    operation: str
    attempt: int
    """The attempt that failed."""
    max_attempts: int
    error: str
    """The class of its failure; empty for a result that was not accepted."""
    until: float


class WaitBoard(Struct, frozen=True):
    """What one engine of a process waits for."""

    process: str = ""
    """The name of the process, by which others on the machine know whether it has ended."""
    waits: tuple[Wait, ...] = ()
    more: int = 0
    """Waits that are not listed."""


def put_up(process: str, waits: Sequence[Wait], more: int = 0) -> Decide[None]:
    """What writes the waits of a process in place of those before.

    >>> change, _ = put_up("me", [Wait("fetch", 1, 3, "OSError", 5.0)])(None, 100.0)
    >>> read_board(change.value).waits[0].until, change.expires
    (105.0, 165.0)
    """

    def decide(_value: bytes | None, now: float) -> tuple[Change, None]:
        if not waits:
            return DROP, None
        at = tuple(msgspec.structs.replace(wait, until=now + wait.until) for wait in waits)
        last = max(wait.until for wait in at)
        return Change(msgspec.json.encode(WaitBoard(process, at, more)), last + _KEPT), None

    return decide


def read_board(value: bytes) -> WaitBoard:
    """The waits of such a record; one that is damaged raises StoredValueError."""
    return read_as(WaitBoard, value, "waits of a process")


ready(WaitBoard)
