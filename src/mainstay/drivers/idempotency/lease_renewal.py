"""Keeps leases alive: one daemon thread renews all of them, each at a third of its length.

Most calls end before their first renewal is due; for those it is one entry added and one removed.
Leases of one length are due in the order in which they came, so each length has a lane of its own,
and only the heads of the lanes are looked at. A renewal that fails is tried again at its next turn:
whether the lease was lost shows when the outcome is recorded.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING

from mainstay.core.retry.deadline import NEVER
from mainstay.runtime.clock import SYSTEM
from mainstay.runtime.fork import reset_in_child

if TYPE_CHECKING:
    from collections.abc import Callable


class Beat:
    """One lease that is being kept alive, until it is stopped."""

    __slots__ = ("_heart", "every", "renew", "stopped")

    def __init__(self, heart: LeaseRenewal, every: float, renew: Callable[[], object]) -> None:
        self._heart = heart
        self.every = every
        self.renew = renew
        self.stopped = False

    def stop(self) -> None:
        """No more renewals; one that is under way may still end."""
        self._heart.forget(self)


class LeaseRenewal:
    """Renews leases in real time, in a thread that is started with the first of them."""

    def __init__(self) -> None:
        self.begin_anew()
        reset_in_child(self, LeaseRenewal.begin_anew)

    def begin_anew(self) -> None:
        """Without any lease: those of a parent process are not for a forked child to renew."""
        self._lanes: dict[float, OrderedDict[Beat, float]] = {}
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._wakes_at = NEVER
        """When the thread looks again by itself: whoever is due later need not wake it."""

    def beat(self, lease: float, renew: Callable[[], object]) -> Beat:
        """Calls `renew` at every third of the lease, until the beat is stopped."""
        every = lease / 3.0
        beat, due = Beat(self, every, renew), SYSTEM.monotonic() + every
        with self._lock:  # the condition's own, without a call of Python
            lane = self._lanes.get(every)
            if lane is None:
                lane = self._lanes[every] = OrderedDict()
            lane[beat] = due
            if due < self._wakes_at:
                self._wake_locked()
        return beat

    def _wake_locked(self) -> None:
        """Lets the thread look again; the first lease starts it, for until then it never wakes."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="mainstay-heart", daemon=True)
            self._thread.start()
        else:
            self._changed.notify()

    def forget(self, beat: Beat) -> None:
        """Renews this lease no more."""
        with self._lock:
            beat.stopped = True
            lane = self._lanes.get(beat.every)
            if lane is not None:  # there is none in a forked child
                lane.pop(beat, None)

    def _next_locked(self) -> tuple[float, Beat] | None:
        """The head that is due first; lanes that have become empty are closed here."""
        self._lanes = {every: lane for every, lane in self._lanes.items() if lane}
        heads = [next(iter(lane.items())) for lane in self._lanes.values()]
        return min(((due, beat) for beat, due in heads), key=lambda each: each[0], default=None)

    def _run(self) -> None:
        try:
            while True:
                beat = self._wait()
                with suppress(Exception):  # the store is away: the next turn tries again
                    beat.renew()
                with self._changed:
                    if not beat.stopped:
                        self._lanes.setdefault(beat.every, OrderedDict())[beat] = (
                            SYSTEM.monotonic() + beat.every
                        )
                del beat
        finally:
            self._wakes_at = NEVER  # whoever comes next starts another one

    def _wait(self) -> Beat:
        """The next lease that is due; waits for it."""
        with self._changed:
            while True:
                head = self._next_locked()
                now = SYSTEM.monotonic()
                if head is not None and head[0] <= now:
                    self._lanes[head[1].every].pop(head[1])
                    self._wakes_at = -NEVER  # it looks again when this one is renewed
                    return head[1]
                self._wakes_at = NEVER if head is None else head[0]
                del head  # and the lease with it, which may end meanwhile
                self._changed.wait(None if self._wakes_at == NEVER else self._wakes_at - now)


HEART = LeaseRenewal()
