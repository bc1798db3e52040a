"""Events as listeners get them: the catalogue, and the codec of recorded ones.

>>> from mainstay import events
>>> sorted(events.CATALOGUE)[:2]
['attempt_failed', 'call_failed']
"""

from __future__ import annotations

from mainstay.core.events import (
    CATALOGUE,
    AttemptFailed,
    CallFailed,
    CallInterrupted,
    CallSucceeded,
    Event,
    HookFailed,
    Idempotency,
    RetryAttempt,
    RetryExhausted,
    decode,
    encode,
)

__all__ = [
    "CATALOGUE",
    "AttemptFailed",
    "CallFailed",
    "CallInterrupted",
    "CallSucceeded",
    "Event",
    "HookFailed",
    "Idempotency",
    "RetryAttempt",
    "RetryExhausted",
    "decode",
    "encode",
]
