"""A replayed hit in one reading: what a record of a call that has returned gives the next one.

Replays are many, and this is all that most of them need of a record. Anything else (a
failure, another payload, a record that has expired, an outcome that cannot be read) is a MISS here,
and goes the way of `record` and `outcome`.
"""

from __future__ import annotations

import math

import msgspec
from msgspec import UNSET, Struct, UnsetType

from mainstay.core.base.clock_jumps import TOLERANCE
from mainstay.core.base.types import Json, UserValue  # noqa: TC001  msgspec reads annotations
from mainstay.core.codec.decode import read
from mainstay.core.codec.encode import NESTED
from mainstay.core.codec.outcome import VERSION

MISS = object()
"""The record needs more than the fast path."""


def hit(record: bytes, fingerprint: str, now: float) -> UserValue:
    """The value that the recorded call returned, or MISS.

    >>> from mainstay.core.idempotency.record import Begin, RecordState, Settle, reduce
    >>> claim, _ = reduce(None, Begin("me", "abc", lease=30.0, max_attempts=3), now=0.0)
    >>> hit(claim.value, "abc", now=1.0) is MISS
    True
    >>> settle = Settle("me", 1, RecordState.SUCCEEDED, b'{"v":1,"value":7}', ttl=None)
    >>> done, _ = reduce(claim.value, settle, now=1.0)
    >>> hit(done.value, "abc", now=2.0)
    7
    """
    try:
        seen = _decode(record)
        outcome, expires = seen.outcome, seen.expires
        if seen.fingerprint != fingerprint or seen.state != "succeeded" or outcome.v != VERSION:
            return MISS
        if outcome.value is UNSET:
            return MISS
        if expires is not None and not 0.0 < expires - now <= seen.kept_for + TOLERANCE:
            return MISS  # it has expired, or the clock was set
        value = outcome.value
        return read(value) if type(value) in NESTED else value
    except Exception:  # of whatever shape: the full reading raises what is wrong
        return MISS


class _Outcome(Struct, frozen=True):
    """As much of an outcome as there is of a plain value."""

    v: int = 0
    value: Json | UnsetType = UNSET


class _Seen(Struct, frozen=True):
    """As much of a record as a hit needs; msgspec skips the rest."""

    state: str
    fingerprint: str
    outcome: _Outcome = _Outcome()
    expires: float | None = None
    kept_for: float = math.inf


_decode = msgspec.json.Decoder(_Seen).decode
