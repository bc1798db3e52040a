"""Rate limits and throttles: core/limits/throttle.py with a lock, a clock and the memory in use."""

from __future__ import annotations

import logging
import math
import os
import sys

import mainstay.runtime.clock as clock
from mainstay.core.base.entropy import key_of, uniform
from mainstay.core.limits.budget import SlidingCounts
from mainstay.core.limits.throttle import (
    Calendar,
    MemoryRule,
    RateRule,
    ThrottleRule,
    is_refusal,
    readable,
)
from mainstay.core.retry.effects import Stop
from mainstay.drivers.call.guard import FAILING, QUIET, Counted, Guard, Standing, label_of
from mainstay.drivers.call.site import getrandbits
from mainstay.drivers.guards.construct import built_from
from mainstay.errors import CallShed, RateLimited
from mainstay.runtime.fork import make_lock
from mainstay.runtime.turns import Turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from mainstay.drivers.call.guard import Gate, GuardTicket, Witness
    from mainstay.runtime.background import Job

_TURNS = Standing(is_failing=True, waits=True)
_MOST_KEPT = 64
"""Retries that wait for their turn which a record of a decision may hold."""


class AdaptiveThrottle(Guard):
    """Holds calls back from a service that refuses most of them: the more it refuses, the more.

    Counted are attempts (requests) and those the service took on (accepts), also if it then
    answered that the caller was wrong. While requests are more than k times the accepts, a first
    attempt is refused with the probability (requests − k · accepts) / (requests + 1), and raises
    CallShed. Retries are not held back: their calls were let through.

    Args:
        name: what errors and reports call the service.
        k: 2 lets through about twice what is accepted; less is stricter, 1 the strictest.
        window: over how many seconds attempts are counted, a tenth of it at a time.
        floor: with fewer attempts than this in the window, none is held back.
        seed: makes the choice reproducible.

    >>> throttle = AdaptiveThrottle("search", floor=5, seed=1)
    >>> for _ in range(9):
    ...     throttle.left(None, TimeoutError(), 1.0, 0.0)
    >>> throttle.enter(False, 0.0).probability
    0.9
    """

    layer = "throttle"

    @built_from(ThrottleRule, "seed")
    def __init__(self, rule: ThrottleRule, seed: int | None) -> None:
        self.rule: ThrottleRule = rule
        self._key = getrandbits(52) | 1 if seed is None else key_of(seed, 0)
        self._draws = 0
        self._counted = Counted()
        self._counts = SlidingCounts(self.rule.window)  # requests and accepts
        self._taken_at = clock.current.monotonic()
        self._failing = False
        self._gates: tuple[Gate, ...] = ()
        self._lock = make_lock()

    @property
    def name(self) -> str:
        """What errors and reports call the service."""
        return self.rule.name

    def snapshot(self) -> dict[str, Any]:
        """The attempts of the present window, how many were accepted, and the share held back.

        >>> AdaptiveThrottle("search").snapshot()
        {'name': 'search', 'requests': 0, 'accepts': 0, 'probability': 0.0}
        """
        with self._lock:
            now = clock.current.monotonic()
            probability = self._look_locked(now)
            requests, accepts = self._counts.totals(now)
        self._notify_gates()
        return {
            "name": self.name,
            "requests": requests,
            "accepts": accepts,
            "probability": probability,
        }

    def reset(self) -> None:
        """Forgets every attempt.

        >>> throttle = AdaptiveThrottle(floor=1)
        >>> throttle.left(None, TimeoutError(), 1.0, 0.0); throttle.is_failing
        True
        >>> throttle.reset(); throttle.is_failing
        False
        """
        with self._lock:
            now = clock.current.monotonic()
            self._look_locked(now)
            self._counts = SlidingCounts(self.rule.window)
            self._look_locked(now)
        self._notify_gates()

    def __repr__(self) -> str:
        rule = self.rule
        return (
            f"AdaptiveThrottle({rule.name!r}, k={rule.k}, window={rule.window}, floor={rule.floor})"
        )

    # --- as a guard -------------------------------------------------------------------------------

    @property
    def is_failing(self) -> bool:
        """Whether a call might be held back."""
        return self._failing

    def attach(self, gate: Gate) -> None:
        """Serves this gate too."""
        with self._lock:
            self._counted.add(gate.tally)
            if gate not in self._gates:
                self._gates = (*self._gates, gate)

    def standing(self) -> Standing:
        """Calls are announced while one might be held back."""
        return FAILING if self._failing else QUIET

    def enter(self, is_retry: bool, now: float, witness: Witness | None = None) -> bool | CallShed:
        """Admits an attempt or not; decided on requests, accepts and a number drawn.

        One that is held back counts as a request at once.
        """
        with self._lock:
            probability = self._look_locked(now)
            seen = self._counts.totals(now)
            u = self._draw_locked() if probability and not is_retry else 1.0
            shed = self.rule.sheds(probability, u)
            if shed:
                self._count_locked(now, 1, 0)
        self._notify_gates()
        if not shed:
            return True
        if witness is not None:
            witness(label_of(self), [*seen, u], True)
        return CallShed(self.name, probability)

    def left(
        self, _ticket: GuardTicket, failure: BaseException | None, _seconds: float, now: float
    ) -> None:
        """Counts an attempt that has ended: one under way is neither accepted nor refused yet."""
        accepted = failure is None or not is_refusal(failure)
        with self._lock:
            self._look_locked(now)
            self._count_locked(now, 1, int(accepted))
        self._notify_gates()

    def _draw_locked(self) -> float:
        self._draws += 1
        return uniform(self._key, self._draws)

    def _count_locked(self, now: float, requests: int, accepts: int) -> None:
        self._counts = self._counts.add(now, requests, accepts)
        self._failing = self.rule.probability(*self._counts.totals(now)) > 0.0

    def _look_locked(self, now: float) -> float:
        """The probability at this moment, with all that the tallies know; the window is moved."""
        calls, counts = self._counted.take(), self._counts
        self._counts = counts.spread(self._taken_at, now, calls, calls) if calls else counts.at(now)
        self._taken_at = now
        probability = self.rule.probability(*self._counts.totals(now))
        self._failing = probability > 0.0
        return probability

    def _notify_gates(self) -> None:
        """Has gates look again that differ; without the lock, because they ask other guards."""
        for gate in self._gates:
            if gate.is_failing is not self._failing:
                gate.look()


class RateLimit(Guard):
    """Limits how many retries start in a second, however many calls fail at once.

    Each retry is given a moment to start at; its own delay counts towards the wait. In any t
    seconds no more than `burst + per_second · t` of them start. With `first_calls` that holds for
    all attempts, first ones and retries.

    Args:
        name: what notes and reports call it.
        per_second: how many retries start in a second.
        burst: how many may start at once after a quiet time.
        max_wait: a retry that would wait longer for its turn is not made.
        first_calls: whether first attempts wait for a turn, too. If that takes longer than
            `max_wait` or the deadline, the call raises RateLimited. A sync call in the thread of
            an event loop does not wait: it is refused if it is not its turn.

    >>> limit = RateLimit("search", per_second=2.0, burst=1, max_wait=1.0)
    >>> [limit.consider(None, 0.1, 0.0) for _ in range(2)]
    [0.1, 0.6]
    >>> limit.consider(None, 0.1, 0.0).text
    "the rate limit 'search' has no room for a retry in time"
    """

    layer = "rate limit"

    @built_from(RateRule)
    def __init__(self, rule: RateRule) -> None:
        self.rule: RateRule = rule
        self._stop = Stop(f"the rate limit {rule.name!r} has no room for a retry in time")
        self._calendar = Calendar()
        self._lock = make_lock()

    @property
    def name(self) -> str:
        """What notes and reports call it."""
        return self.rule.name

    def snapshot(self) -> dict[str, Any]:
        """How many retries wait for their start, and how long one more would.

        >>> RateLimit("search").snapshot()
        {'name': 'search', 'waiting': 0, 'next': 0.0}
        """
        now = clock.current.monotonic()
        calendar = self._calendar.at(self.rule, now)
        wait = calendar.first_gap(self.rule, now) - now
        return {"name": self.name, "waiting": len(calendar.starts), "next": wait}

    def reset(self) -> None:
        """Forgets every retry, also those still to start.

        >>> limit = RateLimit(per_second=1.0, burst=1)
        >>> limit.consider(None, 0.0, 0.0); limit.reset(); limit.consider(None, 0.0, 0.0)
        0.0
        0.0
        """
        with self._lock:
            self._calendar = Calendar()

    def __repr__(self) -> str:
        rule = self.rule
        return (
            f"RateLimit({rule.name!r}, per_second={rule.per_second}, burst={rule.burst},"
            f" max_wait={rule.max_wait})"
        )

    def standing(self) -> Standing:
        """Calls are announced if each of them takes a turn."""
        return _TURNS if self.rule.first_calls else QUIET

    def enter(
        self, is_retry: bool, now: float, witness: Witness | None = None
    ) -> Turn | RateLimited | None:
        """The turn of a first attempt, or a refusal if that is too far off.

        A retry has taken its turn when it was considered.
        """
        if is_retry or not self.rule.first_calls:
            return None
        wait = self._reserve(now, 0.0, witness)
        return self._refusal(now) if wait is None else Turn(now, wait)

    def pending(self, ticket: GuardTicket) -> Job | None:
        """The turn that a first attempt waits for."""
        is_to_come = isinstance(ticket, Turn) and ticket.longest > 0.0
        return ticket if is_to_come else None  # type: ignore[return-value]  # it waits as a Job

    def confirm(
        self, ticket: GuardTicket, _is_retry: bool, now: float, witness: Witness | None = None
    ) -> GuardTicket | RateLimited:
        """After the wait: the attempt may begin, or there was no time to wait for its turn."""
        if not isinstance(ticket, Turn) or ticket.has_come(now):
            return ticket
        self.withdrawn(ticket, now)
        return self._refusal(now)

    def withdrawn(self, ticket: GuardTicket, _now: float) -> None:
        """Gives the turn of an attempt that is not made to the next one."""
        if isinstance(ticket, Turn):
            with self._lock:
                self._calendar = self._calendar.without(ticket.start)

    def consider(
        self,
        _failure: BaseException | None,
        delay: float,
        now: float,
        witness: Witness | None = None,
    ) -> float | Stop:
        """Reserves the first moment at which a retry may start; none if that is too late.

        Decided on the calendar as it was, which is witnessed if it is short enough to keep.
        """
        wait = self._reserve(now, delay, witness)
        return self._stop if wait is None else wait

    def _reserve(self, now: float, delay: float, witness: Witness | None) -> float | None:
        """How long to wait for a turn; None if that is too long."""
        with self._lock:
            before = self._calendar
            wait, self._calendar = before.reserve(self.rule, now, delay)
        if witness is not None and len(before.starts) <= _MOST_KEPT:
            moments = [None if math.isinf(x) else x for x in (before.due, before.seen)]
            witness(label_of(self), [*moments, list(before.starts), now, delay], wait)
        return wait

    def _refusal(self, now: float) -> RateLimited:
        wait = self._calendar.at(self.rule, now).first_gap(self.rule, now) - now
        return RateLimited(self.name, max(0.0, wait))


class MemoryGuard(Guard):
    """Starts no retry while the process uses more memory than it should.

    What is used is the resident set, from /proc where there is one, or from getrusage, which knows
    only the greatest so far. It is looked at no more than ten times a second. If it cannot be
    read, that is logged once, and retries are made.

    Args:
        limit: bytes, or text such as "512MB", "1.5GiB" or "80%": of the container's memory where
            the process is in one, or else of the machine's.
        probe: a function without arguments that returns how many bytes are used, instead.

    >>> guard = MemoryGuard("512MB", probe=lambda: 612_000_000)
    >>> guard.consider(None, 0.1, 0.0).text
    'memory is over the limit of 512 MB'
    >>> guard.snapshot()
    {'limit': 512000000, 'used': 612000000}
    """

    name = "memory"

    layer = "memory guard"

    def __init__(self, limit: int | str, probe: Callable[[], float] | None = None) -> None:
        self.rule: MemoryRule = MemoryRule(limit, probe)
        self._probe: Callable[[], float] = resident_bytes if probe is None else probe
        self._used: float | None = None
        self._at: float | None = None
        self._is_reported = False
        self._lock = make_lock()
        self.limit = self.rule.bytes_of(memory_there_is() if self.rule.is_share else None)
        """The limit in bytes; None if the amount of memory is unknown."""
        self._stop = Stop(f"memory is over the limit of {readable(self.limit or 0)}")
        if self.limit is None:
            self._report("how much memory there is", None)

    @property
    def used(self) -> float | None:
        """The bytes in use when it was last looked at; None where that is not known."""
        return self._used

    def snapshot(self) -> dict[str, Any]:
        """The limit and what is used, in bytes.

        >>> MemoryGuard(1000, probe=lambda: 10).snapshot()
        {'limit': 1000, 'used': 10}
        """
        return {"limit": self.limit, "used": self._look(clock.current.monotonic())}

    def reset(self) -> None:
        """Reads the memory again at the next question.

        >>> guard = MemoryGuard(1000, probe=lambda: 10)
        >>> guard.reset(); guard.used is None
        True
        """
        with self._lock:
            self._used = self._at = None

    def __repr__(self) -> str:
        return f"MemoryGuard({self.rule.limit!r})"

    def consider(
        self,
        _failure: BaseException | None,
        delay: float,
        now: float,
        witness: Witness | None = None,
    ) -> float | Stop:
        """Admits the retry unless too little memory is left; decided on the use and the limit."""
        used = self._look(now)
        allowed = self.rule.allows(used, self.limit)
        if witness is not None:
            witness(label_of(self), [used, self.limit], allowed)
        return delay if allowed else self._stop

    def _look(self, now: float) -> float | None:
        with self._lock:
            if self._at is not None and 0.0 <= now - self._at < _FRESH:
                return self._used
        used = self._ask()
        with self._lock:
            self._used, self._at = used, now
        return used

    def _ask(self) -> float | None:
        """What the probe returns; it may raise or return nonsense, and no call fails for that."""
        try:
            used = self._probe()
            if type(used) in (int, float) and 0 <= used < float("inf"):
                return used
            self._report("how much memory is used", ValueError(f"the probe answered {used!r}"))
        except Exception as error:
            self._report("how much memory is used", error)
        return None

    def _report(self, what: str, error: Exception | None) -> None:
        with self._lock:
            is_first, self._is_reported = not self._is_reported, True
        if is_first:
            from mainstay.runtime.reports.report_failure import report

            message = "%r cannot find out %s; retries are made"
            report(error, message, self, what, level=logging.WARNING)


_FRESH = 0.1
"""Seconds for which a look at the memory is good."""


def resident_bytes(statm: str = "/proc/self/statm") -> int:
    """How much memory this process holds."""
    if os.path.exists(statm):  # noqa: PTH110 -- pathlib costs more to import than all of this
        with open(statm, encoding="ascii") as file:  # noqa: PTH123 -- see above
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def memory_there_is(root: str = "") -> int | None:
    """The memory of the container where it has a limit, or else of the machine."""
    try:
        machine = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, OSError, ValueError):  # not on Windows
        machine = []
    return min((*machine, *_container_limits(root)), default=None)


def _container_limits(root: str) -> Iterator[int]:
    """The limits of the process's control group and of those around it, versions 2 and 1.

    Inside a container the path may be the host's; the folder's own limit is then the container's.
    """
    for line in _text(f"{root}/proc/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        folder, name = ("/memory", "memory.limit_in_bytes") if controllers else ("", "memory.max")
        while True:
            text = _text(f"{root}/sys/fs/cgroup{folder}{path.rstrip('/')}/{name}").strip()
            if text.isdigit() and int(text):  # and not "max"
                yield int(text)
            if path.strip("/") == "":
                break
            path = path.rpartition("/")[0]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 -- see resident_bytes
            return file.read()
    except (OSError, ValueError):
        return ""
