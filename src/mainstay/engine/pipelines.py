"""What stages of pipelines are called through: their operations, circuits and transactions."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mainstay.core.base.attributes import add_note
from mainstay.core.circuit.settings import BreakerSettings
from mainstay.core.pipeline.rules import COOLDOWN, MAX_FAILURES, PROBES, is_retryable
from mainstay.drivers.guards.breaker import CircuitBreaker
from mainstay.drivers.idempotency.keys import KeyOptions
from mainstay.drivers.pipeline.parts import PipelineParts
from mainstay.drivers.pipeline.runs import PipelineRuns
from mainstay.engine.operations import KeyedOperation, Operation
from mainstay.engine.wiring import start_sharing
from mainstay.runtime.fork import make_lock

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator
    from typing import Any, Protocol

    from mainstay.core.base.types import UserValue
    from mainstay.core.pipeline.definition import StageDefinition
    from mainstay.core.redact.redactor import Redactor
    from mainstay.core.retry.policy import Policy
    from mainstay.drivers.call.guard import Guard
    from mainstay.drivers.call.site import Site
    from mainstay.drivers.guards.registry import CircuitRegistry
    from mainstay.drivers.guards.shared import Sharing
    from mainstay.drivers.idempotency.records import Records
    from mainstay.drivers.inbox.inbox import Inbox
    from mainstay.drivers.pipeline.context import StageContext
    from mainstay.engine.outbox import Outbox
    from mainstay.engine.registry import PolicyRegistry
    from mainstay.ports import Sink, Store

    class StageEngine(Protocol):
        """What is needed of an engine."""

        store: Store
        records: Records
        circuits: CircuitRegistry
        policies: PolicyRegistry
        _redact: Redactor | None
        _sharing: Sharing | None
        _share_every: float | None
        operation: Callable[..., Operation]

        @property
        def inbox(self) -> Inbox: ...
        @property
        def sinks(self) -> tuple[Sink, ...]: ...
        @property
        def guards(self) -> tuple[Guard, ...]: ...
        @property
        def outbox(self) -> Outbox: ...
        def _site(
            self,
            name: str,
            idempotency: str | None,
            cancel: threading.Event | None,
            policy: Policy | None = None,
            escalate: bool | None = None,
        ) -> Site: ...


BREAKER = BreakerSettings(
    failure_threshold=MAX_FAILURES,
    recovery_timeout=COOLDOWN,
    half_open_probes=PROBES,
    count_on=(is_retryable,),
)
"""Of a stage for which the engine has no circuit of its own."""


def runs_of(engine: StageEngine) -> PipelineRuns:
    """The runs of an engine's pipelines."""
    parts = PipelineParts(
        engine.store,
        engine.inbox,
        StageWires(engine),
        listeners=engine.sinks,
        redact=engine._redact,  # noqa: SLF001  the engine's own room
        store_wait=engine.records.store_wait,
    )
    return PipelineRuns(parts)


class StageWires:
    """Makes what a stage is called through."""

    def __init__(self, engine: StageEngine) -> None:
        self._engine = engine
        self._lock = make_lock()
        self._observed: set[tuple[str, int]] = set()
        """The circuits and the telemetry that listens to each."""

    def operation(
        self, name: str, stage: StageDefinition, listeners: tuple[Sink, ...], key: object
    ) -> Operation:
        """The operation of a stage, with listeners of its own; keyed, if it has a key."""
        engine = self._engine
        declared = "idempotent" if stage.idempotency == "outbox" else stage.idempotency
        site = engine._site(name, declared, None, stage.policy, escalate=False)  # noqa: SLF001
        site = site.under(stage.policy, (*engine.sinks, *listeners))
        if key is None or stage.idempotency == "outbox":
            return Operation(site)
        options = KeyOptions(key=key, on_crash=None if declared == "idempotent" else "retry")
        return KeyedOperation(site, engine.records, options)

    def circuits(self, name: str, telemetry: Sink | None) -> tuple[CircuitBreaker, ...]:
        """The circuits of a stage: the engine's, or else one by the document's numbers."""
        engine = self._engine
        with self._lock:
            if not engine.circuits.settings_of(name):
                engine.circuits.add(name, CircuitBreaker(name, BREAKER))
                if engine._sharing is None:  # noqa: SLF001
                    engine._sharing = start_sharing(  # noqa: SLF001
                        engine.store,
                        engine.circuits,
                        engine.guards,
                        engine._share_every,  # noqa: SLF001
                    )
            found = engine.circuits.of(name)
            for circuit in found if telemetry is not None else ():
                observed = (circuit.name, id(telemetry))
                if telemetry is not None and observed not in self._observed:
                    self._observed.add(observed)
                    circuit.listen(telemetry)
        return found

    def guarded(
        self,
        name: str,
        stage: StageDefinition,
        context: StageContext,
        effect: Callable[[], UserValue],
    ) -> UserValue:
        """The effect of a stage with its messages and its record, in one transaction."""
        engine = self._engine
        assert stage.connect is not None
        connection: Any = stage.connect()
        context.connection, context._publish = connection, engine.outbox.add  # noqa: SLF001
        policy = engine.policies.of(name).replace(max_attempts=1)
        operation = engine.operation(
            name, policy=policy, idempotency="keyed", key=context.idempotency_key,
            connection=connection,
        )  # fmt: skip
        try:
            with _transaction(connection):
                return operation.call(effect)
        finally:
            context.connection = context._publish = None  # noqa: SLF001
            connection.close()


@contextmanager
def _transaction(connection: Any) -> Iterator[None]:
    """Commits what is done inside, or rolls it back if something is raised."""
    if isinstance(connection, sqlite3.Connection):
        connection.isolation_level = None
        connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException as error:
        try:
            connection.rollback()
        except Exception as failed:  # a connection that is lost: what was raised before counts
            add_note(error, f"it was not rolled back: {type(failed).__name__}")
        raise
    connection.commit()
