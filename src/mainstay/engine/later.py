"""The parts of an engine that are made when they are first used.

An engine that only retries needs no records, no inbox, no circuits and no store in memory; to load
them takes longer than all the rest of it. A store that outlives the process is opened at once: what
is wrong with it is an error of the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.runtime.fork import LOADED_LATER

if TYPE_CHECKING:
    import threading

    from mainstay.core.inbox.items import Decision, Item
    from mainstay.core.redact.redactor import Redactor
    from mainstay.drivers.guards.registry import CircuitRegistry
    from mainstay.drivers.idempotency.records import Records
    from mainstay.drivers.inbox.escalation import Escalation
    from mainstay.drivers.inbox.inbox import Inbox
    from mainstay.drivers.pipeline.runs import PipelineRuns
    from mainstay.drivers.saga.sagas import Sagas
    from mainstay.ports import Sink, Store

MEMORY = "memory://"
"""The URL of the store that is opened later."""


class _Later:
    """A part that is made when the engine is asked for it, and is an attribute from then on.

    A descriptor without `__set__` costs the other attributes nothing; a `__getattr__` of the class
    would make each of them slower, and every call reads some. So would a look at `__dict__`, for
    good: Python then keeps the attributes in a dictionary, where it finds no method at once.
    """

    def __init__(self, make: str) -> None:
        self.make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, engine: LaterParts | None, owner: type) -> object:
        if engine is None:
            return self
        with engine._making:  # noqa: SLF001 -- a part of the engine
            if self._name not in engine._made:  # noqa: SLF001 -- as above
                engine._keep(self._name, getattr(engine, self.make)())  # noqa: SLF001 -- as above
            return getattr(engine, self._name)  # which the attribute answers from now on


LOADED_LATER += (
    "mainstay.drivers.call.result",
    "mainstay.stores.memory",
    "mainstay.drivers.guards.registry",
    "mainstay.drivers.idempotency.records",
    "mainstay.drivers.inbox.escalation",
    "mainstay.drivers.inbox.resolution",
    "mainstay.runtime.reports.deferred_events",
)


class LaterParts:
    """Makes the store in memory, the circuits, the records and what escalates, once each."""

    _opened: Store | None = None
    """The store that was opened with the engine; its records are there whatever `store` is."""
    _making: threading.RLock
    """Held while a part is made: another thread that asks for it gets the same one."""
    _made: set[str]
    """The names of the parts that there are."""
    _sinks: tuple[Sink, ...]
    _redact: Redactor | None
    _patience: float
    _purge_every: float | None
    _max_result: int | None

    store: Store
    circuits: CircuitRegistry
    records: Records
    _escalation: Escalation
    _sagas: Sagas
    _pipelines: PipelineRuns

    if TYPE_CHECKING:

        @property
        def inbox(self) -> Inbox: ...
        @property
        def sagas(self) -> Sagas: ...
        @property
        def pipelines(self) -> PipelineRuns: ...
    else:
        store = _Later("_make_store")
        circuits = _Later("_make_circuits")
        records = _Later("_make_records")
        _escalation = _Later("_make_escalation")
        _sagas = _Later("_make_sagas")
        _pipelines = _Later("_make_pipelines")

    def _keep(self, name: str, part: object) -> None:
        """Keeps a part, one of those above."""
        setattr(self, name, part)
        self._made.add(name)

    def _make_store(self) -> Store:
        from mainstay.stores.open import open_store
        from mainstay.stores.timed import timed

        return timed(open_store(MEMORY), self._sinks)

    def _make_circuits(self) -> CircuitRegistry:
        from mainstay.drivers.guards.registry import CircuitRegistry

        return CircuitRegistry(listeners=self._sinks)

    def _make_records(self) -> Records:
        """The records, with what settles the items of their inbox."""
        from mainstay.drivers.idempotency.records import Records
        from mainstay.engine.wiring import settle_rooms, start_purging

        store = self.store if self._opened is None else self._opened
        records = Records(
            store, store_wait=self._patience, redact=self._redact, listeners=self._sinks,
            max_result=self._max_result,
        )  # fmt: skip
        records.purging = start_purging(store, self._purge_every)
        settle_rooms(self, records.inbox)
        records.inbox.settle("dead_letter", self._settle_dead_letter)
        return records

    def _make_escalation(self) -> Escalation:
        from mainstay.drivers.inbox.escalation import Escalation

        return Escalation(self.inbox, self._redact)

    def _settle_dead_letter(self, item: Item, decision: Decision) -> str | None:
        raise NotImplementedError
