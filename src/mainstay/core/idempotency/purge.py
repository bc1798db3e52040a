"""Whose turn it is to purge expired records: of all processes on a store, one at a time.

One record has the time of the last purge. The process that finds it long enough ago writes the
present time and purges; the others find that, and do nothing. No process holds anything: if one
ends in the middle, the next one goes on after the usual time.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from mainstay.core.base.change import KEEP, Change, ready

TURN = "turn"
"""The key of the one record."""


class LastPurge(Struct, frozen=True):
    """When expired records were last purged, on the store's clock."""

    at: float


def is_due(value: bytes | None, every: float, now: float) -> bool:
    """Whether the last purge is long enough ago, or lies ahead because the clock was set back.

    >>> is_due(None, 60.0, now=100.0), is_due(b'{"at":90.0}', 60.0, now=100.0)
    (True, False)
    >>> is_due(b'{"at":900.0}', 60.0, now=100.0)
    True
    """
    if value is None:
        return True
    try:
        last = msgspec.json.decode(value, type=LastPurge).at
    except (ValueError, RecursionError):  # it is damaged: a purge writes it anew
        return True
    return not last <= now < last + every


def take_turn(value: bytes | None, every: float, now: float) -> tuple[Change, bool]:
    """Takes the turn if it is due; whether it was.

    >>> change, is_mine = take_turn(None, 60.0, now=100.0)
    >>> is_mine, take_turn(change.value, 60.0, now=101.0)[1]
    (True, False)
    """
    if not is_due(value, every, now):
        return KEEP, False
    return Change(msgspec.json.encode(LastPurge(now))), True


ready(LastPurge)
