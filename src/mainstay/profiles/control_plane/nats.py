"""The categories on a real NATS client: each operation runs under the policy of its category."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.base.validate import Checker
from mainstay.errors import UsageError
from mainstay.integrations.nats import Operations
from mainstay.profiles.control_plane.categories import RetryCategory
from mainstay.profiles.control_plane.manager import RetryManager, get_retry_manager

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from typing import Any, TypeVar

    from mainstay.core.base.types import Seconds, UserValue

    T = TypeVar("T")

_CATEGORY = RetryCategory
_CATEGORIES = {
    "connect": _CATEGORY.NATS_CONNECT, "publish": _CATEGORY.NATS_PUBLISH,
    "subscribe": _CATEGORY.NATS_SUBSCRIBE, "create_stream": _CATEGORY.NATS_STREAM_CREATE,
    "kv_create": _CATEGORY.KV_CREATE, "kv_get": _CATEGORY.KV_GET, "kv_put": _CATEGORY.KV_PUT,
    "kv_delete": _CATEGORY.KV_DELETE,
}  # fmt: skip
"""By the kind that the client has for an operation; requests have the category they are given."""
_METHODS = {category.value: method for method, category in _CATEGORIES.items()}


class NatsClient(Operations):
    """NATS, JetStream and its key-value buckets under the policies of a RetryManager.

    `connect`, `publish`, `subscribe`, `create_stream`, `kv_create`, `kv_get`, `kv_put`, `kv_delete`
    and `kv_watch` have their categories; `request` asks a service, as a category that is given:
    executions, approvals, replays, calls of an API. Each takes `policy`, `idempotency_key`,
    `tenant_id`, `correlation_id`, `trace_id` and `additional_context` as `execute_with_retry` does,
    and raises RetryError if its retries ran out.

    Args:
        manager: by default that of the process.
        timeout: seconds for one reply of a server or service.

    >>> NatsClient(timeout=2.0).timeout
    2.0
    """

    def __init__(self, manager: RetryManager | None = None, *, timeout: Seconds = 5.0) -> None:
        check = Checker("NatsClient")
        check.instance("manager", manager, RetryManager)
        seconds = check.seconds("timeout", timeout, zero=False)
        check.close()
        super().__init__(self._execute, seconds)
        self.manager = get_retry_manager() if manager is None else manager

    def _execute(
        self,
        kind: str,
        operation: str,
        attempt: Callable[[], Awaitable[T]],
        call: Mapping[str, UserValue],
        /,
    ) -> Coroutine[Any, Any, T]:
        if kind in _METHODS:
            raise UsageError(f"{kind!r} is no category of requests", hint=f"{_METHODS[kind]}() is")
        category = _CATEGORIES.get(kind, kind)
        run = self.manager.execute_with_retry
        return run(category, operation, attempt, **call)
