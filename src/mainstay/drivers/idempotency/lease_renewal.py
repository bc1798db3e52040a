"""Renews leases: each at a third of its length, those of one store together.

Most calls end before their first renewal is due; for those it is one entry added and one removed.
Leases of one length are due in the order in which they began, so each length has its own queue,
and only the heads of the queues are compared. From its first renewal on, a lease is in a heap.

One thread looks at the time and never at a store: it hands the leases that are due to the renewer
of their store, and reports the leases that have run out. A renewer renews many leases in one step,
earliest expiry first, in a thread that lasts as long as there are any; so a store that hangs costs
the leases of no other store. No step takes longer than half of the time that is left, so that
another try is possible. Rules of the room:

- A lease is certain until its length after the moment at which the last request that the store has
  granted was *sent*: a late reply never extends it. The time is that of a clock that goes on while
  the machine sleeps, as the store's does.
- A lease that ran out is still renewed. If no other call has taken over, it is held again.
- Whether a lease was lost shows when the outcome is recorded, whatever was seen here.
- A lease belongs to the process that claimed it. Of a call that a fork has copied into a child, the
  child writes nothing: not its outcome, and no release.
"""

from __future__ import annotations

import threading
from heapq import heappop, heappush
from itertools import count, takewhile
from os import getpid
from typing import TYPE_CHECKING

from msgspec import Struct

import mainstay.runtime.clock as clock
from mainstay.core.base.deadline import NEVER
from mainstay.core.idempotency.record import Done, Lost
from mainstay.deadline import within
from mainstay.ports import many_of
from mainstay.runtime.background import detached_thread
from mainstay.runtime.clock import SYSTEM
from mainstay.runtime.fork import PROCESS, reset_in_child

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Protocol

    from mainstay.core.base.change import Decide
    from mainstay.errors import LeaseLost
    from mainstay.ports import Store

    class Leased(Protocol):
        """What has a lease: a keyed call."""

        def renewing(self) -> tuple[Store, tuple[str, str, Decide[Any]]]: ...
        def lease_ran_out(self, *, is_taken: bool) -> None: ...


_MOST = 256
"""Leases that are renewed in one step."""
_LEAST = 0.05
"""Seconds that a step is given at least."""
_LONGEST_WAIT = 1.0
"""Seconds between two looks at the time: a wait stands still while the machine sleeps, and leases
do not."""


class Lease(Struct, eq=False):
    """A lease that is renewed until it is forgotten."""

    call: Leased | None
    """None once it is forgotten: what refers to this object holds no call that has ended."""
    length: float
    until: float
    due: float = 0.0
    is_over: bool = False
    """Whether the function has ended: from then on nobody needs to know of a lost lease."""
    is_in_hand: bool = False
    is_watched: bool = False
    is_reported: bool = False
    home: object = None
    """Of the process that has it: a child that is forked meanwhile neither ends nor releases it.
    None until it is renewed."""

    @property
    def is_inherited(self) -> bool:
        """Whether this process was forked while the call was under way: it is its parent's."""
        if PROCESS.number != getpid():  # before each attempt and each write: without a frame
            PROCESS.notice()
        return self.home is not None and self.home is not LEASE_RENEWAL.home

    def noted(self, lost: LeaseLost) -> LeaseLost:
        """The error, with the reason if it is that of a forked child."""
        if self.is_inherited:
            lost.add_note(_FORKED)
        return lost


_FORKED = (
    "this process was forked while the call was under way: the call is that of its parent, which"
    " records how it ends. end the child by os._exit, or fork outside of the call"
)


class LeaseRenewal:
    """The leases of this process, in real time; the thread is started with the first of them."""

    def __init__(self) -> None:
        self.reset()
        reset_in_child(self, LeaseRenewal.reset)

    def reset(self) -> None:
        """Without any lease: a forked child does not renew those of its parent."""
        self._queues: dict[float, dict[Lease, None]] = {}
        self._looks: list[tuple[float, int, Lease, bool]] = []
        """When to look at which lease again, and whether because it ends then; a heap, in which
        leases that are forgotten stay until then."""
        self._numbers = count()
        self.home = object()
        """Stands for this process, and is another after a fork; its number would cost a call."""
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._renewers: dict[int, _Renewer] = {}
        """By the id of their store, which they hold."""
        self._wakes_at = NEVER
        """When the thread wakes by itself: a lease that is due later need not wake it."""

    # --- leases come and go -----------------------------------------------------------------------

    def start(self, lease: Lease, age: float = 0.0, now: float | None = None) -> None:
        """Renews a lease whose claim was sent `age` seconds ago, until it is forgotten."""
        length = lease.length
        now = SYSTEM.steady() if now is None else now
        lease.due = due = now + length / 3.0 - age
        lease.home = self.home
        with self._lock:  # the condition's own, without a call of Python
            if age > length / 20.0:  # it is not due in the order of its queue
                heappush(self._looks, (due, next(self._numbers), lease, False))
            else:
                try:
                    self._queues[length][lease] = None
                except KeyError:  # the first of its length
                    self._queues[length] = {lease: None}
            if due < self._wakes_at:
                self._wake_locked(due)

    def _wake_locked(self, due: float) -> None:
        """Wakes the thread, which the first lease starts; until that is due, no other need wake it.

        A busy machine may run the thread only after many short calls, each with a lease.
        """
        if self._thread is None or not self._thread.is_alive():
            name = "mainstay-lease-renewal"
            self._thread = detached_thread(self._run, name)
            self._thread.start()
        else:
            self._changed.notify()
        self._wakes_at = due

    def forget(self, lease: Lease) -> None:
        """Renews this lease no more; a renewal that is under way may still finish."""
        with self._lock:
            lease.call, lease.until = None, -NEVER
            queue = self._queues.get(lease.length)
            if queue is not None:  # it is, in a forked child
                queue.pop(lease, None)

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while True:
                self._report([(lease, False) for lease in self._wait()])
        finally:
            self._wakes_at = NEVER  # the next lease starts another thread

    def _wait(self) -> list[Lease]:
        """Hands leases that are due to their renewers, until some have run out: those."""
        with self._changed:
            while True:
                now = SYSTEM.steady()
                ran_out = [each for each in self._seen_locked(now) if self._has_run_out(each, now)]
                if ran_out:
                    self._wakes_at = -NEVER  # it looks again when these are reported
                    return ran_out
                self._wakes_at = self._next_wake_locked(now)
                left = self._wakes_at - now
                self._changed.wait(None if left == NEVER else min(left, _LONGEST_WAIT))

    def _seen_locked(self, now: float) -> list[Lease]:
        """The leases whose time to be looked at has come; queues that are empty are removed."""
        self._queues = {length: queue for length, queue in self._queues.items() if queue}
        seen: list[Lease] = []
        for queue in self._queues.values():
            due = list(takewhile(lambda lease: lease.due <= now, queue))
            for lease in due:
                del queue[lease]
            seen += due
        while self._looks and self._looks[0][0] <= now:
            _, _, lease, is_end = heappop(self._looks)
            lease.is_watched = lease.is_watched and not is_end
            seen.append(lease)
        return [lease for lease in seen if lease.call is not None]

    def _has_run_out(self, lease: Lease, now: float) -> bool:
        """Whether nothing but time has happened to a lease; if it is due, it is handed over."""
        if lease.due <= now and not lease.is_in_hand:
            self._hand_over_locked(lease)
        left = lease.until - clock.steady()
        if left > 0.0 and not lease.is_watched:
            lease.is_watched = True
            heappush(self._looks, (now + left, next(self._numbers), lease, True))
        return left <= 0.0 and not lease.is_reported

    def _hand_over_locked(self, lease: Lease) -> None:
        call = lease.call
        if call is None:
            return
        store, step = call.renewing()
        renewer = self._renewers.get(id(store)) or _Renewer(self, store)
        renewer.due.append((lease, step))
        if id(store) not in self._renewers:
            try:  # it waits for the lock, which is held here
                detached_thread(renewer.run, "mainstay-renewer").start()
            except RuntimeError:  # no thread is to be had now: another try follows
                lease.due = SYSTEM.steady() + _pause(lease, clock.steady())
                heappush(self._looks, (lease.due, next(self._numbers), lease, False))
                return
            self._renewers[id(store)] = renewer
        lease.is_in_hand = True

    def _next_wake_locked(self, now: float) -> float:
        """When the thread must look again; without a lease, when it was to look for the last one.

        So a call that begins and ends before the thread runs does not have each later call wake it.
        """
        heads = [next(iter(queue)).due for queue in self._queues.values() if queue]
        if self._looks:
            heads.append(self._looks[0][0])
        if heads:
            return min(heads)
        return self._wakes_at if self._wakes_at > now else NEVER

    # --- what became of renewals ------------------------------------------------------------------

    def next_batch(self, renewer: _Renewer) -> list[Any]:
        """The leases that a renewer has to renew next, earliest expiry first; none: it ends."""
        with self._lock:
            live = [each for each in renewer.due if each[0].call is not None]
            live.sort(key=lambda each: each[0].until)
            renewer.due = live[_MOST:]
            if not live and self._renewers.get(id(renewer.store)) is renewer:
                del self._renewers[id(renewer.store)]
            return live[:_MOST]

    def renewed(self, leases: Sequence[Lease], answers: Sequence[object], sent: float) -> None:
        """Notes what the store has answered; `sent` is when it was asked."""
        taken = []
        with self._lock:
            now, moment = SYSTEM.steady(), clock.steady()
            for lease, answer in zip(leases, answers, strict=True):
                lease.is_in_hand = False
                if lease.call is None:
                    continue
                if type(answer) is Lost:
                    lease.until, lease.due = -NEVER, NEVER
                    taken.append((lease, True))
                    continue
                pause = _pause(lease, moment)
                if type(answer) is Done:
                    lease.until = max(lease.until, sent + lease.length)
                    lease.is_reported = False
                    pause = lease.length / 3.0 - (moment - sent)
                lease.due = now + pause
                heappush(self._looks, (lease.due, next(self._numbers), lease, False))
            if self._looks and self._looks[0][0] < self._wakes_at:
                self._wake_locked(self._looks[0][0])
        self._report(taken)

    def _report(self, ended: list[tuple[Lease, bool]]) -> None:
        """In a thread of its own: a sink that waits must not cost a lease."""
        found = []
        for lease, is_taken in ended:
            call = lease.call
            if call is not None and not lease.is_over and not lease.is_reported:
                lease.is_reported = True
                found.append((call, is_taken))
        if found:
            name = "mainstay-lease-report"
            try:
                detached_thread(_report_all, name, found).start()
            except RuntimeError:  # no thread is to be had
                _report_all(found)


class _Renewer:
    """Renews the leases of one store, one batch after the other."""

    def __init__(self, renewal: LeaseRenewal, store: Store) -> None:
        self.store = store
        self.due: list[tuple[Lease, tuple[str, str, Decide[Any]]]] = []
        self._renewal = renewal
        self._transact_many = many_of(store)

    def run(self) -> None:
        """Until no lease is left that is due."""
        while batch := self._renewal.next_batch(self):
            leases = [lease for lease, _ in batch]
            sent = clock.steady()
            try:
                with within(_patience(leases, sent)):
                    answers = self._transact_many([step for _, step in batch])
            except Exception as error:  # the store is unavailable: they are tried again
                answers = [error] * len(leases)
            self._renewal.renewed(leases, answers, sent)
            del batch, leases


def _patience(leases: Sequence[Lease], now: float) -> float:
    """Seconds for a step: half of what is left of the first to expire, so that two are possible."""
    left = [each.until - now for each in leases if each.until > now]
    seconds = min(left) if left else min(each.length for each in leases)
    return max(_LEAST, seconds / 2.0)


def _pause(lease: Lease, now: float) -> float:
    """Seconds until the next try of a renewal that has failed: the closer the end, the sooner."""
    left = lease.until - now
    return max(lease.length / 30.0, left / 4.0) if left > 0.0 else lease.length / 6.0


def _report_all(found: list[tuple[Leased, bool]]) -> None:
    for call, is_taken in found:
        try:
            call.lease_ran_out(is_taken=is_taken)
        except Exception as error:
            from mainstay.runtime.reports.report_failure import report

            report(error, "a lease ran out, and that could not be reported")


LEASE_RENEWAL = LeaseRenewal()
