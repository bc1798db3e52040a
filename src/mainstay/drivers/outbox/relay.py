"""The relay: claims entries, publishes them, and writes what became of each.

One async function. A claim of up to `batch` entries is divided into lanes, one for each aggregate:
lanes run at once, the entries of a lane one after the other, each after the acknowledgement of the
one before. What lanes have finished is written together by one task, while others go on. Steps of
the table run in threads, so that no database blocks the event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from os import urandom
from typing import TYPE_CHECKING

from msgspec import Struct

import mainstay.runtime.clock as clock
from mainstay.core.base.validate import Checker
from mainstay.core.outbox.settle import LONGEST_WAIT, given_back
from mainstay.drivers.outbox.loop import run_in_loop
from mainstay.errors import StoreUnavailable, UsageError
from mainstay.runtime.background import detached_thread
from mainstay.runtime.reports.report_failure import report

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence
    from typing import Self, TypeVar

    from mainstay.core.outbox.entry import Entry
    from mainstay.core.outbox.settle import Settlement
    from mainstay.drivers.outbox.publish import Attempts
    from mainstay.drivers.outbox.reports import RelayCounts, Reports
    from mainstay.drivers.outbox.table import ClaimedBatch, OutboxTable, UpkeepReport
    from mainstay.ports import Publisher

    Answer = TypeVar("Answer")

_THREADS = 3
"""Steps of the table under way at once: a claim, a settlement, a renewal."""
_SOON = 0.02
"""Seconds after which a claim is repeated that found only rows which others have locked."""
_MOMENT = 0.001
"""Seconds for which outcomes are collected before they are written, if most are yet to come."""
_MOST_BATCHES = 2
"""Batches under way, above which none is claimed: what a worker that dies leaves to others."""
_LONGEST_JOIN = 2.0
"""Seconds for which the thread that listens is waited for: it may be connecting."""
_PURGE_EVERY, _PURGES, _PURGED = 60.0, 10, 1000
"""Seconds between two purges, steps of each, and entries of a step."""
_PURGE_PAUSE = 4.0
"""The pause after a purge that leaves something over, as a multiple of the time it took."""


class RelayOptions(Struct, frozen=True):
    """How a relay works."""

    batch: int = 100
    poll: float = 1.0
    lease: float = 30.0
    retention: float | None = None
    """Seconds after which what was published or discarded is deleted; None for never."""

    @classmethod
    def of(
        cls, batch: object, poll: object, lease: object, retention: object = None
    ) -> RelayOptions:
        """Checked; raises PolicyError for what is out of bounds."""
        check = Checker("relay")
        made = cls(
            check.count("batch", batch, 10_000),
            check.duration("poll", poll, 0.001, 3600.0),
            check.duration("lease", lease, 0.05, LONGEST_WAIT),
            None if retention is None else check.seconds("retention", retention),
        )
        check.close()
        return made


class _Flight(Struct):
    """An entry that this relay has claimed."""

    entry: Entry
    until: float
    """On the steady clock: the lease of the claim, or of its last renewal."""
    is_lost: bool = False
    death: asyncio.Future[bool] | None = None
    """Of an entry that is dead: whether that was written, and accepted."""


class Relay:
    """Publishes what is in the outbox.

    Made by `engine.outbox.relay(publish)`. Any number of them, in any number of processes, may work
    on one database: each entry is claimed by one.
    """

    def __init__(
        self,
        table: OutboxTable,
        publisher: Publisher,
        attempts: Attempts,
        reports: Reports,
        options: RelayOptions,
    ) -> None:
        self._table = table
        self._publisher = publisher
        self._attempts = attempts
        self._reports = reports
        self._options = options
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- for callers ------------------------------------------------------------------------------

    def drain(self) -> RelayCounts:
        """Publishes until nothing is due, and returns counts; retries that are not due yet stay.

        >>> from mainstay import Engine
        >>> import tempfile
        >>> with Engine(f"sqlite:///{tempfile.mkdtemp()}/app.db") as engine:
        ...     engine.outbox.relay(print).drain().published
        0
        """
        return run_in_loop(self.adrain, "drain")

    async def adrain(self) -> RelayCounts:
        """The same, awaited."""
        return await self._work(until_empty=True)

    def run(self) -> RelayCounts:
        """Publishes until `stop()` is called, in an event loop of its own."""
        return run_in_loop(self.arun, "run")

    async def arun(self) -> RelayCounts:
        """Publishes until `stop()` is called or the task is cancelled."""
        return await self._work(until_empty=False)

    def start(self) -> Relay:
        """Runs in a thread of its own; `stop()` ends it."""
        if self._thread is not None:
            raise UsageError("the relay is running already", hint="stop() it first")
        self._stop.clear()  # of a stop() while it was not running
        self._thread = detached_thread(self.run, "mainstay-relay")
        self._thread.start()
        return self

    def stop(self, *, wait: bool = True) -> None:
        """Lets the relay end: what is being published is finished, the rest is given back.

        Any thread may call it, and a signal handler.
        """
        self._stop.set()
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(self._wake.set)
        thread = self._thread
        if wait and thread is not None and thread is not threading.current_thread():
            thread.join()
            self._thread = None

    @property
    def is_running(self) -> bool:
        """Whether its thread runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def publisher(self) -> Publisher:
        """What it publishes with."""
        return self._publisher

    @property
    def counts(self) -> RelayCounts:
        """What this relay has done so far."""
        return self._reports.counts

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- the loop ---------------------------------------------------------------------------------

    async def _work(self, *, until_empty: bool) -> RelayCounts:
        if self._loop is not None:
            raise UsageError("the relay is running already", hint="make another one")
        self._loop = asyncio.get_running_loop()
        self._wake, self._ended = asyncio.Event(), asyncio.Event()
        self._flights: dict[str, _Flight] = {}
        self._finished: list[tuple[_Flight, Settlement]] = []
        self._settled_soon = 0
        """Flights that have ended, and whose outcome is not written yet."""
        self._suspect: _Flight | None = None
        """One that has ended a worker before: nothing is claimed beside it."""
        self._lanes: set[asyncio.Task[None]] = set()
        self._next_upkeep = self._next_purge = self._offset = 0.0
        self._is_ending = False
        self._failure: BaseException | None = None
        self._is_down = False
        """Whether the last write of outcomes has failed."""
        self._threads = ThreadPoolExecutor(_THREADS, "mainstay-relay")
        silent = threading.Event()
        helpers = [asyncio.create_task(self._settling())]
        helpers.append(asyncio.create_task(self._renewing()))
        listening = detached_thread(self._table.listen, "mainstay-listen", self._woken, silent)
        if not until_empty:
            listening.start()
        try:
            await self._claiming(until_empty=until_empty)
        finally:
            silent.set()
            try:
                await self._finish(helpers, listening)
            finally:
                self._loop = None
                self._stop.clear()
        if self._failure is not None and until_empty:
            raise self._failure
        return self._reports.counts

    async def _claiming(self, *, until_empty: bool) -> None:
        """Claims while there is room, until the relay is stopped or nothing is due."""
        while not self._stop.is_set() and (self._failure is None or not until_empty):
            self._wake.clear()
            try:
                wait = await self._round(until_empty=until_empty)
            except StoreUnavailable as error:
                if until_empty:
                    raise
                report(error, "the relay of %s waits for its database", self._table.url)
                wait = self._options.poll
            if wait is None:
                return
            if wait > 0.0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._wake.wait()

    async def _round(self, *, until_empty: bool) -> float | None:
        """One claim; the seconds to wait for the next one, or None if there is nothing left."""
        due = await self._upkeep()
        if not self._has_room():
            return self._options.poll  # what ends wakes it
        is_idle = not self._flights
        batch = await self._claim(self._options.batch, is_idle=is_idle)
        if batch.entries or batch.parked:
            return 0.0
        if batch.seen:
            return _SOON if is_idle else self._options.poll
        if until_empty and is_idle:
            return None
        return min(self._options.poll, due)

    def _has_room(self) -> bool:
        """Whether to claim: one more batch while one is published, and while others are written."""
        if self._suspect is not None:
            return False
        under_way, batch = len(self._flights), self._options.batch
        return under_way - self._settled_soon <= batch and under_way <= _MOST_BATCHES * batch

    async def _claim(self, room: int, *, is_idle: bool) -> ClaimedBatch:
        token = urandom(8).hex()
        until = clock.steady() + self._options.lease
        step = asyncio.ensure_future(
            self._step(lambda: self._table.claim(room, self._options.lease, token, is_idle=is_idle))
        )
        try:
            batch = await asyncio.shield(step)
        except asyncio.CancelledError:  # what the thread claims meanwhile is given back
            self._is_ending = True
            with suppress(StoreUnavailable):
                self._begin(await step, until)
            raise
        self._begin(batch, until)
        return batch

    def _begin(self, batch: ClaimedBatch, until: float) -> None:
        """Starts a lane for each aggregate."""
        if batch.entries:
            self._offset = batch.now - clock.steady()
        for entry in batch.entries:
            flight = self._flights[entry.id] = _Flight(entry, until)
            if entry.crashes:
                self._suspect = flight
        lanes: dict[str, list[_Flight]] = {}
        for entry in batch.entries:
            lanes.setdefault(entry.aggregate or f"\0{entry.id}", []).append(self._flights[entry.id])
        for lane in lanes.values():
            task = asyncio.create_task(self._lane(lane))
            self._lanes.add(task)
            task.add_done_callback(self._lanes.discard)

    async def _lane(self, flights: Sequence[_Flight]) -> None:
        """Publishes entries one after the other, until one has to wait."""
        left = deque(flights)
        try:
            while left and self._may_publish(left[0]) and await self._goes_on(left):
                pass
        except asyncio.CancelledError:  # with every task of the loop; it may have arrived
            self._give_back(left)
            raise
        self._give_back(left)

    async def _goes_on(self, left: deque[_Flight]) -> bool:
        """Publishes the first of some entries; whether the next one may be published.

        What is dead no longer holds its aggregate. If that were not in the table before a later
        entry is published, and could not be written, another relay would publish the earlier one
        after the later one.
        """
        flight = left[0]
        done = await self._attempts.attempt(flight.entry, self._now)
        left.popleft()
        ended = [(flight, done)]
        if done.blocks:
            ended += [(each, given_back(each.entry, is_behind=True)) for each in left]
            left.clear()
        self._ends(ended)
        if not (done.is_dead and left):
            return True
        flight.death = asyncio.get_running_loop().create_future()
        return await flight.death

    def _may_publish(self, flight: _Flight) -> bool:
        """Whether the relay goes on, and the lease is certain.

        A worker that was stopped for longer than its lease publishes nothing more.
        """
        is_ending = self._is_ending or self._stop.is_set()
        return not is_ending and not flight.is_lost and clock.steady() < flight.until

    def _give_back(self, flights: Iterable[_Flight]) -> None:
        ended = [(each, given_back(each.entry, is_behind=False)) for each in flights]
        if ended:
            self._ends(ended)

    def _ends(self, ended: Sequence[tuple[_Flight, Settlement]]) -> None:
        self._finished.extend(ended)
        self._settled_soon += len(ended)
        self._ended.set()
        if not self._wake.is_set() and self._has_room():
            self._wake.set()

    def _now(self) -> float:
        """The clock of the table, as of the last claim."""
        return clock.steady() + self._offset

    # --- beside the loop --------------------------------------------------------------------------

    async def _settling(self) -> None:
        """Writes what lanes have finished, all of it at once, until the relay ends."""
        while True:
            await self._ended.wait()
            if self._settled_soon * 2 < len(self._flights):  # more will have ended in a moment
                await asyncio.sleep(_MOMENT)
            await self._write()

    async def _write(self) -> None:
        self._ended.clear()
        ended, self._finished = self._finished, []
        if not ended:
            return
        accepted: Container[str] = ()
        try:
            accepted = await self._settle(ended)
            self._is_down = False
        except asyncio.CancelledError:  # with every task of the loop
            self._finished[:0] = ended  # the end of the relay writes it
            raise
        except Exception as error:  # leases run out, and others take over
            self._failure, self._is_down = error, True
            report(error, "the relay of %s could not write outcomes", self._table.url)
        for flight, _ in ended:
            self._forget(flight, is_accepted=flight.entry.id in accepted)
        self._settled_soon -= len(ended)
        self._wake.set()

    def _forget(self, flight: _Flight, *, is_accepted: bool) -> None:
        """An entry is no longer under way."""
        if self._flights.get(flight.entry.id) is flight:  # or it was claimed again after its lease
            del self._flights[flight.entry.id]
        if self._suspect is flight:
            self._suspect = None
        if flight.death is not None and not flight.death.done():
            flight.death.set_result(is_accepted)

    async def _settle(self, ended: Sequence[tuple[_Flight, Settlement]]) -> Container[str]:
        """Writes outcomes; the ids of those that were accepted."""
        entries, done = [each[0].entry for each in ended], [each[1] for each in ended]
        until = clock.steady() + self._options.lease
        kept: set[str] | None = None
        is_repeat = False
        while kept is None:
            try:
                kept = await self._step(lambda: self._table.settle(entries, done))
            except StoreUnavailable:
                if clock.steady() > until:
                    raise
                is_repeat = True
                await asyncio.sleep(min(self._options.poll, self._options.lease / 10))
        # A write that is repeated may find its own first attempt, whose reply was lost.
        accepted = {each.id for each in done} if is_repeat else kept
        self._reports.settled(zip(entries, done, strict=True), accepted, self._now())
        if any(each.is_dead for each in done):
            await self._step(self._reports.raise_items)
        return accepted

    async def _renewing(self) -> None:
        """Renews the leases of what is under way, at a third of their length."""
        while True:
            await asyncio.sleep(self._options.lease / 3)
            flights = list(self._flights.values())
            if not flights:
                continue
            began = clock.steady()
            try:
                renew = partial(self._table.renew, [each.entry for each in flights])
                kept = await self._step(partial(renew, self._options.lease))
            except Exception as error:  # the next one may succeed before the leases are over
                report(error, "the relay of %s could not renew leases", self._table.url)
                continue
            for flight in flights:
                if flight.entry.id in kept:
                    flight.until = began + self._options.lease
                else:
                    flight.is_lost = True

    async def _upkeep(self) -> float:
        """Promotes what is due, if it is time for that; the seconds until it is next."""
        now = clock.current.monotonic()
        if now >= self._next_upkeep:
            found = await self._step(lambda: self._table.upkeep(self._attempts.rules))
            self._reports.recovered(found.recovered)
            if found.has_unreported:
                await self._step(self._reports.raise_items)
            if self._options.retention is not None and now >= self._next_purge:
                await self._purge(self._options.retention, now)
            now = clock.current.monotonic()
            self._next_upkeep = now + self._until_next(found)
        return max(0.0, self._next_upkeep - now)

    async def _purge(self, retention: float, now: float) -> None:
        """Deletes what has ended long ago, in small steps; the rest soon, between claims."""
        for _ in range(_PURGES):
            entries = await self._step(lambda: self._table.purge(retention, _PURGED))
            notes = await self._step(lambda: self._table.forget(retention, _PURGED))
            if entries < _PURGED and notes < _PURGED:
                self._next_purge = now + _PURGE_EVERY
                return
        ended = clock.current.monotonic()
        self._next_purge = ended + _PURGE_PAUSE * (ended - now)

    def _until_next(self, found: UpkeepReport) -> float:
        if found.next_at is None:
            return self._options.poll
        return min(self._options.poll, max(0.001, found.next_at - found.now))

    async def _finish(
        self, helpers: Sequence[asyncio.Task[None]], listening: threading.Thread
    ) -> None:
        """Lets lanes end, writes what they have finished, and closes the publisher."""
        self._is_ending = True
        while self._lanes or self._settled_soon:
            if not self._lanes and (self._is_down or helpers[0].done()):
                break
            await asyncio.wait([*self._lanes, *helpers], timeout=_SOON)
        for task in helpers:
            task.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
        if not self._is_down:
            await self._write()  # if every task of the loop was cancelled, nothing else has
        with suppress(Exception):
            await self._publisher.close()
        if listening.is_alive():
            await self._step(partial(listening.join, _LONGEST_JOIN))
        self._threads.shutdown()  # no step is under way

    def _woken(self) -> None:
        """From the thread that listens."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._wake.set)

    async def _step(self, step: Callable[[], Answer]) -> Answer:
        """A step of the table, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, step)
