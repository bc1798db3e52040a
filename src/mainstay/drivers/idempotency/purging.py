"""Purges expired records of a durable store, in the background.

A process that writes records also purges: its first record starts the thread, and a process that
only reads has none. The thread looks at once whether a purge is due, so processes that live for a
second purge too; then again about every `every` seconds, at times that differ between processes. Of
all processes on a store one purges at a time (core/idempotency/purge.py). It works in small batches
and rests for four times as long as each took. If the store is unavailable, the next turn tries
again: nothing depends on a purge.
"""

from __future__ import annotations

import random
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

from mainstay.core.base.spaces import Space
from mainstay.core.idempotency.purge import TURN, is_due, take_turn
from mainstay.drivers.idempotency.limits import PURGE_EVERY
from mainstay.runtime.background import detached_thread
from mainstay.runtime.clock import SYSTEM
from mainstay.runtime.fork import make_lock, reset_in_child

if TYPE_CHECKING:
    from mainstay.ports import Store

_SPACE = Space.PURGES.value
_BATCH = 500
"""Records in one step: some ten milliseconds, for which a SQLite file is locked."""
_PAGES = 500
"""Pages of a SQLite file that one step gives back."""
_REST = 4.0
"""How long the thread rests after a step, as a multiple of what it took."""
_SHORTEST_REST = 0.02


class Purging:
    """One engine's part in purging its store.

    >>> from mainstay.stores.memory import MemoryStore
    >>> purging = Purging(MemoryStore())
    >>> purging.purge_if_due(), purging.purge_if_due()
    (True, False)
    >>> purging.close()
    """

    def __init__(self, store: Store, every: float = PURGE_EVERY) -> None:
        self._store = store
        self.every = every
        self._is_closed = False
        self._reset()
        reset_in_child(self, Purging._reset)

    def _reset(self) -> None:
        """Without a thread: a forked child starts its own with its first record."""
        self.purged = 0
        """Records that this process has purged."""
        self._lock = make_lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.is_idle = not self._is_closed
        """Whether it has neither begun nor ended."""

    def start(self) -> None:
        """A record was written: from now on this process purges."""
        with self._lock:
            if not self.is_idle:
                return
            self.is_idle = False
            arguments = (weakref.ref(self), self._stopped, self.every)
            weakref.finalize(self, self._stopped.set)  # an engine that nobody closes ends it too
            thread = detached_thread(_run, "mainstay-purge", *arguments)
            with suppress(RuntimeError):  # no thread is to be had: another process will purge
                thread.start()
                self._thread = thread

    def purge_if_due(self) -> bool:
        """Purges what has expired if no process did so lately; whether it was this one's turn."""
        value, now = self._store.read(_SPACE, TURN)
        if not is_due(value, self.every, now):
            return False
        every = self.every
        if not self._store.transact(_SPACE, TURN, lambda kept, at: take_turn(kept, every, at)):
            return False
        self._purge(SYSTEM.monotonic() + every)
        return True

    def _purge(self, until: float) -> None:
        """Batch after batch, until nothing is left or the time is over."""
        while SYSTEM.monotonic() < until:
            began = SYSTEM.monotonic()
            count = self._store.purge(_BATCH)
            self.purged += count
            is_done = count < _BATCH and getattr(self._store, "is_swept", True)
            if self._rest(began) or is_done:
                break
        shrink = getattr(self._store, "shrink", None)
        while shrink is not None and SYSTEM.monotonic() < until:
            began = SYSTEM.monotonic()
            if not shrink(_PAGES) or self._rest(began):
                return

    def _rest(self, began: float) -> bool:
        """Leaves the store to others for a while; whether this was closed meanwhile."""
        took = SYSTEM.monotonic() - began
        return self._stopped.wait(max(_SHORTEST_REST, took * _REST))

    def close(self) -> None:
        """Ends the thread, after the step it is in."""
        self._is_closed, self.is_idle = True, False
        self._stopped.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(5.0)


def _run(reference: weakref.ref[Purging], stopped: threading.Event, every: float) -> None:
    """The thread: it holds the object while it works, and not while it waits."""
    while not stopped.is_set():
        purging = reference()
        if purging is None:
            return
        with suppress(Exception):  # the store is unavailable: the next turn tries again
            purging.purge_if_due()
        del purging
        stopped.wait(every * random.uniform(0.75, 1.25))  # noqa: S311 -- to spread
