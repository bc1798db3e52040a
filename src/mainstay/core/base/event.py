"""What every event carries.

An event is a fact in the past tense, frozen, with a version. Recorded versions are immutable: a
field is never renamed or given another meaning; new fields have a default, so that old records
decode for ever. `tests/core/events/recorded/` holds a record of every version there ever was.

An event is a class in `events.py` of its feature's folder, with its wording as `sentence` and its
name in `__all__` there. The decoder, `mainstay.events` and the log derive from that.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from mainstay.core.base.proof import Proof  # noqa: TC001  msgspec reads the annotation


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event_type", gc=False):
    """What every event carries.

    `attempt_number` in an event is the attempt that has just ended; `delay_seconds` the wait
    before the next one.

    >>> from mainstay.events import decode
    >>> decode(b'{"event_type":"call_succeeded","operation":"fetch","total_attempts":2}').operation
    'fetch'
    """

    version: int = 1
    operation: str = ""
    policy: str = ""
    call_id: str = ""
    retry_category: str | None = None
    tenant_id: str | None = None
    correlation_id: str | None = None
    trace_id: str | None = None
    timestamp: str = ""
    proof: Proof | msgspec.UnsetType = msgspec.UNSET
    """Set if a listener wants evidence; otherwise the record has no such field."""
    level: ClassVar[str] = "DEBUG"
    is_security: ClassVar[bool] = False
    """Whether it is about access or control: an operator, an order, a circuit that opens."""

    @property
    def event_type(self) -> str:
        """The event's name, as records spell it."""
        return str(type(self).__struct_config__.tag)

    @property
    def proved(self) -> Proof | None:
        """The proof, if there is one."""
        return self.proof or None

    @property
    def logged_at(self) -> str:
        """The level at which it is logged: its class's, unless the event decides otherwise."""
        return self.level

    def to_dict(self) -> dict[str, Any]:
        """The event as plain data, `event_type` first."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]

    def sentence(self) -> str:
        """The event as one line of a log; an event of its own wording overrides this."""
        return f"{self.operation}: {self.event_type}"
