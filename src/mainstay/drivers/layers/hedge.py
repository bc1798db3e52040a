"""A hedge: a second attempt beside one that takes long; the first answer wins."""

from __future__ import annotations

import mainstay.runtime.clock as clock
from mainstay.core.analytics.quantile import Recent
from mainstay.core.base.validate import Checker
from mainstay.core.base.value import Value
from mainstay.core.retry.effects import Stop
from mainstay.core.retry.plan import IDEMPOTENCY
from mainstay.drivers.call.listeners import check_listeners
from mainstay.drivers.layers.decorate import put_around
from mainstay.drivers.layers.race import Race, Threads, group_here
from mainstay.errors import UsageError
from mainstay.runtime.fork import make_lock
from mainstay.runtime.overrides import PROCESS_OVERRIDES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Protocol, TypeVar

    from mainstay.core.base.types import Seconds, UserValue
    from mainstay.drivers.call.callables import Args, AsyncFunction, Function, Kwargs
    from mainstay.drivers.layers.race import Worker
    from mainstay.ports import Sink
    from mainstay.runtime.overrides import Overrides

    F = TypeVar("F", bound=Function)

    class Budget(Protocol):
        """What may refuse a hedge: a RetryBudget, or any other guard."""

        def consider(
            self, failure: BaseException | None, delay: float, now: float, /
        ) -> float | Stop: ...


ENOUGH = 20
"""Durations before a quantile of them is believed: the 0.95 quantile then has one above it."""
MOST_HEDGES = 10


class HedgeSnapshot(Value):
    """A hedge at one moment.

    Attributes:
        delay: seconds after which it would hedge now; None while it learns.
        samples: durations it knows, the last 128 at most.
        hedged: hedges started so far.
        won: hedges that answered first.
        denied: hedges the budget refused.
        abandoned: threads that lost and are still running.

    >>> Hedge(0.5).snapshot().delay
    0.5
    """

    __slots__ = ("abandoned", "delay", "denied", "hedged", "samples", "won")
    abandoned: int
    delay: float | None
    denied: int
    hedged: int
    samples: int
    won: int

    def __init__(
        self,
        *,
        delay: float | None,
        samples: int,
        hedged: int,
        won: int,
        denied: int,
        abandoned: int,
    ) -> None:
        self._fill(delay=delay, samples=samples, hedged=hedged, won=won, denied=denied,
                   abandoned=abandoned)  # fmt: skip


class Hedge:
    """Starts a second attempt beside one that takes long, and takes the first answer.

    For calls that may be made twice. A failure does not win while another attempt is running; if
    all fail, the first attempt's error is raised. Async attempts run in tasks, and losers are
    cancelled; sync attempts run in threads, and a loser runs on, with its cancel event set.

    Args:
        delay: seconds before the second attempt. With `quantile`, what holds until enough is known.
        quantile: hedge what takes longer than such a share of its own recent calls, such as 0.95.
            Until it knows 20 durations there is no hedge, unless `delay` is given.
        max_hedges: how many may start beside the first attempt, each `delay` after the one before.
        budget: asked before each hedge, by `consider(None, 0.0, now)`; a Stop means no.
        listener: called with AttemptHedged; several as a list.
        idempotency: "idempotent" or "keyed"; "unsafe" is refused.

    >>> @Hedge(0.5)
    ... def look_up(name):
    ...     return name.upper()
    >>> look_up("ann")
    'ANN'
    """

    __slots__ = ("_book", "budget", "delay", "listeners", "max_hedges", "quantile")

    def __init__(
        self,
        delay: Seconds | None = None,
        *,
        quantile: float | None = None,
        max_hedges: int = 1,
        budget: Budget | None = None,
        listener: Sink | Iterable[Sink] | None = None,
        idempotency: str = "idempotent",
    ) -> None:
        check = Checker("Hedge")
        self.delay = None if delay is None else check.seconds("delay", delay)
        self.quantile = _check_quantile(check, quantile, delay)
        self.max_hedges = check.count("max_hedges", max_hedges, MOST_HEDGES)
        self.listeners = check_listeners(check, listener)
        self.budget = budget
        if budget is not None and not callable(getattr(budget, "consider", None)):
            check.note("budget", budget, "a guard with consider(failure, delay, now), or None")
        check_repeatable(check, idempotency)
        check.close()
        self._book = Book(self, PROCESS_OVERRIDES)

    def __call__(self, function: F) -> F:
        """The function, hedged."""
        decorated: F = put_around(function, self, self._call, self._acall)
        return decorated

    def _call(self, function: Function, args: Args, kwargs: Kwargs) -> UserValue:
        race = Race(self._book, function, args, kwargs)
        if race.delay is None:
            return race.answered(function(*args, **kwargs), clock.current.monotonic())
        with Threads(race) as group:
            group.start()
            while not race.is_over:
                group.wait(race.until_hedge())
                if race.may_hedge() and group.start():
                    race.hedged()
        return race.result()

    async def _acall(self, function: AsyncFunction, args: Args, kwargs: Kwargs) -> UserValue:
        race = Race(self._book, function, args, kwargs)
        if race.delay is None:
            return race.answered(await function(*args, **kwargs), clock.current.monotonic())
        async with group_here(race) as group:
            group.start()
            while not race.is_over:
                await group.wait(race.until_hedge())
                if race.may_hedge():
                    group.start()
                    race.hedged()
            group.cancel()
        return race.result()

    def snapshot(self) -> HedgeSnapshot:
        """What it knows and has done so far.

        >>> Hedge(quantile=0.95).snapshot().delay is None
        True
        """
        book, delay = self._book, self._book.delay()
        with book.lock:
            return HedgeSnapshot(
                delay=delay, samples=len(book.recent), hedged=book.hedged, won=book.won,
                denied=book.denied, abandoned=len(book.abandoned),
            )  # fmt: skip

    def __repr__(self) -> str:
        return f"Hedge({self.delay}, quantile={self.quantile}, max_hedges={self.max_hedges})"


def _check_quantile(check: Checker, quantile: object, delay: object) -> float | None:
    if quantile is not None:
        return check.number("quantile", quantile, 0.5, 0.999)
    if delay is None:
        check.note("delay", delay, "a number of seconds, if no quantile is given")
    return None


def check_repeatable(check: Checker, idempotency: str) -> None:
    """Refuses to hedge what may not be made twice."""
    if check.choice("idempotency", idempotency, IDEMPOTENCY) == "unsafe":
        raise UsageError(
            "an unsafe operation cannot be hedged: both attempts may be applied",
            hint='declare it "idempotent" or "keyed" if that is so, or give it a timeout',
        )


class Book:
    """What a hedge has learned and counted, over all its calls."""

    __slots__ = ("abandoned", "denied", "hedge", "hedged", "lock", "overrides", "recent", "won")

    def __init__(self, hedge: Hedge, overrides: Overrides) -> None:
        self.hedge = hedge
        self.overrides = overrides
        self.lock = make_lock()
        self.recent = Recent()
        self.hedged = self.won = self.denied = 0
        self.abandoned: set[Worker] = set()

    def delay(self) -> float | None:
        """When to hedge a call that starts now."""
        quantile = self.hedge.quantile
        with self.lock:
            if quantile is not None and len(self.recent) >= ENOUGH:
                return self.recent.quantile(quantile)
        return self.hedge.delay

    def charge(self, now: float) -> float | None:
        """Asks the budget for a hedge: how long it wants it to wait, or None for no."""
        if self.hedge.budget is None:
            return 0.0
        try:
            answer = self.hedge.budget.consider(None, 0.0, now)
        except Exception as error:
            from mainstay.runtime.reports.report_failure import report

            report(error, "the budget of a hedge raised, and there is no hedge")
            answer = _RAISED
        if not isinstance(answer, Stop):
            return max(0.0, answer)
        self.count(denied=1)
        return None

    def count(self, *, hedged: int = 0, won: int = 0, denied: int = 0) -> None:
        with self.lock:
            self.hedged += hedged
            self.won += won
            self.denied += denied

    def learn(self, seconds: float) -> None:
        """From whole calls: the time of a hedge that won would make slow calls look fast."""
        if self.hedge.quantile is not None:
            with self.lock:
                self.recent.add(seconds)


_RAISED = Stop("the budget raised")
