"""What a test changes in calls that it does not make itself: `mainstay.testing` switches it.

A site, a hedge and a fallback hold the Overrides they were given: the process's own, unless others
are passed. A fast path reads `is_active` and nothing else.
"""

from __future__ import annotations

from mainstay.runtime.fork import make_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.ports import Sink


class Overrides:
    """Retries that are off, and listeners beside a call's own.

    >>> overrides = Overrides()
    >>> overrides.disable_retries(); overrides.is_active, overrides.has_retries
    (True, False)
    >>> overrides.enable_retries(); overrides.is_active, overrides.has_retries
    (False, True)
    """

    __slots__ = ("_disabled", "_lock", "has_retries", "is_active", "listeners")

    def __init__(self) -> None:
        self.is_active = False
        """Whether anything differs: then no call takes a fast path."""
        self.listeners: tuple[Sink, ...] = ()
        """Receive the events of every call that is not a first attempt that succeeded."""
        self.has_retries = True
        """Whether a call may make more than one attempt, or hedge it."""
        self._disabled = 0
        self._lock = make_lock()

    def disable_retries(self) -> None:
        """One attempt for each call, until `enable_retries` was called as often."""
        with self._lock:
            self._disabled += 1
            self._changed_locked()

    def enable_retries(self) -> None:
        """Ends one `disable_retries`."""
        with self._lock:
            self._disabled -= 1
            self._changed_locked()

    def add_listener(self, listener: Sink) -> None:
        """Sends events to one more listener."""
        with self._lock:
            self.listeners = (*self.listeners, listener)
            self._changed_locked()

    def remove_listener(self, listener: Sink) -> None:
        """Sends no more events to that listener; others may have come or gone meanwhile."""
        with self._lock:
            self.listeners = tuple(each for each in self.listeners if each is not listener)
            self._changed_locked()

    def __reduce__(self) -> str:
        """A copy or a pickle of what holds the overrides of the process: those of its reader."""
        return "PROCESS_OVERRIDES"

    def _changed_locked(self) -> None:
        self.has_retries = not self._disabled
        self.is_active = bool(self._disabled or self.listeners)


PROCESS_OVERRIDES = Overrides()
"""The default of every site, hedge and fallback; `mainstay.testing` changes these."""
