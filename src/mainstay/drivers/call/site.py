"""A site: one place that is retried, with everything its driver needs.

The core sees it as a Plan. There is one per decorated function, per policy (for `policy.call`)
and per operation of an engine.
"""

from __future__ import annotations

from _random import Random  # what random.Random derives from; random itself loads OpenSSL

from mainstay.core.base.entropy import key_of
from mainstay.core.retry.plan import Plan
from mainstay.runtime.fork import reset_in_child
from mainstay.runtime.overrides import PROCESS_OVERRIDES

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from typing import Any

    from mainstay.core.redact.redactor import Redactor
    from mainstay.core.retry.policy import Policy
    from mainstay.drivers.call.guard import Gate
    from mainstay.ports import Sink
    from mainstay.runtime.overrides import Overrides


class _Generator(Random):
    """Seeded by the system; reseeded in a forked child, or workers would wait the same times."""


_random = _Generator()
reset_in_child(_random, _Generator.seed)
getrandbits = _random.getrandbits


class Entropy:
    """Keys for failing calls: drawn, or counted under a seed."""

    __slots__ = ("_calls", "seed")

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed
        self._calls = 0

    def draw(self) -> int:
        if self.seed is None:
            return getrandbits(52) | 1
        call, self._calls = self._calls, self._calls + 1
        return key_of(self.seed, call)


SYSTEM_ENTROPY = Entropy()
_MASK = 2**60 - 1


class Site(Plan):
    """A Plan with its listeners, its source of keys and its cancel event."""

    __slots__ = (
        "acaller",
        "caller",
        "cancel",
        "entropy",
        "escalates",
        "follows",
        "gate",
        "hears_successes",
        "is_clocked",
        "is_plain",
        "listeners",
        "overrides",
        "plan_id",
    )

    def __init__(
        self,
        policy: Policy,
        operation: str = "",
        *,
        idempotency: str = "idempotent",
        listeners: tuple[Sink, ...] = (),
        entropy: Entropy = SYSTEM_ENTROPY,
        cancel: threading.Event | None = None,
        token: int = 0,
        gate: Gate | None = None,
        redact: Redactor | None = None,
        overrides: Overrides = PROCESS_OVERRIDES,
    ) -> None:
        super().__init__(policy, operation, token or getrandbits(60) + 1, idempotency)
        self.listeners = listeners
        self.redact = redact
        self.gate: Any = gate
        """The guards, where there are any."""
        self.is_guarded = gate is not None
        hears = any(not hasattr(each, "take") for each in listeners)
        wants_more = hears or cancel or gate or policy.is_demanding
        self.is_plain = bool(operation) and not wants_more
        """Whether a call needs nothing but attempts and waits; who listens takes facts."""
        self.follows = bool(listeners) and any(hasattr(each, "follow") for each in listeners)
        """Whether a listener wants to know when attempts begin and end."""
        self.hears_successes = self.follows or any(
            getattr(each, "hears_successes", True) for each in listeners
        )
        """Whether a listener wants to know of calls that never failed; it says so itself."""
        self.escalates = any(hasattr(each, "escalates") for each in listeners)
        """Whether what is given up here is brought to a person."""
        self.is_clocked = any(getattr(each, "wants_evidence", False) for each in listeners)
        """Whether a listener wants to know how long a first attempt took."""
        self.plan_id: str | None = None
        """What records call its plan, once somebody has asked."""
        self.entropy = entropy
        self.overrides = overrides
        """What a test has changed."""
        self.cancel = cancel
        self.caller: Callable[..., Any] | None = None
        self.acaller: Callable[..., Any] | None = None
        """What makes a call of any function here, sync and async; made when first needed."""

    def named(self, operation: str, *, is_new: bool = False) -> Site:
        """The same site for one function's call; a site without a name serves many functions."""
        return Site(
            self.policy,
            operation,
            idempotency=self.idempotency,
            listeners=self.listeners,
            entropy=self.entropy,
            cancel=self.cancel,
            token=0 if is_new else (self.token ^ hash(operation)) & _MASK | 1,
            gate=self.gate,
            redact=self.redact,
            overrides=self.overrides,
        )
