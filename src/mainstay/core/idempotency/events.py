"""Events of idempotency records."""

from __future__ import annotations

from typing import ClassVar

from mainstay.core.base.event import Event

__all__ = ["Idempotency", "LeaseExpired"]


class Idempotency(Event, frozen=True, kw_only=True, tag="idempotency"):
    """An idempotency record was hit or written.

    `action` is "hit", "record", or "not_kept" if the call was recorded without its result.

    >>> Idempotency(action="hit", idempotency_key="abc").event_type
    'idempotency'
    """

    idempotency_key: str = ""
    action: str = ""

    def sentence(self) -> str:
        wording = _WORDING.get(self.action, "answered from the record of")
        return f"{self.operation}: {wording} the key {self.idempotency_key!r}"


_WORDING = {
    "record": "its outcome is kept under",
    "not_kept": "it was done, and its result is not kept under",
}


class LeaseExpired(Event, frozen=True, kw_only=True, tag="lease_expired"):
    """The lease of a keyed call ran out while its function was running.

    Another call may run with the same key from now on; if `taken`, one has taken over.

    >>> LeaseExpired(idempotency_key="abc", lease=30.0).event_type
    'lease_expired'
    """

    level: ClassVar[str] = "WARNING"
    idempotency_key: str = ""
    lease: float = 0.0
    taken: bool = False

    def sentence(self) -> str:
        then = "another call has taken over" if self.taken else "another call may take over"
        return (
            f"{self.operation}: the lease of {self.lease:g} s of the key {self.idempotency_key!r}"
            f" ran out while it ran; {then}"
        )
