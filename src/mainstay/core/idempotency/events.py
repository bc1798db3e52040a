"""Events of idempotency records."""

from __future__ import annotations

from mainstay.core.base.event import Event

__all__ = ["Idempotency"]


class Idempotency(Event, frozen=True, kw_only=True, tag="idempotency"):
    """An idempotency record was hit or written (`action` is "hit" or "record").

    >>> Idempotency(action="hit", idempotency_key="abc").event_type
    'idempotency'
    """

    idempotency_key: str = ""
    action: str = ""

    def sentence(self) -> str:
        wording = (
            "its outcome is kept under"
            if self.action == "record"
            else "answered from the record of"
        )
        return f"{self.operation}: {wording} the key {self.idempotency_key!r}"
