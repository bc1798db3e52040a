"""Results by key, on any store: a view of the engine's records that knows them by key alone."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

import mainstay.runtime.clock as clock
from mainstay.core.base.change import DROP, KEEP, Change
from mainstay.core.base.timestamps import moment_of
from mainstay.core.codec.canonical import canonical, fingerprint
from mainstay.core.codec.outcome import Failed, Succeeded, decode_outcome, encode_outcome
from mainstay.core.idempotency.record import Record, RecordState, decode, encode, lease_of
from mainstay.core.redact.redactor import REDACTOR
from mainstay.drivers.idempotency.keyed_call import SPACE, new_owner
from mainstay.drivers.idempotency.keys import KeyOptions
from mainstay.drivers.idempotency.purging import Purging
from mainstay.drivers.idempotency.records import Records
from mainstay.errors import Conflict, MainstayWarning, ResultNotKept, UsageError, ValueTooLarge
from mainstay.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstay.ports import Store

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

    >>> import asyncio
    >>> async def main():
    ...     manager = IdempotencyManager()
    ...     key = manager.compute_idempotency_key("kv.put", "t-1", "c-1", {"b": 1, "a": 2})
    ...     await manager.record_result(key, None)
    ...     return await manager.check_idempotency(key)
    >>> asyncio.run(main())
    Hit(value=None, metadata={})
    """

    def __init__(self, store: str | Store = "memory://", *, ttl: float = 86_400.0) -> None:
        self.store = open_store(store)
        self.ttl = ttl
        self.records = RecordsByKey(self.store)
        if "durable" in self.store.abilities:
            self.records.purging = Purging(self.store)

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

        >>> import asyncio
        >>> asyncio.run(IdempotencyManager().check_idempotency("k")) is None
        True
        """
        value, now = await self.store.aread(SPACE, _address(idempotency_key))
        record = None if value is None else decode(value)
        if record is None or not _is_result(record, now):
            return None
        outcome = decode_outcome(bytes(record.outcome))
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
            await self._record(idempotency_key, outcome, encoded)
        except ValueTooLarge as error:
            why = str(error)
            await self._record(idempotency_key, _not_kept(idempotency_key, why), "")
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

    async def _record(self, idempotency_key: str, outcome: bytes, encoded: str) -> None:
        owner = new_owner()

        def decide(value: bytes | None, now: float) -> tuple[Change, float]:
            record = None if value is None else decode(value)
            if record is not None and _is_result(record, now):
                return KEEP, 0.0
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
        if busy_for > 0.0:
            raise Conflict("record_result", idempotency_key, busy_for)

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
