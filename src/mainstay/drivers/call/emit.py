"""Sends events to listeners. A listener that raises is reported and changes nothing.

Only SinkError reaches the caller: with a strict sink a call fails rather than go on unrecorded.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from msgspec.structs import force_setattr

import mainstay.runtime.clock as clock
from mainstay.core.base.proof import Opening
from mainstay.core.base.timestamps import stamp
from mainstay.core.events.builder import EventBuilder
from mainstay.drivers.call.guard import label_of
from mainstay.errors import SinkError
from mainstay.ports import wants_evidence_now
from mainstay.runtime.context import CONTEXT
from mainstay.runtime.plan_registry import register

if TYPE_CHECKING:
    from typing import Any

    from mainstay.core.base.event import Event
    from mainstay.core.redact.redactor import Redactor
    from mainstay.drivers.call.site import Site
    from mainstay.ports import Sink


_ITEM_ID: ContextVar[str | None] = ContextVar("mainstay_item_id", default=None)


def keep_item_id(item_id: str) -> None:
    """Keeps the id of the inbox item that a listener raises for the event at hand."""
    _ITEM_ID.set(item_id)


def take_item_id() -> str | None:
    """The id that was kept since the last call of this function."""
    item_id = _ITEM_ID.get()
    if item_id is not None:
        _ITEM_ID.set(None)
    return item_id


def builder_for(
    site: Site, started: float, listeners: tuple[Sink, ...], opening: tuple[Any, ...]
) -> EventBuilder:
    """The event builder of one call; it keeps proof if a listener wants evidence."""
    context = CONTEXT.get()
    wanted = site.is_clocked or wants_evidence_now(listeners)
    return EventBuilder(
        site,
        started,
        category=context.category,
        tenant_id=context.tenant_id,
        correlation_id=context.correlation_id,
        trace_id=context.trace_id,
        opening=Opening(*opening) if wanted else None,
        plan_id=plan_of(site) if wanted else "",
    )


def plan_of(site: Site) -> str:
    """The number of a site's plan, which is declared if it is new."""
    if site.plan_id is None:
        guards = () if site.gate is None else site.gate.guards
        rules = tuple((label_of(each), each.rule) for each in guards)
        site.plan_id = register(site.policy, site.idempotency, rules)
    return site.plan_id


def emit(event: Event, listeners: tuple[Sink, ...], redact: Redactor | None = None) -> None:
    """Stamps the event and sends it to every listener; raises the SinkError of a strict one."""
    force_setattr(event, "timestamp", stamp(clock.current.wall()))
    refusal: SinkError | None = None
    for listener in listeners:
        try:
            listener(event)
        except SinkError as error:
            refusal = error  # the others receive it all the same
        except Exception as error:
            from mainstay.runtime.reports.report_failure import report

            message = "a listener raised on %s and was passed over"
            report(error, message, event.event_type, redact=redact)
    if refusal is not None:
        raise refusal
