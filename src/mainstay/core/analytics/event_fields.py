"""The few fields of a recorded event that figures are made of, read without the rest.

Proofs, messages and what else an event holds are skipped by the decoder, which makes reading a
record cost about as much as looking at its bytes.
"""

from __future__ import annotations

import msgspec


class FirstAttempt(msgspec.Struct, frozen=True, gc=False):
    """The number of the first attempt of a call."""

    attempt: int = 1


class Beginning(msgspec.Struct, frozen=True, gc=False):
    """What the proof of the first event of a call adds."""

    opening: FirstAttempt | None = None


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
    proof: Beginning | None = None

    @property
    def attempts_before(self) -> int:
        """How many attempts of its key were made before a call, if this is its first event."""
        opening = self.proof.opening if self.proof is not None else None
        return 0 if opening is None else opening.attempt - 1


read_fact = msgspec.json.Decoder(Fact).decode
