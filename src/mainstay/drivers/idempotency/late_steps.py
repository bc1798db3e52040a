"""Steps whose callers have left: they are taken in the background, in the order of their coming.

A call that was cut off cannot wait for its claim to be released, or for its outcome to be recorded
again. One thread takes such steps for a store, many at once, and ends when there are none. A store
that is unavailable is tried a few times; after that the lease ends what was begun. The end of the
engine, and of the process, waits for the steps for a moment.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from mainstay.errors import StoreUnavailable
from mainstay.ports import many_of
from mainstay.runtime.clock import SYSTEM
from mainstay.runtime.fork import flush_at_exit, reset_in_child

if TYPE_CHECKING:
    from mainstay.ports import Step, Store

_PAUSES = (0.1, 0.5, 2.0)
"""Seconds before a step that failed is tried again."""
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
        self._changed = threading.Condition()
        self._steps: list[tuple[int, Step]] = []
        self._thread: threading.Thread | None = None
        self._is_closed = self._is_known = False

    def add(self, step: Step, *, is_repeated: bool = True) -> None:
        """Takes a step soon; if too many wait already, it is left to its lease."""
        with self._changed:
            if len(self._steps) >= _MOST_WAITING:
                return
            self._steps.append((0 if is_repeated else len(_PAUSES), step))
            if not self._is_known:
                self._is_known = True
                flush_at_exit(self, LateSteps.flush)
                reset_in_child(self, LateSteps.reset)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="mainstay-release", daemon=True
                )
                self._thread.start()

    def flush(self, patience: float = _AT_THE_END) -> None:
        """Waits until each was tried, or for that many seconds."""
        end = SYSTEM.monotonic() + patience
        with self._changed:
            while self._has_new_locked() and self._thread is not None and self._thread.is_alive():
                left = end - SYSTEM.monotonic()
                if left <= 0.0:
                    return
                self._changed.wait(left)

    def _has_new_locked(self) -> bool:
        return any(tries in (0, len(_PAUSES)) for tries, _ in self._steps)

    def close(self) -> None:
        """Waits for a moment, and gives up what cannot be taken."""
        self.flush()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                batch = self._steps[:_MOST]
                if not batch or self._is_closed:
                    self._steps.clear()
                    self._thread = None
                    self._changed.notify_all()
                    return
            again = self._taken(batch)
            with self._changed:
                self._steps[: len(batch)] = again
                self._changed.notify_all()
                if again:
                    self._changed.wait_for(lambda: self._is_closed, _PAUSES[again[0][0] - 1])

    def _taken(self, batch: list[tuple[int, Step]]) -> list[tuple[int, Step]]:
        """Takes the steps; those that the store did not take, and that are worth another try."""
        try:
            answers = many_of(self._store)([step for _, step in batch])
        except Exception as error:
            answers = [error] * len(batch)
        return [
            (tries + 1, step)
            for (tries, step), answer in zip(batch, answers, strict=True)
            if isinstance(answer, StoreUnavailable) and tries < len(_PAUSES)
        ]
