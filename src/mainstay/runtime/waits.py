"""Shows the long waits of this process in a store, so that the status command elsewhere lists them.

A call that is about to wait for a second or more leaves an entry here, and removes it when the
wait is over. A thread writes the entries to the store; no call waits for that, and a store that is
unavailable costs the entries and nothing else.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from itertools import count, islice
from os import urandom
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.retry.effects import Returned
from mainstay.runtime.fork import load_before_fork, make_lock, reset_in_child

if TYPE_CHECKING:
    from mainstay.core.retry.effects import Outcome
    from mainstay.core.retry.plan import Plan
    from mainstay.core.telemetry.waits import Wait
    from mainstay.ports import Store
    from mainstay.runtime.background import Background

LONG = 1.0
"""Seconds that a wait must have left to be worth a writing. What is shorter is not shown at all:
it is over before anyone has looked."""
_PAUSE = 0.2
"""Seconds between two writings of one process."""
_MOST = 200
"""Waits that are listed; of the others, their number."""


load_before_fork("mainstay.core.telemetry.waits")
load_before_fork("mainstay.core.base.spaces")
load_before_fork("mainstay.runtime.background")
load_before_fork("mainstay.runtime.identity")


class Waits:
    """The waits of one engine.

    >>> from mainstay.stores.memory import MemoryStore
    >>> waits = Waits(MemoryStore())
    >>> waits.close()
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._begin()
        reset_in_child(self, Waits._begin)

    def _begin(self) -> None:
        """Without entries: those of its parent are not a forked child's."""
        self._key = urandom(8).hex()
        self._closed = threading.Event()
        self._lock = make_lock()
        self._entries: dict[int, tuple[Wait, float]] = {}
        self._numbers = count(1)
        self._background: Background | None = None
        self._is_posted = self._is_written = False

    def show(self, plan: Plan, attempt: int, failure: Outcome | None, delay: float) -> int:
        """Shows a wait that begins now; returns the number by which it is ended, or 0."""
        if clock.current is not clock.SYSTEM or self._closed.is_set():
            return 0  # virtual time: nobody can look meanwhile
        from mainstay.core.telemetry.waits import Wait  # few calls wait that long

        error = "" if isinstance(failure, Returned | None) else type(failure).__name__
        wait = Wait(plan.operation, attempt, plan.policy.max_attempts, error, delay)
        with self._lock:
            number = next(self._numbers)
            self._entries[number] = (wait, clock.SYSTEM.monotonic() + delay)
            self._post_locked()
        return number

    def end(self, number: int) -> None:
        """The wait is over; if that is before its time, it is not shown any longer."""
        with self._lock:
            _, until = self._entries.pop(number, (None, 0.0))
            if until - clock.SYSTEM.monotonic() > LONG:
                self._post_locked()

    def _post_locked(self) -> None:
        if self._background is None:
            from mainstay.runtime.background import Background

            self._background = Background("mainstay-waits")
        if not self._is_posted:
            self._is_posted = not self._background.post(self._write).is_done

    def _write(self) -> None:
        """Writes the entries, a moment later: others may come meanwhile."""
        from mainstay.core.base.spaces import Space
        from mainstay.core.telemetry.waits import Wait, put_up
        from mainstay.runtime.identity import process_name

        self._closed.wait(_PAUSE)
        with self._lock:
            self._is_posted = False
            now = clock.SYSTEM.monotonic()
            entries = [(wait, until - now) for wait, until in self._entries.values() if until > now]
        listed = [
            Wait(wait.operation, wait.attempt, wait.max_attempts, wait.error, left)
            for wait, left in islice(entries, _MOST)
        ]
        if listed or self._is_written:
            decide = put_up(process_name(), listed, len(entries) - len(listed))
            with suppress(Exception):  # unavailable: what is shown is no part of a call
                self._store.transact(Space.WAITS.value, self._key, decide)
                self._is_written = bool(listed)

    def close(self) -> None:
        """Takes down what is shown."""
        self._closed.set()
        with self._lock:
            self._entries.clear()
            if self._is_written:
                self._post_locked()
        if self._background is not None:
            self._background.close(5.0)
