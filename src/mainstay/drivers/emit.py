"""Brings events to those who listen. A listener that raises is reported and changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec.structs import force_setattr

import mainstay.clock as clock
from mainstay.ambient import CONTEXT
from mainstay.core.events import Teller

if TYPE_CHECKING:
    from mainstay.core.events import Event
    from mainstay.core.redact import Redactor
    from mainstay.drivers.site import Site
    from mainstay.ports import Sink


def teller_for(site: Site, started: float) -> Teller:
    """The teller of one call, with the context it is made in."""
    context = CONTEXT.get()
    return Teller(
        site,
        started,
        category=context.category,
        tenant_id=context.tenant_id,
        correlation_id=context.correlation_id,
        trace_id=context.trace_id,
    )


def emit(event: Event, listeners: tuple[Sink, ...], redact: Redactor | None = None) -> None:
    """Stamps the event and tells every listener."""
    force_setattr(event, "timestamp", _stamp())
    for listener in listeners:
        try:
            listener(event)
        except Exception as trouble:
            from mainstay.drivers.report import report

            message = "a listener raised on %s and was passed over"
            report(trouble, message, event.event_type, redact=redact)


def _stamp() -> str:
    """The wall clock's time; empty where the clock has left the calendar."""
    try:
        wall = datetime.fromtimestamp(clock.current.wall(), UTC)
    except (OSError, OverflowError, ValueError):
        return ""
    return wall.isoformat().replace("+00:00", "Z")
