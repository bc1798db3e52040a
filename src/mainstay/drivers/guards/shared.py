"""Shares circuits and budgets with other processes, through a store, in the background.

A thread of its own brings what this node sees to the store, and what the others see from there, in
steps some seconds apart. No call waits for it. If the store is unavailable, each process goes on
with what it has; the log reports that once, and once again when the store is back.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

import mainstay.runtime.clock as clock
from mainstay.core.base.spaces import Space
from mainstay.core.circuit import cluster as core
from mainstay.core.circuit.cluster import Seat
from mainstay.core.limits.budget import thousandths
from mainstay.core.limits.shared_bucket import TokenTotals, report_totals
from mainstay.drivers.guards.budget import RetryBudget, TokenBudget
from mainstay.errors import StoredValueError
from mainstay.runtime.fork import make_lock, reset_in_child
from mainstay.runtime.store_clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainstay.core.base.change import Change
    from mainstay.core.circuit.cluster import Order, Table
    from mainstay.core.limits.shared_bucket import SharedBucket
    from mainstay.drivers.call.guard import Guard
    from mainstay.drivers.guards.breaker import CircuitBreaker
    from mainstay.ports import Store

CIRCUITS, BUDGETS = Space.CIRCUITS.value, Space.BUDGETS.value
TOKENS = Space.TOKENS.value
_log = logging.getLogger("mainstay")
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
    ) -> None:
        self.interval = interval
        self.silence = max(10.0, interval * 5)
        self._store = store
        self._clock = clock_of(store.url)
        self._circuits = circuits
        several = tuple(guards)
        self._budgets = [guard for guard in several if isinstance(guard, RetryBudget)]
        self._tokens = [guard for guard in several if isinstance(guard, TokenBudget)]
        self._lock = make_lock()
        self._begin()
        reset_in_child(self, Sharing._begin_in_child)

    def _begin(self) -> None:
        """As a new node, without a thread."""
        self.node = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self._reported: dict[str, TokenTotals] = {}
        """What each bucket has answered to."""
        self._obeyed: dict[str, int] = {}
        """The circuits that were met, and the last order each has followed."""
        self._ordered: dict[str, float] = {}
        """When that order was given: in a store that was emptied, its number comes again."""
        self._damaged: set[str] = set()
        """The circuits whose tables could not be read, or have no key."""
        self._is_unavailable = False
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def _begin_in_child(self) -> None:
        """A forked child is a node of its own, if its parent was one; its first step comes later.

        A child that runs another program, or ends at once, never sits at a table.
        """
        was_running = self._thread is not None and not self._stopped.is_set()
        self._begin()
        for tokens in self._tokens:  # what was taken before is its parent's to report
            self._reported[tokens.name] = TokenTotals(*tokens.flow())
        if was_running:
            with suppress(RuntimeError):  # there are too many threads
                self._start_thread()

    def start(self) -> None:
        """Brings what the last ones knew, and goes on in the background."""
        self.sync()
        self._start_thread()

    def _start_thread(self) -> None:
        self._thread = threading.Thread(target=self._run, name="mainstay-sharing", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(self.interval):
            self.sync()

    def sync(self, *, leaving: bool = False) -> bool:
        """One step for every circuit and budget; whether the store was there."""
        with self._lock:
            try:
                circuits = list(self._circuits)
                for circuit in circuits:
                    self._share_readable(circuit, leaving)
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
                del known[name]
        self._damaged &= names

    def _share_readable(self, circuit: CircuitBreaker, leaving: bool) -> None:
        """A damaged table, or a name that no store takes, costs its own circuit and no other."""
        try:
            self._share_circuit(circuit, leaving)
        except (StoredValueError, UnicodeError) as error:
            if circuit.name not in self._damaged:
                from mainstay.core.events.describe import describe

                self._damaged.add(circuit.name)
                reason = describe(error)[1]
                _log.error("the circuit %r is not shared: %s", circuit.name, reason)

    def _share_circuit(self, circuit: CircuitBreaker, leaving: bool) -> None:
        name, is_new = circuit.name, circuit.name not in self._obeyed
        if is_new:
            self._meet(circuit)

        def seat(by: float, now: float) -> Seat:
            return Seat(
                now, circuit.exported(by), has_left=leaving, obeyed=self._obeyed[name],
                silence=self.silence,
            )  # fmt: skip

        table, now = self._sit(CIRCUITS, name, seat)
        if leaving:
            return
        self._obey(circuit, table.order)
        seconds = core.is_voted_open(table, self.node, now, self.silence)
        # If many start at once, those with a seat already may not be most of them.
        if seconds > 0.0 and not is_new:
            circuit.vote_open(seconds)

    def _meet(self, circuit: CircuitBreaker) -> None:
        """Takes over what the nodes before it have left."""
        value, now = self._store.read(CIRCUITS, circuit.name)
        last = core.inherited(value, self.node, now, self.silence)
        if last is not None:
            circuit.inherit(last, now - clock.current.monotonic())
        obeyed = core.obeyed_before(value, self.node, now, self.silence)
        self._obeyed[circuit.name] = obeyed

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

        table, now = self._sit(BUDGETS, budget.name, seat)
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

    def _sit(
        self, space: str, name: str, seat: Callable[[float, float], Seat]
    ) -> tuple[Table, float]:
        """Takes the seat at a table; the answer is the table and the store's time."""

        def decide(value: bytes | None, now: float) -> tuple[Change, tuple[Table, float]]:
            mine = seat(now - clock.current.monotonic(), now)
            jumps = self._clock.look(now).jumps
            change, table = core.sit(value, self.node, mine, now, self.silence, jumps)
            return change, (table, now)

        return self._store.transact(space, name, decide)

    def _report(self, error: Exception | None) -> None:
        """Logs once that the store is unavailable, and once that it is back."""
        was_unavailable, self._is_unavailable = self._is_unavailable, error is not None
        if error is not None and not was_unavailable:
            from mainstay.core.events.describe import describe

            reason = describe(error)[1]
            _log.warning("circuits and budgets are not shared for now: %s", reason)
        elif was_unavailable and error is None:
            _log.info("circuits and budgets are shared again")

    def close(self) -> None:
        """Leaves the tables to the processes that come next."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5.0)
        self.sync(leaving=True)
