"""The time slices of a thread that works beside an event loop.

Two threads of Python share the interpreter's lock. One that computes gives it up only after another
has waited for it for 5 ms (`sys.getswitchinterval`), and a loop waits for it again after each look
at its sockets. So the thread of a buffer gives it up by itself, after each slice of its work.

A sleep of no length does not suffice: the thread would have the lock again before the other one has
woken, and that one would begin to wait anew. The shortest sleep costs 60 µs or so. If nothing used
them, the next slice is twice as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.runtime.clock import SYSTEM

if TYPE_CHECKING:
    from mainstay.ports import Clock

SHORT, LONG = 0.006, 0.012
"""Seconds of a slice: if others use the pause, and at most. Shorter ones cost more than they gain:
after each change of threads the caches are cold."""
_PAUSE = 0.000_001
"""Seconds that are asked for: the system makes the shortest pause of it that there is."""
_USED = 0.000_15
"""Seconds from which on a pause was used by another thread."""


class Slices:
    """Pauses of a thread, each after a slice of its work.

    >>> slices = Slices()
    >>> slices.begin()
    >>> slices.pause()  # returns at once: the slice has just begun
    """

    __slots__ = ("_clock", "_length", "_until")

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._length = SHORT
        self._until = 0.0

    def begin(self) -> None:
        """The thread has waited for something, and begins to work."""
        self._until = self._clock.monotonic() + self._length

    def pause(self) -> None:
        """Lets other threads run, if the slice is over."""
        before = self._clock.monotonic()
        if before < self._until:
            return
        self._clock.sleep(_PAUSE)
        now = self._clock.monotonic()
        self._length = SHORT if now - before >= _USED else min(2 * self._length, LONG)
        self._until = now + self._length
