"""Events of idempotency records."""

from __future__ import annotations

from mainstay.core.base.event import Event

__all__ = ["Idempotency"]


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
