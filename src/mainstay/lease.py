"""The lease of the keyed call that is under way: whether this process still holds it.

A long function looks at it between two effects:

>>> from mainstay import lease
>>> def pages():
...     for page in range(3):
...         if not lease.is_held():
...             return "stopped"
...     return "done"
>>> pages()
'done'
"""

from __future__ import annotations

import mainstay.runtime.clock as clock
from mainstay.runtime.context import LEASE


def is_held() -> bool:
    """Whether no other call can have taken over the key of the current call.

    False once the lease has run out without being renewed, or if another call has taken over; also
    after the call has ended, for a task or thread that it has left behind. True outside a keyed
    call, and in one on a connection of yours, whose record nobody else sees before you commit.

    >>> from mainstay import Engine, lease
    >>> Engine().operation("work", key="k").call(lease.is_held)
    True
    """
    held = LEASE.get()
    return held is None or clock.steady() < held.until


def remaining() -> float | None:
    """The seconds for which the lease is certain, unless it is renewed; None if there is none.

    >>> from mainstay import Engine, lease
    >>> lease.remaining() is None
    True
    >>> 25.0 < Engine().operation("work", key="k", lease=30.0).call(lease.remaining) <= 30.0
    True
    """
    held = LEASE.get()
    return None if held is None else max(0.0, held.until - clock.steady())
