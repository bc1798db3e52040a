"""The turn of a call that a rate limit has given a moment to start at."""

from __future__ import annotations

import sys

import mainstay.runtime.clock as clock
from mainstay.runtime.background import is_in_loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading


class Turn:
    """A ticket that is waited for before the attempt begins, by a thread or an event loop.

    It has the methods of a background Job by which a call waits for what a guard has begun.
    """

    __slots__ = ("cancel", "longest", "posted", "start")

    def __init__(self, now: float, wait: float) -> None:
        self.posted = now
        self.start = now + wait
        self.longest = wait
        """Seconds for which a call waits at most."""
        self.cancel: threading.Event | None = None
        """The cancel event of the call, which ends the wait."""

    @property
    def age(self) -> float:
        """Seconds since it was given."""
        return clock.current.monotonic() - self.posted

    def wait(self, limit: float) -> bool:
        """Waits for the moment, and no longer than `limit` seconds after it was given.

        The thread of an event loop does not wait: it would block the loop.
        """
        seconds = min(limit, self.longest) - self.age
        if seconds > 0.0 and not is_in_loop():
            clock.current.sleep(seconds, self.cancel)
        return self.has_come(clock.current.monotonic())

    async def awaited(self, limit: float) -> bool:
        """The same for an event loop, asyncio or trio."""
        trio = sys.modules.get("trio")
        is_trio = trio is not None and trio.lowlevel.in_trio_task()
        loop = trio if is_trio else sys.modules["asyncio"]
        while (seconds := min(limit, self.longest) - self.age) > 0.0:
            if self.cancel is None:
                step = seconds
            elif self.cancel.is_set():
                break
            else:
                step = min(seconds, _POLL)
            await loop.sleep(step)  # type: ignore[union-attr]  # one of the two runs this
        return self.has_come(clock.current.monotonic())

    def has_come(self, now: float) -> bool:
        """Whether the attempt may begin; sleeps end a little early on some systems."""
        return now >= self.start - _EARLY


_EARLY = 0.02
"""Seconds; the timers of Windows count in steps of 0.016."""
_POLL = 0.02
"""Seconds between two looks at a cancel event, which wakes no event loop."""
