"""The engine: wires names to things. It holds no policy logic.

Operation names lead to policies; seeds, listeners and the store are the engine's own. Everything
it does goes through the same sites and drivers as a plain decorator.
"""

from __future__ import annotations

import warnings
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from mainstay.drivers.circuits import CircuitRegistry
from mainstay.drivers.gates import gate_of, guards_of
from mainstay.drivers.layers import Layers
from mainstay.drivers.policy import RetryPolicy, Verbs
from mainstay.drivers.retry import check_idempotency, check_listeners
from mainstay.drivers.site import Entropy, Site
from mainstay.errors import PolicyNotFoundWarning, StoreError, UsageError
from mainstay.sinks.logging import LoggingSink

if TYPE_CHECKING:
    import threading
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
    from typing import Any, ParamSpec, Self, TypeVar

    from mainstay.core.breaker_settings import BreakerSettings
    from mainstay.core.explain import EngineExplanation
    from mainstay.core.policy import Policy
    from mainstay.drivers.breaker import CircuitBreaker
    from mainstay.drivers.circuits import HealthReport
    from mainstay.drivers.gates import Guard
    from mainstay.drivers.layers import Layer
    from mainstay.drivers.result import RetryResult
    from mainstay.ports import Sink, Store

    P = ParamSpec("P")
    R = TypeVar("R")
    F = TypeVar("F", bound=Callable[..., Any])

STANDARD = RetryPolicy(name="standard")
"""The built-in policy: 3 attempts, 0.1 s doubled up to 5 s, plus or minus 10 %."""

_MAX_OPERATIONS = 10_000


class Engine:
    """Retries by the name of the operation, with events, seeds and a store.

    Args:
        store: where records live; `memory://` or a Store of your own.
        policies: the named policies.
        operations: which policy an operation runs under: names or patterns to policy names.
        default: the name of the policy for everything else.
        seed: makes every delay reproducible; the calls are counted.
        sinks: what hears the events; by default the log, named `mainstay`.
        strict: demands that every operation says how safe repeating it is.
        breaker: BreakerSettings from which each operation gets a circuit of its own.
        breakers: circuits that operations share: patterns of names to CircuitBreakers; or a list,
            where a circuit guards the operation of its name.
        global_breaker: one circuit for every operation.
        budget: a RetryBudget or TokenBudget that all operations share.
        guards: others who may refuse: RateLimit, AdaptiveThrottle, MemoryGuard.

    >>> from mainstay import Engine, RetryPolicy
    >>> with Engine(policies=[RetryPolicy(name="network", max_attempts=5)]) as engine:
    ...     engine.call("network", int, "42")
    42
    """

    def __init__(
        self,
        store: str | Store = "memory://",
        *,
        policies: Iterable[RetryPolicy] = (),
        operations: Mapping[str, str] | None = None,
        default: str = "standard",
        seed: int | None = None,
        sinks: Iterable[Sink] | None = None,
        strict: bool = False,
        breaker: BreakerSettings | None = None,
        breakers: Mapping[str, CircuitBreaker] | Iterable[CircuitBreaker] = (),
        global_breaker: CircuitBreaker | None = None,
        budget: Guard | None = None,
        guards: Guard | Iterable[Guard] | None = None,
    ) -> None:
        if seed is not None and type(seed) is not int:
            raise UsageError(f"seed = {seed!r}: must be an integer, or None for random delays")
        self.policies = PolicyRegistry(policies, operations or {}, default)
        self.store = open_store(store)
        self.strict = strict
        self._entropy = Entropy(seed)
        self._sinks = (LoggingSink(),) if sinks is None else check_listeners(sinks)
        self.circuits = CircuitRegistry(breaker, breakers, global_breaker, self._sinks)
        self._guards = guards_of(guards, budget)
        self._operations: dict[str, Operation] = {}
        self._is_closed = False

    def call(
        self, operation: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Calls a function under the operation's policy.

        >>> Engine().call("parse", int, "7")
        7
        """
        return self.operation(operation).call(function, *args, **kwargs)

    async def acall(
        self,
        operation: str,
        function: Callable[P, Awaitable[R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Awaits an async function under the operation's policy.

        >>> import asyncio
        >>> async def answer(): return 42
        >>> asyncio.run(Engine().acall("ask", answer))
        42
        """
        return await self.operation(operation).acall(function, *args, **kwargs)

    def run(
        self, operation: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> RetryResult[R]:
        """Like `call`, but answers with a RetryResult.

        >>> Engine(sinks=[]).run("parse", int, "x").success
        False
        """
        return self.operation(operation).run(function, *args, **kwargs)

    async def arun(
        self,
        operation: str,
        function: Callable[P, Awaitable[R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> RetryResult[R]:
        """Like `acall`, but answers with a RetryResult.

        >>> import asyncio
        >>> async def answer(): return 42
        >>> asyncio.run(Engine().arun("ask", answer)).attempts
        1
        """
        return await self.operation(operation).arun(function, *args, **kwargs)

    def operation(
        self,
        name: str,
        *,
        idempotency: str | None = None,
        cancel: threading.Event | None = None,
    ) -> Operation:
        """One operation, with options of its own.

        >>> Engine().operation("parse", idempotency="idempotent").call(int, "7")
        7
        """
        if idempotency is not None or cancel is not None:
            return Operation(self._site(name, idempotency, cancel))
        found = self._operations.get(name)
        if found is None:
            if len(self._operations) >= _MAX_OPERATIONS:
                self._operations.clear()
            found = self._operations[name] = Operation(self._site(name, None, None))
        return found

    def protect(
        self,
        operation: str,
        *,
        idempotency: str | None = None,
        cancel: threading.Event | None = None,
        hedge: Layer | None = None,
        bulkhead: Layer | None = None,
        fallback: Layer | None = None,
    ) -> Callable[[F], F]:
        """Decorates a function with an operation's policy, circuits and budget.

        A Hedge, a Bulkhead and a Fallback go around it as in `retry`.

        >>> engine = Engine()
        >>> @engine.protect("greet")
        ... def greet(name):
        ...     return f"hello {name}"
        >>> greet("you")
        'hello you'
        """
        layers = Layers(hedge=hedge, bulkhead=bulkhead, fallback=fallback)
        site = self._site(operation, idempotency, cancel)
        layers.check(site.idempotency)

        def decorate(function: F) -> F:
            decorated: F = layers.around(function, site)
            return decorated

        return decorate

    def breaker(self, name: str) -> CircuitBreaker:
        """The circuit of that name, or the narrowest that guards the operation of that name.

        >>> from mainstay import BreakerSettings
        >>> Engine(breaker=BreakerSettings()).breaker("payments").state.name
        'CLOSED'
        """
        return self.circuits[name]

    def health(self) -> HealthReport:
        """How the circuits are, fit for a /healthz endpoint.

        >>> Engine().health().status
        'healthy'
        """
        return self.circuits.health()

    def explain(self) -> EngineExplanation:
        """What calls of each operation come to at worst, and what is likely a mistake.

        The operations are those that are mapped to a policy, and those used so far.

        >>> Engine(operations={"db.read": "standard"}).explain().worst
        'db.read'
        """
        from mainstay.drivers.explaining import explain_operations

        names = dict.fromkeys([*self.policies.operations, *self._operations])
        policies: dict[str, Policy] = {name: self.policies.of(name) for name in names}
        return explain_operations(policies, self.circuits, self._guards)

    def _site(self, name: str, idempotency: str | None, cancel: threading.Event | None) -> Site:
        if self._is_closed:
            raise UsageError("the engine is closed", hint="make a new one")
        if idempotency is None and self.strict:
            raise UsageError(
                f"operation {name!r} does not say how safe repeating it is",
                hint='idempotency="idempotent", "keyed" or "unsafe"',
            )
        policy = self.policies.of(name)
        check_idempotency(idempotency or "idempotent", policy)
        return Site(
            policy,
            name,
            idempotency=idempotency or "idempotent",
            listeners=self._sinks,
            entropy=self._entropy,
            cancel=cancel,
            gate=gate_of(self.circuits.of(name), self._guards),
        )

    def close(self) -> None:
        """Flushes every sink and closes the store; the engine takes no more calls.

        >>> engine = Engine(); engine.close(); engine.close()
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._operations.clear()
        for sink in self._sinks:
            flush = getattr(sink, "flush", None)
            if flush is not None:
                flush()
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Operation(Verbs):
    """One operation of an engine: `call`, `acall`, `run`, `arun`, `attempts`.

    >>> from mainstay import Engine
    >>> Engine().operation("parse").policy.name
    'standard'
    """

    __slots__ = ("_site",)

    def __init__(self, site: Site) -> None:
        self._site = site

    @property
    def name(self) -> str:
        """The operation's name."""
        return self._site.operation

    @property
    def policy(self) -> Policy:
        """The policy it runs under."""
        return self._site.policy

    @property
    def _verb_site(self) -> Site:
        return self._site


class PolicyRegistry:
    """An engine's policies: by name, by operation, or one after the other.

    An operation finds its policy by its exact name, then by pattern in the order given, then a
    policy of the operation's own name, then the default.

    >>> from mainstay import RetryPolicy
    >>> registry = PolicyRegistry([RetryPolicy(name="fast")], {"db.*": "fast"})
    >>> registry.of("db.read").name, registry.names
    ('fast', ('standard', 'fast'))
    """

    __slots__ = ("_by_name", "_found", "_operations", "default")

    def __init__(
        self,
        policies: Iterable[RetryPolicy] = (),
        operations: Mapping[str, str] | None = None,
        default: str = "standard",
    ) -> None:
        self._by_name: dict[str, RetryPolicy] = {STANDARD.name: STANDARD}
        own: set[str] = set()
        for policy in policies:
            if not isinstance(policy, RetryPolicy):
                raise UsageError(f"{policy!r} is no RetryPolicy")
            if policy.name in own:
                raise UsageError(f"two policies are named {policy.name!r}")
            own.add(policy.name)
            self._by_name[policy.name] = policy
        self._operations = dict(operations or {})
        for operation, name in (*self._operations.items(), ("default", default)):
            if name not in self._by_name:
                known = ", ".join(self._by_name)
                raise UsageError(
                    f"{operation}: no policy is named {name!r}", hint=f"known: {known}"
                )
        self.default = self._by_name[default]
        self._found: dict[str, RetryPolicy] = {}

    def of(self, operation: str) -> RetryPolicy:
        """The policy an operation runs under.

        >>> PolicyRegistry().of("anything").name
        'standard'
        """
        found = self._found.get(operation)
        if found is None:
            if len(self._found) >= _MAX_OPERATIONS:
                self._found.clear()
            found = self._found[operation] = self._find(operation)
        return found

    def _find(self, operation: str) -> RetryPolicy:
        if not isinstance(operation, str) or not operation.strip():
            raise UsageError(f"operation = {operation!r}: must be a text that is not empty")
        name = self._operations.get(operation)
        if name is None:
            patterns = self._operations.items()
            matching = (n for pattern, n in patterns if fnmatchcase(operation, pattern))
            name = next(matching, None)
        if name is not None:
            return self._by_name[name]
        if operation not in self._by_name and self._operations:
            warnings.warn(
                f"operation {operation!r} is mapped to no policy and runs under"
                f" {self.default.name!r}",
                PolicyNotFoundWarning,
                stacklevel=6,
            )
        return self._by_name.get(operation, self.default)

    def __getitem__(self, name: str) -> RetryPolicy:
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[RetryPolicy]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def names(self) -> tuple[str, ...]:
        """The policies' names, in the order they were given."""
        return tuple(self._by_name)

    @property
    def operations(self) -> dict[str, str]:
        """Which operations were mapped to which policy."""
        return dict(self._operations)


def open_store(store: str | Store) -> Store:
    """The store of a URL, or the one given."""
    if not isinstance(store, str):
        return store
    if store.partition("://")[0] == "memory":
        from mainstay.stores.memory import MemoryStore

        return MemoryStore()
    raise StoreError(f"no store answers to {store!r}", hint="known stores: memory://")
