"""Events as listeners get them: the catalogue, and the codec of recorded ones.

>>> from mainstay import events
>>> sorted(events.CATALOGUE)[:2]
['alert_cleared', 'alert_fired']
"""

from __future__ import annotations

from mainstay.core.events.catalogue import (
    CATALOGUE,
    AlertCleared,
    AlertFired,
    AttemptFailed,
    AttemptHedged,
    CallFailed,
    CallInterrupted,
    CallRefused,
    CallsCounted,
    CallSucceeded,
    CircuitOrdered,
    CircuitStateChanged,
    Event,
    FallbackUsed,
    HookFailed,
    Idempotency,
    InboxClosed,
    InboxDecided,
    InboxRaised,
    OperatorAdded,
    OperatorChanged,
    OperatorRefused,
    PlanDeclared,
    RetryAttempt,
    RetryExhausted,
    decode,
    encode,
)

__all__ = [
    "CATALOGUE",
    "AlertCleared",
    "AlertFired",
    "AttemptFailed",
    "AttemptHedged",
    "CallFailed",
    "CallInterrupted",
    "CallRefused",
    "CallSucceeded",
    "CallsCounted",
    "CircuitOrdered",
    "CircuitStateChanged",
    "Event",
    "FallbackUsed",
    "HookFailed",
    "Idempotency",
    "InboxClosed",
    "InboxDecided",
    "InboxRaised",
    "OperatorAdded",
    "OperatorChanged",
    "OperatorRefused",
    "PlanDeclared",
    "RetryAttempt",
    "RetryExhausted",
    "decode",
    "encode",
]
