"""Which call meets which fault: a pure function of the seed and the call's number.

Not of time or of the order of arrival, so that the same seed gives the same counts on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Fault:
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

FOR_EVER = 99


@dataclass(frozen=True, slots=True)
class Order:
    """An order to be charged: its key, the number of its call, and what the call meets."""

    name: str
    call: int
    faults: tuple[Fault, ...]


Share = tuple[float, tuple[Fault, ...]]

_COMMON: tuple[Share, ...] = (
    (0.05, (BUSY,)),
    (0.03, (BROKEN, BROKEN)),
    (0.04, (THROTTLED,)),
    (0.05, (RESET,)),
    (0.02, (RESET, BROKEN)),
    (0.015, (BROKEN,) * FOR_EVER),
    (0.025, (MISSING,) * FOR_EVER),
    (0.015, (FORBIDDEN,) * FOR_EVER),
)
_SEARCH: tuple[Share, ...] = (
    (0.06, (SLOW,)),
    (0.02, (SLOW,) * FOR_EVER),
    (0.02, (THROTTLED_LONG,) * FOR_EVER),
)
_ROTA = "catalogue.read search catalogue.read report.export search".split()
_OUTAGE = (0.47, 0.53)


@dataclass(frozen=True, slots=True)
class Script:
    """The faults of every call, and its operation."""

    seed: int
    calls: int

    def operation(self, call: int) -> str:
        """Calls take turns; every tenth may not be retried, for contrast."""
        return "profile.read" if call % 10 == 7 else _ROTA[call % len(_ROTA)]

    @property
    def twice(self) -> Order:
        """The order that is charged by two calls; the first attempt of the first one fails."""
        return Order("order-7", self.calls, (BROKEN,))

    @property
    def stuck(self) -> Order:
        """The order whose charge fails until its policy gives up, and not after that."""
        return Order("order-8", self.calls + 1, (BROKEN,) * 3)

    def faults(self, call: int) -> tuple[Fault, ...]:
        """The faults of a call's first attempts; whatever comes after them is healthy."""
        if call >= self.calls:
            return next((o.faults for o in (self.twice, self.stuck) if o.call == call), ())
        if not self.is_outage(call):
            return self._draw(call)
        # The earlier in the outage a call begins, the more of its attempts fall into it.
        begin, end = _OUTAGE
        return (RESET,) * (1 + int(4 * (end - self._position(call)) / (end - begin)))

    def is_outage(self, call: int) -> bool:
        """Whether the service is down for everybody when this call begins."""
        begin, end = _OUTAGE
        return begin <= self._position(call) < end

    def _position(self, call: int) -> float:
        return (call + 0.5) / self.calls

    def _draw(self, call: int) -> tuple[Fault, ...]:
        u = Random(f"{self.seed}:{call}").random()  # noqa: S311  a script, not a secret
        shares = _COMMON + _SEARCH if self.operation(call) == "search" else _COMMON
        for share, faults in shares:
            if u < share:
                return faults
            u -= share
        return ()

    def answer(self, call: int, attempt: int) -> Fault:
        """How the service answers attempt number `attempt`, which counts from 1."""
        faults = self.faults(call)
        return faults[attempt - 1] if attempt <= len(faults) else HEALTHY
