"""Which call meets which fault: a pure function of the seed and the call's number.

Neither time nor the order of arrival matters: the same seed gives the same counts on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import NamedTuple


class Fault(NamedTuple):
    """How the service answers one request."""

    status: int = 200
    retry_after: int | None = None
    delay: float = 0.0
    is_reset: bool = False


HEALTHY = Fault(delay=0.01)
DOWN = Fault(502)
BUSY = Fault(503, retry_after=1)
BROKEN = Fault(503)
THROTTLED = Fault(429, retry_after=1)
THROTTLED_LONG = Fault(429, retry_after=30)
RESET = Fault(is_reset=True)
SLOW = Fault(delay=3.0)
MISSING = Fault(404)
FORBIDDEN = Fault(401)

ALWAYS = 99
_COMMON = (
    (0.05, (BUSY,)),
    (0.03, (BROKEN, BROKEN)),
    (0.04, (THROTTLED,)),
    (0.05, (RESET,)),
    (0.02, (RESET, BROKEN)),
    (0.015, (BROKEN,) * ALWAYS),
    (0.025, (MISSING,) * ALWAYS),
    (0.015, (FORBIDDEN,) * ALWAYS),
)
"""Shares of the calls, and the faults of their first attempts."""
_SEARCH = ((0.06, (SLOW,)), (0.02, (SLOW,) * ALWAYS), (0.02, (THROTTLED_LONG,) * ALWAYS))
ORDERS = {"order-7": (BROKEN,), "order-8": (BROKEN,) * 3}
"""Charged after the calls: one fails once, the other until its policy gives up."""
_ROTA = "catalogue.read search catalogue.read report.export search".split()
_BEGIN, _END = 0.47, 0.53
"""The outage, as shares of the calls."""


@dataclass(frozen=True, slots=True)
class Script:
    """The operation of each call, and its faults."""

    seed: int
    calls: int

    def operation(self, call: int) -> str:
        """Calls take turns; every tenth may not be retried, for contrast."""
        return "profile.read" if call % 10 == 7 else _ROTA[call % len(_ROTA)]

    def call_of(self, order: str) -> int:
        """The number of the call that charges an order; the calls without a fault follow."""
        return self.calls + list(ORDERS).index(order)

    def faults(self, call: int) -> tuple[Fault, ...]:
        """The faults of a call's first attempts; the attempts after them succeed."""
        if call >= self.calls:
            return dict(enumerate(ORDERS.values(), self.calls)).get(call, ())
        if self.is_outage(call):
            # The earlier in the outage a call begins, the more of its attempts fall into it.
            return (RESET,) * (1 + int(4 * (_END - self._position(call)) / (_END - _BEGIN)))
        u = Random(f"{self.seed}:{call}").random()  # noqa: S311  a script, not a secret
        for share, faults in _COMMON + (_SEARCH if self.operation(call) == "search" else ()):
            if u < share:
                return faults
            u -= share
        return ()

    def is_outage(self, call: int) -> bool:
        """Whether the service is down for every caller when this call begins."""
        return _BEGIN <= self._position(call) < _END

    def _position(self, call: int) -> float:
        return (call + 0.5) / self.calls
