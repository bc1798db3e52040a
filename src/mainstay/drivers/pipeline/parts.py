"""What pipelines need of their engine, and how one of them is set up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.drivers.call.emit import emit
from mainstay.drivers.pipeline.records import RunRecords
from mainstay.ports import max_value_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from mainstay.core.base.event import Event
    from mainstay.core.base.types import UserValue
    from mainstay.core.pipeline.definition import PipelineDefinition, StageDefinition
    from mainstay.core.redact.redactor import Redactor
    from mainstay.core.retry.policy import Policy
    from mainstay.drivers.guards.breaker import CircuitBreaker
    from mainstay.drivers.inbox.inbox import Inbox
    from mainstay.drivers.pipeline.context import StageContext
    from mainstay.drivers.pipeline.gate import Gate
    from mainstay.drivers.pipeline.ledger_files import LedgerFiles
    from mainstay.ports import Sink, Store

    class StageOperation(Protocol):
        """What a stage is called through."""

        @property
        def name(self) -> str: ...
        @property
        def policy(self) -> Policy: ...
        def call(self, function: Any, /) -> Any: ...
        async def acall(self, function: Any, /) -> Any: ...

    class Wires(Protocol):
        """What the engine makes for stages."""

        def operation(
            self, name: str, stage: StageDefinition, listeners: tuple[Sink, ...], key: object
        ) -> StageOperation: ...
        def circuits(self, name: str, telemetry: Sink | None) -> tuple[CircuitBreaker, ...]: ...
        def guarded(
            self,
            name: str,
            stage: StageDefinition,
            context: StageContext,
            effect: Callable[[], UserValue],
        ) -> UserValue: ...


_MAX_RESULT = 1024 * 1024
_MAX_RESULTS = 8 * _MAX_RESULT
"""Of all stages: the record is written anew at the end of each."""


class PipelineParts:
    """The store, the inbox, the listeners and the wires of an engine."""

    def __init__(
        self,
        store: Store,
        inbox: Inbox,
        wires: Wires,
        *,
        listeners: tuple[Sink, ...] = (),
        redact: Redactor | None = None,
        store_wait: float = 0.0,
    ) -> None:
        self.records = RunRecords(store, store_wait=store_wait)
        self.inbox = inbox
        self.operation = wires.operation
        self.circuits = wires.circuits
        self.guarded = wires.guarded
        self.listeners = listeners
        self.redact = redact

    @property
    def max_result(self) -> int:
        """Bytes of a result that are kept at most: the record holds those of all stages."""
        limit = max_value_of(self.records.store)
        return _MAX_RESULT if limit is None else min(_MAX_RESULT, limit // 8)

    @property
    def max_results(self) -> int:
        """Bytes of the input and of the results of all stages that are kept at most."""
        limit = max_value_of(self.records.store)
        return _MAX_RESULTS if limit is None else min(_MAX_RESULTS, limit // 2)

    def emit(self, event: Event) -> None:
        """Sends an event to every listener."""
        if self.listeners:
            emit(event, self.listeners, self.redact)


class PipelineSetup:
    """One pipeline: its stages, its governance, its files."""

    def __init__(
        self,
        definition: PipelineDefinition,
        gate: Gate,
        files: LedgerFiles,
        *,
        telemetry: Sink | None = None,
        datasets: tuple[str, ...] = (),
        lease: float = 30.0,
        keep: float | None = None,
        max_resumes: int = 5,
        max_parallel: int = 1,
    ) -> None:
        self.definition = definition
        self.gate = gate
        self.files = files
        self.telemetry = telemetry
        self.datasets = datasets
        self.lease = lease
        self.keep = keep
        self.max_resumes = max_resumes
        self.max_parallel = max_parallel
