"""Removes the entries of sagas that have ended, many at once and in the background.

An entry that is left costs a later recovery one reading, which removes it: so nothing waits for the
removal, and nothing is tried again. Removing each at once would make one write more for each saga,
in the way of the next one.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from mainstay.ports import many_of
from mainstay.runtime.background import detached_thread
from mainstay.runtime.fork import flush_at_exit, make_lock, reset_in_child

if TYPE_CHECKING:
    from mainstay.ports import Step, Store

_PAUSE = 0.5
"""Seconds for which removals are collected."""
_MOST, _MOST_WAITING = 256, 10_000


class EntryRemoval:
    """The removals of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reset()

    def reset(self) -> None:
        """Without any: those of its parent are not a forked child's."""
        self._lock = make_lock()
        self._changed = threading.Condition(self._lock)
        self._steps: list[Step] = []
        self._thread: threading.Thread | None = None
        self._is_closed = self._is_known = False

    def add(self, step: Step) -> None:
        """Takes a step with the next ones."""
        with self._lock:  # the condition's own, without a call of Python
            if len(self._steps) >= _MOST_WAITING or self._is_closed:
                return
            self._steps.append(step)
            if not self._is_known:
                self._is_known = True
                flush_at_exit(self, EntryRemoval.flush)
                reset_in_child(self, EntryRemoval.reset)
            if self._thread is None:
                thread = detached_thread(self._run, "mainstay-entries")
                with suppress(RuntimeError):  # no thread is to be had: the next one starts it
                    thread.start()
                    self._thread = thread

    def flush(self) -> None:
        """Takes what waits, in this thread."""
        while True:
            with self._changed:
                batch, self._steps = self._steps[:_MOST], self._steps[_MOST:]
            if not batch:
                return
            with suppress(Exception):  # recovery removes them
                many_of(self._store)(batch)

    def close(self) -> None:
        """Takes what waits, and ends the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self.flush()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(5.0)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed, _PAUSE)
                if self._is_closed or not self._steps:
                    self._thread = None
                    return
            self.flush()
