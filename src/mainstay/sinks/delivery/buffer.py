"""A buffer between a call and a sink that does I/O: a bounded queue and one thread.

`put()` appends and returns. The thread delivers batches, in order; a batch that fails is repeated
with a growing delay. If the thread is behind, calls wait for it (pressure.py). If the destination
is not available, the queue's oldest events go to disk, and come back before newer ones (backlog.py,
spill.py). A second thread writes them, since the first may be waiting for the destination. What
finds no room anywhere is lost, and counted with the reason (losses.py).

Everything here runs in real time: waiting for another machine gains nothing from a virtual clock.
"""

from __future__ import annotations

import os
import threading
from _random import Random
from contextlib import suppress
from typing import TYPE_CHECKING

from mainstay.core.base.validate import Checker, seconds_of
from mainstay.core.events.describe import reason_of
from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.errors import SinkError
from mainstay.runtime.background import detached_thread
from mainstay.runtime.clock import SYSTEM
from mainstay.runtime.fork import PROCESS, flush_at_exit, fork_mark, reset_in_child
from mainstay.runtime.reports.deferred_events import Facts
from mainstay.runtime.reports.logs import logger
from mainstay.sinks.delivery.backlog import Backlog, Ticket
from mainstay.sinks.delivery.losses import Losses
from mainstay.sinks.delivery.pressure import Pressure
from mainstay.sinks.delivery.spill import Spill

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Seconds
    from mainstay.sinks.delivery.backlog import Batch

_CURVE = Backoff.exponential(0.05, factor=2.0, max_delay=5.0)
_JITTER = Jitter.percent(0.2)
_random = Random()
"""Our own, so that no seeded generator of the program moves; random itself loads more."""
_QUIET_ROUNDS = 50
"""Rounds without anything to do after which the thread ends; the next event starts another."""
_ROOM = 4
"""How many times its size the queue may hold while its oldest events are on their way to disk."""
_FINISH = 1.0
"""Seconds that `finish` waits for a delivery that is under way."""
_log = logger()


class Buffer:
    """Takes events from calls at once, and delivers them in batches from a thread of its own.

    Args:
        deliver: takes a list of events; raises if it could not keep them. It is called by one
            thread at a time, and again with the same events until it returns.
        name: what the log calls it and its files are known by: the kind of sink and where it
            delivers to, without secrets.
        size: how many events wait in memory.
        batch: how many are delivered at once.
        every: seconds between two deliveries.
        spill: the folder for what finds no room; None for the user's own state folder, False for
            none: then what finds no room is lost, and counted.
        timeout: seconds that `flush` and a strict `put` wait.
        strict: `put` returns when the event is delivered, and raises SinkError when it is not.
        at_end: is called before the process ends, and may put events that are still due.
        at_start: is called by the thread when it begins, before it lets events gather.

    Attributes:
        pressure: whether calls are to wait for the thread, and how long.
        losses: what was lost, and why.
        slices: the pauses of the thread; a `deliver` that computes for long makes some, too.

    >>> kept = []
    >>> buffer = Buffer(kept.extend, name="example")
    >>> from mainstay.events import CallSucceeded
    >>> buffer.put(CallSucceeded(operation="fetch"))
    >>> buffer.flush()
    True
    >>> kept[0].operation, buffer.stats()["delivered"]
    ('fetch', 1)
    """

    def __init__(
        self,
        deliver: Callable[[list[Event]], object],
        *,
        name: str,
        size: int = 10_000,
        batch: int = 1_000,
        every: Seconds = 0.1,
        spill: str | os.PathLike[str] | bool | None = None,
        timeout: Seconds = 5.0,
        strict: bool = False,
        at_end: Callable[[], object] | None = None,
        at_start: Callable[[], object] | None = None,
    ) -> None:
        check = Checker("Buffer")
        self.name = check.name("name", name)
        self.size = check.count("size", size, 10_000_000)
        self._every = check.duration("every", every, 0.001, 60.0)
        self.timeout = check.duration("timeout", timeout, 0.001, 3600.0)
        most = check.count("batch", batch, 1_000_000)
        check.close()
        self.strict = strict
        self._deliver = deliver
        self._at_end = at_end
        self._at_start = at_start
        self.pressure, self.losses = Pressure(), Losses()
        self._here = fork_mark()
        folder = None if spill is True else spill
        self._backlog = Backlog(most, None if folder is False else Spill(name, folder), self.losses)
        self.slices = self._backlog.slices
        self._half = max(1, self.size // 2)
        self._low = self._half * 9 // 10
        self._most = self.size if folder is False else self.size * _ROOM
        self._reset()
        reset_in_child(self, Buffer._reset)
        flush_at_exit(self, Buffer.end)

    def _reset(self) -> None:
        """Empties it, as for a forked child: its parent delivers what it has taken."""
        self._backlog.reset()
        self.pressure.reset()
        self.losses.reset()
        self._queue = self._backlog.queue
        self.known: set[str] = set()
        """What a sink has put and need not put again; a forked child puts it again, since it does
        not know when its parent's is written."""
        self._thread: threading.Thread | None = None
        self._is_spilling = False
        self._lock = threading.Lock()
        self._delivering = threading.Lock()
        self._wake = threading.Event()
        self._hurries = self._is_ending = False
        self._flushing = 0
        self._in_a_row = 0
        self._error: BaseException | None = None
        self._disk_until = 0.0
        self._disk_error: BaseException | None = None
        self._refused = 0
        self._counts = {"delivered": 0, "failures": 0}
        self._warned: set[str] = set()

    # --- for calls -------------------------------------------------------------------------------

    def put(self, event: Event | Facts) -> None:
        """Takes an event or the facts of a call, at once; never raises, unless it is strict."""
        if self.strict:
            self._put_strictly(event)
            return
        self.add(event)

    def add(self, event: Event | Facts) -> None:
        """Takes an event and waits for nothing, even if it is strict: another one follows."""
        if not self._here[0]:
            PROCESS.notice()
        queue = self._queue
        if len(queue) >= self._half and not self._has_room():
            return
        queue.append(event)
        if self._thread is None:
            self._start()

    def commit(
        self, event: Event | Facts, timeout: float | None = None, *, kept_will_do: bool = False
    ) -> bool:
        """Takes an event and waits until it is delivered; whether it was, in time.

        Callers that wait at the same time share one delivery. An event that was not delivered in
        time stays in the queue. With `kept_will_do` being safe on disk is enough: no caller waits
        for an unavailable destination.
        """
        PROCESS.notice()
        if len(self._queue) >= self._half and not self._has_room():
            return False
        ticket = Ticket(kept_will_do=kept_will_do)
        self._queue.extend((event, ticket))
        if kept_will_do and self._in_a_row:
            self._start()
            return self._keep_all(ticket)
        self._hurries = self._hurries or not self._in_a_row
        return self._wait_for(ticket, timeout)

    def flush(self, timeout: Seconds | None = None) -> bool:
        """Waits until everything taken so far is delivered, or safe on disk; whether it is."""
        PROCESS.notice()
        if threading.current_thread() is self._thread:
            return False
        ticket = Ticket(kept_will_do=True)
        self._queue.append(ticket)
        self._hurries = True
        return self._wait_for(ticket, None if timeout is None else seconds_of(timeout))

    def close(self) -> bool:
        """Flushes, and ends the thread; a later event starts another.

        What could not be delivered stays on disk, for the next process with this destination.
        """
        is_done = self.flush()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._is_ending = self._hurries = True
            self._wake.set()
            thread.join(1.0 if is_done or self._backlog.is_safe else 0.0)
        return is_done

    def end(self) -> None:
        """What the end of the process does: `at_end`, and a flush."""
        if self._at_end is not None:
            with suppress(SinkError):  # there is no caller to raise it to; it stays in the queue
                self._at_end()
        if not (self._is_ending and self._backlog.is_empty):  # closed, and nothing came since
            self.flush()

    def between(self, work: Callable[[], object]) -> bool:
        """Calls `work` between two deliveries, if the last one failed; whether it did."""
        if not self._in_a_row or not self._delivering.acquire(timeout=_FINISH):
            return False
        try:
            if self._in_a_row:
                work()
            return bool(self._in_a_row)
        finally:
            self._delivering.release()

    def append(self, event: Event) -> None:
        """Takes an event even if there is no room: one that states what found none."""
        self._queue.append(event)

    def finish(self, last: Callable[[], object]) -> bool:
        """Calls `last` between two deliveries, if nothing is left to deliver; whether it did."""
        if not self._delivering.acquire(timeout=_FINISH):
            return False
        try:
            if not self._backlog.is_empty or self._backlog.has_left:
                return False
            last()
            return True
        finally:
            self._delivering.release()

    def stats(self) -> dict[str, int]:
        """How many events were taken, delivered, spilled to disk, recovered from it and lost.

        `recovered` were left by a process that is gone; `waiting` are in memory still; `failures`
        are deliveries that failed; `held` are the waits of calls for the thread.
        """
        backlog = self._backlog
        counts = {**self._counts, **backlog.counts, "waiting": backlog.waiting}
        counts["lost"], counts["held"] = self.losses.total, self.pressure.held
        counts["taken"] += backlog.queued + self._refused
        return counts

    def _put_strictly(self, event: Event | Facts) -> None:
        if not self.commit(event):
            what = "call" if isinstance(event, Facts) else event.event_type
            raise SinkError(self.name, what, self.timeout) from self._error

    def _wait_for(self, ticket: Ticket, timeout: float | None) -> bool:
        """Starts the thread and waits; after the timeout the disk is enough, if it may be."""
        with self._lock:
            self._flushing += ticket.kept_will_do
        try:
            if self._start():
                self._wake.set()
                in_time = ticket.wait(self.timeout if timeout is None else timeout)
            else:
                self._pump()  # at the interpreter's end no thread can be started
                in_time = ticket.wait(0.0)
            return in_time or (ticket.kept_will_do and self._keep_all(ticket))
        finally:
            with self._lock:
                self._flushing -= ticket.kept_will_do

    # --- the thread ------------------------------------------------------------------------------

    def _start(self) -> bool:
        """Starts the thread if there is none; whether there is one."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return True
            name = f"mainstay-{self.name[:40]}"
            thread = detached_thread(self._run, name)
            try:
                thread.start()
            except RuntimeError:  # at the interpreter's end, or if there are too many
                return False
            self._thread = thread
            self._is_ending = False
            return True

    def _run(self) -> None:
        try:
            self._deliver_all()
        finally:
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None  # it died: the next event starts another

    def _deliver_all(self) -> None:
        """Delivers what comes, until there was nothing for a while."""
        self._backlog.take_over()
        while self._backlog.refused:
            reason = self._backlog.refused.pop()
            _log.warning("%s: what waits there is not delivered: %s", self.name, reason)
        if self._at_start is not None and self._backlog.has_events:
            with self._delivering, suppress(Exception):  # the first delivery reports what is wrong
                self._at_start()
        quiet = 0
        while (quiet < _QUIET_ROUNDS and not self._is_ending) or not self._may_end():
            self._rest()
            quiet = quiet + 1 if self._backlog.is_empty else 0
            self._pump()

    def _may_end(self) -> bool:
        """Whether there is nothing to do; what comes from now on starts another thread."""
        with self._lock:
            self._thread = None
        if self._backlog.is_empty:
            return True
        if self._is_ending and self._backlog.is_safe:
            self._backlog.release()
            return True
        with self._lock:
            if self._thread is not None:
                return True
            self._thread = threading.current_thread()
            return False

    def _rest(self) -> None:
        """Lets events gather, for longer after each failure; a waiting caller ends it at once."""
        pause = self._every
        if self._in_a_row:
            delay = _CURVE.base(self._in_a_row)
            pause = _JITTER.spread(delay, _random.random(), delay, _CURVE)
        end = SYSTEM.monotonic() + pause
        while not self._hurries and (left := end - SYSTEM.monotonic()) > 0.0:
            self._wake.wait(left)
            self._wake.clear()
            if not self._in_a_row and len(self._queue) >= self._half:
                break
        self._hurries = False

    def _pump(self) -> None:
        """Delivers until nothing is left, or a delivery fails."""
        with self._delivering:
            began = SYSTEM.monotonic()
            self.pressure.begin()
            self.slices.begin()
            while True:
                try:
                    batch = self._next()
                    if batch is not None and batch.events:
                        self._deliver(batch.events)
                except Exception as error:
                    self._failed(error)
                    return
                if batch is None:
                    break
                self._backlog.done(batch)
                self._counts["delivered"] += len(batch.events)
                self._in_a_row = 0
                began = self._measure(batch, began)
            self._log_recovery()

    def _measure(self, batch: Batch, began: float) -> float:
        """Keeps how long the batch took, and lets calls go on if the queue is short again."""
        now = SYSTEM.monotonic()
        self.pressure.delivered(batch.entries, now - began)
        if len(self._queue) < self._low:
            self.pressure.fall()
        return now

    def _next(self) -> Batch | None:
        batch = self._backlog.next()
        if self._backlog.unreadable:
            (file, reason), *others = self._backlog.unreadable
            more = f", and {len(others)} more files" if others else ""
            text = "%s: not delivered, and was set aside: %s (%s)%s"
            _log.error(text, self.name, file, reason, more)
            self._backlog.unreadable.clear()
        return batch

    def _failed(self, error: Exception) -> None:
        self._error = error
        self._in_a_row += 1
        self.pressure.fall()  # the disk takes what comes: no call waits for a destination
        self._counts["failures"] += 1
        self._warn_once("undelivered", "%s: not delivered for now, and kept: %s", error)
        if self._flushing:
            self._keep_all()

    # --- the disk --------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        """Whether one more event may be taken; sees that there will be room for others."""
        waiting = len(self._queue)
        if not self._in_a_row:
            self.pressure.rise(waiting / self._half)
            if not self._wake.is_set():
                self._wake.set()
        if waiting >= self.size and not self._is_spilling and self._needs_disk(waiting):
            self._make_room()
        if waiting < self._most:
            return True
        with self._lock:
            self._refused += 1
        why = self._why_lost()
        self.losses.add(1, why)
        self._warn_once("lost", "%s: events are being lost: %s", why)
        return False

    def _needs_disk(self, waiting: int) -> bool:
        """Whether waiting for the thread is not enough: it fails, is stuck, or is far behind."""
        return bool(self._in_a_row) or waiting >= 2 * self.size or self.pressure.is_stuck

    def _why_lost(self) -> str:
        """The reason for a loss: what keeps the thread from delivering, and what the disk."""
        if self._in_a_row:
            why = f"they cannot be delivered ({_text_of(self._error)})"
        elif self.pressure.is_stuck:
            why = "the destination does not answer"
        else:
            why = "the thread that delivers them cannot keep up"
        if self._backlog.spill is None:
            return f"{why}, and there is no spill folder"
        if self._disk_error is not None:
            return f"{why}, and the spill folder takes none ({_text_of(self._disk_error)})"
        return f"{why}, and they come faster than the spill folder takes them"

    def _make_room(self) -> None:
        """Starts a thread that writes the queue's older half to disk."""
        with self._lock:
            is_time = SYSTEM.monotonic() >= self._disk_until
            if self._is_spilling or self._backlog.spill is None or not is_time:
                return
            self._is_spilling = True
            name = f"mainstay-{self.name[:40]}-spill"
            try:
                detached_thread(self._spill, name).start()
            except RuntimeError:
                self._is_spilling = False

    def _spill(self) -> None:
        try:
            while len(self._queue) >= self.size and self._keep(self._half):
                pass
        finally:
            self._is_spilling = False

    def _keep_all(self, ticket: Ticket | None = None) -> bool:
        """Brings everything to disk that is in memory only; whether the ticket is settled."""
        if self._backlog.spill is not None:
            self._keep(0)
        return ticket is not None and ticket.wait(0.0)

    def _keep(self, down_to: int) -> bool:
        try:
            self._backlog.keep(down_to)
        except Exception as error:
            self._disk_until = SYSTEM.monotonic() + 1.0
            self._disk_error = error
            self._warn_once(
                "disk", "%s: what cannot be delivered cannot be spilled either: %s", error
            )
            return False
        assert self._backlog.spill is not None
        self._disk_error = None
        self._warn_once("spilled", "%s: events wait in %s", self._backlog.spill.where)
        return True

    # --- the log ---------------------------------------------------------------------------------

    def _warn_once(self, kind: str, text: str, value: object) -> None:
        """Logs a warning of a kind once, until everything is delivered again."""
        if kind not in self._warned:
            self._warned.add(kind)
            shown = _text_of(value) if isinstance(value, BaseException) else value
            _log.warning(text, self.name, shown)

    def _log_recovery(self) -> None:
        if self._warned:
            self._warned.clear()
            _log.info("%s: everything is delivered again", self.name)


def _text_of(error: BaseException | None) -> str:
    return "" if error is None else reason_of(error)
