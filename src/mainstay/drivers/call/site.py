"""A site: one place that is retried, with everything its driver needs.

The core sees it as a Plan. There is one per decorated function, per policy (for `policy.call`)
and per operation of an engine.
"""

from __future__ import annotations

from _random import Random  # what random.Random derives from; random itself loads OpenSSL

from mainstay.core.base.entropy import key_of
from mainstay.core.retry.plan import Plan
from mainstay.runtime.enclosing import mark_moment
from mainstay.runtime.fork import make_rlock, reset_in_child
from mainstay.runtime.overrides import PROCESS_OVERRIDES
from mainstay.runtime.reports.known_secrets import know_environment
from mainstay.runtime.reports.logs import LOGS, SILENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from typing import ClassVar

    from mainstay.core.redact.redactor import Redactor
    from mainstay.core.retry.policy import Policy
    from mainstay.drivers.call.callables import Function
    from mainstay.drivers.call.guard import Gate
    from mainstay.ports import Pressure, Sink
    from mainstay.runtime.overrides import Overrides
    from mainstay.runtime.reports.logs import Logs, Way
    from mainstay.runtime.waits import Waits


class _Generator(Random):
    """Seeded by the system; reseeded in a forked child, or workers would wait the same times."""


_random = _Generator()
reset_in_child(_random, _Generator.seed)
getrandbits = _random.getrandbits


_counting = make_rlock()
"""Held while a number is taken under a seed; one for all, so that an Entropy can be pickled."""


class Entropy:
    """Keys for failing calls: drawn, or counted under a seed."""

    __slots__ = ("_calls", "seed")

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed
        self._calls = 0

    def draw(self) -> int:
        if self.seed is None:
            return getrandbits(52) | 1
        with _counting:
            call = self._calls
            self._calls = call + 1
        return key_of(self.seed, call)


SYSTEM_ENTROPY = Entropy()
_MASK = 2**60 - 1


LONG = 1.0
"""Seconds from which on a wait is shown to other processes: runtime/waits.py."""
_NO_SINKS: tuple[Sink, ...] = ()
_NO_WAYS: tuple[Way, ...] = ()
_NOT_FOLLOWED: frozenset[int] = frozenset()
"""One for all sites: an empty frozenset of its own is a quarter of what a site takes."""


class Ways:
    """What makes calls of any function at a site, for each verb; made when it is first used.

    A site without a name serves many functions: `named` has the sites of those that have failed.
    """

    __slots__ = ("acall", "arun", "call", "named", "run")
    NONE: ClassVar[Ways]

    def __init__(self) -> None:
        self.call: Function | None = None
        self.acall: Function | None = None
        self.run: Function | None = None
        self.arun: Function | None = None
        self.named: dict[str, Site] = {}


Ways.NONE = Ways()
"""Of most sites: those of decorated functions. Nothing is ever put in."""
_MAX_NAMED = 64


class Site(Plan):
    """A Plan with its listeners, its source of keys and its cancel event."""

    __slots__ = (
        "cancel",
        "entropy",
        "escalates",
        "followed",
        "follows",
        "gate",
        "is_clocked",
        "is_plain",
        "is_quick",
        "levelled",
        "listeners",
        "logs",
        "may_want_evidence",
        "overrides",
        "plan_id",
        "pressures",
        "receivers",
        "reports_successes",
        "takers",
        "thresholds",
        "waits",
        "ways",
    )

    moment = staticmethod(mark_moment)

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
        logs: Logs = SILENT,
        waits: Waits | None = None,
    ) -> None:
        know_environment()
        super().__init__(policy, operation, token or getrandbits(60) + 1, idempotency)
        self.listeners, self.logs = listeners, logs
        """Where its failing calls are logged, unless an engine's sinks do that."""
        self.redact, self.gate = redact, gate
        """The guards, if there are any."""
        self.is_guarded = gate is not None
        self.followed = _NOT_FOLLOWED
        """The ids of the listeners that follow the attempts of each call."""
        self.reports_successes = logs.takes("DEBUG")
        """Whether a listener wants the events of calls that succeed at the first attempt."""
        self.escalates = self.is_clocked = False
        """Whether a call given up here goes to the inbox; whether a listener wants evidence."""
        self.pressures: tuple[Pressure, ...] = ()
        """By which listeners let calls wait if they cannot keep up."""
        self.takers, self.receivers = _NO_SINKS, _NO_SINKS
        """The listeners that take facts, and what takes the events of the others."""
        self.levelled, self.thresholds = _NO_WAYS, _NO_WAYS
        """The ways to logs, and those that want nothing if they do not want what is loudest."""
        self.may_want_evidence = False  # whether one of the others is no plain log
        wants_more = self._read_wants() if listeners else False
        self.follows = bool(self.followed)
        self.waits = waits
        """Shows long waits to other processes, if a store outlives this one."""
        self.is_plain = not (wants_more or cancel or gate or policy.is_demanding)
        """Whether a call needs nothing but attempts, waits, and notes for its listeners."""
        self.is_quick = self.is_plain and bool(listeners or not waits)
        """Whether a failing call takes the fast path: its waits need not be shown, or notes do."""
        self.plan_id: str | None = None
        """What records call its plan, once that was needed."""
        self.entropy, self.overrides = entropy, overrides
        """What a test has changed."""
        self.cancel, self.ways = cancel, Ways.NONE
        """What makes a call of any function here."""

    def _read_wants(self) -> bool:
        """Reads what the listeners want; returns whether one needs the flow for it."""
        # Not loaded without listeners.
        from mainstay.ports import methods_of, wants_of
        from mainstay.runtime.reports.levels import is_threshold, way_of

        wants_more = False
        for listener in self.listeners:
            wants, pressure = wants_of(listener), methods_of(listener).pressure
            if wants.attempts:
                self.followed |= {id(listener)}
            self.reports_successes |= bool(wants.successes or wants.attempts)
            self.escalates |= wants.escalates
            self.is_clocked |= wants.evidence
            if pressure is not None:
                self.pressures += (pressure,)
            if wants.facts:
                self.takers += (listener,)
            else:
                if hasattr(listener, "is_enabled"):
                    way = way_of(listener)
                    self.levelled += (way,)
                    self.thresholds += (way,) if is_threshold(way) else ()
                    self.receivers += (way[1],)
                    self.may_want_evidence |= way[1] is listener
                else:
                    self.receivers += (listener,)
                    self.may_want_evidence = True
                is_asking = wants.attempts or wants.evidence or wants.escalates
                wants_more = wants_more or bool(is_asking) or pressure is not None
        return wants_more

    @property
    def high_pressure(self) -> Pressure | None:
        """The first listener that cannot keep up, by its pressure."""
        for pressure in self.pressures:
            if pressure.is_high:
                return pressure
        return None

    @property
    def first_pressure(self) -> Pressure | None:
        """The same before the first attempt: a call waits there if its success is an event."""
        return self.high_pressure if self.reports_successes else None

    def listen(self, listener: Sink) -> None:
        """Adds a listener of failing calls; calls that are under way go on without it."""
        self.listeners = (*self.listeners, listener)
        self.receivers = (*self.receivers, listener)
        self.may_want_evidence = True

    def become(self, operation: str) -> None:
        """Takes a name: the site was made for one function, and that is known now."""
        self.operation = operation
        self.token = (self.token ^ hash(operation)) & _MASK | 1

    def under(self, policy: Policy, listeners: tuple[Sink, ...]) -> Site:
        """The same site with another policy and these listeners."""
        return self._again(policy, self.operation, listeners, 0)

    def named(self, operation: str, *, is_new: bool = False) -> Site:
        """The same site for one function's call; a site without a name serves many functions."""
        token = 0 if is_new else (self.token ^ hash(operation)) & _MASK | 1
        return self._again(self.policy, operation, self.listeners, token)

    def of(self, operation: str) -> Site:
        """The same site for one function's call, from the cache if it was asked for before."""
        named = self.ways.named.get(operation)
        if named is None:
            named = self.named(operation)
            if self.ways is not Ways.NONE:
                if len(self.ways.named) >= _MAX_NAMED:
                    self.ways.named.clear()
                self.ways.named[operation] = named
        return named

    def beside(self, listener: Sink, gate: Gate | None) -> Site:
        """The same site with a listener more, and the guards of this gate."""
        return self._again(self.policy, self.operation, (*self.listeners, listener), 0, gate)

    def _again(
        self, policy: Policy, operation: str, listeners: tuple[Sink, ...], token: int,
        gate: Gate | None = None,
    ) -> Site:  # fmt: skip
        return Site(
            policy,
            operation,
            idempotency=self.idempotency,
            listeners=listeners,
            entropy=self.entropy,
            cancel=self.cancel,
            token=token,
            gate=gate or self.gate,
            redact=self.redact,
            overrides=self.overrides,
            logs=self.logs,
            waits=self.waits,
        )


def log_beside(listeners: tuple[Sink, ...]) -> Logs:
    """The log of a site without an engine; none if one of its own listeners writes a log."""
    has_log = any(getattr(each, "is_log", False) for each in listeners)
    return SILENT if has_log else LOGS
