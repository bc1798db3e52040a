"""What an engine is wired of: its arguments checked, its audit log, the sharing of its circuits."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mainstay.core.base.validate import Checker
from mainstay.drivers.idempotency.limits import check_max_result
from mainstay.errors import UsageError
from mainstay.ports import methods_of, wants_of
from mainstay.stores.open import open_store

if TYPE_CHECKING:
    import os
    from typing import Any, Protocol

    from mainstay.audit.log import AuditLog
    from mainstay.core.base.types import Seconds
    from mainstay.core.inbox.items import Decision, Item
    from mainstay.drivers.call.guard import Guard
    from mainstay.drivers.guards.registry import CircuitRegistry
    from mainstay.drivers.guards.shared import Sharing
    from mainstay.drivers.idempotency.purging import Purging
    from mainstay.drivers.inbox.inbox import Inbox
    from mainstay.drivers.pipeline.runs import PipelineRuns
    from mainstay.drivers.saga.sagas import Sagas
    from mainstay.ports import Sink, Store

    class Rooms(Protocol):
        """What of an engine settles items."""

        store: Store
        circuits: CircuitRegistry

        @property
        def inbox(self) -> Inbox: ...
        @property
        def sagas(self) -> Sagas: ...
        @property
        def pipelines(self) -> PipelineRuns: ...


def check_arguments(seed: Any, redact: Any) -> None:
    """Raises UsageError if a seed or a redactor is neither None nor of the right type."""
    if seed is not None and type(seed) is not int:
        raise UsageError(f"seed = {seed!r}: must be an integer, or None for random delays")
    if redact is not None:
        from mainstay.core.redact.redactor import Redactor

        if not isinstance(redact, Redactor):
            raise UsageError(
                f"redact = {redact!r}: must be a Redactor", hint="redact=Redactor(patterns=[...])"
            )


def check_sinks(sinks: tuple[Sink, ...]) -> None:
    """Raises UsageError if a sink declares what one of its methods receives, and has it not."""
    for sink in sinks:
        wants_of(sink)


def circuits_of(*given: Any) -> CircuitRegistry:
    """The circuits of an engine that has some."""
    from mainstay.drivers.guards.registry import CircuitRegistry

    return CircuitRegistry(*given)


def seconds_of(
    share: Seconds | None, store_wait: Seconds, purge: Seconds | None, max_result: int | None
) -> tuple[float | None, float, float | None]:
    """The times of an engine, checked, and the size of results with them."""
    check = Checker("Engine")
    if share is not None:
        share = check.duration("share", share, 0.01, 3600.0)
    if purge is not None:
        purge = check.duration("purge", purge, 1.0, 86_400.0)
    patience = check.seconds("store_wait", store_wait)
    check_max_result(check, max_result)
    check.close()
    return share, patience, purge


def audit_of(
    audit: AuditLog | str | os.PathLike[str] | bool | None,
    sinks: tuple[Sink, ...],
    store: Store | None,
) -> AuditLog | None:
    """The audit log of an engine: as asked for, else one of its sinks, else its store's own.

    If that fails, the store is closed: the engine is not built. One that is not open yet is in
    memory, and keeps no log.
    """
    try:
        return _opened(_among(sinks) if audit is None else audit, store)
    except Exception:
        if store is not None:
            store.close()
        raise


def _among(sinks: tuple[Sink, ...]) -> AuditLog | None:
    """The audit log that was given as one of the sinks."""
    if "mainstay.audit.log" not in sys.modules:  # not loaded: no sink is an audit log
        return None
    from mainstay.audit.log import AuditLog

    return next((each for each in sinks if isinstance(each, AuditLog)), None)


def _opened(
    audit: AuditLog | str | os.PathLike[str] | bool | None, store: Store | None
) -> AuditLog | None:
    if audit is False or (audit is None and (store is None or "audit" not in store.abilities)):
        return None
    from mainstay.audit.log import AuditLog

    if isinstance(audit, AuditLog):
        return audit
    if audit is True or audit is None:
        assert store is not None, "what is opened later is asked for no log"
        open_store(store, needs=["audit"])
        return AuditLog(store)
    return AuditLog(audit)


def start_sharing(
    store: Store, circuits: CircuitRegistry, guards: tuple[Guard, ...], interval: float | None
) -> Sharing | None:
    """Shares circuits and budgets of a store that outlives the process, if there are any."""
    from mainstay.drivers.guards.budget import is_shareable

    is_needed = circuits.is_used or any(map(is_shareable, guards))
    if interval is None or not is_needed:
        return None
    from mainstay.drivers.guards.shared import Sharing

    sharing = Sharing(store, circuits, guards, interval, expects=circuits.makes_circuits)
    circuits.welcome, circuits.sharing = sharing.welcome, sharing.counts
    sharing.start()
    return sharing


def start_purging(store: Store, every: float | None) -> Purging | None:
    """Purges expired records with the first that this process writes, if the store keeps them."""
    if every is None or "durable" not in store.abilities:
        return None
    from mainstay.drivers.idempotency.purging import Purging

    return Purging(store, every)


def settle_rooms(engine: Rooms, inbox: Inbox) -> None:
    """Has decisions on items carried out by the features that raise them; sagas when needed."""
    from mainstay.drivers.inbox.resolution import exhausted_calls

    def settle_saga(item: Item, decision: Decision) -> str | None:
        return engine.sagas.settle(item, decision)

    def settle_run(item: Item, decision: Decision) -> str | None:
        return engine.pipelines.settle(item, decision)

    inbox.settle("exhausted", exhausted_calls(engine.store, engine.circuits))
    inbox.settle("stuck_saga", settle_saga)
    inbox.settle("quarantine", settle_run, is_first=True)
    inbox.settle("governance", settle_run, is_first=True)


def flush_all(sinks: tuple[Sink, ...]) -> None:
    """Flushes each sink that buffers."""
    for sink in sinks:
        flush = methods_of(sink).flush
        if flush is not None:
            flush()
