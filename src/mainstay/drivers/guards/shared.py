"""Shares circuits and budgets with other processes, through a store, in the background.

A thread of its own brings what this node sees to the store, and what the others see from there, in
steps some seconds apart. A second thread carries out what cannot wait for the next step: a circuit
that has opened, a probe that needs a permit. Only those two calls wait for it, a tenth of a second
at most. If the store is unavailable, each process goes on with what it has; the log reports that
once, and once again when the store is back.

A circuit may be made at any time, by the first call of an operation, and no call reads the store.
So the first step, when the engine is opened, looks at the tables of all circuits, and each step
after it looks again; what a new circuit begins with is known before it is made.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

from msgspec.structs import replace

import mainstay.runtime.clock as clock
from mainstay.core.base.spaces import Space
from mainstay.core.circuit import cluster as core
from mainstay.core.circuit import permits
from mainstay.core.circuit.cluster import Seat
from mainstay.core.limits.budget import thousandths
from mainstay.core.limits.shared_bucket import TokenTotals, report_totals
from mainstay.drivers.call.guard import WAIT, Tally
from mainstay.drivers.guards.budget import RetryBudget, TokenBudget
from mainstay.drivers.guards.link import CircuitLink
from mainstay.drivers.guards.prospects import Prospects, prospect_of
from mainstay.errors import StoredValueError
from mainstay.ports import many_of
from mainstay.runtime.background import Background, detached_thread
from mainstay.runtime.fork import flush_at_exit, make_lock, reset_in_child
from mainstay.runtime.identity import process_name
from mainstay.runtime.reports.logs import logger
from mainstay.runtime.store_clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainstay.core.base.change import Change, Decide
    from mainstay.core.circuit.cluster import Order, Prospect, Table
    from mainstay.core.circuit.permits import Answer, Permits, Settlement
    from mainstay.core.limits.shared_bucket import SharedBucket
    from mainstay.drivers.call.guard import Guard
    from mainstay.drivers.guards.breaker import CircuitBreaker
    from mainstay.ports import Store
    from mainstay.runtime.background import Job

CIRCUITS, BUDGETS = Space.CIRCUITS.value, Space.BUDGETS.value
PERMITS, TOKENS = Space.PERMITS.value, Space.TOKENS.value
RESULTS = ("granted", "denied", "alone", "stored", "late")
_OPENING = 2.0
"""Seconds for which an engine that is opened waits for the first step."""
_LEAVING = 1.0
"""Seconds for which the end of a process waits for the last one, if the engine was not closed."""
_CLOSING = 5.0
"""Seconds for which an engine that is closed waits for it."""
_log = logger()
_AT_ONCE = 200
"""Tables that are left in one step of the store: some ten milliseconds of SQLite's lock."""
_SPARE = 1000
"""Names of circuits that are remembered beyond two for each that there is."""


class Sharing:
    """One engine's part in sharing: a node at the tables of its circuits and budgets."""

    def __init__(
        self,
        store: Store,
        circuits: Iterable[CircuitBreaker],
        guards: Iterable[Guard] = (),
        interval: float = 1.0,
        *,
        expects: bool = False,
        quorum: int | None = None,
    ) -> None:
        self.interval = interval
        self.longest_hold = interval
        """Seconds after which a probe that was denied a permit asks again, at most."""
        self.silence = max(10.0, interval * 5)
        self._store = store
        self._clock = clock_of(store.url)
        self._circuits = circuits
        several = tuple(guards)
        self._budgets = [guard for guard in several if isinstance(guard, RetryBudget)]
        self._tokens = [guard for guard in several if isinstance(guard, TokenBudget)]
        self._expects = expects
        self._quorum = quorum
        """How many open nodes open this one; by default most of them."""
        self._jobs = Background("mainstay-circuits")
        self._counts = {result: Tally() for result in RESULTS}
        self._lock = make_lock()
        self._reset()
        reset_in_child(self, Sharing._begin_in_child)

    def _reset(self) -> None:
        """As a new node, without a thread."""
        import socket  # when it is needed: most engines share nothing

        self.node = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self._reported: dict[str, TokenTotals] = {}
        """What each bucket has answered to."""
        self._obeyed: dict[str, int] = {}
        """The circuits that were met, and the last order each has followed."""
        self._ordered: dict[str, float] = {}
        """When that order was given: in a store that was emptied, its number comes again."""
        self._places: dict[str, frozenset[str]] = {}
        """The nodes whose place this one has taken at a table, until it has sat down there."""
        self._damaged: set[str] = set()
        """The circuits whose tables could not be read, or have no key."""
        self._prospects = Prospects(self._store, self.silence) if self._expects else None
        self._is_unavailable = False
        self._kept_open = 0
        """The circuits whose tables are still to be left."""
        self._stopped = threading.Event()
        self._has_begun = threading.Event()
        self._thread: threading.Thread | None = None

    def _begin_in_child(self) -> None:
        """A forked child is a node of its own, if its parent was one; its first step comes later.

        A child that runs another program, or ends at once, never sits at a table.
        """
        is_closed, was_running = self._stopped.is_set(), self._thread is not None
        known = self._prospects, self._obeyed, self._ordered  # as true here, with the circuits
        self._reset()
        self._prospects, self._obeyed, self._ordered = known
        for tokens in self._tokens:  # what was taken before is its parent's to report
            self._reported[tokens.name] = TokenTotals(*tokens.flow())
        if is_closed:
            self._stopped.set()
        elif was_running:
            with suppress(RuntimeError):  # there are too many threads
                self._start_thread(at_once=False)

    def start(self) -> None:
        """Brings what the last ones knew, and goes on in the background.

        It does so in the background from the start: a store that hangs delays no engine for long.
        """
        for circuit in self._circuits:
            circuit.share(CircuitLink(circuit, self))
        self._start_thread(at_once=True)
        flush_at_exit(self, Sharing.leave)
        self._has_begun.wait(_OPENING)

    def _start_thread(self, *, at_once: bool) -> None:
        thread = detached_thread(self._run, "mainstay-sharing", at_once)
        thread.start()
        self._thread = thread

    def _run(self, at_once: bool) -> None:
        is_due = at_once
        while is_due or not self._stopped.wait(self.interval):
            self.sync()
            self._has_begun.set()
            self._jobs.start()  # for `leave`
            is_due = False

    def sync(self, *, leaving: bool = False) -> bool:
        """One step for every circuit and budget; whether the store was there."""
        with self._lock:
            if self._stopped.is_set() and not leaving:
                return False  # it was about to begin when the engine was closed
            try:
                if self._prospects is not None and not leaving:
                    self._prospects.look(self.node, self._obeyed)
                circuits = list(self._circuits)
                if leaving:
                    self._leave_tables(circuits)
                for circuit in () if leaving else circuits:
                    if self._stopped.is_set():
                        return False  # the last step, which is due, waits for this one
                    self._share_readable(circuit)
                self._forget_others({circuit.name for circuit in circuits})
                for budget in self._budgets:
                    self._share_budget(budget, leaving)
                for tokens in self._tokens:
                    self._share_tokens(tokens)
            except Exception as error:
                self._report(error)
                return False
            self._report(None)
            return True

    def _forget_others(self, names: set[str]) -> None:
        """Forgets circuits that the registry has forgotten, if they are many."""
        if len(self._obeyed) <= 2 * len(names) + _SPARE:
            return
        for known in (self._obeyed, self._ordered):
            for name in known.keys() - names:
                known.pop(name, None)  # or it was made again just now
        self._damaged &= names

    def _share_readable(self, circuit: CircuitBreaker) -> None:
        """A damaged table, or a name that no store takes, costs its own circuit and no other."""
        try:
            self._share_circuit(circuit)
        except (StoredValueError, UnicodeError) as error:
            self._pass_over(circuit, error)

    def _pass_over(self, circuit: CircuitBreaker, error: Exception) -> None:
        if circuit.name not in self._damaged:
            from mainstay.core.events.describe import reason_of

            self._damaged.add(circuit.name)
            reason = reason_of(error)
            _log.error("the circuit %r is not shared: %s", circuit.name, reason)

    def _leave_tables(self, circuits: list[CircuitBreaker]) -> None:
        """Leaves all tables, many in one step of the store: an engine that is closed waits."""
        several = many_of(self._store)
        for start in range(0, len(circuits), _AT_ONCE):
            part, steps = circuits[start : start + _AT_ONCE], []
            for circuit in part:
                with suppress(StoredValueError, UnicodeError):  # the step itself reports it
                    if circuit.name not in self._obeyed:
                        self._meet(circuit)
                steps.append((CIRCUITS, circuit.name, self._seating(circuit, leaving=True)))
            for circuit, answer in zip(part, several(steps), strict=True):
                if isinstance(answer, StoredValueError | UnicodeError):
                    self._pass_over(circuit, answer)
                elif isinstance(answer, Exception):
                    raise answer
            self._kept_open -= len(part)

    def _share_circuit(self, circuit: CircuitBreaker) -> None:
        is_new = circuit.name not in self._obeyed
        if is_new:
            self._meet(circuit)
        table, now = self._seated(circuit)
        self._renew(circuit)
        self._obey(circuit, table.order)
        mine, link = table.seats[self.node].circuit, circuit.link
        assert mine is not None
        assert link is not None
        opened = link.opened(mine, now - clock.current.monotonic())
        if core.has_recovered(table, self.node, opened):
            circuit.recover(mine.generation)
            return
        seconds = core.is_voted_open(table, self.node, now, self.silence, self._quorum)
        # If many start at once, those with a seat already may not be most of them.
        if seconds > 0.0 and not is_new:
            circuit.vote_open(seconds)

    def _seated(self, circuit: CircuitBreaker) -> tuple[Table, float]:
        """Brings the circuit to its table, as it is at that moment."""
        answer = self._store.transact(CIRCUITS, circuit.name, self._seating(circuit))
        self._places.pop(circuit.name, None)
        return answer

    def _seating(
        self, circuit: CircuitBreaker, *, leaving: bool = False
    ) -> Decide[tuple[Table, float]]:
        """The step that does so, for the last time or not."""

        def seat(by: float, now: float) -> Seat:
            return Seat(
                now, circuit.exported(by), has_left=leaving, silence=self.silence,
                obeyed=self._obeyed.get(circuit.name, 0), process=process_name(),
            )  # fmt: skip

        return self._sitting(seat, self._places.get(circuit.name, frozenset()))

    # --- a circuit that is new to this node -------------------------------------------------------

    def welcome(self, circuit: CircuitBreaker) -> None:
        """Begins a circuit that was made just now with what the last step has found of it."""
        circuit.share(CircuitLink(circuit, self))
        # One of that name may have been forgotten: the orders that it followed are not followed.
        self._obeyed.pop(circuit.name, None)
        self._ordered.pop(circuit.name, None)
        found = None if self._prospects is None else self._prospects.of(circuit.name)
        if found is not None:
            prospect, by = found
            circuit.begin_with(lambda new: self._begin(new, prospect, by))

    def _meet(self, circuit: CircuitBreaker) -> None:
        """The same with what the store has of it now."""
        value, now = self._store.read(CIRCUITS, circuit.name)
        table = core.Table() if value is None else core.decode(value)
        if not self._has_begun.is_set():
            prospect = prospect_of(table, self.node, now, self.silence, quorum=self._quorum)
        else:  # it has let calls through: no vote, and no process that was killed meanwhile
            prospect = core.prospect(table, self.node, now, self.silence)
            prospect = replace(prospect, open_until=0.0)
        self._begin(circuit, prospect, now - clock.current.monotonic())

    def _begin(self, circuit: CircuitBreaker, prospect: Prospect, by: float) -> None:
        order, obeyed = prospect.order, prospect.obeyed
        if prospect.circuit is not None and circuit.inherit(prospect.circuit, by):
            self._places[circuit.name] = prospect.places
        elif order is not None and order.is_standing:
            obeyed = 0  # it was followed by a circuit that this one has not taken over
        self._obeyed.setdefault(circuit.name, obeyed)
        self._obey(circuit, order)
        seconds = prospect.open_until - by - clock.current.monotonic()
        if prospect.open_until > 0.0 and seconds > 0.0:
            circuit.vote_open(seconds)

    def _obey(self, circuit: CircuitBreaker, order: Order | None) -> None:
        """Does what an operator wants, once."""
        if order is None:
            return
        given = self._ordered.setdefault(circuit.name, order.at)
        if (order.number, order.at) == (self._obeyed[circuit.name], given):
            return
        self._obeyed[circuit.name], self._ordered[circuit.name] = order.number, order.at
        why = f": {order.why}" if order.why else ""
        circuit.obey(order.signal, f"{order.signal.value}, ordered by {order.by}{why}")

    def _share_budget(self, budget: RetryBudget, leaving: bool) -> None:
        now_counted = budget.snapshot()
        counts = (now_counted["calls"], now_counted["retries"])

        def seat(_: float, now: float) -> Seat:
            return Seat(now, counts=counts, has_left=leaving)

        table, now = self._store.transact(BUDGETS, budget.name, self._sitting(seat))
        budget.elsewhere = core.counted_elsewhere(table, self.node, now, self.silence)

    def _share_tokens(self, budget: TokenBudget) -> None:
        taken, given = budget.flow()
        last = self._reported.get(budget.name, TokenTotals())
        totals, capacity = TokenTotals(taken, given), thousandths(budget.rule.capacity)

        def decide(value: bytes | None, now: float) -> tuple[Change, SharedBucket]:
            return report_totals(value, self.node, last, totals, capacity, now, self.silence)

        bucket = self._store.transact(TOKENS, budget.name, decide)
        self._reported[budget.name] = totals
        budget.agree(bucket.tokens, (taken, given))

    def _sitting(
        self, seat: Callable[[float, float], Seat], places: frozenset[str] = frozenset()
    ) -> Decide[tuple[Table, float]]:
        """A step that takes the seat at a table; its answer is the table and the store's time."""

        def decide(value: bytes | None, now: float) -> tuple[Change, tuple[Table, float]]:
            mine = seat(now - clock.current.monotonic(), now)
            jumps = self._clock.look(now).jumps
            change, table = core.sit(value, self.node, mine, now, self.silence, jumps, places)
            return change, (table, now)

        return decide

    # --- what cannot wait for the next step: posted by the links, under locks of circuits ---------

    def token(self, ticket: int) -> str:
        """The name of a permit; no other node and no other probe has it."""
        return f"{self.node}#{ticket}"

    def count(self, result: str) -> None:
        """Counts one of RESULTS."""
        self._counts[result].count()

    def counts(self) -> dict[str, int]:
        """Probes by the permit they had; changes of state by whether the store had them in time."""
        return {result: tally.total() for result, tally in self._counts.items()}

    def ask(self, circuit: CircuitBreaker, token: str, opened: float) -> Job:
        """Asks for a permit for a probe."""
        settings = circuit.settings
        lease = min(settings.probe_timeout, self.silence)

        def decide(value: bytes | None, now: float) -> tuple[Change, Answer]:
            return permits.take(
                value, self.node, token, limit=settings.half_open_probes, lease=lease, now=now,
                opened=opened + now - clock.current.monotonic(), jumps=self._clock.look(now).jumps,
            )  # fmt: skip

        return self._jobs.post(lambda: self._store.transact(PERMITS, circuit.name, decide))

    def settle(
        self, circuit: CircuitBreaker, tokens: frozenset[str], ended: Settlement, at: float
    ) -> Job:
        """Returns permits, with how their probes ended."""

        def decide(value: bytes | None, now: float) -> tuple[Change, Permits]:
            return permits.settle(
                value, self.node, tokens, ended.outcome, now=now, wait=ended.wait,
                at=at + now - clock.current.monotonic(),
                threshold=circuit.settings.success_threshold, jumps=self._clock.look(now).jumps,
            )  # fmt: skip

        return self._jobs.post(lambda: self._store.transact(PERMITS, circuit.name, decide))

    def publish(self, circuit: CircuitBreaker) -> Job:
        """Brings a circuit that has changed its state to the store, before the next step does."""
        posted = time.monotonic()

        def work() -> None:
            if circuit.name not in self._obeyed:
                self._meet(circuit)
            self._seated(circuit)
            self.count("stored" if time.monotonic() - posted <= WAIT else "late")

        return self._jobs.post(work)

    def _renew(self, circuit: CircuitBreaker) -> None:
        """Begins the leases of the permits again that probes under way hold."""
        tokens = frozenset() if circuit.link is None else circuit.link.tokens
        if not tokens:
            return
        lease = min(circuit.settings.probe_timeout, self.silence)

        def decide(value: bytes | None, now: float) -> tuple[Change, bool]:
            return permits.renew(value, tokens, lease, now, self._clock.look(now).jumps)

        self._store.transact(PERMITS, circuit.name, decide)

    def _report(self, error: Exception | None) -> None:
        """Logs once that the store is unavailable, and once that it is back."""
        was_unavailable, self._is_unavailable = self._is_unavailable, error is not None
        if error is not None and not was_unavailable:
            from mainstay.core.events.describe import reason_of

            reason = reason_of(error)
            _log.warning("circuits and budgets are not shared for now: %s", reason)
        elif was_unavailable and error is None:
            _log.info("circuits and budgets are shared again")

    def leave(self) -> None:
        """At the end of a process that has not closed its engine: leaves the tables, bounded.

        A forked child that has not begun as a node of its own does not leave for its parent.
        """
        is_mine = self.node.split(":")[-2] == str(os.getpid())
        if is_mine and not self._stopped.is_set():
            self._jobs.post(lambda: self.sync(leaving=True)).wait(_LEAVING)

    def close(self) -> None:
        """Leaves the tables to the processes that come next; bounded, if the store hangs."""
        self._stopped.set()
        end = time.monotonic() + _CLOSING
        self._kept_open = len(list(self._circuits))
        job = self._jobs.post(lambda: self.sync(leaving=True))
        self._jobs.close(_CLOSING)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, end - time.monotonic()))
        if job.error is not None:  # no thread could be started for it
            self.sync(leaving=True)
        if self._kept_open and not job.is_done:
            _log.warning(
                "%d circuits were not left in %g s: others count this process as there for %g s",
                self._kept_open, _CLOSING, self.silence,
            )  # fmt: skip
