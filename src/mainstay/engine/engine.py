"""The engine: wires names to things. It holds no policy logic.

Operation names lead to policies; seeds, listeners and the store are the engine's own. Everything
it does goes through the same sites and drivers as a plain decorator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.drivers.call.callables import name_of, refuse_positional
from mainstay.drivers.call.guard import gate_of, guards_of
from mainstay.drivers.call.listeners import listeners_of
from mainstay.drivers.call.site import Entropy, Site
from mainstay.drivers.idempotency.limits import MAX_RESULT, PURGE_EVERY
from mainstay.drivers.layers.order import Layers
from mainstay.drivers.retry import check_idempotency
from mainstay.engine.calls import EngineCalls
from mainstay.engine.later import MEMORY
from mainstay.engine.operations import KeyedOperation, Operation, check_operation
from mainstay.engine.registry import PolicyRegistry
from mainstay.engine.views import EngineView
from mainstay.engine.wiring import (
    audit_of,
    check_arguments,
    check_sinks,
    circuits_of,
    flush_all,
    seconds_of,
    start_sharing,
)
from mainstay.errors import UsageError
from mainstay.runtime.fork import PROCESS, make_lock, make_rlock
from mainstay.runtime.reports.known_secrets import know_environment
from mainstay.sinks.logging import LoggingSink
from mainstay.stores.open import open_store
from mainstay.stores.timed import timed

if TYPE_CHECKING:
    import os
    import threading
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Never, Self, TypeVar, Unpack

    from mainstay.audit.log import AuditLog
    from mainstay.config.settings import Settings
    from mainstay.core.base.types import Seconds, UserValue
    from mainstay.core.circuit.settings import BreakerSettings
    from mainstay.core.explain.explain import EngineExplanation
    from mainstay.core.redact.redactor import Redactor
    from mainstay.core.retry.policy import Policy
    from mainstay.drivers.call.guard import Guard
    from mainstay.drivers.decorated import Decorator
    from mainstay.drivers.guards.breaker import CircuitBreaker
    from mainstay.drivers.guards.counting import CallCounts
    from mainstay.drivers.guards.registry import HealthReport
    from mainstay.drivers.idempotency.keys import KeyFields
    from mainstay.drivers.layers.order import Layer
    from mainstay.drivers.policy import RetryPolicy
    from mainstay.ports import Sink, Store

    F = TypeVar("F", bound=Callable[..., Any])


class Engine(EngineCalls, EngineView):
    """Retries by the name of the operation, with events, seeds and a store.

    Args:
        store: the store of records: `memory://`, `sqlite:///file.db`, `postgresql://…`, `redis://…`,
            `nats://…`, or a Store of your own.
        policies: the named policies.
        operations: which policy an operation runs under: names or patterns to policy names.
        default: the name of the policy for everything else.
        seed: makes every delay reproducible; the calls are counted.
        sinks: what receives the events; by default the log, named `mainstay`.
        strict: requires `idempotency` for every operation.
        breaker: BreakerSettings from which each operation gets a circuit of its own.
        breakers: circuits that operations share: patterns of names to CircuitBreakers; or a list
            of circuits, each for the operation of its name.
        global_breaker: one circuit for every operation.
        budget: a RetryBudget or TokenBudget that all operations share.
        guards: others that may refuse: RateLimit, AdaptiveThrottle, MemoryGuard.
        share: seconds between two steps in which circuits and budgets are shared with the other
            processes of a durable store, in the background; None to keep them to this process.
        store_wait: seconds for which a keyed call waits for an unavailable store.
        max_result: bytes of a result of a keyed call that are kept at most; None for what the store
            takes. A larger one is returned, and a later call raises ResultNotKept.
        purge: seconds between two purges of expired records, in the background; None for never.
        needs: what the store must be able to do, such as "durable"; else StoreError is raised.
        audit: an AuditLog, or the place of one: `sqlite:///audit.db`, `postgresql://…`, the path
            of a .jsonl file; True for the engine's own store, False for none; by default the
            store's own, if it can keep a log.
        redact: a Redactor of your own, for what is secret in your data besides the usual.
        escalate: brings every call that is given up to a person, as an item of the inbox; an
            operation may choose otherwise.
        outbox: the URL of your application's database, if the outbox is not in the store's.

    >>> from mainstay import Engine, RetryPolicy
    >>> with Engine(policies=[RetryPolicy(name="network", max_attempts=5)]) as engine:
    ...     engine.call("network", int, "42")
    42
    """

    settings: Settings | None = None
    """The configuration, if it was made by `from_config`."""
    _counts: CallCounts | None

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
        share: Seconds | None = 1.0,
        store_wait: Seconds = 0.0,
        max_result: int | None = MAX_RESULT,
        purge: Seconds | None = PURGE_EVERY,
        needs: Iterable[str] = (),
        audit: AuditLog | str | os.PathLike[str] | bool | None = None,
        redact: Redactor | None = None,
        escalate: bool = False,
        outbox: str | None = None,
    ) -> None:
        check_arguments(seed, redact)
        know_environment()
        self.escalate, self.strict = escalate, strict
        self.policies = PolicyRegistry(policies, operations or {}, default)
        self._sinks = (LoggingSink(),) if sinks is None else listeners_of("Engine", sinks)
        self._redact = redact
        self._entropy = Entropy(seed)
        self._making, self._made = make_rlock(), set()
        if breaker is not None or breakers or global_breaker is not None:
            own = circuits_of(breaker, breakers, global_breaker, self._sinks)
            self._keep("circuits", own)
        self._guards = guards_of(guards, budget)
        self._sites, self._sites_lock, self._counts = {}, make_lock(), None
        self._share_every, self._patience, self._purge_every = seconds_of(
            share, store_wait, purge, max_result
        )
        self._max_result = max_result
        needs = tuple(needs)
        check_sinks(self._sinks)
        is_later = type(store) is str and store == MEMORY and not needs and audit is not True
        opened = None if is_later else open_store(store, needs)  # last: nothing is left open
        self.audit = self._start_audit(audit, opened)
        if opened is not None:
            self._start_store(opened)
        self._start_outbox(outbox)

    def _start_store(self, opened: Store) -> None:
        """Takes a store, and what one that outlives the process has beside it."""
        self._opened = timed(opened, self._sinks)
        self._keep("store", self._opened)
        if "durable" not in opened.abilities:
            return
        from mainstay.runtime.waits import Waits

        if "circuits" in self._made or self._guards:
            self._sharing = start_sharing(
                self.store, self.circuits, self._guards, self._share_every
            )
        self._waits = Waits(self.store)

    def _start_audit(
        self, audit: AuditLog | str | os.PathLike[str] | bool | None, store: Store | None
    ) -> AuditLog | None:
        """Makes the audit log one of the sinks; lets it count the calls, if it does so."""
        found = audit_of(audit, self._sinks, store)
        if found is not None and found not in self._sinks:
            self._sinks = (*self._sinks, found)
            if "circuits" in self._made:
                self.circuits.listen(found)
        if found is not None and found.counts_calls:
            from mainstay.drivers.guards.counting import CallCounts

            self._counts = CallCounts()
            found.count_by(self._counts.events)
        return found

    @classmethod
    def from_config(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        on_error: str = "raise",
        overrides: Iterable[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> Self:
        """An engine of a configuration, which is read once.

        Args:
            path: the file; None for what `MAINSTAY_CONFIG` names, or what is found from the
                working directory upwards: mainstay.yml, agent/config.yml, pyproject.toml.
            on_error: "raise" a ConfigError with all problems; or "default": warn and log the same
                list, and run on the built-in policy with nothing else configured.
            overrides: values that come before those of the file and the environment, such as
                "retry.policies.standard.maxAttempts=5".
            env: the environment; by default the process's own.

        >>> engine = Engine.from_config(overrides=["retry.policies.standard.maxAttempts=5"], env={})
        >>> engine.policies["standard"].max_attempts
        5
        """
        from mainstay.engine.from_config import engine_of

        return engine_of(cls, path, on_error=on_error, overrides=overrides, env=env)

    def operation(
        self,
        name: str,
        *,
        policy: RetryPolicy | None = None,
        idempotency: str | None = None,
        cancel: threading.Event | None = None,
        escalate: bool | None = None,
        key: object = None,
        connection: Any = None,
        **options: Unpack[KeyFields],
    ) -> Operation:
        """One operation, with options of its own.

        With a key its calls are recorded: the second call returns the first one's result, in any
        process that shares the store. The other options are those of `idempotent`.

        Args:
            name: the operation.
            policy: what it runs under, in place of the policy that its name leads to.
            idempotency: how safe repeating it is.
            cancel: once set, a wait ends at once with CallCancelled.
            escalate: brings a call that is given up to a person: an item of the inbox. None: as
                the engine does.
            key: what the call is known by.
            connection: yours, to the store's database: you commit record and effect together.
            options: those of `idempotent`.

        >>> engine = Engine()
        >>> engine.operation("parse", key="order-7").call(int, "7")
        7
        """
        if key is not None or connection is not None or options:
            from mainstay.drivers.idempotency.keys import KeyOptions

            site = self._site(name, idempotency or "keyed", cancel, policy, escalate)
            if key is None:
                raise UsageError("these options need a key", hint='key="order-7"')
            records = self.records if connection is None else self.records.within(connection)
            return KeyedOperation(site, records, KeyOptions(key=key, **options))
        is_usual = idempotency is None and cancel is None and policy is None and escalate is None
        if not is_usual:
            return Operation(self._site(name, idempotency, cancel, policy, escalate))
        return Operation(self._sites.get(name) or self._usual(name))

    def protect(
        self,
        operation: str,
        *,
        idempotency: str | None = None,
        cancel: threading.Event | None = None,
        escalate: bool | None = None,
        hedge: Layer | None = None,
        bulkhead: Layer | None = None,
        fallback: Layer | None = None,
    ) -> Decorator:
        """Decorates a function with an operation's policy, circuits and budget.

        A Hedge, a Bulkhead and a Fallback go around it as in `retry`. With `escalate` a call that
        is given up is brought to a person: an item of the inbox; None: as the engine does.

        >>> engine = Engine()
        >>> @engine.protect("greet")
        ... def greet(name):
        ...     return f"hello {name}"
        >>> greet("you")
        'hello you'
        """
        layers = Layers(hedge=hedge, bulkhead=bulkhead, fallback=fallback)
        site = self._site(operation, idempotency, cancel, escalate=escalate)
        layers.check(site.idempotency)

        def decorate(function: UserValue) -> UserValue:
            return layers.around(function, site)

        return decorate

    def idempotent(
        self,
        *given: Never,
        key: Callable[..., object] | None = None,
        operation: str | None = None,
        idempotency: str = "keyed",
        cancel: threading.Event | None = None,
        escalate: bool | None = None,
        **options: Unpack[KeyFields],
    ) -> Callable[[F], F]:
        """Records the calls of a function: the second returns the first one's result.

        Successes and failures that are final are recorded and replayed, in any process that
        shares the store; other failures leave no record. What is recorded is data, never pickled.

        Args:
            given: nothing; `@engine.idempotent` without parentheses is refused.
            key: a function of the arguments; without one, all arguments make the key.
            operation: the operation's name; by default the function's.
            idempotency: how safe repeating it is: "keyed", or "idempotent" if it may run again
                after a crash too.
            cancel: once set, a wait ends at once with CallCancelled.
            escalate: brings a call that is given up to a person: an item of the inbox. None: as
                the engine does.
            options: `scope`, whose keys these are (by default the tenant's); `lease`, seconds after
                which a process that does not renew it counts as gone, and `on_lease_lost`,
                "continue" or "cancel" then; `ttl`, seconds for which an outcome is replayed;
                `on_conflict`, "wait" or "raise" while another call has the key; `on_crash`, what a
                process left unfinished is: "retry", or "unknown", for a person to decide (the
                default, unless it is declared idempotent); `wait` and `store_wait`, seconds to
                wait for such a call and for an unavailable store; `max_result`, bytes of a result
                that are kept at most; `metadata`, kept with it.

        >>> engine = Engine()
        >>> @engine.idempotent(key=lambda order: order["id"])
        ... def charge(order):
        ...     print("charged"); return order["amount"]
        >>> charge({"id": "o-1", "amount": 5}), charge({"id": "o-1", "amount": 5})
        charged
        (5, 5)
        """
        refuse_positional(given, "engine.idempotent", "", "key")
        if key is not None and not callable(key):
            raise UsageError(
                f"key = {key!r}: must be a function of the call's arguments",
                hint="for one call with a key of its own, use operation(name, key=...)",
            )
        from mainstay.drivers.idempotency.keys import KeyOptions

        chosen = KeyOptions(key=key, **options)

        def decorate(function: F) -> F:
            name = operation or name_of(getattr(function, "__func__", function))
            site = self._site(name, idempotency, cancel, escalate=escalate)
            decorated: F = self.records.decorate(function, site, chosen)
            return decorated

        return decorate

    def health(self) -> HealthReport:
        """How the circuits are, what became of keyed calls and what sinks have lost.

        `is_live` is for a liveness probe, `is_ready` for a readiness probe: an open circuit of one
        operation restarts no process and takes none out of rotation. `to_dict()` is for people.

        >>> Engine().health().status, Engine().health().is_ready
        ('healthy', True)
        """
        from msgspec.structs import replace

        from mainstay.drivers.guards.registry import lost_by

        counts, lost = self.records.incidents(), lost_by(self._sinks)
        report = self.circuits.health()
        seen = {"forks": PROCESS.forks, "files_replaced": PROCESS.replaced}
        process = {name: count for name, count in seen.items() if count}
        why = "the engine is closed" if self._is_closed else report.unready
        return replace(
            report,
            counts=counts,
            lost=lost,
            is_closed=self._is_closed,
            unready=why,
            process=process,
        )

    def explain(self) -> EngineExplanation:
        """What calls of each operation come to at worst, and what is likely a mistake.

        The operations are those that are mapped to a policy, and those used so far.

        >>> Engine(operations={"db.read": "standard"}).explain().worst
        'db.read'
        """
        from mainstay.drivers.explain import explain_operations

        names = dict.fromkeys([*self.policies.operations, *self._sites])
        policies: dict[str, Policy] = {name: self.policies.of(name) for name in names}
        return explain_operations(policies, self.circuits.settings_of, self._guards)

    def _site(
        self,
        name: str,
        idempotency: str | None,
        cancel: threading.Event | None,
        policy: Policy | None = None,
        escalate: bool | None = None,
    ) -> Site:
        if self._is_closed:
            raise UsageError("the engine is closed", hint="make a new one")
        check_operation(name, idempotency, strict=self.strict)
        policy = self.policies.of(name) if policy is None else policy
        check_idempotency(idempotency or "idempotent", policy)
        counted = None if self._counts is None else self._counts.of(name)
        escalates = self.escalate if escalate is None else escalate
        circuits = self.circuits.of(name) if "circuits" in self._made else ()
        return Site(
            policy,
            name,
            idempotency=idempotency or "idempotent",
            listeners=(*self._sinks, self._escalation) if escalates else self._sinks,
            entropy=self._entropy,
            cancel=cancel,
            gate=gate_of(circuits, self._guards, counted),
            redact=self._redact,
            waits=self._waits,
        )

    def catch_up(self) -> bool:
        """Brings what other processes know of the circuits and budgets, at once.

        It happens in the background anyway, but a process that makes one call and ends cannot wait
        for that. Returns whether a store shares them and has answered.

        >>> Engine().catch_up()
        False
        """
        return self._sharing is not None and self._sharing.sync()

    def close(self) -> None:
        """Flushes every sink, ends the audit log, closes the store; takes no more calls.

        >>> engine = Engine(); engine.close(); engine.close()
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._sites.clear()
        records = self.records if "records" in self._made else None
        purging = None if records is None else records.purging
        for part in (self._outbox, self._waits, self._sharing, purging):
            if part is not None:
                part.close()
        if "_escalation" in self._made:
            self._escalation.flush()
        self._close_views()
        flush_all(self._sinks)
        if self.audit is not None:
            if self._counts is not None:
                self.audit.count_no_more(self._counts.events)
            self.audit.close()
        if records is not None:
            records.close()
        elif self._opened is not None:
            self._opened.close()
        elif "store" in self._made:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
