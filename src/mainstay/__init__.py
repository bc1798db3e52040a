"""mainstay: what happens when a call fails.

The door: names are loaded when they are first used, so that `import mainstay` stays cheap.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from mainstay import deadline, events, lease, testing
    from mainstay.audit import AuditLog, Verdict, read_log, verify_log
    from mainstay.audit.stream import AuditStream
    from mainstay.core.circuit.breaker import CircuitState
    from mainstay.core.circuit.settings import BreakerSettings
    from mainstay.core.circuit.snapshot import CircuitSnapshot
    from mainstay.core.circuit.window import Window
    from mainstay.core.inbox.items import Item
    from mainstay.core.known.kind import Kind, transient
    from mainstay.core.redact.redactor import Redactor
    from mainstay.core.retry.backoff import Backoff, Jitter
    from mainstay.core.retry.classify import Classification
    from mainstay.core.retry.give_up import gave_up_headers
    from mainstay.core.retry.hooks import RetryInfo
    from mainstay.core.retry.policy import KindRule
    from mainstay.core.saga.context import SagaContext
    from mainstay.core.saga.definition import Saga, SagaStep
    from mainstay.core.saga.view import SagaView
    from mainstay.drivers.call.blocks import Attempt, Attempts
    from mainstay.drivers.call.result import RetryResult, RetryStatistics
    from mainstay.drivers.call.threads import abandoned_threads
    from mainstay.drivers.decorated import Decorated
    from mainstay.drivers.guards.breaker import CircuitBreaker
    from mainstay.drivers.guards.budget import RetryBudget, TokenBudget
    from mainstay.drivers.guards.registry import CircuitRegistry, HealthReport
    from mainstay.drivers.guards.throttle import AdaptiveThrottle, MemoryGuard, RateLimit
    from mainstay.drivers.inbox.credentials import OperatorKey
    from mainstay.drivers.inbox.inbox import Inbox
    from mainstay.drivers.inbox.operators import Operators
    from mainstay.drivers.layers.bulkhead import Bulkhead
    from mainstay.drivers.layers.fallback import Fallback
    from mainstay.drivers.layers.hedge import Hedge
    from mainstay.drivers.policy import RetryPolicy
    from mainstay.drivers.retry import retry
    from mainstay.drivers.saga.executor import SagaExecutor
    from mainstay.drivers.saga.outcome import SagaResult
    from mainstay.drivers.saga.recovery import Recovery
    from mainstay.drivers.saga.sagas import Sagas
    from mainstay.engine.engine import Engine
    from mainstay.engine.operations import KeyedOperation, Operation
    from mainstay.engine.registry import PolicyRegistry
    from mainstay.errors import (
        AttemptTimeout,
        BulkheadFull,
        CallAbandoned,
        CallCancelled,
        CallShed,
        CircuitOpenError,
        CommandFailed,
        CommandKilled,
        CommandNotRun,
        CompensationFailedError,
        ConfigError,
        ConfigProblem,
        ConfigWarning,
        Conflict,
        DeadlineExceeded,
        DependencyError,
        FailFastError,
        GovernanceBlocked,
        GovernanceViolation,
        IdentityRefused,
        ImmutabilityViolation,
        LeaseLost,
        LedgerError,
        LicenseViolation,
        LineageMismatch,
        MainstayError,
        MainstayWarning,
        MissingExtraError,
        NestedRetryError,
        NestedRetryWarning,
        OutcomeUnknown,
        PayloadMismatch,
        PipelineHalted,
        PolicyError,
        PolicyNotFoundWarning,
        Problem,
        RateLimited,
        Refused,
        ResultNotKept,
        ResultRejected,
        RetryError,
        RetryForbidden,
        SagaStuckError,
        SchemaValidationError,
        SinkError,
        StoredFailure,
        StoredValueError,
        StoreError,
        StoreUnavailable,
        UsageError,
        ValueTooLarge,
        WrapError,
    )
    from mainstay.runtime.context import Context, carry, carrying, context, current_context

__version__ = "0.1.0"

_HOMES = {
    "mainstay.runtime.context": ("Context", "carry", "carrying", "context", "current_context"),
    "mainstay.audit": ("AuditLog", "Verdict", "read_log", "verify_log"),
    "mainstay.audit.stream": ("AuditStream",),
    "mainstay.core.retry.backoff": ("Backoff", "Jitter"),
    "mainstay.core.circuit.breaker": ("CircuitState",),
    "mainstay.core.circuit.settings": ("BreakerSettings",),
    "mainstay.core.circuit.snapshot": ("CircuitSnapshot",),
    "mainstay.core.retry.classify": ("Classification",),
    "mainstay.core.retry.give_up": ("gave_up_headers",),
    "mainstay.core.retry.hooks": ("RetryInfo",),
    "mainstay.core.inbox.items": ("Item",),
    "mainstay.core.known.kind": ("Kind", "transient"),
    "mainstay.core.retry.policy": ("KindRule",),
    "mainstay.core.redact.redactor": ("Redactor",),
    "mainstay.core.circuit.window": ("Window",),
    "mainstay.drivers.call.blocks": ("Attempt", "Attempts"),
    "mainstay.drivers.guards.breaker": ("CircuitBreaker",),
    "mainstay.drivers.guards.budget": ("RetryBudget", "TokenBudget"),
    "mainstay.drivers.layers.bulkhead": ("Bulkhead",),
    "mainstay.drivers.guards.registry": ("CircuitRegistry", "HealthReport"),
    "mainstay.drivers.inbox.credentials": ("OperatorKey",),
    "mainstay.drivers.layers.fallback": ("Fallback",),
    "mainstay.drivers.layers.hedge": ("Hedge",),
    "mainstay.drivers.inbox.inbox": ("Inbox",),
    "mainstay.drivers.guards.throttle": ("AdaptiveThrottle", "MemoryGuard", "RateLimit"),
    "mainstay.drivers.inbox.operators": ("Operators",),
    "mainstay.drivers.policy": ("RetryPolicy",),
    "mainstay.drivers.call.result": ("RetryResult", "RetryStatistics"),
    "mainstay.drivers.decorated": ("Decorated",),
    "mainstay.drivers.retry": ("retry",),
    "mainstay.core.saga.context": ("SagaContext",),
    "mainstay.core.saga.definition": ("Saga", "SagaStep"),
    "mainstay.core.saga.view": ("SagaView",),
    "mainstay.drivers.saga.executor": ("SagaExecutor",),
    "mainstay.drivers.saga.outcome": ("SagaResult",),
    "mainstay.drivers.saga.recovery": ("Recovery",),
    "mainstay.drivers.saga.sagas": ("Sagas",),
    "mainstay.drivers.call.threads": ("abandoned_threads",),
    "mainstay.engine.engine": ("Engine",),
    "mainstay.engine.operations": ("KeyedOperation", "Operation"),
    "mainstay.engine.registry": ("PolicyRegistry",),
    "mainstay.errors": (
        "AttemptTimeout",
        "BulkheadFull",
        "CallAbandoned",
        "CallCancelled",
        "CallShed",
        "CircuitOpenError",
        "CommandFailed",
        "CommandKilled",
        "CommandNotRun",
        "CompensationFailedError",
        "ConfigError",
        "ConfigProblem",
        "ConfigWarning",
        "Conflict",
        "DeadlineExceeded",
        "DependencyError",
        "IdentityRefused",
        "LeaseLost",
        "MainstayError",
        "MainstayWarning",
        "MissingExtraError",
        "NestedRetryError",
        "NestedRetryWarning",
        "OutcomeUnknown",
        "PayloadMismatch",
        "FailFastError",
        "GovernanceBlocked",
        "GovernanceViolation",
        "ImmutabilityViolation",
        "LedgerError",
        "LicenseViolation",
        "LineageMismatch",
        "PipelineHalted",
        "RetryForbidden",
        "SchemaValidationError",
        "PolicyError",
        "PolicyNotFoundWarning",
        "Problem",
        "RateLimited",
        "Refused",
        "ResultNotKept",
        "ResultRejected",
        "RetryError",
        "SagaStuckError",
        "SinkError",
        "StoreError",
        "StoreUnavailable",
        "StoredFailure",
        "StoredValueError",
        "UsageError",
        "ValueTooLarge",
        "WrapError",
    ),
}
_MODULES = ("deadline", "events", "lease", "testing")
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AdaptiveThrottle",
    "Attempt",
    "AttemptTimeout",
    "Attempts",
    "AuditLog",
    "AuditStream",
    "Backoff",
    "BreakerSettings",
    "Bulkhead",
    "BulkheadFull",
    "CallAbandoned",
    "CallCancelled",
    "CallShed",
    "CircuitBreaker",
    "CircuitOpenError",
    "CircuitRegistry",
    "CircuitSnapshot",
    "CircuitState",
    "Classification",
    "CommandFailed",
    "CommandKilled",
    "CommandNotRun",
    "CompensationFailedError",
    "ConfigError",
    "ConfigProblem",
    "ConfigWarning",
    "Conflict",
    "Context",
    "DeadlineExceeded",
    "Decorated",
    "DependencyError",
    "Engine",
    "FailFastError",
    "Fallback",
    "GovernanceBlocked",
    "GovernanceViolation",
    "HealthReport",
    "Hedge",
    "IdentityRefused",
    "ImmutabilityViolation",
    "Inbox",
    "Item",
    "Jitter",
    "KeyedOperation",
    "Kind",
    "KindRule",
    "LeaseLost",
    "LedgerError",
    "LicenseViolation",
    "LineageMismatch",
    "MainstayError",
    "MainstayWarning",
    "MemoryGuard",
    "MissingExtraError",
    "NestedRetryError",
    "NestedRetryWarning",
    "Operation",
    "OperatorKey",
    "Operators",
    "OutcomeUnknown",
    "PayloadMismatch",
    "PipelineHalted",
    "PolicyError",
    "PolicyNotFoundWarning",
    "PolicyRegistry",
    "Problem",
    "RateLimit",
    "RateLimited",
    "Recovery",
    "Redactor",
    "Refused",
    "ResultNotKept",
    "ResultRejected",
    "RetryBudget",
    "RetryError",
    "RetryForbidden",
    "RetryInfo",
    "RetryPolicy",
    "RetryResult",
    "RetryStatistics",
    "Saga",
    "SagaContext",
    "SagaExecutor",
    "SagaResult",
    "SagaStep",
    "SagaStuckError",
    "SagaView",
    "Sagas",
    "SchemaValidationError",
    "SinkError",
    "StoreError",
    "StoreUnavailable",
    "StoredFailure",
    "StoredValueError",
    "TokenBudget",
    "UsageError",
    "ValueTooLarge",
    "Verdict",
    "Window",
    "WrapError",
    "abandoned_threads",
    "carry",
    "carrying",
    "context",
    "current_context",
    "deadline",
    "events",
    "gave_up_headers",
    "lease",
    "read_log",
    "retry",
    "testing",
    "transient",
    "verify_log",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"mainstay.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'mainstay' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


class _Moved:
    """Asked last for a module: pickles name modules that are gone (runtime/moved.py)."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        if not name.startswith("mainstay."):
            return None
        from mainstay.runtime.moved import spec_of

        return spec_of(name)


def _moved(module: str, name: str) -> object:
    """What a module of version 1 had, for a package that has its name now."""
    if name[:1].isupper() or name == "_rebuild":
        from mainstay.runtime.moved import found

        return found(module, name)
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


sys.meta_path.append(_Moved)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
