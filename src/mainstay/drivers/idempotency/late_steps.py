"""Steps whose callers have left: they are taken in the background, in the order of their coming.

A call that was cut off, or whose deadline has passed, cannot wait for its claim to be released, or
for its outcome to be recorded again. One thread takes such steps for a store, many at once, and
ends when there are none. While a store is unavailable a step is offered again until the lease of
its claim is over: from then on another call may have the key. A step that comes too late changes
nothing, since it carries the owner of its claim. The end of the engine, and of the process, waits
for the steps for a moment.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from mainstay.errors import StoreUnavailable
from mainstay.ports import many_of
from mainstay.runtime.clock import SYSTEM
from mainstay.runtime.fork import flush_at_exit, make_lock, reset_in_child

if TYPE_CHECKING:
    from mainstay.ports import Step, Store

    Late = tuple[int, float, Step]
    """How often it was tried, and until when it is tried again."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
"""Seconds before steps that failed are tried again: twice as long each time."""
_MOST, _MOST_WAITING = 256, 10_000
_AT_THE_END = 1.0
"""Seconds for which the end of a process waits."""


class LateSteps:
    """The steps of one store that no caller waits for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reset()

    def reset(self) -> None:
        """Without any: those of its parent are not a forked child's."""
        self._changed = threading.Condition(make_lock())
        self._steps: list[Late] = []
        self._thread: threading.Thread | None = None
        self._is_closed = self._is_known = False

    def add(self, step: Step, seconds: float = 0.0) -> None:
        """Takes a step soon, and again for some seconds while the store is unavailable.

        If too many wait already, it is left to its lease.
        """
        with self._changed:
            if len(self._steps) >= _MOST_WAITING:
                return
            self._steps.append((0, SYSTEM.monotonic() + seconds, step))
            if not self._is_known:
                self._is_known = True
                flush_at_exit(self, LateSteps.flush)
                reset_in_child(self, LateSteps.reset)
            if self._thread is None:
                self._start_locked()

    def _start_locked(self) -> None:
        thread = _Unawaited(target=self._run, name="mainstay-release", daemon=True)
        with suppress(RuntimeError):  # no thread is to be had: the next step starts one
            thread.start()
            self._thread = thread

    def flush(self, patience: float = _AT_THE_END) -> None:
        """Waits until each was tried, or for that many seconds."""
        end = SYSTEM.monotonic() + patience
        with self._changed:
            while self._has_new_locked() and self._thread is not None:
                left = end - SYSTEM.monotonic()
                if left <= 0.0:
                    return
                self._changed.wait(left)

    def _has_new_locked(self) -> bool:
        return any(not tries for tries, _, _ in self._steps)

    def close(self) -> None:
        """Waits for a moment, gives what is left one more try, and ends the thread."""
        self.flush()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._thread is None, _AT_THE_END)

    def _run(self) -> None:
        try:
            self._take_all()
        finally:
            with self._changed:
                if self._thread is threading.current_thread():
                    self._thread = None  # it died: the next step starts another

    def _take_all(self) -> None:
        while True:
            with self._changed:
                batch = self._steps[:_MOST]
                is_last = self._is_closed
                if not batch:
                    self._end_locked()
                    return
            again = self._taken(batch)
            with self._changed:
                self._steps[: len(batch)] = again
                self._changed.notify_all()
                if is_last:
                    self._end_locked()
                    return
                if again:
                    pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (again[0][0] - 1))
                    self._changed.wait_for(lambda: self._is_closed, pause)

    def _end_locked(self) -> None:
        self._steps.clear()
        self._thread = None
        self._changed.notify_all()

    def _taken(self, batch: list[Late]) -> list[Late]:
        """Takes the steps; those that the store did not take, and that are worth another try."""
        try:
            answers = many_of(self._store)([step for _, _, step in batch])
        except Exception as error:
            answers = [error] * len(batch)
        now = SYSTEM.monotonic()
        return [
            (tries + 1, until, step)
            for (tries, until, step), answer in zip(batch, answers, strict=True)
            if isinstance(answer, StoreUnavailable) and now < until
        ]


class _Unawaited(threading.Thread):
    """A thread whose `start` does not wait until it runs: the caller may be an event loop.

    `Thread.start` returns when the system has found a core for the new thread, and that has the
    interpreter's lock: tens of milliseconds on a busy machine.
    """

    _started: threading.Event

    def start(self) -> None:
        self._started.wait = _do_not_wait  # type: ignore[method-assign]
        super().start()

    def join(self, timeout: float | None = None) -> None:
        threading.Event.wait(self._started, timeout)
        super().join(timeout)


def _do_not_wait(timeout: float | None = None) -> bool:  # noqa: ARG001 -- as Event.wait has it
    return True
