"""The circuits of an engine, by name: of each operation, of groups, of everything; their health."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, ClassVar
from weakref import WeakValueDictionary

from msgspec import Struct

from mainstay.core.circuit.breaker import CircuitState
from mainstay.core.circuit.settings import BreakerSettings
from mainstay.core.circuit.snapshot import CircuitSnapshot  # noqa: TC001 -- a field's type
from mainstay.drivers.guards.breaker import CircuitBreaker
from mainstay.errors import UsageError
from mainstay.ports import methods_of
from mainstay.runtime.fork import PROCESS, make_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from mainstay.ports import Sink

_MOST = 10_000
"""Circuits of operations kept at once; past that, some are forgotten, those that are well first."""


class HealthReport(Struct, frozen=True):
    """How the circuits are: "healthy", or "degraded" where one does not let calls through.

    It is "degraded" also in a forked child that has refused to use a store.
    `counts` has what became of keyed calls in this process, without zeros: outcomes that were lost
    or are unknown, leases that were lost, results that are not kept, expired records that were
    purged. `lost` has how many events each sink has lost since the process began, by its class.
    `process` has how often this process has forked, and how many files of stores and logs it has
    found deleted or replaced under it (`files_replaced`). None of them changes the status: they are
    in the past, and nothing but a restart would make it healthy again.

    The status is for people and dashboards. A probe asks `is_live` or `is_ready`: neither is false
    because one circuit is open. A restart closes no circuit.

    >>> HealthReport("degraded", ()).to_dict()
    {'status': 'degraded', 'live': True, 'ready': True, 'circuits': []}
    """

    status: str
    circuits: tuple[CircuitSnapshot, ...]
    counts: dict[str, int] = {}
    lost: dict[str, int] = {}
    is_closed: bool = False
    """Whether the engine is closed: it takes no more calls."""
    unready: str = ""
    """Why no call can succeed here at present; empty if some can."""
    process: dict[str, int] = {}
    _LATER_FIELDS: ClassVar[tuple[str, ...]] = ("counts", "lost", "is_closed", "unready", "process")

    @property
    def is_live(self) -> bool:
        """For a liveness probe: whether a restart would change nothing.

        It depends on no circuit, store or sink: those are not repaired by a restart.

        >>> HealthReport("degraded", ()).is_live
        True
        """
        return not self.is_closed

    @property
    def is_ready(self) -> bool:
        """For a readiness probe: whether this process should receive calls.

        Not if the engine is closed, if the circuit for everything is open, or in a forked child
        that has refused to use its store. Calls of operations whose own circuit is open are
        refused at once, and the others go through: that is no reason to receive none.

        >>> HealthReport("degraded", (), unready="the circuit 'all' is open").is_ready
        False
        """
        return not self.is_closed and not self.unready

    @property
    def is_healthy(self) -> bool:
        """Whether every circuit lets calls through as usual, and no store was refused.

        >>> HealthReport("degraded", ()).is_healthy
        False
        """
        return self.status == "healthy"

    def to_dict(self) -> dict[str, Any]:
        """As plain data, fit for a /healthz endpoint.

        >>> HealthReport("degraded", ()).to_dict()["status"]
        'degraded'
        """
        circuits = [each.to_dict() for each in self.circuits]
        probes = {"live": self.is_live, "ready": self.is_ready}
        more = ("unready", "counts", "lost", "process")
        there = {name: found for name in more if (found := getattr(self, name))}
        return {"status": self.status, **probes, "circuits": circuits, **there}


class CircuitRegistry:
    """The circuits there are, by name: of single operations, of groups, and one for everything.

    An operation is guarded by its own circuit, where `each` is set; by that of the first group
    whose pattern matches it; and by the one for everything.

    >>> registry = CircuitRegistry(groups={"payments.*": CircuitBreaker("payments")})
    >>> [circuit.name for circuit in registry.of("payments.charge")]
    ['payments']
    >>> registry.health().status
    'healthy'
    """

    def __init__(
        self,
        each: BreakerSettings | None = None,
        groups: Mapping[str, CircuitBreaker] | Iterable[CircuitBreaker] = (),
        everything: CircuitBreaker | None = None,
        listeners: Iterable[Sink] = (),
    ) -> None:
        if each is not None and not isinstance(each, BreakerSettings):
            raise UsageError(
                f"breaker = {each!r}: must be BreakerSettings, from which each operation gets its"
                " own circuit",
                hint="for one circuit that operations share, use breakers={pattern: circuit}",
            )
        self._each = each
        self._groups = _groups_of(groups)
        self._everything = everything
        self._listeners = tuple(listeners)
        self.welcome: Callable[[CircuitBreaker], object] | None = None
        """Called with each circuit that is made for an operation, before it guards a call."""
        self.own_names: dict[str, str] = {}
        """The names of operations' own circuits, where they differ from the operations'."""
        self.sharing: Callable[[], dict[str, int]] = dict
        """How the probes and openings of shared circuits fared in the store, counted."""
        self._lock = make_lock()
        self._named: dict[str, CircuitBreaker] = {}
        self._own: dict[str, CircuitBreaker] = {}
        """In the order in which they were last looked for."""
        self._forgotten: WeakValueDictionary[str, CircuitBreaker] = WeakValueDictionary()
        """Those that still guard a function."""
        shared = [*self._groups.values(), *([everything] if everything is not None else [])]
        for circuit in shared:
            self._add(circuit)

    def _add(self, circuit: CircuitBreaker) -> None:
        if not isinstance(circuit, CircuitBreaker):
            raise UsageError(f"{circuit!r} is no CircuitBreaker")
        known = self._named.setdefault(circuit.name, circuit)
        if known is not circuit:
            raise UsageError(f"two circuits are named {circuit.name!r}")
        for listener in self._listeners:
            circuit.listen(listener)

    def add(self, operation: str, circuit: CircuitBreaker) -> None:
        """Guards one more operation with a circuit.

        >>> registry = CircuitRegistry()
        >>> registry.add("etl.poll", CircuitBreaker("etl.poll"))
        >>> [circuit.name for circuit in registry.of("etl.poll")]
        ['etl.poll']
        """
        with self._lock:
            self._add(circuit)
            self._groups = {**self._groups, operation: circuit}
        if self.welcome is not None:
            self.welcome(circuit)

    def listen(self, listener: Sink) -> None:
        """Notifies one more listener of every change of every circuit.

        >>> CircuitRegistry().listen(print)
        """
        self._listeners = (*self._listeners, listener)
        for circuit in self._named.values():
            circuit.listen(listener)

    def of(self, operation: str) -> tuple[CircuitBreaker, ...]:
        """The circuits that guard an operation, the narrowest first.

        >>> CircuitRegistry().of("anything")
        ()
        """
        name = self.own_names.get(operation, operation)
        own = () if self._each is None else (self._own_of(name),)
        return (*own, *self._shared_by(operation))

    def _shared_by(self, operation: str) -> list[CircuitBreaker]:
        matching = (c for pattern, c in self._groups.items() if fnmatchcase(operation, pattern))
        group = self._groups.get(operation) or next(matching, None)
        return [circuit for circuit in (group, self._everything) if circuit is not None]

    def settings_of(self, operation: str) -> list[tuple[str, BreakerSettings]]:
        """The names and settings of those circuits; none is made for it.

        >>> CircuitRegistry(each=BreakerSettings()).settings_of("search")[0][0]
        'search'
        """
        name = self.own_names.get(operation, operation)
        own = [] if self._each is None else [(name, self._each)]
        return [*own, *((each.name, each.settings) for each in self._shared_by(operation))]

    def _own_of(self, operation: str) -> CircuitBreaker:
        with self._lock:
            circuit = self._known_locked(operation)
            if circuit is None:
                self._make_room_locked()
                circuit = self._own[operation] = CircuitBreaker(operation, self._each)
                for listener in self._listeners:
                    circuit.listen(listener)
                if self.welcome is not None:
                    self.welcome(circuit)
        circuit.send_events()
        return circuit

    def _known_locked(self, operation: str) -> CircuitBreaker | None:
        """The circuit of an operation, if there is one; it is the one looked for last from now on.

        One that was forgotten and still guards a function is the same as before.
        """
        known = self._own.pop(operation, None)
        if known is None:
            known = self._forgotten.pop(operation, None)
            if known is not None:
                self._make_room_locked()
        if known is not None:
            self._own[operation] = known
        return known

    def _make_room_locked(self) -> None:
        """Forgets a tenth of the circuits, of the fifth that was looked for longest ago.

        So a flood of names costs each of them a look at a few others, and never at all. Those that
        are well go first, then those that have failed and are closed; an operator's order last.
        """
        if len(self._own) < _MOST:
            return
        going = max(1, _MOST // 10)
        oldest = sorted(islice(self._own.items(), 2 * going), key=lambda each: _worth(each[1]))
        for name, circuit in oldest[:going]:
            del self._own[name]
            self._forgotten[name] = circuit

    def __getitem__(self, name: str) -> CircuitBreaker:
        """The circuit of that name, or the one that guards that operation most narrowly."""
        found = self._named.get(name) or next(iter(self.of(name)), None)
        if found is None:
            known = ", ".join(sorted({*self._named, *self._own})) or "none"
            raise UsageError(f"no circuit guards {name!r}", hint=f"known circuits: {known}")
        return found

    def __iter__(self) -> Iterator[CircuitBreaker]:
        return iter([*self._named.values(), *list(self._own.values())])

    def __len__(self) -> int:
        return len(self._named) + len(self._own)

    @property
    def makes_circuits(self) -> bool:
        """Whether operations get circuits of their own, at their first call.

        >>> CircuitRegistry(each=BreakerSettings()).makes_circuits
        True
        """
        return self._each is not None

    @property
    def is_used(self) -> bool:
        """Whether there are circuits, or will be.

        >>> CircuitRegistry().is_used, CircuitRegistry(each=BreakerSettings()).is_used
        (False, True)
        """
        return self._each is not None or bool(self._named)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the circuits there are by now.

        >>> CircuitRegistry(everything=CircuitBreaker("all")).names
        ('all',)
        """
        return tuple(circuit.name for circuit in self)

    def health(self) -> HealthReport:
        """How they all are.

        >>> CircuitRegistry(everything=CircuitBreaker("all")).health().is_healthy
        True
        """
        snapshots = tuple(circuit.snapshot() for circuit in self)
        well = not PROCESS.refusals and all(each.is_healthy for each in snapshots)
        status = "healthy" if well else "degraded"
        return HealthReport(status, snapshots, unready=self._unready())

    def _unready(self) -> str:
        """Why no call can succeed; a half-open circuit needs calls, or it never closes."""
        if PROCESS.refusals:
            return "this forked process has refused to use its store"
        shut = self._everything
        if shut is not None and shut.state in (CircuitState.OPEN, CircuitState.FORCED_OPEN):
            return f"the circuit {shut.name!r}, which guards every operation, is open"
        return ""


def lost_by(sinks: Iterable[Sink]) -> dict[str, int]:
    """How many events were lost, by the class of the sink; those that lost none are left out."""
    lost: dict[str, int] = {}
    for sink in sinks:
        stats = methods_of(sink).stats
        count = 0 if stats is None else stats().get("lost", 0)
        if count:
            name = type(sink).__name__
            lost[name] = lost.get(name, 0) + count
    return lost


def _worth(circuit: CircuitBreaker) -> int:
    """How much is lost with a circuit; read without its lock."""
    state = circuit._circuit.state  # noqa: SLF001 -- `state` counts the time in, under the lock
    if state in (CircuitState.OPEN, CircuitState.HALF_OPEN):
        return 2
    return int(circuit.is_failing) if state is CircuitState.CLOSED else 3


def _groups_of(
    groups: Mapping[str, CircuitBreaker] | Iterable[CircuitBreaker],
) -> dict[str, CircuitBreaker]:
    """Patterns to circuits; a circuit given alone guards the operation of its name."""
    if hasattr(groups, "items"):
        return dict(groups.items())
    return {getattr(circuit, "name", repr(circuit)): circuit for circuit in groups}
