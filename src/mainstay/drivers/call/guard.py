"""Guards, and the gate of a site: everything that may refuse an attempt or a retry, as one.

The wrapper reads `gate.quiet` before and after a call, and counts the call if a guard asked for the
gate's tally. Everything else happens on the failure path, or while a guard is failing.
"""

from __future__ import annotations

from itertools import count
from types import CellType
from weakref import ref

import mainstay.runtime.clock as clock
from mainstay.core.retry.effects import Returned, Stop
from mainstay.errors import Refused, UsageError
from mainstay.runtime.fork import make_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable
    from typing import Any, TypeAlias

    from mainstay.core.base.types import UserValue
    from mainstay.core.base.value import Value
    from mainstay.core.circuit.breaker import Ticket
    from mainstay.runtime.background import Job
    from mainstay.runtime.enclosing import Enclosure
    from mainstay.runtime.turns import Turn

    GuardTicket: TypeAlias = "Ticket | Turn | Riding | int | str | None"
    """What a guard gave an attempt; only that guard reads it."""
    Witness: TypeAlias = Callable[[str, Any, Any], None]
    """Keeps what a decision was made on, as core/audit/replay_guard.py reads it.

    The guard's label, its state, and the decision."""


WAIT = 0.1
"""Seconds for which a call waits at most for a step of a store that a guard has begun."""


class Riding:
    """The ticket of an attempt that is part of a call around it, which the guard has admitted."""

    __slots__ = ()


RIDING = Riding()


class Standing:
    """How a guard treats calls, until it has its gates look again.

    Args:
        ticket: that of attempts which are not announced.
        is_failing: whether attempts must be announced by `enter`, and successes by `left`.
        refuse: makes the error if every call is refused for a while, and counts it; None if the
            guard must be asked after all.
        waits: whether `pending` may have something that a call waits for.
    """

    __slots__ = ("is_failing", "refuse", "ticket", "waits")

    def __init__(
        self,
        ticket: GuardTicket = None,
        *,
        is_failing: bool = False,
        refuse: Callable[[], Refused | None] | None = None,
        waits: bool = False,
    ) -> None:
        self.ticket = ticket
        self.is_failing = is_failing
        self.refuse = refuse
        self.waits = waits


QUIET = Standing()
FAILING = Standing(is_failing=True)


class Guard:
    """Decides with others whether attempts are made. The defaults admit everything.

    A guard serves any number of gates, from any thread. No method may block, and none is called
    under a lock of another guard.
    """

    __slots__ = ()
    layer = ""
    """Which layer it is, as `explain()` calls it."""
    rule: Value | None = None
    """What it decides by, as a value; None if that is not known."""
    judges_results = False
    """Whether `judge` is asked about each result."""

    def attach(self, gate: Gate) -> None:
        """Joins a gate, for as long as that exists, and asks it for what it needs.

        Those are `gate.tally`, `gate.time_calls` and `gate.count_others`.
        """

    def standing(self) -> Standing:
        """How it treats calls now."""
        return QUIET

    def enter(
        self, is_retry: bool, now: float, witness: Witness | None = None
    ) -> GuardTicket | Refused:
        """A ticket for an attempt that starts now, or a Refused, which is witnessed."""

    def pending(self, ticket: GuardTicket) -> Job | None:
        """What an attempt waits for before it begins, or, without a ticket, after it has ended.

        A step of a store that was begun already. The caller waits for WAIT seconds at most: a
        thread blocks, an event loop awaits it.
        """
        return None

    def confirm(
        self, ticket: GuardTicket, is_retry: bool, now: float, witness: Witness | None = None
    ) -> GuardTicket | Refused:
        """After that wait: a ticket for the attempt, the same or another, or a Refused."""
        return ticket

    def left(
        self, ticket: GuardTicket, failure: BaseException | None, seconds: float, now: float
    ) -> None:
        """An attempt has ended; `failure` is None if it succeeded.

        The ticket of one that was not announced is the one of `standing` when it began.
        """

    def judge(self, value: UserValue) -> Exception | None:
        """The failure that a result counts as; None if it is a success."""

    def withdrawn(self, ticket: GuardTicket, now: float) -> None:
        """An announced attempt was not made, or cut off from outside: as if it had not been."""

    def consider(
        self,
        _failure: BaseException | None,
        delay: float,
        _now: float,
        witness: Witness | None = None,
    ) -> float | Stop:
        """Whether a failed attempt may be repeated: after what delay, or why not.

        The failure is None for a result that was not accepted.
        """
        return delay


def label_of(guard: Guard) -> str:
    """How records name a guard."""
    return f"{type(guard).__name__}:{getattr(guard, 'name', '')}"


_READING, _LOOKING = make_lock(), make_lock()
"""Held while a tally is read, and while a gate asks its guards again, which is rare and short; one
for all, since a lock of its own is a fifth of a circuit."""


class Tally:
    """Counts calls without a lock; under the GIL no call is lost."""

    __slots__ = ("__weakref__", "_next", "_reads", "count")

    def __init__(self) -> None:
        self._next = count()
        self.count: Callable[[], int] = self._next.__next__
        """Counts a call: one C call."""
        self._reads = 0

    def total(self) -> int:
        """How many calls were counted; without the numbers that reading takes."""
        with _READING:
            reads, self._reads = self._reads, self._reads + 1
            return next(self._next) - reads


class Counted:
    """What the tallies of a guard's gates have counted and the guard has not taken yet."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: list[tuple[ref[Tally], int]] = []

    def add(self, tally: Tally) -> None:
        if not any(known() is tally for known, _ in self._taken):
            self._taken.append((ref(tally), tally.total()))

    def take(self) -> int:
        """The calls since the last time; the guard's own lock is held."""
        found, still = 0, []
        for known, before in self._taken:
            tally = known()
            if tally is not None:
                total = tally.total()
                still.append((known, total))
                found += total - before
        self._taken = still
        return found


class Gate:
    """The guards of one site, in the order they are asked."""

    __slots__ = (
        "__weakref__",
        "_counters",
        "_tally",
        "cell",
        "guards",
        "judges_results",
        "quiet",
        "shut",
        "slow_after",
        "waits",
    )  # fmt: skip

    def __init__(self, guards: Iterable[Guard]) -> None:
        self.guards = tuple(guards)
        self.judges_results = any(guard.judges_results for guard in self.guards)
        """Whether a guard looks at the results of attempts."""
        self.slow_after: float | None = None
        """Seconds from which on a success is reported to the guards; None if no guard asks."""
        self._counters: tuple[Callable[[], object], ...] = ()
        self._tally: Tally | None = None
        self.quiet: list[GuardTicket] | None = None
        """The tickets of attempts that are not announced; None while calls must be."""
        self.cell = CellType()
        """The same, as a variable of the wrappers: they read it without reading an attribute."""
        self.shut: Callable[[], Refused | None] | None = None
        """Makes the error while a guard refuses every call."""
        self.waits = False
        """Whether a guard may have something that a call waits for."""
        for guard in self.guards:
            guard.attach(self)
        self.look()

    # --- what a guard asks for when it is attached ------------------------------------------------

    @property
    def tally(self) -> Tally:
        """Counts the calls that take the fast path; created when a guard first asks for it."""
        if self._tally is None:
            self._tally = Tally()
        return self._tally

    @property
    def counts_calls(self) -> bool:
        """Whether a guard has asked for the tally."""
        return self._tally is not None

    def time_calls(self, slow_after: float) -> None:
        """Reports to the guards each success that takes as long as that, or longer."""
        known = self.slow_after
        self.slow_after = slow_after if known is None else min(known, slow_after)

    def count_others(self, count: Callable[[], object]) -> None:
        """Calls `count` for each call that succeeds at once and is not in the tally."""
        self._counters = (*self._counters, count)

    # --- while calls are made ---------------------------------------------------------------------

    def look(self) -> None:
        """Asks the guards again; called by one that has changed."""
        with _LOOKING:  # or of two that change at once, the slower might undo the other's change
            standings = [guard.standing() for guard in self.guards]
            failing = any(each.is_failing for each in standings)
            self.quiet = None if failing else [each.ticket for each in standings]
            self.cell.cell_contents = self.quiet
            shut = [each.refuse for each in standings if each.refuse is not None]
            self.shut = shut[0] if shut else None
            self.waits = any(each.waits for each in standings)

    @property
    def is_failing(self) -> bool:
        """Whether calls must be announced."""
        return self.quiet is None

    def passed(self, tickets: list[GuardTicket], seconds: float) -> None:
        """A call that was not announced has succeeded slowly, or while a guard changed."""
        self.left(tickets, None, seconds, clock.current.monotonic())
        self.succeeded()
        for job in self.pending() if self.waits else ():
            job.wait(WAIT)

    async def apassed(self, tickets: list[GuardTicket], seconds: float) -> None:
        """The same in an event loop."""
        self.left(tickets, None, seconds, clock.current.monotonic())
        self.succeeded()
        for job in self.pending() if self.waits else ():
            await job.awaited(WAIT)

    def succeeded(self) -> None:
        """A call has succeeded at once that no wrapper has counted."""
        for counter in self._counters:
            counter()

    def enter(
        self,
        is_retry: bool,
        now: float,
        riding: Container[Guard] = (),
        witness: Witness | None = None,
    ) -> list[GuardTicket] | Refused:
        """Tickets for an attempt, one of each guard; or the first refusal.

        Those in `riding` have admitted a call around this one, which it is a part of: an attempt
        that they would refuse is made all the same, and only the call around it is recorded.
        """
        tickets: list[GuardTicket] = []
        for guard in self.guards:
            ticket = guard.enter(is_retry, now, witness)
            if isinstance(ticket, Refused):
                if guard not in riding:
                    self.give_back(tickets, now)
                    return ticket
                ticket = RIDING
            tickets.append(ticket)
        return tickets

    def pending(self, tickets: list[GuardTicket] | None = None) -> list[Job]:
        """What an attempt with these tickets waits for, or one that has ended."""
        each = tickets or [None] * len(self.guards)
        found = [guard.pending(ticket) for guard, ticket in zip(self.guards, each, strict=True)]
        return [job for job in found if job is not None]

    def confirm(
        self,
        tickets: list[GuardTicket],
        is_retry: bool,
        now: float,
        riding: Container[Guard] = (),
        witness: Witness | None = None,
    ) -> list[GuardTicket] | Refused:
        """After that wait: the tickets of the attempt, or the first refusal."""
        final: list[GuardTicket] = []
        for index, guard in enumerate(self.guards):
            ticket = tickets[index]
            answer = RIDING if ticket is RIDING else guard.confirm(ticket, is_retry, now, witness)
            if isinstance(answer, Refused):
                if guard not in riding:
                    rest: list[GuardTicket] = [RIDING] * (index + 1)
                    self.give_back(final, now)
                    self.give_back([*rest, *tickets[index + 1 :]], now)
                    return answer
                answer = RIDING
            final.append(answer)
        return final

    def give_back(self, tickets: list[GuardTicket], now: float) -> None:
        """The attempt was not made, or was cut off from outside: it counts for no guard."""
        for guard, ticket in zip(self.guards, tickets, strict=False):
            if ticket is not RIDING:
                guard.withdrawn(ticket, now)

    def left(
        self,
        tickets: list[GuardTicket] | None,
        failure: BaseException | None,
        seconds: float,
        now: float,
        returned: Returned | None = None,
    ) -> None:
        """Reports to every guard how an attempt has ended; `returned` if its result is judged."""
        for index, guard in enumerate(self.guards):
            ticket = tickets[index] if tickets else None
            if ticket is not RIDING:
                own = failure
                if returned is not None and guard.judges_results:
                    own = guard.judge(returned.value)
                guard.left(ticket, own, seconds, now)

    def consider(
        self,
        failure: BaseException | None,
        delay: float,
        now: float,
        witness: Witness | None = None,
    ) -> float | Stop:
        """The longest delay any guard asks for, or the first reason not to repeat."""
        for guard in self.guards:
            answer = guard.consider(failure, delay, now, witness)
            if isinstance(answer, Stop):
                return answer
            delay = max(delay, answer)
        return delay


def gate_of(*guards: Guard | Iterable[Guard] | None) -> Gate | None:
    """The gate of some guards, asked in the order given; None if there are none."""
    flat = guards_of(*guards)
    return Gate(flat) if flat else None


def guards_of(*guards: Guard | Iterable[Guard] | None) -> tuple[Guard, ...]:
    """All of them in one row, each once; refuses what is no guard."""
    flat: list[Guard] = []
    for each in guards:
        is_several = hasattr(each, "__iter__") and not isinstance(each, str)
        several: Any = each if is_several else () if each is None else (each,)
        flat += [guard for guard in several if guard not in flat]
    for guard in flat:
        if not isinstance(guard, Guard):
            raise UsageError(
                f"{guard!r} is no guard",
                hint="a CircuitBreaker, RetryBudget, TokenBudget, RateLimit, AdaptiveThrottle or"
                " MemoryGuard is one",
            )
    return tuple(flat)


def guards_around(enclosure: Enclosure) -> tuple[Guard, ...]:
    """The guards of a call that is under way around this one."""
    gate: Gate | None = getattr(enclosure.plan, "gate", None)
    return () if gate is None else gate.guards
