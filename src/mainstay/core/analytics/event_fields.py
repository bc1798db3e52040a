"""The few fields of a recorded event that figures are made of, read without the rest.

Proofs, messages and what else an event holds are skipped by the decoder, which makes reading a
record cost about as much as looking at its bytes.
"""

from __future__ import annotations

import msgspec


class Fact(msgspec.Struct, frozen=True, gc=False):
    """What the figures need of any event; a field that an event does not have is empty.

    >>> read_fact(b'{"event_type":"retry_attempt","delay_seconds":0.5,"proof":{}}').delay_seconds
    0.5
    """

    event_type: str = ""
    operation: str = ""
    retry_category: str | None = None
    tenant_id: str | None = None
    call_id: str = ""
    timestamp: str = ""
    attempt_number: int = 0
    total_attempts: int = 0
    delay_seconds: float = 0.0
    reason: str = ""
    by: str = ""
    calls: int = 0
    records: int = 0
    from_state: str = ""
    to_state: str = ""


read_fact = msgspec.json.Decoder(Fact).decode
