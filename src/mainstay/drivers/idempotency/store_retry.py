"""A store that is unavailable: how often, and for how long, a step of a keyed call is retried.

The steps that begin and end a call are tried three times within a fifth of a second, as a lost
reply needs. `store_wait` adds as many seconds: the pauses double up to a second, and are spread
between callers. No try starts when the call's deadline has passed, and each step ends at that
moment, in the store. A step may be taken twice: a second claim of one owner finds its own.

If the deadline has passed, the error of the store is raised, with a note: nothing was cut but the
wait for the store. What the call was to write is offered again without it (late_steps.py).

On a connection of the caller's a step is tried once: a transaction in which a statement has failed
takes no other on PostgreSQL, and a lock was waited for already.

If a claim was made without a read before it and the store does not take it at once, the record is
read after all: a read needs no lock, so a call that has ended is replayed even while nothing can be
written.

The retries are one generator, StoreFlow, which two small drivers run: `_perform` and `_aperform`.
It is created only if a step fails: the first try is made in driver.py.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.base.deadline import NEVER
from mainstay.core.idempotency.record import Begin, Release, Renew
from mainstay.deadline import moment
from mainstay.drivers.idempotency.keyed_call import SPACE
from mainstay.errors import CallCancelled, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import TypeAlias

    from mainstay.core.base.types import Answer as Reply
    from mainstay.core.idempotency.record import Answer, Command
    from mainstay.drivers.idempotency.keyed_call import KeyedCall

    StoreFlow: TypeAlias = Generator["float | Command | None", Reply, "Answer | Exception"]
    """Asks for a wait of some seconds, for a command on the record, or, by None, for a read of it.

    What a request raises is thrown into the generator."""

_TRIES = 3
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
_POLL = 0.02
"""Seconds between two looks at a cancel event while an async call waits."""
_LAST = 0.08
"""Seconds before the deadline at which the last try starts, so that a healthy store can answer."""


# --- two drivers ----------------------------------------------------------------------------------


def after(this: KeyedCall, command: Command, error: Exception) -> Answer | Exception:
    """The answer after a try that failed; a claim raises, and what ends a call returns why."""
    return _perform(this, _stepped(this, command, error))


async def aafter(this: KeyedCall, command: Command, error: Exception) -> Answer | Exception:
    """The same, awaited."""
    return await _aperform(this, _stepped(this, command, error))


def offer(this: KeyedCall, command: Command) -> Answer | Exception:
    """Offers a command until the store takes it, or the time for it is over."""
    try:
        return this.ask(command)
    except StoreUnavailable as error:
        return _perform(this, _offered(this, command, error))


async def aoffer(this: KeyedCall, command: Command) -> Answer | Exception:
    """The same, awaited."""
    try:
        return await this.aask(command)
    except StoreUnavailable as error:
        return await _aperform(this, _offered(this, command, error))


def _perform(this: KeyedCall, flow: StoreFlow) -> Answer | Exception:
    """Does what the generator asks for, in the caller's thread."""
    resume: Callable[[Reply], float | Command | None] = flow.send
    answer: Reply = None
    try:
        while True:
            request = resume(answer)
            resume = flow.send
            try:
                if request is None:
                    answer = this.records.store.read(SPACE, this.address)
                elif isinstance(request, float):
                    pause(this, request)
                    answer = None
                else:
                    this.sent = clock.steady()
                    answer = this.ask(request)
            except Exception as error:
                resume, answer = flow.throw, error
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        answer = None  # or its traceback, which holds this frame, would be a cycle


async def _aperform(this: KeyedCall, flow: StoreFlow) -> Answer | Exception:
    """Does what the generator asks for, in an event loop."""
    resume: Callable[[Reply], float | Command | None] = flow.send
    answer: Reply = None
    try:
        while True:
            request = resume(answer)
            resume = flow.send
            try:
                if request is None:
                    answer = await this.records.store.aread(SPACE, this.address)
                elif isinstance(request, float):
                    await apause(this, request)
                    answer = None
                else:
                    this.sent = clock.steady()
                    answer = await this.aask(request)
            except Exception as error:
                resume, answer = flow.throw, error
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        answer = None


def pause(this: KeyedCall, seconds: float) -> None:
    """Waits; a cancel event ends it."""
    if clock.current.sleep(seconds, this.cancel):
        raise this.cancelled()
    this.sent = clock.steady()  # what is sent next is sent from now on


async def apause(this: KeyedCall, seconds: float) -> None:
    """Waits; a cancel event wakes no event loop, so it is looked at often enough."""
    from mainstay.drivers.call.aio import current_sleep

    end, left = clock.current.monotonic() + seconds, seconds
    while True:
        if this.cancel is not None and this.cancel.is_set():
            raise this.cancelled()
        await current_sleep()(left if this.cancel is None else min(left, _POLL))
        this.sent = clock.steady()
        left = end - clock.current.monotonic()
        if left <= 0.0:
            return


# --- one generator --------------------------------------------------------------------------------


def _stepped(this: KeyedCall, command: Command, error: Exception) -> StoreFlow:
    """After a first try that has failed: reads the record if that may help, then tries again."""
    try:
        if not isinstance(error, StoreUnavailable):
            raise error
        if this.is_unread and type(command) is Begin:
            with suppress(StoreUnavailable):
                record, now = yield None
                replay = this.replayed(record, now)
                if replay is not None:
                    return replay
        return (yield from _offered(this, command, error))
    except Exception as last:
        if isinstance(last, StoreUnavailable) and note_deadline(last, this.started):
            this.cut_off(command)
        if type(command) is Begin:
            this.cut_off(command, is_repeated=False)  # a try may have been taken, its reply lost
            raise
        return last


def _offered(this: KeyedCall, command: Command, error: StoreUnavailable) -> StoreFlow:
    """Waits and tries again, as long as there are tries or there is time."""
    retries = _Retries(this, command)
    while True:
        try:
            yield retries.delay(error)
        except CallCancelled:
            if type(command) is Begin:
                raise
            raise error from None  # the call has run: what counts is that this is not recorded
        try:
            answer: Answer = yield command
        except StoreUnavailable as again:
            error = again
        else:
            return answer


class _Retries:
    """The tries of one step, from its first failure on."""

    __slots__ = ("_end", "_pause", "_since", "_spread", "_tries", "_until")

    def __init__(self, this: KeyedCall, command: Command) -> None:
        self._since = clock.current.monotonic()
        self._until = self._since + _patience(this, command)
        self._end = moment()
        """When the deadline of the call has passed."""
        is_once = this.records.is_bound or type(command) in (Release, Renew)
        self._tries = 1 if is_once else _TRIES
        self._pause = _FIRST_PAUSE
        self._spread = 0.5 + int(this.call.owner[:4], 16) / 0x20000

    def delay(self, error: StoreUnavailable) -> float:
        """Seconds until the next try; raises the error if there is none."""
        self._tries -= 1
        now, seconds = clock.current.monotonic(), _FIRST_PAUSE
        if self._until > now:
            seconds = min(self._pause * self._spread, self._until - now)
            self._pause = min(self._pause * 2.0, _LONGEST_PAUSE)
        elif self._tries <= 0:
            self._note_wait(error)
            raise error
        room = self._end - _LAST - now
        if room <= 0.0:
            self._note_wait(error)
            raise error
        return min(seconds, room)

    def _note_wait(self, error: StoreUnavailable) -> None:
        waited = clock.current.monotonic() - self._since
        if self._until > self._since:
            error.add_note(f"waited {waited:.3g} s for the store, as store_wait and deadline allow")


def _patience(this: KeyedCall, command: Command) -> float:
    """The seconds that a step may wait: none to give up a claim or within a transaction."""
    if type(command) is Release or this.records.is_bound:
        return 0.0
    return this.store_wait


def note_deadline(error: StoreUnavailable, started: float) -> bool:
    """Whether the deadline leaves no time for a further try; a note explains it then."""
    now, end = clock.current.monotonic(), moment()
    if end == NEVER or now + _LAST < end:
        return False
    error.add_note(
        f"given up {now - started:.3g} s after the call began: its deadline leaves the store no"
        " more time"
    )
    return True
