"""What becomes of an entry after an attempt, a crash, a replay or a discard.

A settlement is what a store writes. It never changes the message. Attempts were counted when the
entry was claimed; what was not attempted after all gives its attempt back.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from mainstay.core.outbox.entry import Entry, Failure, Phase
from mainstay.errors import UsageError

LONGEST_WAIT = 3600.0
"""Seconds: the longest lease, and the longest wait before an attempt. What a row has beyond that
from now was written before the clock was set back, and counts as over."""
MOST_HISTORY = 50
"""Failures that an entry keeps: the first, and the latest."""


class DeadRules(Struct, frozen=True):
    """When an entry is dead, and what becomes of those behind it.

    >>> DeadRules().max_attempts
    4
    """

    max_attempts: int = 4
    """The fourth failure is the last: three retries."""
    holds: bool = False
    """Whether the later entries of its aggregate wait until an operator has decided."""


class Settlement(Struct, frozen=True):
    """What is written."""

    id: str
    phase: Phase
    attempts: int
    crashes: int
    next_at: float | None = None
    ended_at: float | None = None
    history: tuple[Failure, ...] | None = None
    """None: as it was."""
    is_moved: bool = False
    """Whether it gets a new position, behind all others."""
    is_replay: bool = False

    @property
    def is_dead(self) -> bool:
        """Whether the entry is dead now."""
        return self.phase in (Phase.DEAD, Phase.HOLDING)

    @property
    def blocks(self) -> bool:
        """Whether later entries of its aggregate have to wait."""
        return self.phase in (Phase.WAITING, Phase.HOLDING)


def published(entry: Entry, now: float) -> Settlement:
    """The broker has acknowledged the message.

    >>> from mainstay.core.outbox.message import Message
    >>> published(Entry(message=Message(id="1", topic="t", payload=b"")), now=5.0).phase.value
    'sent'
    """
    return _settlement(entry, Phase.SENT, ended_at=now)


def failed(
    entry: Entry, failure: Failure, rules: DeadRules, *, is_final: bool, delay: float
) -> Settlement:
    """An attempt has failed: the entry waits for the next one, or is dead.

    >>> from mainstay.core.outbox.message import Message
    >>> entry = Entry(message=Message(id="1", topic="t", payload=b""), attempts=1)
    >>> down = Failure(100.0, 1, "transient", "ConnectionError: down")
    >>> failed(entry, down, DeadRules(), is_final=False, delay=2.0).next_at
    102.0
    """
    history = _noted(entry, failure)
    if is_final or entry.attempts >= rules.max_attempts:
        return _dead(entry, rules, history)
    wait = min(max(delay, 0.0), LONGEST_WAIT)
    return _settlement(entry, Phase.WAITING, next_at=failure.at + wait, history=history)


def refused(entry: Entry, now: float, delay: float) -> Settlement:
    """No attempt was made, because a circuit is open: the attempt is given back."""
    kept = _uncharged(entry)
    return _settlement(kept, Phase.WAITING, next_at=now + min(max(delay, 0.0), LONGEST_WAIT))


def given_back(entry: Entry, *, is_behind: bool) -> Settlement:
    """No attempt was made: another entry of its aggregate is before it, or the worker stops."""
    return _settlement(_uncharged(entry), Phase.PARKED if is_behind else Phase.READY)


def crashed(entry: Entry, now: float, rules: DeadRules) -> Settlement:
    """Its lease has run out: the worker ended, or was stopped for too long.

    >>> from mainstay.core.outbox.message import Message
    >>> entry = Entry(message=Message(id="1", topic="t", payload=b""), attempts=4, crashes=3)
    >>> crashed(entry, 5.0, DeadRules()).phase.value
    'dead'
    """
    text = (
        f"the worker of attempt {entry.attempts} did not report an outcome before its lease ended"
    )
    kept = replace(entry, crashes=entry.crashes + 1)
    history = _noted(entry, Failure(now, entry.attempts, "crash", text))
    if entry.attempts >= rules.max_attempts:
        return _dead(kept, rules, history)
    return _settlement(kept, Phase.READY, history=history)


def replayed(entry: Entry, now: float, by: str) -> Settlement:
    """A dead entry is published again, with the same id.

    It comes after what is in the outbox by now, unless its aggregate has waited for it.

    >>> from mainstay.core.outbox.message import Message
    >>> dead = Entry(message=Message(id="1", topic="t", payload=b""), phase=Phase.DEAD, attempts=4)
    >>> done = replayed(dead, 9.0, "ann")
    >>> done.phase.value, done.attempts, done.is_moved
    ('ready', 0, True)
    """
    _check_dead(entry, "replayed")
    history = _noted(
        entry, Failure(now, entry.attempts, "replay", f"replayed by {by or 'unnamed'}")
    )
    is_late = entry.phase is Phase.DEAD
    fresh = replace(entry, attempts=0, crashes=0)
    done = _settlement(fresh, Phase.READY, history=history)
    return replace(done, is_moved=is_late, is_replay=is_late)


def discarded(entry: Entry, now: float, by: str, why: str) -> Settlement:
    """A dead entry is never published; the row stays until it is purged."""
    _check_dead(entry, "discarded")
    text = f"discarded by {by or 'unnamed'}" + (f": {why}" if why else "")
    history = _noted(entry, Failure(now, entry.attempts, "discard", text))
    return _settlement(entry, Phase.DISCARDED, ended_at=now, history=history)


def is_over(until: float, now: float) -> bool:
    """Whether a lease or a wait is over; one that is too far in the future counts as over.

    >>> is_over(5.0, 5.0), is_over(6.0, 5.0), is_over(90_000.0, 5.0)
    (True, False, True)
    """
    return until <= now or until > now + LONGEST_WAIT


def _check_dead(entry: Entry, verb: str) -> None:
    if entry.phase not in (Phase.DEAD, Phase.HOLDING):
        raise UsageError(
            f"the entry {entry.id} is {entry.phase.value}: only a dead one can be {verb}",
            hint="`mainstay outbox dead list` shows those that are dead",
        )


def _dead(entry: Entry, rules: DeadRules, history: tuple[Failure, ...]) -> Settlement:
    phase = Phase.HOLDING if rules.holds and entry.aggregate is not None else Phase.DEAD
    return _settlement(entry, phase, history=history)


def _uncharged(entry: Entry) -> Entry:
    return replace(entry, attempts=max(0, entry.attempts - 1))


def _noted(entry: Entry, failure: Failure) -> tuple[Failure, ...]:
    history = (*entry.history, failure)
    if len(history) > MOST_HISTORY:
        history = (history[0], *history[1 - MOST_HISTORY :])
    return history


def _settlement(
    entry: Entry,
    phase: Phase,
    *,
    next_at: float | None = None,
    ended_at: float | None = None,
    history: tuple[Failure, ...] | None = None,
) -> Settlement:
    return Settlement(
        entry.id,
        phase,
        entry.attempts,
        entry.crashes,
        next_at=next_at,
        ended_at=ended_at,
        history=history,
        is_replay=entry.message.is_replay,
    )
