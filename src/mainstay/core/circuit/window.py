"""Evidence over a window: the last n calls, or the calls of the last n seconds.

A value and plain functions. Successes may come in bulk: the happy path only counts them, and a
failure brings along how many there were since the last time. In a time window those are spread
evenly over the time since then.
"""

from __future__ import annotations

from msgspec import Struct

from mainstay.core.base.validate import MAX_SECONDS, Checker
from mainstay.core.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.base.types import Seconds

_MAX_CALLS = 10_000
_MAX_BUCKETS = 60


class Window(Value):
    """How far back a breaker looks.

    >>> Window.calls(100)
    Window(buckets=0, kind='calls', size=100)
    >>> Window.seconds(60.0, buckets=6).width
    10.0
    """

    __slots__ = ("buckets", "kind", "size")
    kind: str
    size: float
    buckets: int

    def __init__(self, kind: str, size: Seconds, buckets: int = 0) -> None:
        check = Checker("Window")
        kind = check.choice("kind", kind, ("calls", "seconds"))
        if kind == "calls":
            size = check.count("size", size, _MAX_CALLS)
            if buckets:
                check.note("buckets", buckets, "left out: a window of calls has none")
        else:
            size = check.duration("size", size, 0.1, MAX_SECONDS)
            buckets = check.count("buckets", buckets, _MAX_BUCKETS)
        check.close()
        self._fill(kind=kind, size=size, buckets=buckets)

    @classmethod
    def calls(cls, size: int) -> Window:
        """The last `size` calls.

        >>> Window.calls(20).size
        20
        """
        return cls("calls", size)

    @classmethod
    def seconds(cls, size: Seconds, buckets: int = 10) -> Window:
        """The calls of the last `size` seconds, counted in buckets.

        >>> Window.seconds(30.0).buckets
        10
        """
        return cls("seconds", size, buckets)

    @property
    def width(self) -> float:
        """The seconds of one bucket."""
        return self.size / self.buckets


class Evidence(Struct, frozen=True):
    """What was seen.

    A window of calls is kept as bits, the newest lowest; one of time in buckets of (number, calls,
    failed, slow), the newest last.
    """

    calls: int = 0
    failed: int = 0
    slow: int = 0
    buckets: tuple[tuple[int, int, int, int], ...] = ()
    heard: float = 0.0
    """The time of the last call, or of the start; records, keys and logs hold the name."""


def begun(window: Window | None, now: float) -> Evidence:
    """Nothing seen yet, from now on.

    >>> begun(Window.seconds(60.0), 5.0).heard
    5.0
    """
    is_of_time = window is not None and window.kind == "seconds"
    return Evidence(heard=now) if is_of_time else Evidence()


class Totals(Struct, frozen=True):
    """The sums over a window."""

    calls: int = 0
    failed: int = 0
    slow: int = 0


def added(
    window: Window, seen: Evidence, now: float, *, before: int, failed: bool, slow: bool
) -> Evidence:
    """The evidence after `before` successes and then one more call.

    >>> window = Window.calls(3)
    >>> seen = added(window, Evidence(), 0.0, before=7, failed=True, slow=False)
    >>> totals(window, seen, 0.0)
    Totals(calls=3, failed=1, slow=0)
    """
    if window.kind == "calls":
        return _shifted(int(window.size), seen, before, failed, slow)
    seen = _on_clock(window, seen, now)
    now = max(now, seen.heard)  # a small step back adds to the newest bucket
    buckets = {bucket[0]: bucket[1:] for bucket in seen.buckets}
    for number, count in _spread(window.width, seen, before, now):
        _add(buckets, number, count, 0, 0)
    _add(buckets, int(now // window.width), 1, int(failed), int(slow))
    kept = sorted(buckets)[-window.buckets :]
    return Evidence(buckets=tuple((n, *buckets[n]) for n in kept), heard=now)


def _on_clock(window: Window, seen: Evidence, now: float) -> Evidence:
    """Empty if the clock has stepped back past the window, which would not end for that long."""
    return seen if now >= seen.heard - window.size else Evidence(heard=now)


def _shifted(size: int, seen: Evidence, before: int, failed: bool, slow: bool) -> Evidence:
    mask, shift = (1 << size) - 1, min(before, size) + 1
    return Evidence(
        min(size, seen.calls + before + 1),
        (seen.failed << shift | failed) & mask,
        (seen.slow << shift | slow) & mask,
    )


def _spread(width: float, seen: Evidence, count: int, now: float) -> list[tuple[int, int]]:
    """The calls of which only the number is known, evenly over the time since the last news."""
    start = seen.heard
    first, last = int(start // width), int(now // width)
    first = max(first, last - _MAX_BUCKETS)
    shares, done = [], 0
    for number in range(first, last + 1):
        end = min(now, (number + 1) * width)
        until = count if number == last else int(count * (end - start) / (now - start))
        shares.append((number, until - done))
        done = until
    return [share for share in shares if share[1]]


def _add(
    buckets: dict[int, tuple[int, int, int]], number: int, calls: int, failed: int, slow: int
) -> None:
    old = buckets.get(number, (0, 0, 0))
    buckets[number] = (old[0] + calls, old[1] + failed, old[2] + slow)


def totals(window: Window, seen: Evidence, now: float) -> Totals:
    """What the window holds now.

    >>> totals(Window.seconds(60.0), Evidence(), 0.0).calls
    0
    """
    if window.kind == "calls":
        return Totals(seen.calls, seen.failed.bit_count(), seen.slow.bit_count())
    seen = _on_clock(window, seen, now)
    newest = int(max(now, seen.heard) // window.width)
    live = [bucket for bucket in seen.buckets if bucket[0] > newest - window.buckets]
    sums = [sum(bucket[index] for bucket in live) for index in (1, 2, 3)]
    return Totals(*sums)


def moved(window: Window, seen: Evidence, by: float) -> Evidence:
    """The same evidence on a clock that shows `by` seconds more."""
    if window.kind == "calls":
        return seen
    steps = round(by / window.width)
    shifted = tuple((bucket[0] + steps, *bucket[1:]) for bucket in seen.buckets)
    return Evidence(buckets=shifted, heard=seen.heard + by)
