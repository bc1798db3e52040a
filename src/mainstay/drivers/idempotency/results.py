"""Results that are known by their key alone, whichever operation made them: read, record, forget.

They are records like those of keyed calls: what a call has recorded is found here by its key, and
what is recorded here by hand answers a call with that key.
"""

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
from mainstay.core.events.describe import usual_redactor
from mainstay.core.idempotency.events import Idempotency
from mainstay.core.idempotency.record import Record, RecordState, encode, lease_of
from mainstay.core.inbox.items import damaged_item
from mainstay.drivers.call.emit import emit
from mainstay.drivers.idempotency.keyed_call import SPACE, new_owner
from mainstay.drivers.idempotency.keys import KeyOptions
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

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstay.ports import Sink, Store

_PAYLOAD = fingerprint({})
"""The key identifies a call: the function takes no arguments."""
_OPTIONS = KeyOptions()


class Found(Struct, frozen=True):
    """A result that was recorded, with its metadata."""

    value: Any
    metadata: dict[str, Any]


class Results(Records):
    """The results of one front door in a store, by key.

    `front_door` and `ttl` are set by a subclass: what the keys belong to, and the seconds for
    which a result is kept.
    """

    front_door = ""
    ttl = 86_400.0

    def __init__(self, store: Store, listeners: tuple[Sink, ...] = ()) -> None:
        super().__init__(store, listeners=listeners)
        self._listeners = listeners

    @classmethod
    def place(cls, key: str) -> str:
        """Where the record of a key is; refuses a key that is none."""
        if not isinstance(key, str) or not key.strip():
            raise UsageError(
                f"idempotency_key = {key!r}: must be a text that is not empty",
                hint="compute_idempotency_key() makes one",
            )
        return canonical([cls.front_door, key]).decode()

    async def find(self, key: str, operation: str) -> Found | None:
        """The result under a key; None if there is none."""
        value, now = await self.store.aread(SPACE, self.place(key))
        try:
            record = None if value is None else read_as(Record, value, "call")
            if record is None or not _is_result(record, now):
                return None
            outcome = decode_outcome(bytes(record.outcome))
        except StoredValueError as error:
            await self._damaged(error, operation, key)
            raise
        self._emit("hit", operation, key)
        if isinstance(outcome, Failed):  # its result could not be kept
            raise outcome.exception
        metadata = msgspec.json.decode(record.metadata) if record.metadata else {}
        return Found(outcome.value, metadata)

    async def keep(
        self, key: str, result: Any, metadata: Mapping[str, Any] | None, operation: str
    ) -> None:
        """Records a result, unless there is one; if it cannot be kept, that it was done."""
        encoded = canonical(dict(metadata)).decode() if metadata else ""
        outcome, why = self._outcome_of(key, result)
        try:
            is_new = await self._record(key, outcome, encoded, operation)
        except ValueTooLarge as error:
            why = str(error)
            is_new = await self._record(key, _not_kept(key, why, operation), "", operation)
        except StoredValueError as error:
            await self._damaged(error, operation, key)
            raise
        if is_new:
            self._emit("not_kept" if why else "record", operation, key)
        self.count("not_kept" if why else "record")
        if why:
            text = f"the result of {key!r} is not kept: {why}"
            warnings.warn(usual_redactor().text(text), MainstayWarning, stacklevel=3)

    async def forget(self, key: str) -> None:
        """Removes the record of a key."""
        await self.store.atransact(SPACE, self.place(key), lambda *_: (DROP, None))

    def _outcome_of(self, key: str, result: Any) -> tuple[bytes, str]:
        """The outcome to record, and why it is not the result, if it is not."""
        try:
            outcome, why = encode_outcome(Succeeded(result)), ""
        except UsageError as error:
            outcome, why = b"", str(error)
        limit = self.size_limit(_OPTIONS, self.place(key))
        if limit is not None and len(outcome) > limit:
            why = f"it has {len(outcome)} bytes as JSON, and {limit} are kept at most"
        return (_not_kept(key, why, "record_result") if why else outcome), why

    async def _record(self, key: str, outcome: bytes, encoded: str, operation: str) -> bool:
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

        busy_for = await self.store.atransact(SPACE, self.place(key), decide)
        if busy_for:
            raise Conflict(operation, key, busy_for)
        return busy_for is not None

    def _emit(self, action: str, operation: str, key: str) -> None:
        """Emits what became of a key; the operation is the method that was called."""
        if self._listeners:
            here = CONTEXT.get()
            event = Idempotency(
                operation=operation, idempotency_key=usual_redactor().text(key), action=action,
                retry_category=here.category, tenant_id=here.tenant_id,
                correlation_id=here.correlation_id, trace_id=here.trace_id,
            )  # fmt: skip
            emit(event, self._listeners)

    async def _damaged(self, error: StoredValueError, operation: str, key: str) -> None:
        item = damaged_item(operation, key, self.place(key))
        await self.inbox.aput_damage(error, item)


def _not_kept(key: str, why: str, operation: str) -> bytes:
    error = ResultNotKept(operation, key, moment_of(clock.current.wall()), why)
    return encode_outcome(Failed(error))


def _is_result(record: Record, now: float) -> bool:
    is_kept = record.expires is None or record.expires > now
    return record.state is RecordState.SUCCEEDED and is_kept


def _is_under_way(record: Record, now: float) -> bool:
    return record.state is RecordState.RUNNING and record.lease_until > now
