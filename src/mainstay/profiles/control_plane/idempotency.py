"""Results by key, on any store: a view of the engine's records that knows them by key alone."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

import mainstay.runtime.clock as clock
from mainstay.core.base.change import DROP, KEEP, Change, read_as
from mainstay.core.base.timestamps import moment_of
from mainstay.core.codec.canonical import canonical, fingerprint
from mainstay.core.codec.outcome import Failed, Succeeded, decode_outcome, encode_outcome
from mainstay.core.idempotency.events import Idempotency
from mainstay.core.idempotency.record import Record, RecordState, encode, lease_of
from mainstay.core.inbox.items import damaged_item
from mainstay.core.redact.redactor import REDACTOR
from mainstay.drivers.call.emit import emit
from mainstay.drivers.call.listeners import listeners_of
from mainstay.drivers.idempotency.keyed_call import SPACE, new_owner
from mainstay.drivers.idempotency.keys import KeyOptions
from mainstay.drivers.idempotency.purging import Purging
from mainstay.drivers.idempotency.records import Records
from mainstay.errors import (
    Conflict,
    MainstayWarning,
    ResultNotKept,
    StoredValueError,
    UsageError,
    ValueTooLarge,
)
from mainstay.runtime.context import CONTEXT
from mainstay.sinks.logging import LoggingSink
from mainstay.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mainstay.ports import Sink, Store

_PAYLOAD = fingerprint({})
"""The key identifies a call: the function takes no arguments."""


class Hit(Struct, frozen=True):
    """A result that was recorded; None is a result like any other.

    >>> Hit(None).value is None
    True
    """

    value: Any
    metadata: dict[str, Any] = {}


class RecordsByKey(Records):
    """Records that are known by their key alone, whichever operation made them."""

    @staticmethod
    def place(key: str) -> str:
        """Where the record of a key is."""
        return _address(key)


class IdempotencyManager:
    """Results by key, in a store that may outlive the process.

    What `RetryManager.execute_with_retry` records under a key is found here, and the other way
    round.

    Args:
        store: a URL or a Store; `memory://` forgets with the process, `sqlite:///file.db` and
            `nats://...` survive a restart and a kill.
        ttl: seconds for which a result is kept.
        sinks: what receives an `idempotency` event for each hit and each record, such as an
            AuditLog; by default the log, named `mainstay`.

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
        ttl: float = 86_400.0,
        sinks: Iterable[Sink] | None = None,
    ) -> None:
        given = (LoggingSink(),) if sinks is None else sinks
        listeners = listeners_of("IdempotencyManager", given)
        self.store = open_store(store)
        self.ttl = ttl
        self.send_to(listeners)
        if "durable" in self.store.abilities:
            self.records.purging = Purging(self.store)

    def send_to(self, sinks: tuple[Sink, ...]) -> None:
        """Sends events to these from now on, those of its inbox included.

        >>> IdempotencyManager().send_to(())
        """
        self.sinks = sinks
        self.records = RecordsByKey(self.store, listeners=sinks)

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
        value, now = await self.store.aread(SPACE, _address(idempotency_key))
        try:
            record = None if value is None else read_as(Record, value, "call")
            if record is None or not _is_result(record, now):
                return None
            outcome = decode_outcome(bytes(record.outcome))
        except StoredValueError as error:
            await self._damaged(error, "check_idempotency", idempotency_key)
            raise
        self._emit("hit", "check_idempotency", idempotency_key)
        if isinstance(outcome, Failed):  # its result could not be kept
            raise outcome.exception
        metadata = msgspec.json.decode(record.metadata) if record.metadata else {}
        return Hit(outcome.value, metadata)

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
        encoded = canonical(dict(metadata)).decode() if metadata else ""
        outcome, why = self._outcome_of(idempotency_key, result)
        try:
            is_new = await self._record(idempotency_key, outcome, encoded)
        except ValueTooLarge as error:
            why = str(error)
            is_new = await self._record(idempotency_key, _not_kept(idempotency_key, why), "")
        except StoredValueError as error:
            await self._damaged(error, "record_result", idempotency_key)
            raise
        if is_new:
            self._emit("not_kept" if why else "record", "record_result", idempotency_key)
        self.records.count("not_kept" if why else "record")
        if why:
            text = f"the result of {idempotency_key!r} is not kept: {why}"
            warnings.warn(REDACTOR.text(text), MainstayWarning, stacklevel=2)

    def _outcome_of(self, key: str, result: Any) -> tuple[bytes, str]:
        """The outcome to record, and why it is not the result, if it is not."""
        try:
            outcome, why = encode_outcome(Succeeded(result)), ""
        except UsageError as error:
            outcome, why = b"", str(error)
        limit = self.records.size_limit(_OPTIONS, _address(key))
        if limit is not None and len(outcome) > limit:
            why = f"it has {len(outcome)} bytes as JSON, and {limit} are kept at most"
        return (_not_kept(key, why) if why else outcome), why

    def _emit(self, action: str, operation: str, key: str) -> None:
        """Emits what became of a key; the operation is the method that was called."""
        if self.sinks:
            here = CONTEXT.get()
            event = Idempotency(
                operation=operation, idempotency_key=REDACTOR.text(key), action=action,
                retry_category=here.category, tenant_id=here.tenant_id,
                correlation_id=here.correlation_id, trace_id=here.trace_id,
            )  # fmt: skip
            emit(event, self.sinks)

    async def _damaged(self, error: StoredValueError, operation: str, key: str) -> None:
        item = damaged_item(operation, key, _address(key))
        await self.records.inbox.aput_damage(error, item)

    async def _record(self, idempotency_key: str, outcome: bytes, encoded: str) -> bool:
        """Records the outcome; returns whether there was none before."""
        owner = new_owner()

        def decide(value: bytes | None, now: float) -> tuple[Change, float | None]:
            record = None if value is None else read_as(Record, value, "call")
            if record is not None and _is_result(record, now):
                return KEEP, None
            if record is not None and _is_under_way(record, now):
                return lease_of(record, now, record.lease_until - now)
            epoch = 1 if record is None else record.epoch + 1
            kept = Record(
                RecordState.SUCCEEDED, _PAYLOAD, owner, epoch, attempts=0, started=now,
                outcome=msgspec.Raw(outcome), expires=now + self.ttl, metadata=encoded,
                kept_for=self.ttl,
            )  # fmt: skip
            return Change(encode(kept), kept.expires), 0.0

        busy_for = await self.store.atransact(SPACE, _address(idempotency_key), decide)
        if busy_for:
            raise Conflict("record_result", idempotency_key, busy_for)
        return busy_for is not None

    async def clear_idempotency(self, idempotency_key: str) -> None:
        """Forgets a result.

        >>> import asyncio
        >>> asyncio.run(IdempotencyManager().clear_idempotency("k"))
        """
        await self.store.atransact(SPACE, _address(idempotency_key), lambda *_: (DROP, None))

    def close(self) -> None:
        """Closes the store.

        >>> IdempotencyManager().close()
        """
        if self.records.purging is not None:
            self.records.purging.close()
        self.store.close()


_OPTIONS = KeyOptions()


def _not_kept(key: str, why: str) -> bytes:
    error = ResultNotKept("record_result", key, moment_of(clock.current.wall()), why)
    return encode_outcome(Failed(error))


def _is_result(record: Record, now: float) -> bool:
    is_kept = record.expires is None or record.expires > now
    return record.state is RecordState.SUCCEEDED and is_kept


def _is_under_way(record: Record, now: float) -> bool:
    return record.state is RecordState.RUNNING and record.lease_until > now


def _address(key: str) -> str:
    """Where the record of a key is; refuses a key that is none."""
    if not isinstance(key, str) or not key.strip():
        raise UsageError(
            f"idempotency_key = {key!r}: must be a text that is not empty",
            hint="compute_idempotency_key() makes one",
        )
    return canonical(["control_plane", key]).decode()
