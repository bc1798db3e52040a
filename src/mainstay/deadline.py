"""The deadline of the current call: the time that is left, and a way to set one.

Integrations read `remaining()` to give a client library a timeout that fits.

>>> from mainstay import deadline
>>> with deadline.within(5.0):
...     deadline.remaining() <= 5.0
True
"""

from __future__ import annotations

import mainstay.runtime.clock as clock
from mainstay.core.base.deadline import NEVER
from mainstay.core.base.deadline import remaining as _remaining
from mainstay.core.base.deadline import until as _until
from mainstay.core.base.validate import Checker
from mainstay.runtime.context import BOUND, Bound, current_bound
from mainstay.runtime.enclosing import enclosures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextvars import Token

    from mainstay.core.base.types import Seconds
    from mainstay.runtime.context import Bounding


def remaining() -> float | None:
    """The seconds left for the current attempt, or None if nothing limits it.

    >>> from mainstay import deadline
    >>> deadline.remaining() is None
    True
    >>> with deadline.within(5.0):
    ...     4.0 < deadline.remaining() <= 5.0
    True
    """
    end = moment()
    return None if end == NEVER else _remaining(clock.current.monotonic(), end)


def moment() -> float:
    """The monotonic moment at which the current attempt must be over; infinity if none."""
    bound = BOUND.get()
    while bound.is_over and bound.outer is not None:  # current_bound, without a frame
        bound = bound.outer
    end = bound.end
    for each in enclosures():
        end = min(end, each.end)
    return end


class within:  # noqa: N801 -- a context manager is used like a function
    """Limits everything inside to some seconds; never longer than the limit outside.

    It cuts nothing by itself: retries inside do not start an attempt that has no time left, and
    clients that read `remaining()` time out.

    >>> with within(5.0):
    ...     with within(60.0):
    ...         remaining() <= 5.0
    True
    """

    __slots__ = ("_entered", "_seconds")

    def __init__(self, seconds: Seconds) -> None:
        check = Checker("deadline.within")
        self._seconds = check.seconds("seconds", seconds, zero=False)
        check.close()
        self._entered: dict[Bounding, Token[Bounding]] = {}
        """By what bounds each block: several threads and tasks may be inside at once."""

    def __enter__(self) -> None:
        now = clock.current.monotonic()
        bound = Bound(_until(now, self._seconds, moment()), current_bound())
        self._entered[bound] = BOUND.set(bound)

    def __exit__(self, *_: object) -> None:
        bound: Bounding | None = BOUND.get()
        while bound is not None and bound not in self._entered:
            bound = bound.outer  # an attempt inside leaves its own when it has ended
        if bound is None:  # entered in a context that is not this one
            bound = next(reversed(self._entered))
        token = self._entered.pop(bound)
        bound.is_over = True
        BOUND.reset(token)
