"""How many retries there may be: a share of the calls, or tokens that failures use up.

Rules are frozen values, and so are the counts of a sliding window. Nothing here reads a clock: the
time comes in as `now`, in seconds of one clock. The driver's RetryBudget and TokenBudget hold the
present counts, a lock and the clock; the adaptive throttle counts by the same window.
"""

from __future__ import annotations

from math import ceil, floor

from mainstay.core.base.validate import MAX_SECONDS, MIN_WINDOW, Checker
from mainstay.core.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.base.types import Seconds

BUCKETS = 10
"""A window forgets a tenth of itself at a time."""

LAG = 1.0
"""Seconds by which a thread may be late with the time it has read. More is a clock set back."""

MOST = 1_000_000
"""The greatest floor, burst and token count that is allowed."""

_NOTHING = ((0, 0),) * BUCKETS


class SlidingCounts(Value):
    """Two counts over the last `window` seconds, in ten buckets, the newest first.

    A clock that is set back takes the counts along: they are as old afterwards as they were before.
    A step of less than a bucket or LAG may be a thread that is late, and is not followed; time
    stands still that long.

    >>> counts = SlidingCounts(10.0).add(100.0, 3).add(104.0, 1, 1)
    >>> counts.totals(104.0), counts.totals(111.0), counts.totals(120.0)
    ((4, 1), (1, 1), (0, 0))
    """

    __slots__ = ("buckets", "newest", "window")
    window: float
    newest: int
    buckets: tuple[tuple[int, int], ...]

    def __init__(
        self, window: float, newest: int = 0, buckets: tuple[tuple[int, int], ...] = _NOTHING
    ) -> None:
        self._fill(window=window, newest=newest, buckets=buckets)

    def totals(self, now: float) -> tuple[int, int]:
        """Both counts of the window that ends now."""
        buckets = self.at(now).buckets
        return sum(first for first, _ in buckets), sum(second for _, second in buckets)

    def add(self, now: float, first: int = 0, second: int = 0) -> SlidingCounts:
        """Counts what happens now."""
        return _plus(self.at(now), 0, first, second)

    def take_back(self, number: int, now: float) -> SlidingCounts:
        """One less of the first count, in the bucket that was `newest` when it was counted."""
        moved = self.at(now)
        back = max(0, moved.newest - number)
        if back >= BUCKETS or not moved.buckets[back][0]:
            return moved
        return _plus(moved, back, -1, 0)

    def spread(self, since: float, now: float, first: int, second: int = 0) -> SlidingCounts:
        """Counts what has come in since, as if evenly; what is past the window is left out.

        >>> SlidingCounts(10.0).spread(100.0, 120.0, 40).totals(120.0)
        (18, 0)
        """
        counts = self.at(now)
        if not since < now:
            return _plus(counts, 0, first, second)
        width, before = self.window / BUCKETS, (first, second)
        for back in range(BUCKETS):
            share = ((counts.newest - back) * width - since) / (now - since)
            share = min(1.0, max(0.0, share))
            older = floor(first * share + 0.5), floor(second * share + 0.5)
            counts = _plus(counts, back, before[0] - older[0], before[1] - older[1])
            before = older
        return counts

    def at(self, now: float) -> SlidingCounts:
        """The counts with the bucket of this moment as the newest."""
        width = self.window / BUCKETS
        steps = floor(now / width) - self.newest
        if not steps or -_patience(width) <= steps < 0:
            return self
        passed = min(max(0, steps), BUCKETS)
        kept = self.buckets[: BUCKETS - passed]
        return SlidingCounts(self.window, self.newest + steps, _NOTHING[:passed] + kept)


def _plus(counts: SlidingCounts, back: int, first: int, second: int) -> SlidingCounts:
    """The counts with more in the bucket that is `back` before the newest."""
    buckets = list(counts.buckets)
    buckets[back] = buckets[back][0] + first, buckets[back][1] + second
    return SlidingCounts(counts.window, counts.newest, tuple(buckets))


def _patience(width: float) -> int:
    """By how many buckets the time may be late without being a clock set back."""
    return min(max(1, ceil(LAG / width)), BUCKETS)


def spent(sort: str, name: str) -> str:
    """The reason for a call that a budget has no retry left for.

    >>> spent("retry", "search")
    "the retry budget 'search' is spent"
    """
    return f"the {sort} budget {name!r} is spent"


def is_spent(reason: str) -> bool:
    """Whether a call ended because a budget had no retry for it.

    >>> is_spent(spent("token", "search") + "; retry_on: OSError"), is_spent("not retryable")
    (True, False)
    """
    return reason.startswith(("the retry budget ", "the token budget "))


class RatioRule(Value):
    """Retries may be a share of the calls; a few are always allowed.

    >>> rule = RatioRule(ratio=0.1, floor=3)
    >>> rule.allowed(10), rule.allowed(200)
    (3.0, 20.0)
    """

    __slots__ = ("floor", "name", "ratio", "window")
    name: str
    ratio: float
    floor: int
    window: float

    def __init__(
        self, name: str = "retries", *, ratio: float = 0.2, floor: int = 10, window: Seconds = 10.0
    ) -> None:
        check = Checker("RetryBudget")
        name = check.name("name", name)
        ratio = check.number("ratio", ratio, 0.0, 1.0)
        floor = check.count("floor", floor, MOST, 0)
        window = check.duration("window", window, MIN_WINDOW, MAX_SECONDS)
        check.close()
        self._fill(name=name, ratio=ratio, floor=floor, window=window)

    def allowed(self, calls: int) -> float:
        """How many retries a window with that many calls may have."""
        return max(float(self.floor), self.ratio * calls)

    def allows(self, calls: int, retries: int) -> bool:
        """Whether there may be one more retry.

        >>> RatioRule(ratio=0.5, floor=1).allows(calls=4, retries=1)
        True
        >>> RatioRule(ratio=0.5, floor=1).allows(calls=4, retries=2)
        False
        """
        return retries + 1 <= self.allowed(calls) + 1e-9  # 0.29 × 100 is 28.999…


class TokenRule(Value):
    """What takes tokens and what gives them back.

    Tokens are counted in whole thousandths, as gRPC does: a tenth taken ten times is one.

    >>> rule = TokenRule(capacity=10, cost=4)
    >>> rule.spent(10_000, 4_000), rule.spent(3_000, 4_000)
    (6000, None)
    """

    __slots__ = (
        "capacity",
        "cost",
        "failure_cost",
        "name",
        "refund",
        "reserve",
        "success_refund",
        "timeout_cost",
    )
    name: str
    capacity: float
    cost: float
    timeout_cost: float
    refund: float | None
    success_refund: float
    failure_cost: float
    reserve: float

    def __init__(
        self,
        name: str = "tokens",
        *,
        capacity: float = 500,
        cost: float = 5,
        timeout_cost: float = 10,
        refund: float | None = None,
        success_refund: float = 1,
        failure_cost: float = 0,
        reserve: float = 0,
    ) -> None:
        check = Checker("TokenBudget")
        name = check.name("name", name)
        capacity = check.number("capacity", capacity, 0.001, MOST)
        most = MOST if check.problems else capacity
        cost = check.number("cost", cost, 0.0, most)
        timeout_cost = check.number("timeout_cost", timeout_cost, 0.0, most)
        refund = None if refund is None else check.number("refund", refund, 0.0, most)
        success_refund = check.number("success_refund", success_refund, 0.0, most)
        failure_cost = check.number("failure_cost", failure_cost, 0.0, most)
        reserve = check.number("reserve", reserve, 0.0, most)
        if not check.problems:
            _check_sense(check, capacity, cost, failure_cost, reserve)
        check.close()
        self._fill(name=name, capacity=capacity, cost=cost, timeout_cost=timeout_cost,
                   refund=refund, success_refund=success_refund, failure_cost=failure_cost,
                   reserve=reserve)  # fmt: skip

    def price(self, is_timeout: bool) -> int:
        """What a retry costs after such a failure, in thousandths."""
        return thousandths(self.timeout_cost if is_timeout else self.cost)

    def spent(self, tokens: int, price: int) -> int | None:
        """The tokens after a retry; None if there are too few for it."""
        if tokens < price or tokens <= thousandths(self.reserve):
            return None
        return tokens - price

    def failed(self, tokens: int) -> int:
        """The tokens after an attempt that failed."""
        return max(0, tokens - thousandths(self.failure_cost))

    def given(self, tokens: int, amount: int) -> int:
        """The tokens after some came back."""
        return min(thousandths(self.capacity), tokens + amount)


def _check_sense(
    check: Checker, capacity: float, cost: float, failure_cost: float, reserve: float
) -> None:
    if not cost and not failure_cost:
        check.note("cost", cost, "more than 0 if a failure costs nothing either")
    if reserve >= capacity:
        check.note("reserve", reserve, f"less than the capacity, {capacity:g}")


def thousandths(tokens: float) -> int:
    """Tokens as they are counted.

    >>> thousandths(0.1) * 10 == thousandths(1)
    True
    """
    return round(tokens * 1000)
