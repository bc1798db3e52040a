"""The document's RetryManager: runs an operation of a category, on an engine of its own.

The engine retries, waits, records and emits events. Here a category leads to a policy and to the
context that every event carries, and a call that ran out of retries ends in a RetryError.
"""

from __future__ import annotations

import warnings
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from mainstay.audit.stream import AuditStream
from mainstay.core.retry.events import CallFailed, RetryExhausted
from mainstay.drivers.call.callables import check_callable
from mainstay.drivers.inbox.resolution import exhausted_calls
from mainstay.drivers.policy import RetryPolicy as EnginePolicy
from mainstay.engine.engine import Engine
from mainstay.errors import PolicyNotFoundWarning, RetryError, UsageError
from mainstay.ports import SinkWants
from mainstay.profiles.control_plane.categories import code_of
from mainstay.profiles.control_plane.idempotency import IdempotencyManager
from mainstay.profiles.control_plane.policies import POLICIES, RetryPolicy, default_timeout
from mainstay.runtime.context import context
from mainstay.runtime.fork import make_lock
from mainstay.runtime.reports.tracebacks import leave_out, shorten
from mainstay.sinks.logging import LoggingSink
from mainstay.sinks.recent import RecentEvents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mainstay.audit.stream import Record
    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Seconds
    from mainstay.core.retry.events import GivenUp
    from mainstay.engine.operations import Operation
    from mainstay.ports import Sink, Store
    from mainstay.profiles.control_plane.categories import RetryCategory


class RetryManager:
    """Runs operations under the policy of their category, each once for a key.

    Args:
        store: where results by key live: a URL or a Store. `memory://` forgets with the process.
        policies: policies of your own for some categories, in place of the matrix's.
        sinks: what receives the events; by default the log, named `mainstay`.
        ttl: seconds for which a result is kept.
        remember: how many of the latest events `audit_stream` holds.
        attempt_timeout: seconds for one attempt, of every category and policy that has no limit of
            its own; by default 30, and 300 for batches (EXECUTION_EXPIRATION, REPLAY_PROCESSING).
        log_level: the level at which a scheduled retry is logged: a name, or `logging.INFO`. A
            policy of the engine's own that is given for a call has its own.
        options: anything else that an Engine takes: `seed`, `breaker`, `budget`, `guards`.

    >>> import asyncio
    >>> from mainstay.profiles.control_plane import RetryCategory
    >>> async def get():
    ...     return b"on"
    >>> manager = RetryManager()
    >>> asyncio.run(manager.execute_with_retry(RetryCategory.KV_GET, "Get switch", get))
    b'on'
    """

    def __init__(
        self,
        store: str | Store = "memory://",
        *,
        policies: Mapping[RetryCategory | str, RetryPolicy] | None = None,
        sinks: Iterable[Sink] | None = None,
        ttl: Seconds = 86_400.0,
        remember: int = 10_000,
        attempt_timeout: Seconds | None = None,
        log_level: str | int = "WARNING",
        **options: Any,
    ) -> None:
        own = {code_of(category): policy for category, policy in (policies or {}).items()}
        matrix = {category.value: policy for category, policy in POLICIES.items()}
        self._policies = {**matrix, **own}
        self.default_policy = RetryPolicy()
        self.attempt_timeout = EnginePolicy(attempt_timeout=attempt_timeout).attempt_timeout
        self.log_level = self.default_policy.policy(log_level=log_level).log_level
        self.idempotency_manager = IdempotencyManager(store, ttl=ttl)
        self.recent = RecentEvents(remember)
        listeners = (LoggingSink(),) if sinks is None else tuple(sinks)
        self.engine = Engine(
            self.idempotency_manager.store, sinks=(*listeners, self.recent, _Ends()), **options
        )
        self.idempotency_manager.send_to(self.engine.sinks)
        records, self.engine.records = self.engine.records, self.idempotency_manager.records
        settled = exhausted_calls(self.engine.store, self.engine.circuits)
        self.engine.inbox.settle("exhausted", settled)
        self.engine.records.max_result = records.max_result
        self.engine.records.purging = records.purging

    @property
    def audit_stream(self) -> AuditStream:
        """The latest events of this manager: `filter` them, count them, see their rate.

        What was recorded in a log is read by an AuditStream of its own.

        >>> manager = RetryManager()
        >>> len(manager.audit_stream.filter(event_type="retry_attempt"))
        0
        """
        return AuditStream(self.recent.records)

    def get_policy(self, category: RetryCategory | str) -> RetryPolicy:
        """The policy of a category or its code; an unknown one gets the default, and a warning.

        >>> RetryManager().get_policy("RETRY_NATS_CONNECT").max_attempts
        5
        """
        policy = self._policies.get(code_of(category))
        if policy is not None:
            return policy
        warnings.warn(
            f"no policy for the category {category!r}; the default is used",
            PolicyNotFoundWarning,
            stacklevel=2,
        )
        return self.default_policy

    async def execute_with_retry(
        self,
        category: RetryCategory | str,
        operation: str,
        coro: Callable[[], Any],
        policy: RetryPolicy | EnginePolicy | None = None,
        idempotency_key: str | None = None,
        tenant_id: str | None = None,
        correlation_id: str | None = None,
        trace_id: str | None = None,
        additional_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Awaits an async function, and again if it fails as the policy allows.

        Args:
            category: which policy, and what events call the sort of it.
            operation: what events and errors call it.
            coro: a function of no arguments that makes the coroutine: each attempt needs its own.
            policy: in place of the category's; the engine's own RetryPolicy has timeouts too.
            idempotency_key: runs once under this key; later calls get the first one's result.
            tenant_id: who it is for; with the next two it travels with every event inside.
            correlation_id: what it belongs to.
            trace_id: the trace it is part of.
            additional_context: kept as metadata beside the recorded result, and on a RetryError.

        Raises:
            RetryError: it was given up, of attempts or of time; chained from the last failure.

        What is not retryable is raised as it is, at once.
        """
        check_callable(coro)
        code = code_of(category)
        chosen = self._bounded(code, self.get_policy(category) if policy is None else policy)
        metadata = dict(additional_context or {})
        work = self._operation(operation, chosen, idempotency_key, metadata)
        ends: list[GivenUp] = []
        with context(
            tenant_id=tenant_id, correlation_id=correlation_id, trace_id=trace_id, category=code
        ):
            token = _ENDS.set(ends)
            try:
                return await work.acall(_attempt_of(coro))
            except Exception as failure:
                if not _is_exhausted(ends, operation):
                    leave_out(failure)
                    raise
                shorten(failure)
                raise RetryError(category, ends[0].total_attempts, operation, metadata) from failure
            finally:
                _ENDS.reset(token)

    def _bounded(self, code: str, policy: RetryPolicy | EnginePolicy) -> EnginePolicy:
        """The engine's policy, in which every attempt has an end."""
        if isinstance(policy, RetryPolicy):
            policy = policy.policy(code, self.log_level)
        if policy.first_limit is not None:
            return policy
        return policy.replace(attempt_timeout=self.attempt_timeout or default_timeout(code))

    def _operation(
        self, name: str, policy: EnginePolicy, key: str | None, metadata: dict[str, Any]
    ) -> Operation:
        if key is None:
            return self.engine.operation(name, policy=policy)
        return self.engine.operation(
            name, policy=policy, key=key, metadata=metadata, ttl=self.idempotency_manager.ttl,
            idempotency="idempotent",  # the document resumes what a crash has cut off
        )  # fmt: skip

    def close(self) -> None:
        """Flushes the sinks and closes the store.

        >>> RetryManager().close()
        """
        self.engine.close()


def _attempt_of(coro: Callable[[], Any]) -> Callable[[], Any]:
    """One attempt; a function that is not async is as good, if it does not block."""

    async def attempt() -> Any:
        made = coro()
        return await made if hasattr(made, "__await__") else made

    return attempt


_ENDS: ContextVar[list[GivenUp] | None] = ContextVar("mainstay.control_plane.ends", default=None)
"""How the call under way, and calls inside it, were given up."""


class _Ends:
    """Receives the end of each call: only the engine knows whether retries ran out."""

    wants = SinkWants(successes=False)

    def __call__(self, event: Event) -> None:
        ends = _ENDS.get()
        if ends is not None and isinstance(event, RetryExhausted | CallFailed):
            ends[:] = [event]


def _is_exhausted(ends: list[GivenUp], operation: str) -> bool:
    """Whether the last end is this operation's, and its retries ran out."""
    return bool(ends) and isinstance(ends[0], RetryExhausted) and ends[0].operation == operation


_MANAGERS: list[RetryManager] = []
_LOCK = make_lock()


def get_retry_manager(store: str | Store | None = None) -> RetryManager:
    """The process's own manager; the first call creates it, and may name the store.

    >>> get_retry_manager() is get_retry_manager()
    True
    """
    with _LOCK:
        if not _MANAGERS:
            _MANAGERS.append(RetryManager("memory://" if store is None else store))
        elif store is not None:
            raise UsageError(
                "the process has its retry manager already",
                hint="name the store in the first call, or create a RetryManager",
            )
        return _MANAGERS[0]


def _recent_records() -> Iterable[Record]:
    """The events of the process's manager; none if there is no manager yet."""
    return _MANAGERS[0].recent.records() if _MANAGERS else ()


audit_stream = AuditStream(_recent_records)
"""The latest events of the process's manager: what `get_retry_manager().audit_stream` is."""


def calculate_success_rate(events: AuditStream | Iterable[Event]) -> float | None:
    """The share of the calls in a stream that ended well; None if none has ended.

    >>> from mainstay.events import CallSucceeded, RetryExhausted
    >>> calculate_success_rate([CallSucceeded(total_attempts=2), RetryExhausted(total_attempts=3)])
    0.5
    """
    return _total(events, "success_rate")


def calculate_avg_attempts(events: AuditStream | Iterable[Event]) -> float | None:
    """The attempts that the calls in a stream made on average; None if none has ended.

    >>> from mainstay.events import CallSucceeded, RetryExhausted
    >>> calculate_avg_attempts([CallSucceeded(total_attempts=2), RetryExhausted(total_attempts=3)])
    2.5
    """
    return _total(events, "mean_attempts")


def _total(events: AuditStream | Iterable[Event], figure: str) -> float | None:
    stream = events if isinstance(events, AuditStream) else AuditStream(list(events))
    return stream.stats(by=())["total"][figure]  # type: ignore[no-any-return]
