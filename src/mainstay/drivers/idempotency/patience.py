"""A step of a store that must not be lost: it is tried again while the store is unavailable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.drivers.call.aio import current_sleep
from mainstay.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Protocol, TypeVar

    R = TypeVar("R")

    class Patient(Protocol):
        """Records of a store, with how long a step is tried again."""

        def patience(self) -> Patience: ...


_TRIES, _FIRST_PAUSE, _LONGEST_PAUSE = 3, 0.1, 1.0


class Patience:
    """The tries of one step, from its first failure on."""

    __slots__ = ("_pause", "_tries", "_until")

    def __init__(self, store_wait: float) -> None:
        self._until = clock.current.monotonic() + store_wait
        self._tries, self._pause = _TRIES, _FIRST_PAUSE

    def delay(self, error: Exception) -> float:
        """Seconds until the next try; raises the error if there is none."""
        self._tries -= 1
        is_over = self._tries <= 0 and clock.current.monotonic() >= self._until
        if is_over or not isinstance(error, StoreUnavailable):
            raise error
        pause, self._pause = self._pause, min(self._pause * 2.0, _LONGEST_PAUSE)
        return pause


def offered(records: Patient, ask: Callable[[], R]) -> R:
    """The answer of the store, which is asked again for some time while it is unavailable."""
    try:
        return ask()
    except Exception as error:
        failure = error
    return offered_again(records, failure, ask)


def offered_again(records: Patient, failure: Exception, ask: Callable[[], R]) -> R:
    """The same after a first failure."""
    patience = records.patience()
    while True:
        clock.current.sleep(patience.delay(failure))
        try:
            return ask()
        except Exception as error:
            failure = error


async def aoffered(records: Patient, ask: Callable[[], Awaitable[R]]) -> R:
    """The answer of the store, which is asked again for some time while it is unavailable."""
    try:
        return await ask()
    except Exception as error:
        patience, failure = records.patience(), error
    while True:
        await current_sleep()(patience.delay(failure))
        try:
            return await ask()
        except Exception as error:
            failure = error
