"""The front door for a control plane on NATS: its idempotency manager, on any store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from mainstay.core.canonical import canonical, fingerprint
from mainstay.core.outcome import Succeeded, decode_outcome, encode_outcome
from mainstay.core.records import DROP, Change
from mainstay.engine import open_store
from mainstay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstay.ports import Store

__all__ = ["Hit", "IdempotencyManager"]

SPACE = "control_plane"


class Hit(Struct, frozen=True):
    """A result that was recorded; None is a result like any other.

    >>> Hit(None).value is None
    True
    """

    value: Any
    metadata: dict[str, Any] = {}


class _Kept(Struct, frozen=True):
    outcome: msgspec.Raw
    metadata: msgspec.Raw = msgspec.Raw(b"{}")


class IdempotencyManager:
    """Results by key, in a store that may outlive the process.

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
        """The result recorded under a key, or None where there is none.

        >>> import asyncio
        >>> asyncio.run(IdempotencyManager().check_idempotency("k")) is None
        True
        """
        value, _ = await self.store.aread(SPACE, _checked(idempotency_key))
        if value is None:
            return None
        kept = msgspec.json.decode(value, type=_Kept)
        outcome = decode_outcome(bytes(kept.outcome))
        assert isinstance(outcome, Succeeded), "only results are recorded here"
        return Hit(outcome.value, msgspec.json.decode(kept.metadata))

    async def record_result(
        self, idempotency_key: str, result: Any, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Records a result; one that was recorded before is not overwritten.

        >>> import asyncio
        >>> asyncio.run(IdempotencyManager().record_result("k", 7, {"by": "me"}))
        """
        told = msgspec.Raw(canonical(dict(metadata or {})))
        kept = msgspec.json.encode(_Kept(msgspec.Raw(encode_outcome(Succeeded(result))), told))

        def decide(value: bytes | None, now: float) -> tuple[Change, None]:
            return Change(kept if value is None else value, now + self.ttl), None

        await self.store.atransact(SPACE, _checked(idempotency_key), decide)

    async def clear_idempotency(self, idempotency_key: str) -> None:
        """Forgets a result.

        >>> import asyncio
        >>> asyncio.run(IdempotencyManager().clear_idempotency("k"))
        """
        await self.store.atransact(SPACE, _checked(idempotency_key), lambda *_: (DROP, None))

    def close(self) -> None:
        """Closes the store.

        >>> IdempotencyManager().close()
        """
        self.store.close()


def _checked(key: str) -> str:
    if not isinstance(key, str) or not key.strip():
        raise UsageError(
            f"idempotency_key = {key!r}: must be a text that is not empty",
            hint="compute_idempotency_key() makes one",
        )
    return key
