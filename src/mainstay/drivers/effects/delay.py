"""The delay formula of the effects document, for loops of the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.base.validate import Checker
from mainstay.core.effects.settings import curve
from mainstay.core.retry.backoff import Jitter
from mainstay.drivers.call.site import getrandbits

if TYPE_CHECKING:
    from mainstay.core.base.types import Seconds


def calculate_backoff_delay(
    attempt: int,
    initial_delay: Seconds = 1.0,
    max_delay: Seconds = 60.0,
    exponential_base: float = 2.0,
    jitter_factor: float = 0.25,
    *,
    u: float | None = None,
) -> float:
    """The delay after an attempt, counted from 0; `u` in [0, 1) makes it reproducible.

    The cap holds from the first delay on, also if `initial_delay` is above it.

    >>> calculate_backoff_delay(2, u=0.5)
    4.0
    >>> calculate_backoff_delay(0, initial_delay=90.0, u=0.5)
    60.0
    """
    check = Checker("calculate_backoff_delay")
    if type(attempt) is not int or attempt < 0:
        check.note("attempt", attempt, "an integer of at least 0")
    check.close()
    backoff = curve(initial_delay, exponential_base, max_delay)
    drawn = getrandbits(52) * 2.0**-52 if u is None else u
    return Jitter.percent(jitter_factor).spread(backoff.base(attempt + 1), drawn, 0.0, backoff)
