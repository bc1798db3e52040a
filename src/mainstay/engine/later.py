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


_LATER = {
    "store": "_make_store",
    "circuits": "_make_circuits",
    "records": "_make_records",
    "_escalation": "_make_escalation",
}
"""What makes each of them."""


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

    store: Store
    _opened: Store | None = None
    """The store that was opened with the engine; its records are there whatever `store` is."""
    circuits: CircuitRegistry
    records: Records
    _escalation: Escalation
    _making: threading.RLock
    """Held while a part is made: another thread that asks for it gets the same one."""
    _sinks: tuple[Sink, ...]
    _redact: Redactor | None
    _patience: float
    _purge_every: float | None
    _max_result: int | None

    if TYPE_CHECKING:

        @property
        def inbox(self) -> Inbox: ...
        @property
        def sagas(self) -> Sagas: ...
        @property
        def pipelines(self) -> PipelineRuns: ...
    else:

        def __getattr__(self, name: str) -> object:
            if name not in _LATER:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            with self._making:
                if name not in self.__dict__:
                    self.__dict__[name] = getattr(self, _LATER[name])()
            return self.__dict__[name]

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
