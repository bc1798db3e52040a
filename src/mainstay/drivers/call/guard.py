"""Guards, and the gate of a site: everything that may refuse an attempt or a retry, as one.

The wrapper reads `gate.calm` before and after a call and counts the call where a guard wants to
know how many there were. Everything else happens on the failure path, or while there is trouble.
"""

from __future__ import annotations

import threading
from itertools import count
from weakref import ref

import mainstay.runtime.clock as clock
from mainstay.core.retry.effects import Stop
from mainstay.errors import Refused, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable
    from typing import Any, TypeAlias

    from mainstay.runtime.enclosing import Enclosure

    Saw: TypeAlias = Callable[[str, Any, Any], None]


RIDING = object()
"""The ticket of an attempt that goes along with one around it."""


class Guard:
    """Something with a say in whether attempts are made. The defaults say yes to everything.

    A guard serves any number of gates, from any thread. No method may block, and none is called
    under a lock of another guard.
    """

    __slots__ = ()
    layer = ""
    """Which layer it is, as `explain()` calls it."""
    counts_calls = False
    """Whether it must know how many calls there were that needed no help."""
    is_shareable = False
    """Whether processes of one store can share it."""
    slow_after: float | None = None
    """Seconds from which on a call that succeeds is slow, where that matters to it."""

    def attach(self, gate: Gate) -> None:
        """Takes part in a gate from now on; gates are never detached."""

    @property
    def is_failing(self) -> bool:
        """Whether attempts must be announced by `enter`, and successes by `left`."""
        return False

    def standing(self) -> Any:
        """The ticket of attempts that are not announced, while there is no trouble."""

    def enter(self, is_retry: bool, now: float) -> Any:
        """A ticket for an attempt that starts now, or a Refused to be raised."""

    @property
    def is_shut(self) -> bool:
        """Whether it refuses every call for a while; then `refusal` says so without a lock."""
        return False

    def refusal(self) -> Refused | None:
        """What a first attempt is refused with, which is then counted; None where it must ask."""
        return None

    def left(self, ticket: Any, failure: BaseException | None, seconds: float, now: float) -> None:
        """An attempt has ended; `failure` is None where it succeeded.

        The ticket of one that was not announced is what `standing` gave when it began.
        """

    def succeeded(self) -> None:
        """A call has succeeded at once, and was not counted in the tally of its gate."""

    def withdrawn(self, ticket: Any, now: float) -> None:
        """An announced attempt was not made, or cut off from outside: as if it had not been."""

    def consider(self, _failure: BaseException | None, delay: float, _now: float) -> float | Stop:
        """Whether a failed attempt may be repeated: after what delay, or why not.

        The failure is None for a result that was not accepted.
        """
        return delay

    # Where a listener wants evidence, these are asked instead. `saw` takes what the decision was
    # made on: the guard's label, the state as core/audit/replay_guard.py
    # reads it, and what was said.

    @property
    def decides_by(self) -> Any:
        """Its rule as a value; None where it has none."""
        return getattr(self, "rule", None)

    @property
    def label(self) -> str:
        """How records name it."""
        return f"{type(self).__name__}:{getattr(self, 'name', '')}"

    def enter_seen(self, is_retry: bool, now: float, _saw: Saw) -> Any:
        """As `enter`; a refusal is told with what it was made on."""
        return self.enter(is_retry, now)

    def consider_seen(
        self, failure: BaseException | None, delay: float, now: float, _saw: Saw
    ) -> float | Stop:
        """As `consider`, and tells what it was decided on."""
        return self.consider(failure, delay, now)


class Tally:
    """Counts calls without a lock; under the GIL no call is lost."""

    __slots__ = ("__weakref__", "_lock", "_next", "_reads", "count")

    def __init__(self) -> None:
        self._next = count()
        self.count: Callable[[], int] = self._next.__next__
        """Counts a call: one C call."""
        self._reads = 0
        self._lock = threading.Lock()

    def begin_anew(self) -> None:
        """In a forked child: who held the lock is not there any more."""
        self._lock = threading.Lock()

    def total(self) -> int:
        """How many calls were counted. Reading takes a number too, which is put right here."""
        with self._lock:
            reads, self._reads = self._reads, self._reads + 1
            return next(self._next) - reads


class Counted:
    """What a guard has yet to hear from the tallies of its gates, while those are there."""

    __slots__ = ("_heard",)

    def __init__(self) -> None:
        self._heard: list[tuple[ref[Tally], int]] = []

    def add(self, tally: Tally) -> None:
        if not any(known() is tally for known, _ in self._heard):
            self._heard.append((ref(tally), tally.total()))

    def take(self) -> int:
        """The calls since the last time; the guard's own lock is held."""
        found, still = 0, []
        for known, heard in self._heard:
            tally = known()
            if tally is not None:
                total = tally.total()
                still.append((known, total))
                found += total - heard
        self._heard = still
        return found


class Gate:
    """The guards of one site, in the order they are asked."""

    __slots__ = (
        "__weakref__",
        "_lock",
        "_tally",
        "counts_calls",
        "guards",
        "quiet",
        "shut",
        "slow_after",
    )  # fmt: skip

    def __init__(self, guards: Iterable[Guard]) -> None:
        self.guards = tuple(guards)
        self.counts_calls = any(guard.counts_calls for guard in self.guards)
        limits = [guard.slow_after for guard in self.guards if guard.slow_after is not None]
        self.slow_after = min(limits, default=None)
        self._tally: Tally | None = None
        self._lock = threading.Lock()
        self.quiet: list[Any] | None = None
        """The tickets of attempts that are not announced; None while calls must be."""
        self.shut: Callable[[], Refused | None] | None = None
        """Makes the error where a guard is shut: every call is refused for a while."""
        for guard in self.guards:
            guard.attach(self)
        self.look()

    @property
    def tally(self) -> Tally:
        """Counts the calls that need no help; made where somebody wants to know."""
        if self._tally is None:
            self._tally = Tally()
        return self._tally

    def look(self) -> None:
        """Asks the guards anew; called by one that has changed."""
        with self._lock:  # or of two that change at once, the slower might undo the other's word
            failing = any(guard.is_failing for guard in self.guards)
            self.quiet = None if failing else [guard.standing() for guard in self.guards]
            shut = [guard.refusal for guard in self.guards if guard.is_shut]
            self.shut = shut[0] if shut else None

    @property
    def error(self) -> bool:
        """Whether a call must take the long way."""
        return self.quiet is None

    def passed(self, tickets: list[Any], seconds: float) -> None:
        """A call that was not announced has succeeded, and things are not as they were."""
        self.left(tickets, None, seconds, clock.current.monotonic())
        self.succeeded()

    def succeeded(self) -> None:
        """A call has succeeded at once that no wrapper has counted."""
        for guard in self.guards:
            guard.succeeded()

    def enter(
        self,
        is_retry: bool,
        now: float,
        riding: Container[Guard] = (),
        saw: Saw | None = None,
    ) -> list[Any] | Refused:
        """Tickets for an attempt, one of each guard; or the first refusal.

        Those in `riding` have admitted a call around this one, which it is a part of: what they
        would refuse goes along with that one, and they hear of that one only.
        """
        tickets: list[Any] = []
        for guard in self.guards:
            if saw is None:
                ticket = guard.enter(is_retry, now)
            else:
                ticket = guard.enter_seen(is_retry, now, saw)
            if isinstance(ticket, Refused):
                if guard not in riding:
                    self.give_back(tickets, now)
                    return ticket
                ticket = RIDING
            tickets.append(ticket)
        return tickets

    def give_back(self, tickets: list[Any], now: float) -> None:
        """The attempt was not made, or was cut off from outside: that says nothing of anybody."""
        for guard, ticket in zip(self.guards, tickets, strict=False):
            if ticket is not RIDING:
                guard.withdrawn(ticket, now)

    def left(
        self, tickets: list[Any] | None, failure: BaseException | None, seconds: float, now: float
    ) -> None:
        """Tells every guard how an attempt has ended."""
        for index, guard in enumerate(self.guards):
            ticket = tickets[index] if tickets else None
            if ticket is not RIDING:
                guard.left(ticket, failure, seconds, now)

    def consider(
        self, failure: BaseException | None, delay: float, now: float, saw: Saw | None = None
    ) -> float | Stop:
        """The longest delay any guard asks for, or the first reason not to repeat."""
        for guard in self.guards:
            if saw is None:
                answer = guard.consider(failure, delay, now)
            else:
                answer = guard.consider_seen(failure, delay, now, saw)
            if isinstance(answer, Stop):
                return answer
            delay = max(delay, answer)
        return delay


def gate_of(*guards: Guard | Iterable[Guard] | None) -> Gate | None:
    """The gate of some guards, asked in the order given; None where there are none."""
    flat = guards_of(*guards)
    return Gate(flat) if flat else None


def guards_of(*guards: Guard | Iterable[Guard] | None) -> tuple[Guard, ...]:
    """All of them in one row, each once; refuses what is no guard."""
    flat: list[Guard] = []
    for each in guards:
        several: Any = each if hasattr(each, "__iter__") else () if each is None else (each,)
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
