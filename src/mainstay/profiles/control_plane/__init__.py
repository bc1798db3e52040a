"""The front door for a control plane on NATS: its categories, policies and two managers.

Each thing has a module: `categories`, `policies` with the matrix, `idempotency` with the results by
key, `manager`, which runs operations on an engine, and `nats`, a client whose operations it runs.
"""

from __future__ import annotations

from mainstay.errors import RetryError
from mainstay.profiles.control_plane.categories import RetryCategory
from mainstay.profiles.control_plane.idempotency import Hit, IdempotencyManager
from mainstay.profiles.control_plane.manager import (
    RetryManager,
    audit_stream,
    calculate_avg_attempts,
    calculate_success_rate,
    get_retry_manager,
)
from mainstay.profiles.control_plane.nats import NatsClient
from mainstay.profiles.control_plane.policies import POLICIES, RetryPolicy

__all__ = [
    "POLICIES",
    "Hit",
    "IdempotencyManager",
    "NatsClient",
    "RetryCategory",
    "RetryError",
    "RetryManager",
    "RetryPolicy",
    "audit_stream",
    "calculate_avg_attempts",
    "calculate_success_rate",
    "get_retry_manager",
]
