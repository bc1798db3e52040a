"""What a buffer has taken and not delivered yet, in order: a batch, files, a queue.

The batch under way is the oldest, then come the files (spill.py), then the queue. Events go from
the queue to a file, or into a batch, under one lock; appending to the queue needs none.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from mainstay.core.events.describe import reason_of
from mainstay.runtime.reports.deferred_events import Facts
from mainstay.sinks.delivery.seal import is_shortage
from mainstay.sinks.delivery.slices import Slices
from mainstay.sinks.queues import content_of

if TYPE_CHECKING:
    from pathlib import Path

    from mainstay.core.base.event import Event
    from mainstay.sinks.delivery.losses import Losses
    from mainstay.sinks.delivery.spill import Spill


class Ticket:
    """Stands in the queue behind the events that a caller waits for.

    Args:
        kept_will_do: whether being safe on disk is enough.
    """

    __slots__ = ("_done", "kept_will_do")

    def __init__(self, *, kept_will_do: bool = False) -> None:
        self._done = threading.Event()
        self.kept_will_do = kept_will_do

    def settle(self) -> None:
        self._done.set()

    def wait(self, seconds: float) -> bool:
        return self._done.wait(seconds)


class Batch:
    """Events that are delivered together, the tickets behind them, and their file."""

    __slots__ = ("entries", "events", "file", "number", "tickets")

    def __init__(
        self,
        number: int,
        events: list[Event],
        tickets: list[Ticket],
        file: Path | None = None,
        entries: int = 0,
    ) -> None:
        self.number = number
        self.events = events
        self.tickets = tickets
        self.file = file
        self.entries = entries
        """How many entries of the queue it was made of; 0 if it comes from a file."""


class Backlog:
    """The batch, the files and the queue.

    Attributes:
        queue: where calls append.
        counts: how many were taken out of the queue, spilled and recovered.
        unreadable: files that were set aside and why, until the buffer has logged them.
        refused: why folders are passed over, until the buffer has logged it.
        has_left: whether files were left to the next process.
        slices: the pauses of the thread that delivers.
    """

    def __init__(self, batch: int, spill: Spill | None, losses: Losses) -> None:
        self._batch = batch
        self.spill = spill
        self._losses = losses
        self.slices = Slices()
        self.reset()

    def reset(self) -> None:
        """Empties it, as for a forked child: its parent delivers what was there."""
        self.queue: deque[Event | Facts | Ticket] = deque()
        self.current: Batch | None = None
        self.counts = dict.fromkeys(("taken", "spilled", "recovered"), 0)
        self.has_left = False
        self.unreadable: list[tuple[Path, str]] = []
        self.refused: list[str] = []
        self._order = threading.RLock()
        self._tickets: dict[Path, list[Ticket]] = {}
        self._recovered: set[Path] = set()
        self._number = 0
        if self.spill is not None:
            self.spill.forget()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to deliver and no caller waits."""
        return not self.queue and self.current is None and not self._files

    @property
    def has_events(self) -> bool:
        """Whether there is more to deliver than tickets."""
        return self.current is not None or bool(self._files) or self.queued > 0

    @property
    def is_safe(self) -> bool:
        """Whether everything that is left is on disk."""
        current = self.current
        return not self.queue and (current is None or current.file is not None)

    def release(self) -> None:
        """Leaves the files to the next process that delivers to the same destination."""
        with self._order:
            self.current = None
            self._tickets.clear()
            self._recovered.clear()
            self.has_left = bool(self._files)
            if self.spill is not None:
                self.spill.forget()

    @property
    def waiting(self) -> int:
        """How many events are in memory only."""
        current = self.current
        is_in_memory = current is not None and current.file is None
        return self.queued + (len(current.events) if current is not None and is_in_memory else 0)

    @property
    def queued(self) -> int:
        """How many events are in the queue."""
        return sum(not isinstance(each, Ticket) for each in content_of(self.queue))

    @property
    def _files(self) -> deque[Path]:
        return self.spill.pending if self.spill is not None else _NONE

    def take_over(self) -> None:
        """Makes the files of processes that are gone ours, before everything newer."""
        if self.spill is not None:
            with self._order, suppress(OSError):
                known = set(self.spill.refused)
                self._recovered.update(self.spill.take_over())
                self.has_left = False
                new = [each for path, each in self.spill.refused.items() if path not in known]
                self.refused += [reason_of(each) for each in new]

    def next(self) -> Batch | None:
        """The oldest batch; the same one until it is done.

        Raises OSError or MemoryError if its file cannot be read for want of means.
        """
        with self._order:
            while self.current is None and self._files:
                self.current = self._read(self._files[0])
            if self.current is None and self.queue:
                self.current = self._take()
            return self.current

    def done(self, batch: Batch) -> None:
        """The batch was delivered."""
        with self._order:
            self.current = None
            if batch.file is not None and self.spill is not None:
                batch.tickets += self._tickets.pop(batch.file, ())
                self.spill.done(batch.file)
            if batch.file in self._recovered:
                self._recovered.discard(batch.file)
                self.counts["recovered"] += len(batch.events)
        for ticket in batch.tickets:
            ticket.settle()

    def keep(self, down_to: int = 0) -> None:
        """Brings the batch under way and the queue's oldest events to disk.

        Raises OSError where the disk refuses; then everything is where it was.
        """
        with self._order:
            if self.spill is None:
                raise FileNotFoundError("there is no spill folder")
            if self.current is not None and self.current.file is None:
                self._write(self.current, first=True)
            while len(self.queue) > down_to:
                batch = self._take()
                try:
                    self._write(batch)
                except Exception:
                    self._put_back(batch)
                    raise

    def _take(self) -> Batch:
        """The queue's first events, and the tickets behind them."""
        queue = self.queue
        events: list[Event] = []
        tickets: list[Ticket] = []
        entries = 0
        while queue and len(events) < self._batch:  # the facts of a call are several events
            most = max(1, (self._batch - len(events)) // _EVENTS_OF_A_CALL)
            taken = [queue.popleft() for _ in range(min(len(queue), most))]
            entries += len(taken)
            if _UNLIKE_EVENTS.isdisjoint(map(type, taken)):  # at no cost
                events += cast("list[Event]", taken)
            else:
                self._sort_out(taken, events, tickets)
        while queue and isinstance(queue[0], Ticket):
            tickets.append(cast("Ticket", queue.popleft()))
        self._number += 1
        self.counts["taken"] += len(events)
        return Batch(self._number, events, tickets, entries=entries)

    def _sort_out(
        self, taken: list[Event | Facts | Ticket], events: list[Event], tickets: list[Ticket]
    ) -> None:
        for each in taken:
            if isinstance(each, Ticket):
                tickets.append(each)
            elif isinstance(each, Facts):
                events += self._events_of(each)
                self.slices.pause()
            else:
                events.append(each)

    def _events_of(self, facts: Facts) -> list[Event]:
        """The events of a call that left its facts; none, and a report, if they make none."""
        try:
            return facts.events()
        except Exception as error:
            from mainstay.runtime.reports.report_failure import report

            self._losses.add(1, "the facts of a call make no events")
            message, redact = "the facts of a call of %s make no events", facts.plan.redact
            report(error, message, facts.plan.operation, redact=redact)
            return []

    def _put_back(self, batch: Batch) -> None:
        self.queue.extendleft(reversed([*batch.events, *batch.tickets]))
        self.counts["taken"] -= len(batch.events)

    def _write(self, batch: Batch, *, first: bool = False) -> None:
        """Writes a batch to disk; callers that wait for no more than that go on."""
        assert self.spill is not None
        if batch.events:
            batch.file, lost = self.spill.write(batch.events, batch.number, first=first)
            self.counts["spilled"] += len(batch.events) - lost
            if lost:
                self._losses.add(lost, "an event has no written form")
        for ticket in batch.tickets:
            if ticket.kept_will_do or batch.file is None:
                ticket.settle()
            else:
                self._tickets.setdefault(batch.file, []).append(ticket)
        batch.tickets = []

    def _read(self, file: Path) -> Batch | None:
        assert self.spill is not None
        try:
            return Batch(0, self.spill.read(file), [], file)
        except Exception as error:  # not ours, or damaged: it must not keep others from delivery
            if is_shortage(error):
                raise
            self.unreadable.append((self.spill.set_aside(file), reason_of(error)))
            return None


_NONE: deque[Path] = deque()
_UNLIKE_EVENTS = {Ticket, Facts}
_EVENTS_OF_A_CALL = 4
"""About how many events the facts of a call come to: that many fewer are taken at a time."""
