"""The process's clock: what the drivers read and wait by, and what tests replace.

A clock is swapped, never patched: `install()` puts another one in place and returns the one that
was there. Generated wrappers read the time through a namespace of their own; such namespaces
follow along.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from typing import Any

    from mainstay.ports import Clock


class SystemClock:
    """Real time.

    >>> SystemClock().monotonic() <= SystemClock().monotonic()
    True
    """

    __slots__ = ()

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)

    def sleep(self, seconds: float, cancel: threading.Event | None = None) -> bool:
        """Waits; True if the cancel event ended it."""
        if cancel is not None:
            return cancel.wait(seconds)
        time.sleep(seconds)
        return False


SYSTEM: Clock = SystemClock()
current: Clock = SYSTEM
_followers: list[dict[str, Any]] = []


def install(clock: Clock) -> Clock:
    """Makes a clock the process's own; returns the one before."""
    global current
    before, current = current, clock
    for namespace in _followers:
        namespace["now"] = clock.monotonic
    return before


def follow(namespace: dict[str, Any]) -> None:
    """Keeps `namespace["now"]` equal to the current clock's monotonic."""
    namespace["now"] = current.monotonic
    _followers.append(namespace)
