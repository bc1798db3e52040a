"""A store that is away: how often, and for how long, a step of a keyed call is offered to it.

The steps that begin and end a call are tried three times within a fifth of a second, as a reply
that was lost needs. `store_wait` gives them as many seconds more: the pauses double up to a second,
are spread between callers, and never pass the call's deadline. A step may come twice: a second
claim of one owner finds its own.

A claim that nobody glanced before, and that the store does not take at once, is read after all: to
read needs no lock, and a call that has ended is replayed also while nobody can write.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.idempotency.record import Begin, Release, Renew
from mainstay.core.retry.deadline import NEVER
from mainstay.deadline import remaining
from mainstay.drivers.idempotency.keyed_call import SPACE
from mainstay.errors import CallCancelled, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from mainstay.core.idempotency.record import Replay
    from mainstay.drivers.idempotency.keyed_call import KeyedCall

_TRIES = 3
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
_GLANCE = 0.02
"""Seconds between two looks at a cancel event while an async call waits."""


def step(this: KeyedCall, command: Any) -> Any:
    """The store's answer; a call that has run hears of its trouble, one that has not raises it."""
    try:
        try:  # nearly always at once
            return this.ask(command)
        except StoreUnavailable as error:
            return _seen(this, command) or _offer_again(this, command, error)
    except Exception as error:
        if type(command) is Begin:
            raise
        return error


async def astep(this: KeyedCall, command: Any) -> Any:
    """The same, awaited; one who is cut off here may have been heard by the store."""
    try:
        try:  # nearly always at once: without a further coroutine
            return await this.aask(command)
        except StoreUnavailable as error:
            return await _aseen(this, command) or await _aoffer_again(this, command, error)
    except Exception as error:
        if type(command) is Begin:
            raise
        return error
    except BaseException:
        this.cut_off(command)
        raise


def _seen(this: KeyedCall, command: Any) -> Replay | None:
    """How a call ended whose claim the store does not take; None where that is not known."""
    if this.is_unread and type(command) is Begin:
        with suppress(StoreUnavailable):
            return this.replayed(*this.records.store.read(SPACE, this.address))
    return None


async def _aseen(this: KeyedCall, command: Any) -> Replay | None:
    """The same, awaited."""
    if this.is_unread and type(command) is Begin:
        with suppress(StoreUnavailable):
            return this.replayed(*await this.records.store.aread(SPACE, this.address))
    return None


def offer(this: KeyedCall, command: Any) -> Any:
    """Offers a step until the store takes it, or its patience is over."""
    try:
        return this.ask(command)
    except StoreUnavailable as error:
        return _offer_again(this, command, error)


def _offer_again(this: KeyedCall, command: Any, error: StoreUnavailable) -> Any:
    away = _Away(this, command)
    while True:
        seconds = away.pause(error)
        with away.unless_cancelled(error):
            pause(this, seconds)
        try:
            return this.ask(command)
        except StoreUnavailable as again:
            error = again


async def aoffer(this: KeyedCall, command: Any) -> Any:
    """The same, awaited."""
    try:
        return await this.aask(command)
    except StoreUnavailable as error:
        return await _aoffer_again(this, command, error)


async def _aoffer_again(this: KeyedCall, command: Any, error: StoreUnavailable) -> Any:
    away = _Away(this, command)
    while True:
        seconds = away.pause(error)
        with away.unless_cancelled(error):
            await apause(this, seconds)
        try:
            return await this.aask(command)
        except StoreUnavailable as again:
            error = again


def pause(this: KeyedCall, seconds: float) -> None:
    """Waits; a cancel event ends it."""
    if clock.current.sleep(seconds, this.cancel):
        raise this.cancelled()


async def apause(this: KeyedCall, seconds: float) -> None:
    """Waits; a cancel event wakes no event loop, so it is looked at often enough."""
    from mainstay.drivers.call.aio import current_sleep

    end, left = clock.current.monotonic() + seconds, seconds
    while True:
        if this.cancel is not None and this.cancel.is_set():
            raise this.cancelled()
        await current_sleep()(left if this.cancel is None else min(left, _GLANCE))
        left = end - clock.current.monotonic()
        if left <= 0.0:
            return


class _Away:
    """The tries of one step, from its first failure on."""

    __slots__ = ("_command", "_pause", "_since", "_spread", "_tries", "_until")

    def __init__(self, this: KeyedCall, command: Any) -> None:
        self._command = command
        self._since = clock.current.monotonic()
        self._until = self._since + _patience(this, command, self._since)
        self._tries = 1 if type(command) in (Release, Renew) else _TRIES
        self._pause = _FIRST_PAUSE
        self._spread = 0.5 + int(this.call.owner[:4], 16) / 0x20000

    def pause(self, error: StoreUnavailable) -> float:
        """Seconds until the next try; raises the trouble where there is none."""
        self._tries -= 1
        left = self._until - clock.current.monotonic()
        if left > 0.0:
            seconds = min(self._pause * self._spread, left)
            self._pause = min(self._pause * 2.0, _LONGEST_PAUSE)
            return seconds
        if self._tries <= 0:
            self._tell(error)
            raise error
        return _FIRST_PAUSE

    @contextmanager
    def unless_cancelled(self, error: StoreUnavailable) -> Iterator[None]:
        """A cancelled wait says so where nothing has run; else the store's trouble counts."""
        try:
            yield
        except CallCancelled:
            if type(self._command) is Begin:
                raise
            raise error from None

    def _tell(self, error: StoreUnavailable) -> None:
        waited = clock.current.monotonic() - self._since
        if self._until > self._since:
            error.add_note(f"waited {waited:.3g} s for the store, as store_wait and deadline say")


def _patience(this: KeyedCall, command: Any, now: float) -> float:
    """The seconds a step may wait; giving up a claim may not, nor one who holds a transaction."""
    if type(command) is Release or this.records.is_bound:
        return 0.0
    deadline, left = this.site.policy.deadline, remaining()
    of_call = NEVER if deadline is None else deadline - (now - this.started)
    return max(0.0, min(this.store_wait, of_call, NEVER if left is None else left))
