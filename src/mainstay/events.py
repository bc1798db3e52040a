"""Events as listeners get them: the catalogue, and the codec of recorded ones.

>>> from mainstay import events
>>> sorted(events.CATALOGUE)[:2]
['attempt_failed', 'attempt_hedged']
"""

from __future__ import annotations

from mainstay.core.events import (
    CATALOGUE,
    AttemptFailed,
    AttemptHedged,
    CallFailed,
    CallInterrupted,
    CallRefused,
    CallsCounted,
    CallSucceeded,
    CircuitStateChanged,
    Event,
    FallbackUsed,
    HookFailed,
    Idempotency,
    PlanDeclared,
    RetryAttempt,
    RetryExhausted,
    decode,
    encode,
)

__all__ = [
    "CATALOGUE",
    "AttemptFailed",
    "AttemptHedged",
    "CallFailed",
    "CallInterrupted",
    "CallRefused",
    "CallSucceeded",
    "CallsCounted",
    "CircuitStateChanged",
    "Event",
    "FallbackUsed",
    "HookFailed",
    "Idempotency",
    "PlanDeclared",
    "RetryAttempt",
    "RetryExhausted",
    "decode",
    "encode",
]
