"""When to hold back by oneself: the adaptive throttle, the rate of retries, the memory limit.

Rules are frozen values with plain functions; time comes in as `now`, randomness as u in [0, 1).
"""

from __future__ import annotations

from bisect import bisect_right, insort

from mainstay.core.base.validate import MAX_SECONDS, MIN_WINDOW, Checker
from mainstay.core.base.value import Value
from mainstay.core.known.kind import Kind
from mainstay.core.limits.budget import LAG, MOST
from mainstay.core.retry.kinds import kind_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.base.types import Seconds

# --- the adaptive throttle ------------------------------------------------------------------------

REFUSALS = frozenset({Kind.OVERLOAD, Kind.THROTTLED, Kind.TIMEOUT, Kind.TRANSIENT, Kind.UNKNOWN})
"""Failures that count for the other side's health. The rest it has accepted and answered."""


def is_refusal(failure: BaseException) -> bool:
    """Whether the other side did not take the call on.

    >>> is_refusal(ConnectionResetError()), is_refusal(ValueError())
    (True, False)
    """
    return kind_of(failure).kind in REFUSALS


class ThrottleRule(Value):
    """How many calls to hold back, given how many the other side has accepted.

    Betsy Beyer et al., "Site Reliability Engineering" (2016), chapter 21, "Client-Side Throttling":
    k = 2 and two minutes are theirs. The floor is ours: one failure is no overload.

    >>> ThrottleRule(k=2.0).probability(requests=99, accepts=0)
    0.99
    >>> ThrottleRule(k=2.0).probability(requests=99, accepts=50)
    0.0
    """

    __slots__ = ("floor", "k", "name", "window")
    name: str
    k: float
    window: float
    floor: int

    def __init__(
        self,
        name: str = "throttle",
        *,
        k: float = 2.0,
        window: Seconds = 120.0,
        floor: int = 10,
        seed: int | None = None,
    ) -> None:
        check = Checker("AdaptiveThrottle")
        name = check.name("name", name)
        k = check.number("k", k, 1.0, 1000.0)
        window = check.duration("window", window, MIN_WINDOW, MAX_SECONDS)
        floor = check.count("floor", floor, MOST)
        if seed is not None and type(seed) is not int:  # the driver's; judged with the rest
            check.note("seed", seed, "an integer, or None")
        check.close()
        self._fill(name=name, k=k, window=window, floor=floor)

    def probability(self, requests: int, accepts: int) -> float:
        """The share of first attempts to hold back; 0 below the floor."""
        if requests < self.floor:
            return 0.0
        return max(0.0, (requests - self.k * accepts) / (requests + 1))

    def sheds(self, probability: float, u: float) -> bool:
        """Whether this one is held back.

        >>> ThrottleRule().sheds(0.5, u=0.49), ThrottleRule().sheds(0.0, u=0.0)
        (True, False)
        """
        return u < probability


# --- the rate of retries --------------------------------------------------------------------------


class RateRule(Value):
    """A number of retries a second, some of them at once, none waiting too long for its turn.

    If `first_calls` is set, first attempts count, and wait, too.
    """

    __slots__ = ("burst", "first_calls", "max_wait", "name", "per_second")
    name: str
    per_second: float
    burst: int
    max_wait: float
    first_calls: bool

    def __init__(
        self,
        name: str = "retry rate",
        *,
        per_second: float = 10.0,
        burst: int = 10,
        max_wait: Seconds = 30.0,
        first_calls: bool = False,
    ) -> None:
        check = Checker("RateLimit")
        name = check.name("name", name)
        per_second = check.number("per_second", per_second, 1e-5, float(MOST))
        burst = check.count("burst", burst, MOST)
        max_wait = check.seconds("max_wait", max_wait)
        if not isinstance(first_calls, bool):
            check.note("first_calls", first_calls, "True or False")
        check.close()
        self._fill(name=name, per_second=per_second, burst=burst, max_wait=max_wait,
                   first_calls=first_calls)  # fmt: skip


class Calendar(Value):
    """When the retries that were let through will start, and how full the bucket is.

    The generic cell rate algorithm as virtual scheduling (ITU-T I.371): `due` is the theoretical
    arrival time after all that has started. Retries ask in any order of their starts, the one with
    a short backoff after the one with a long one; so those still to come are kept one by one, and a
    new one takes the first gap that harms no other. Asking costs time in proportion to them: 0.2 ms
    where 1,000 wait.

    >>> rule = RateRule(per_second=1.0, burst=1)
    >>> wait, calendar = Calendar().reserve(rule, now=100.0, delay=5.0)
    >>> wait, calendar.reserve(rule, now=100.0, delay=5.0)[0]
    (5.0, 6.0)
    >>> calendar.reserve(rule, now=100.0, delay=1.0)[0]
    1.0
    """

    __slots__ = ("due", "seen", "starts")
    due: float
    starts: tuple[float, ...]
    seen: float

    def __init__(
        self,
        due: float = float("-inf"),
        starts: tuple[float, ...] = (),
        seen: float = float("-inf"),
    ) -> None:
        self._fill(due=due, starts=starts, seen=seen)

    def reserve(self, rule: RateRule, now: float, delay: float) -> tuple[float | None, Calendar]:
        """How long to wait for one's turn, no less than the delay; None if it is too long."""
        calendar = self.at(rule, now)
        start = calendar.first_gap(rule, now + delay)
        wait = max(delay, start - now) if start > now + delay else delay
        if wait > delay and wait > rule.max_wait:
            return None, calendar
        starts = list(calendar.starts)
        insort(starts, start)
        return wait, Calendar(calendar.due, tuple(starts), calendar.seen)

    def without(self, start: float) -> Calendar:
        """The calendar without a start that is not made; one that has begun counts all the same.

        >>> Calendar(starts=(5.0, 6.0)).without(5.0).starts
        (6.0,)
        """
        starts = list(self.starts)
        if start in starts:
            starts.remove(start)
        return Calendar(self.due, tuple(starts), self.seen)

    def at(self, rule: RateRule, now: float) -> Calendar:
        """The calendar at this moment: what has started is only in `due` any more.

        A clock that was set back takes everything along.
        """
        due, starts = self.due, self.starts
        back = self.seen - now
        if back > LAG:
            due, starts = due - back, tuple(start - back for start in starts)
        gone = bisect_right(starts, now)
        for start in starts[:gone]:
            due = max(start, due) + 1.0 / rule.per_second
        return Calendar(due, starts[gone:], now if back > LAG else max(now, self.seen))

    def first_gap(self, rule: RateRule, earliest: float) -> float:
        """The first moment from `earliest` on at which one more start harms none after it."""
        interval = 1.0 / rule.per_second
        slack = (rule.burst - 1) * interval
        latest = self._latest(interval, slack)
        due, last = self.due, float("-inf")
        for start, limit in zip(self.starts, latest, strict=True):
            moment = max(earliest, last, due - slack)
            if moment <= start and max(moment, due) + interval <= limit + 1e-9:
                return moment
            due, last = max(start, due) + interval, start
        return max(earliest, last, due - slack)

    def _latest(self, interval: float, slack: float) -> list[float]:
        """For each start, the greatest `due` before it with which it and all later ones conform."""
        latest, limit = [], float("inf")
        for start in reversed(self.starts):
            limit = min(start + slack, limit - interval)
            latest.append(limit)
        return latest[::-1]


# --- the memory limit -----------------------------------------------------------------------------

_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
_ALLOWED = 'bytes as an integer above 0, or text such as "512MB", "1.5GiB" or "80%"'


class MemoryRule(Value):
    """A limit in bytes, or as a share of the memory there is.

    >>> MemoryRule("512MB").bytes_of(None), MemoryRule("80%").bytes_of(1000)
    (512000000, 800)
    >>> MemoryRule("80%").bytes_of(None) is None
    True
    """

    __slots__ = ("_amount", "limit")
    limit: int | str
    _amount: float

    def __init__(self, limit: int | str, probe: object = None) -> None:
        check = Checker("MemoryGuard")
        amount = _amount(limit)
        if amount is None:
            check.note("limit", limit, _ALLOWED)
        check.plain_function("probe", probe)
        check.close()
        self._fill(limit=limit, _amount=amount)

    @property
    def is_share(self) -> bool:
        """Whether it depends on how much memory there is."""
        return isinstance(self.limit, str) and self.limit.endswith("%")

    def bytes_of(self, memory: int | None) -> int | None:
        """The limit in bytes, given all the memory there is; None if that is not known."""
        if not self.is_share:
            return int(self._amount)
        return None if memory is None else int(memory * self._amount / 100)

    def allows(self, used: float | None, limit: int | None) -> bool:
        """Whether a retry may be started; if nothing is known, it may.

        >>> MemoryRule("512MB").allows(600_000_000, 512_000_000)
        False
        """
        return used is None or limit is None or used <= limit


def _amount(limit: object) -> float | None:
    """Bytes or per cent; None for what is neither."""
    if type(limit) is int:
        return limit if 0 < limit < 2**63 else None
    if not isinstance(limit, str):
        return None
    number = limit.rstrip("%BbKkMmGgTtIi").rstrip()
    unit = limit[len(number) :].strip().upper()
    factor = 1 if unit == "%" else _UNITS.get(unit)
    digits = number.replace(".", "", 1)
    if factor is None or not (digits.isascii() and digits.isdigit()):
        return None
    amount = float(number) * factor
    most = 100.0 if unit == "%" else 2.0**63
    return amount if 0 < amount <= most else None


def readable(size: float) -> str:
    """A size with its unit.

    >>> readable(612_400_000), readable(999)
    ('612 MB', '999 B')
    """
    for unit in ("B", "KB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
