"""Ctrl+C as an event: set by a signal, looked at by code that waits.

A handler that raises could strike anywhere, also while a process is being ended. This one only
notes the signal; waits end at once, and commands are ended by the driver that runs them. It must
be safe inside a signal handler, so it holds no lock: a SimpleQueue's put() may interrupt its get().
"""

from __future__ import annotations

import signal
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Self, TypeAlias

    Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
"""What ends a command line; those that a system lacks are left out."""
_SLICE = 0.1
"""Seconds at most without a look: on Windows a signal does not wake a wait, nor anywhere one that
the system hands to another thread.
"""


class Interrupt(threading.Event):
    """A cancel event that signals set, inside a `with`; `number` is the first one's.

    What was ignored when the process began, as SIGHUP is under nohup, stays so.

    >>> with Interrupt() as interrupt:
    ...     interrupt.is_set()
    False
    """

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.times = 0
        self._woken: SimpleQueue[int] = SimpleQueue()
        self._handlers: list[Callable[[int], object]] = []
        self._before: dict[int, Handler] = {}

    def __enter__(self) -> Self:
        for name in SIGNALS:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.note(number)

    def note(self, number: int) -> None:
        """A signal has come; by whatever way."""
        self.number = self.number or number
        self.times += 1
        self._woken.put(number)
        for handler in tuple(self._handlers):
            handler(number)

    def call_on_signal(self, handler: Callable[[int], object]) -> None:
        """Calls it with every signal from now on; it must be safe in a signal handler."""
        self._handlers.append(handler)

    def forget(self, handler: Callable[[int], object]) -> None:
        """Calls it no more."""
        self._handlers.remove(handler)

    def is_set(self) -> bool:
        """Whether a signal has come."""
        return self.number != 0

    def set(self) -> None:
        """As if Ctrl+C had been pressed."""
        self.note(signal.SIGINT)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for a signal, at most `timeout` seconds; returns whether one has come."""
        end = None if timeout is None else clock.SYSTEM.monotonic() + timeout
        while not self.is_set():
            left = _SLICE if end is None else min(_SLICE, end - clock.SYSTEM.monotonic())
            if left <= 0.0:
                break
            try:
                self._woken.get(timeout=left)
            except Empty:
                continue
        return self.is_set()
