"""The time of a step: a store's own timeout, or less if the caller's deadline comes first.

Whatever bounds the caller bounds the step: the deadline of a policy, `deadline.within()`, an
enclosing attempt. Threads of a store that work for several callers have no deadline of their own:
the time is read where the caller is.
"""

from __future__ import annotations

import mainstay.runtime.clock as clock
from mainstay.core.base.deadline import NEVER
from mainstay.deadline import moment

LEAST = 0.08
"""Seconds that a step has at least. The step that records how a call ended often begins when the
deadline has nearly passed, or has passed: a healthy store still takes it."""


def time_for(timeout: float) -> float:
    """The seconds that a step may take from now on.

    >>> from mainstay import deadline
    >>> time_for(5.0)
    5.0
    >>> with deadline.within(2.0):
    ...     1.0 < time_for(5.0) <= 2.0
    True
    """
    end = moment()
    if end == NEVER:
        return timeout
    return min(timeout, max(end - clock.current.monotonic(), LEAST))


def shown(seconds: float, timeout: float) -> str:
    """The limit of a step, for a message: which limit it was, if it was not the store's own.

    >>> shown(5.0, 5.0), shown(2.0, 5.0)
    ('5 s', '2 s, which the deadline of the call left of 5 s')
    """
    if seconds >= timeout:
        return f"{timeout:g} s"
    return f"{seconds:.3g} s, which the deadline of the call left of {timeout:g} s"
