"""The idempotency record: a reducer over commands, run by a store as one step on its own clock.

    absent -> RUNNING -> SUCCEEDED | FAILED | UNKNOWN
    UNKNOWN -> SUCCEEDED | FAILED | absent, as a person decides

A call that begins gets the record with an owner of its own and the next epoch; every later command
carries both, and one that does not match has lost its lease. A command may arrive twice, if its
reply was lost: the second has the same answer and changes nothing.

A lease and an expiry are stored with their lengths, because clocks are set: what has more left than
its whole length begins again from now. The rules are in core/base/clock_jumps.py.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainstay.core.base.change import DROP, KEEP, Change, read_as
from mainstay.core.base.clock_jumps import NO_TIME, NO_VIEW, TOLERANCE, moved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from mainstay.core.base.clock_jumps import ClockView

    Command: TypeAlias = "Begin | Renew | Settle | Release | Doubt | Resolve | Forget"


class RecordState(Enum):
    """Where a keyed call stands.

    >>> RecordState.SUCCEEDED.is_terminal, RecordState.UNKNOWN.is_terminal
    (True, False)
    """

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"

    @property
    def is_terminal(self) -> bool:
        """Whether the outcome is recorded; an unknown one waits for a person, and never expires."""
        return self in _TERMINAL


_RUNNING, _SUCCEEDED, _FAILED, _UNKNOWN = RecordState  # by name: a member by its class is slow
_TERMINAL = (_SUCCEEDED, _FAILED)


class Record(Struct, frozen=True, omit_defaults=True, gc=False):
    """A keyed call as a store keeps it."""

    state: RecordState
    fingerprint: str
    owner: str
    epoch: int
    attempts: int
    started: float
    lease_until: float = NO_TIME
    outcome: msgspec.Raw = msgspec.Raw(b"null")
    expires: float | None = None
    metadata: str = ""
    """What the caller wants kept beside the outcome, as JSON; empty for nothing."""
    resolved: str = ""
    """The item of the inbox by which a person resolved it."""
    lease: float = NO_TIME
    """The length of the lease, while it runs; a record of before there was one has none."""
    kept_for: float = NO_TIME
    """Seconds from the outcome to its expiry, likewise."""
    boot: str = ""
    uptime: float = NO_TIME
    """When the lease or the outcome was written, by a clock that is never set: see ClockView."""


# --- commands -------------------------------------------------------------------------------------


@final
class Begin(Struct, frozen=True, gc=False):
    """May I run this? The attempt is counted with the claim, so that a crash counts too."""

    owner: str
    fingerprint: str
    lease: float
    max_attempts: int
    on_crash: str = "retry"


@final
class Renew(Struct, frozen=True, gc=False):
    """Renews the lease; `attempts` is the number of the attempt that is about to start, if one is.

    The record then has counted at least as many: a command that arrives twice counts once.
    """

    owner: str
    epoch: int
    lease: float
    attempts: int = 0


@final
class Settle(Struct, frozen=True, gc=False):
    """It ended, and this is the outcome to replay."""

    owner: str
    epoch: int
    state: RecordState
    outcome: bytes
    ttl: float | None
    metadata: str = ""


@final
class Release(Struct, frozen=True, gc=False):
    """It failed in a way that may be tried again: as if it had not begun.

    Without an epoch, from a call that was cut off before it received the reply to its Begin. That
    Begin may still be on its way to a store which decides first and then writes if the record is
    unchanged: with `fence`, the record is changed in any case in which that write would succeed.
    """

    owner: str
    epoch: int | None = None
    fence: bool = False


@final
class Doubt(Struct, frozen=True, gc=False):
    """Whether it was applied is unknown."""

    owner: str
    epoch: int


@final
class Resolve(Struct, frozen=True):
    """A person resolves it: it ended so; or, without a state, it may run again.

    It is about the claim that the item was raised for, and about no other: without an owner, about
    whichever is in doubt.
    """

    item: str
    owner: str = ""
    epoch: int = 0
    state: RecordState | None = None
    outcome: bytes = b"null"
    ttl: float | None = None


@final
class Forget(Struct, frozen=True):
    """A person lets an unfinished call begin anew: its attempts are forgotten."""


# --- replies --------------------------------------------------------------------------------------


@final
class Run(Struct, frozen=True, gc=False):
    """The record is yours; `attempts` counts the present one."""

    epoch: int
    attempts: int


@final
class Replay(Struct, frozen=True, gc=False):
    """It ended before; this is its outcome."""

    state: RecordState
    outcome: bytes


@final
class Busy(Struct, frozen=True, gc=False):
    """Another call holds the lease, for `retry_after` seconds at most unless it renews."""

    retry_after: float


@final
class Mismatch(Struct, frozen=True, gc=False):
    """The key was used for another payload."""

    recorded: str


@final
class Unknown(Struct, frozen=True, gc=False):
    """Whether it was applied is unknown; `is_new` if that was found just now."""

    attempts: int
    reason: str
    is_new: bool = False
    owner: str = ""
    epoch: int = 0
    """Whose claim is in doubt."""


@final
class Done(Struct, frozen=True, gc=False):
    """The command was carried out."""


@final
class Lost(Struct, frozen=True, gc=False):
    """The record is not yours any more."""


Answer = Run | Replay | Busy | Mismatch | Unknown | Done | Lost
_LOST, _DONE, _FIRST = Lost(), Done(), Run(1, 1)
_ON_ITS_WAY = 60.0
"""Seconds after which no write of a caller that has left is carried out any more."""


def reduce(
    value: bytes | None, command: Command, now: float, view: ClockView = NO_VIEW
) -> tuple[Change, Answer]:
    """What a command does to a record, and its answer; `view` is what is known of the clock.

    >>> change, answer = reduce(None, Begin("me", "abc", lease=30.0, max_attempts=3), now=0.0)
    >>> answer
    Run(epoch=1, attempts=1)
    >>> reduce(change.value, Begin("you", "abc", lease=30.0, max_attempts=3), now=10.0)[1]
    Busy(retry_after=20.0)
    """
    record = None
    if value is not None:
        try:
            record = decode(value)
        except (ValueError, RecursionError):
            record = read_as(Record, value, "call")  # which raises that it is damaged
    if type(command) is Begin:
        return _begin(record, command, now, view)
    if type(command) is Resolve:
        return _resolve(record, command, now, view)
    if type(command) is Forget:
        return _forget(record, now, view)
    if record is None or record.owner != command.owner:
        is_fence = type(command) is Release and command.fence
        return (_fence(record, command.owner, now, view) if is_fence else KEEP), _LOST
    if command.epoch is not None and record.epoch != command.epoch:
        return KEEP, _LOST
    if record.state is not _RUNNING:  # if it has ended so, the reply to the first was lost
        return KEEP, _DONE if record.state is _end_of(command) else _LOST
    if type(command) is Release:
        return (_mark(command.owner, now) if command.fence else DROP), _DONE
    return _go_on(record, command, now, view)


def _begin(
    record: Record | None, command: Begin, now: float, view: ClockView
) -> tuple[Change, Answer]:
    if record is None or is_expired(record, now, view):
        record = Record(
            _RUNNING, command.fingerprint, command.owner, 1, 1, now, now + command.lease,
            lease=command.lease, boot=view.boot, uptime=view.uptime,
        )  # fmt: skip
        return Change(encode(record)), _FIRST
    if record.fingerprint != command.fingerprint:
        return KEEP, Mismatch(record.fingerprint)
    if record.state.is_terminal:
        return _kept_anew(record, now), Replay(record.state, bytes(record.outcome))
    if record.state is _UNKNOWN:
        why = "it was found so before"
        return KEEP, Unknown(record.attempts, why, owner=record.owner, epoch=record.epoch)
    if record.owner == command.owner:
        return _again(record, command, now, view)  # the reply to the first was lost
    change, left = lease_of(record, now, command.lease, view)
    if left > 0.0:
        return change, Busy(left)
    if command.on_crash != "retry":
        return _doubt(record, "the process that ran it is gone")
    if record.attempts >= command.max_attempts:
        return _doubt(record, f"it was left unfinished {record.attempts} times")
    return _run(record, command, now, view)


# --- what is left of a time, on a clock that may have been set ------------------------------------


def lease_of(
    record: Record, now: float, usual: float, view: ClockView = NO_VIEW
) -> tuple[Change, float]:
    """The seconds that are left of a lease, never more than its length; `usual` if it has none.

    If it lies further ahead than its length, the record is changed so that it ends after that. The
    owner of a record without a length may have chosen a longer one than is usual here: no longer
    than from the start of the call to the end of its lease.
    """
    length = record.lease or usual
    most = record.lease or max(usual, record.lease_until - record.started)
    if view.is_same_boot(record.boot, record.uptime):
        left = length - (view.uptime - record.uptime)
    else:
        left = min(most, moved(record.lease_until, length, view.jumps) - now)
    if left <= 0.0 or record.lease_until - now <= most + TOLERANCE:
        return KEEP, left
    return _written(replace(record, lease_until=now + left, lease=most)), left


def is_expired(record: Record, now: float, view: ClockView) -> bool:
    """Whether the outcome's time is over, so that the next call begins anew."""
    if record.expires is None or not record.state.is_terminal:
        return False
    if record.kept_for and view.is_same_boot(record.boot, record.uptime):
        return view.uptime - record.uptime >= record.kept_for
    if not record.kept_for:
        return record.expires <= now
    return moved(record.expires, record.kept_for, view.jumps) <= now


def _kept_anew(record: Record, now: float) -> Change:
    """The same for an outcome that would be kept for longer than its time."""
    most = record.kept_for or math.inf
    if record.expires is None or record.expires - now <= most + TOLERANCE:
        return KEEP
    return _written(replace(record, expires=now + most))


def _end_of(command: Command) -> RecordState | None:
    """The state in which a command leaves the record, if it ends the call."""
    if type(command) is Settle:
        return command.state
    return _UNKNOWN if type(command) is Doubt else None


def _again(record: Record, command: Begin, now: float, view: ClockView) -> tuple[Change, Answer]:
    """The same claim, with a whole lease: part of the first may have passed by now."""
    record = _leased(record, command.lease, now, view)
    return _written(record), Run(record.epoch, record.attempts)


def _leased(record: Record, lease: float, now: float, view: ClockView) -> Record:
    """The record with a whole lease from now on."""
    return replace(record, lease_until=now + lease, lease=lease, boot=view.boot, uptime=view.uptime)


def _run(record: Record, command: Begin, now: float, view: ClockView) -> tuple[Change, Answer]:
    epoch, attempts = record.epoch + 1, record.attempts + 1
    record = replace(record, owner=command.owner, epoch=epoch, attempts=attempts)
    return _written(_leased(record, command.lease, now, view)), Run(epoch, attempts)


def _doubt(record: Record, reason: str) -> tuple[Change, Answer]:
    change = _written(replace(record, state=_UNKNOWN))
    answer = Unknown(record.attempts, reason, True, record.owner, record.epoch)
    return change, answer


def _fence(record: Record | None, owner: str, now: float, view: ClockView) -> Change:
    """Changes the record if a claim that was decided on it would still be written."""
    if record is None or is_expired(record, now, view):
        return _mark(owner, now)
    if record.state is not _RUNNING:
        return KEEP
    change, left = lease_of(record, now, record.lease_until - now, view)
    return _written(record) if left <= 0.0 else change


def _mark(owner: str, now: float) -> Change:
    """In place of an absent record: a failure that has long expired, so that any call may begin.

    It is purged once no claim can be on its way any more.
    """
    return Change(encode(Record(_FAILED, "", owner, 0, 0, now, expires=0.0)), now + _ON_ITS_WAY)


def _resolve(
    record: Record | None, command: Resolve, now: float, view: ClockView
) -> tuple[Change, Answer]:
    """Applies the decision of a person, unless the record has changed since."""
    if record is None:
        return KEEP, _DONE if command.state is None else _LOST
    if command.owner and (record.owner, record.epoch) != (command.owner, command.epoch):
        return KEEP, _LOST
    if record.resolved == command.item and record.state is command.state:
        return KEEP, _DONE  # the reply to the first was lost
    if record.state is not _UNKNOWN:
        return KEEP, _LOST
    if command.state is None:
        return DROP, _DONE
    ended = replace(
        record,
        state=command.state,
        outcome=msgspec.Raw(command.outcome),
        resolved=command.item,
        expires=None if command.ttl is None else now + command.ttl,
        kept_for=command.ttl or NO_TIME,
        boot=view.boot,
        uptime=view.uptime,
        lease=NO_TIME,
    )
    return _written(ended), _DONE


def _forget(record: Record | None, now: float, view: ClockView) -> tuple[Change, Answer]:
    if record is None:
        return KEEP, _DONE
    if record.state is not _RUNNING:
        return KEEP, _LOST
    change, left = lease_of(record, now, record.lease_until - now, view)
    return (DROP, _DONE) if left <= 0.0 else (change, _LOST)


def _go_on(
    record: Record, command: Renew | Settle | Doubt, now: float, view: ClockView
) -> tuple[Change, Answer]:
    if type(command) is Renew:
        record = replace(record, attempts=max(record.attempts, command.attempts))
        return _written(_leased(record, command.lease, now, view)), _DONE
    if type(command) is Doubt:
        return _written(replace(record, state=_UNKNOWN)), _DONE
    expires = None if command.ttl is None else now + command.ttl
    ended = replace(
        record,
        state=command.state,
        outcome=msgspec.Raw(command.outcome),
        metadata=command.metadata,
        expires=expires,
        kept_for=command.ttl or NO_TIME,
        boot=view.boot,
        uptime=view.uptime,
        lease_until=NO_TIME,
        lease=NO_TIME,
    )
    return Change(encode(ended), expires), _DONE


def _written(record: Record) -> Change:
    return Change(encode(record), record.expires if record.state.is_terminal else None)


encode = msgspec.json.Encoder().encode
"""The record as JSON."""
decode = msgspec.json.Decoder(Record).decode
"""The record of such a text."""


def glimpse(value: bytes, fingerprint: str, now: float) -> Replay | None:
    """What a plain reading of a record is enough for: the outcome of a call that has ended."""
    try:
        seen = _glimpser.decode(value)
    except (ValueError, RecursionError):
        seen = read_as(_Glimpse, value, "call")
    if seen.fingerprint != fingerprint or not seen.state.is_terminal:
        return None
    if seen.expires is not None and not 0.0 < seen.expires - now <= seen.kept_for + TOLERANCE:
        return None  # it has expired, or the clock was set: the whole record decides
    return Replay(seen.state, bytes(seen.outcome))


class _Glimpse(Struct, frozen=True):
    """As much of a record as a replay needs; msgspec skips the rest."""

    state: RecordState
    fingerprint: str
    outcome: msgspec.Raw = msgspec.Raw(b"null")
    expires: float | None = None
    kept_for: float = math.inf


_glimpser = msgspec.json.Decoder(_Glimpse)
