"""Results by key, on any store: the document's IdempotencyManager on the engine's records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mainstay.core.base.validate import positive_seconds
from mainstay.core.codec.canonical import fingerprint
from mainstay.drivers.call.listeners import listeners_of
from mainstay.drivers.idempotency.purging import Purging
from mainstay.drivers.idempotency.results import Results
from mainstay.sinks.logging import LoggingSink
from mainstay.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mainstay.core.base.types import Seconds
    from mainstay.ports import Sink, Store


class Hit(Struct, frozen=True):
    """A result that was recorded; None is a result like any other.

    >>> Hit(None).value is None
    True
    """

    value: Any
    metadata: dict[str, Any] = {}


class RecordsByKey(Results):
    """The results of the control plane."""

    front_door = "control_plane"


class IdempotencyManager:
    """Results by key, in a store that may outlive the process.

    What `RetryManager.execute_with_retry` records under a key is found here, and the other way
    round.

    Args:
        store: a URL or a Store; `memory://` forgets with the process, `sqlite:///file.db` and
            `nats://...` survive a restart and a kill.
        ttl: seconds for which a result is kept.
        sinks: what receives an `idempotency` event for each hit and each record; by default the
            log, named `mainstay`. By itself a manager has no engine, and so no audit log: give it
            one. That of a RetryManager has the audit log of its engine.

    >>> import asyncio
    >>> async def main():
    ...     manager = IdempotencyManager()
    ...     key = manager.compute_idempotency_key("kv.put", "t-1", "c-1", {"b": 1, "a": 2})
    ...     await manager.record_result(key, None)
    ...     return await manager.check_idempotency(key)
    >>> asyncio.run(main())
    Hit(value=None, metadata={})
    """

    def __init__(
        self,
        store: str | Store = "memory://",
        *,
        ttl: Seconds = 86_400.0,
        sinks: Iterable[Sink] | None = None,
    ) -> None:
        self.ttl = positive_seconds("IdempotencyManager", "ttl", ttl)
        listeners = listeners_of("IdempotencyManager", (LoggingSink(),) if sinks is None else sinks)
        self.store = open_store(store)
        self.send_to(listeners)
        if "durable" in self.store.abilities:
            self.records.purging = Purging(self.store)

    def send_to(self, sinks: tuple[Sink, ...]) -> None:
        """Sends events to these from now on, those of its inbox included.

        >>> IdempotencyManager().send_to(())
        """
        self.sinks = sinks
        self.records = RecordsByKey(self.store, sinks)
        self.records.ttl = self.ttl

    @staticmethod
    def compute_idempotency_key(
        operation: str,
        tenant_id: str | None = None,
        correlation_id: str | None = None,
        additional_params: Mapping[str, Any] | None = None,
    ) -> str:
        """A SHA-256 over canonical JSON: the same in any order, process and Python version.

        >>> key = IdempotencyManager.compute_idempotency_key
        >>> one = key("op", None, None, {"a": {"x": 1, "y": 2}})
        >>> one == key("op", "", "", {"a": {"y": 2, "x": 1}}), len(one)
        (True, 64)
        """
        return fingerprint(
            {
                "operation": operation,
                "tenant_id": tenant_id or "",
                "correlation_id": correlation_id or "",
                "additional_params": dict(additional_params or {}),
            }
        )

    async def check_idempotency(self, idempotency_key: str) -> Hit | None:
        """The result recorded under a key, or None if there is none.

        Raises:
            ResultNotKept: the operation was done, and its result was not kept.
            StoredValueError: the record is damaged; an item of the inbox asks for a person.

        >>> import asyncio
        >>> asyncio.run(IdempotencyManager().check_idempotency("k")) is None
        True
        """
        found = await self.records.find(idempotency_key, "check_idempotency")
        return None if found is None else Hit(found.value, found.metadata)

    async def record_result(
        self, idempotency_key: str, result: Any, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Records a result; one that was recorded before is not overwritten.

        If the store cannot take it, that it was done is recorded without it, with a warning.

        Raises:
            Conflict: a call with this key is under way, and will record its own.

        >>> import asyncio
        >>> asyncio.run(IdempotencyManager().record_result("k", 7, {"by": "me"}))
        """
        await self.records.keep(idempotency_key, result, metadata, "record_result")

    async def clear_idempotency(self, idempotency_key: str) -> None:
        """Forgets a result.

        >>> import asyncio
        >>> asyncio.run(IdempotencyManager().clear_idempotency("k"))
        """
        await self.records.forget(idempotency_key)

    def close(self) -> None:
        """Closes the store.

        >>> IdempotencyManager().close()
        """
        if self.records.purging is not None:
            self.records.purging.close()
        self.store.close()
