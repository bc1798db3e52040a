"""Ctrl+C ends what is under way, once, and never the tidying up after it.

Whoever presses it twice would otherwise leave a thread that waits for a service that is gone, or an
audit log that was not closed and a folder with it.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class Interrupts:
    """What Ctrl+C does; only the main thread can say so."""

    def __init__(self) -> None:
        self.is_late = False
        """Whether it was pressed first when it was put off."""
        self._is_main = threading.current_thread() is threading.main_thread()
        self._before: Any = signal.getsignal(signal.SIGINT) if self._is_main else None
        self._inner: Any = None
        self._is_pressed = False

    def take_once(self) -> None:
        """The first one does what it would do anyway, which may be asyncio's; others nothing."""
        if self._is_main:
            self._inner = signal.getsignal(signal.SIGINT)
            signal.signal(signal.SIGINT, self._handle)

    def put_off(self) -> None:
        """From now on it waits until all is tidy."""
        if self._is_main:
            self._inner = None
            signal.signal(signal.SIGINT, self._handle)

    def restore(self) -> None:
        """As it was before."""
        if self._is_main:
            signal.signal(signal.SIGINT, self._before or signal.SIG_DFL)

    def _handle(self, number: int, frame: object) -> None:
        if self._is_pressed:
            return
        self._is_pressed = True
        if callable(self._inner):
            self._inner(number, frame)
        else:
            self.is_late = True


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Ctrl+C as the block says; one that was put off comes at its end."""
    held = Interrupts()
    try:
        yield held
    finally:
        held.restore()
    if held.is_late:
        raise KeyboardInterrupt


@contextmanager
def undisturbed() -> Iterator[None]:
    """Puts Ctrl+C off until the block has ended."""
    with interrupts() as held:
        held.put_off()
        yield
