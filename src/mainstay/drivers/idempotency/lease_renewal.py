"""Renews leases: one daemon thread renews all of them, each at a third of its length.

Most calls end before their first renewal is due; for those it is one entry added and one removed.
Leases of one length are due in the order in which they began, so each length has its own queue,
and only the heads of the queues are compared. A renewal that fails is tried again at its next turn:
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


class RenewedLease:
    """One lease that is renewed until it is stopped."""

    __slots__ = ("_renewal", "every", "renew", "stopped")

    def __init__(self, renewal: LeaseRenewal, every: float, renew: Callable[[], object]) -> None:
        self._renewal = renewal
        self.every = every
        self.renew = renew
        self.stopped = False

    def stop(self) -> None:
        """Ends the renewals; one that is under way may still finish."""
        self._renewal.forget(self)


class LeaseRenewal:
    """Renews leases in real time, in a thread that is started with the first of them."""

    def __init__(self) -> None:
        self.reset()
        reset_in_child(self, LeaseRenewal.reset)

    def reset(self) -> None:
        """Without any lease: a forked child does not renew those of its parent."""
        self._queues: dict[float, OrderedDict[RenewedLease, float]] = {}
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._wakes_at = NEVER
        """When the thread wakes by itself: a lease that is due later need not wake it."""

    def start(self, lease: float, renew: Callable[[], object]) -> RenewedLease:
        """Calls `renew` at every third of the lease, until it is stopped."""
        every = lease / 3.0
        renewed, due = RenewedLease(self, every, renew), SYSTEM.monotonic() + every
        with self._lock:  # the condition's own, without a call of Python
            queue = self._queues.get(every)
            if queue is None:
                queue = self._queues[every] = OrderedDict()
            queue[renewed] = due
            if due < self._wakes_at:
                self._wake_locked(due)
        return renewed

    def _wake_locked(self, due: float) -> None:
        """Wakes the thread, which the first lease starts; until that is due, no other need wake it.

        A busy machine may run the thread only after many short calls, each with a lease.
        """
        if self._thread is None or not self._thread.is_alive():
            name = "mainstay-lease-renewal"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        else:
            self._changed.notify()
        self._wakes_at = due

    def forget(self, renewed: RenewedLease) -> None:
        """Renews this lease no more."""
        with self._lock:
            renewed.stopped = True
            queue = self._queues.get(renewed.every)
            if queue is not None:  # there is none in a forked child
                queue.pop(renewed, None)

    def _run(self) -> None:
        try:
            while True:
                renewed = self._wait()
                with suppress(Exception):  # the store is unavailable: the next turn tries again
                    renewed.renew()
                with self._changed:
                    if not renewed.stopped:
                        self._queues.setdefault(renewed.every, OrderedDict())[renewed] = (
                            SYSTEM.monotonic() + renewed.every
                        )
                del renewed
        finally:
            self._wakes_at = NEVER  # the next lease starts another thread

    def _wait(self) -> RenewedLease:
        """The next lease that is due; waits for it."""
        with self._changed:
            while True:
                head = self._next_locked()
                now = SYSTEM.monotonic()
                if head is not None and head[0] <= now:
                    self._queues[head[1].every].pop(head[1])
                    self._wakes_at = -NEVER  # it looks again when this one is renewed
                    return head[1]
                self._wakes_at = self._next_wake_locked(None if head is None else head[0], now)
                del head  # and the lease with it, which may end meanwhile
                self._changed.wait(None if self._wakes_at == NEVER else self._wakes_at - now)

    def _next_locked(self) -> tuple[float, RenewedLease] | None:
        """The head that is due first; queues that have become empty are removed here."""
        self._queues = {every: queue for every, queue in self._queues.items() if queue}
        heads = [next(iter(queue.items())) for queue in self._queues.values()]
        pairs = ((due, renewed) for renewed, due in heads)
        return min(pairs, key=lambda each: each[0], default=None)

    def _next_wake_locked(self, due: float | None, now: float) -> float:
        """When the thread must look again; without a lease, when it was to look for the last one.

        So a call that begins and ends before the thread runs does not have each later call wake it.
        """
        if due is not None:
            return due
        return self._wakes_at if self._wakes_at > now else NEVER


LEASE_RENEWAL = LeaseRenewal()
