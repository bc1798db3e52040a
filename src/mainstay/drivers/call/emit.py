"""Sends events to listeners. A listener that raises is reported and changes nothing.

Only SinkError reaches the caller: with a strict sink a call fails rather than go on unrecorded.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING

from msgspec.structs import force_setattr

import mainstay.runtime.clock as clock
from mainstay.core.base.deadline import NEVER
from mainstay.core.base.proof import Opening
from mainstay.core.base.timestamps import stamp
from mainstay.core.events.builder import EventBuilder
from mainstay.core.retry.classify import classify
from mainstay.core.retry.effects import EXHAUSTED, NOT_RETRYABLE
from mainstay.core.retry.events import AttemptFailed, CallInterrupted, CallSucceeded, GivenUp
from mainstay.drivers.call.guard import label_of
from mainstay.errors import SinkError
from mainstay.ports import wants_evidence_now
from mainstay.runtime.context import CONTEXT, NO_CONTEXT
from mainstay.runtime.enclosing import OPEN, Enclosure, aside
from mainstay.runtime.plan_registry import register
from mainstay.runtime.reports.logs import LOGS, QUIET

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
    opened, plan_id = None, ""
    if site.is_clocked or wants_evidence_now(listeners):
        opened, plan_id = Opening(*opening), plan_of(site)
    if context is NO_CONTEXT:
        return EventBuilder(site, started, opening=opened, plan_id=plan_id)
    return EventBuilder(
        site,
        started,
        category=context.category,
        tenant_id=context.tenant_id,
        correlation_id=context.correlation_id,
        trace_id=context.trace_id,
        opening=opened,
        plan_id=plan_id,
    )


def plan_of(site: Site) -> str:
    """The number of a site's plan, which is declared if it is new."""
    if site.plan_id is None:
        guards = () if site.gate is None else site.gate.guards
        rules = tuple((label_of(each), each.rule) for each in guards)
        site.plan_id = register(site.policy, site.idempotency, rules)
    return site.plan_id


class Emitter(Enclosure):
    """Emits the events of a call on the fast path: each when it happens, if a listener wants it.

    The same builder makes them as for the flow, so they are the same events. What the core decides
    on the way is passed in: whether another attempt comes, and after which delay. It also stands
    for what runs beside the attempts: what a listener calls is not inside one.
    """

    __slots__ = ("_builder", "_has_logs", "_key", "_listeners", "_site")

    def __init__(
        self, site: Site, listeners: tuple[Sink, ...], has_logs: bool, key: int, began: float
    ) -> None:
        self.plan, self.end, self.is_repeat, self.retries = site, NEVER, True, False
        self.frame, self.number = None, 0
        self._site, self._listeners, self._key = site, listeners, key
        self._has_logs = has_logs
        self._builder = builder_for(site, began, listeners, ())
        self._builder.identify(key)

    def failed(self, failure: BaseException, made: int, starts: float | None, delay: float) -> None:
        """An attempt has failed; the next one comes after the delay, or none below zero."""
        builder, every, policy = self._builder, self._listeners, self._site.policy
        verdict, most = classify(failure, policy._rules), policy.max_attempts  # noqa: SLF001
        emitted: list[tuple[Event, tuple[Sink, ...]]] = []
        if listeners := wanted(every, AttemptFailed.level) if self._has_logs else every:
            builder.took = None if starts is None else clock.current.monotonic() - starts
            event = builder.attempt_failed(failure, verdict, made, most, self._key)
            emitted.append((event, listeners))
        if delay < 0.0:
            if listeners := wanted(every, GivenUp.level) if self._has_logs else every:
                stop = EXHAUSTED if verdict.retryable else NOT_RETRYABLE
                now = clock.current.monotonic()
                emitted.append((builder.gave_up(failure, verdict, made, stop, now), listeners))
        elif listeners := wanted(every, policy.log_level) if self._has_logs else every:
            event = builder.retry_scheduled(failure, verdict, made, most, delay, self._key)
            emitted.append((event, listeners))
        if emitted:
            _send(emitted, self._site.redact, self, failure)

    def returned(self, made: int) -> None:
        """The call has succeeded, after retries."""
        every = self._listeners
        if listeners := wanted(every, CallSucceeded.level) if self._has_logs else every:
            event = self._builder.call_succeeded(made, clock.current.monotonic())
            _send([(event, listeners)], self._site.redact, self)

    def cut_off(self, made: int, by: str) -> None:
        """The call was interrupted."""
        if listeners := wanted(self._listeners, CallInterrupted.level):
            event = self._builder.call_interrupted(made, by)
            _send([(event, listeners)], self._site.redact, self)


def succeeded(site: Site, started: float) -> None:
    """Emits that a first attempt has succeeded, where a listener wants that."""
    if listeners := _first_listeners(site, "DEBUG"):
        builder = builder_for(site, started, listeners, ())
        _emit_beside(site, builder.call_succeeded(1, clock.current.monotonic()), listeners)


def interrupted(site: Site, started: float, stop: BaseException) -> None:
    """Emits that a first attempt was cut off, where a listener wants its success too."""
    if listeners := _first_listeners(site, CallInterrupted.level):
        builder = builder_for(site, started, listeners, ())
        _emit_beside(site, builder.call_interrupted(1, type(stop).__name__), listeners)


def _first_listeners(site: Site, level: str) -> tuple[Sink, ...]:
    """Who receives an event of a call that ended with its first attempt."""
    listeners = (*site.listeners, *site.overrides.listeners)
    if LOGS.root.handlers or LOGS.own.handlers != QUIET:
        listeners += site.logs.listeners
    return wanted(listeners, level)


def _emit_beside(site: Site, event: Event, listeners: tuple[Sink, ...]) -> None:
    """Emits an event; what a listener calls runs beside the attempts."""
    with aside(site, NEVER):
        emit(event, listeners, site.redact)


def wanted(listeners: tuple[Sink, ...], level: str) -> tuple[Sink, ...]:
    """Those that want an event of that level now: a log may be off, or set to a higher one."""
    kept = listeners
    for listener in listeners:
        is_enabled = getattr(listener, "is_enabled", None)
        if is_enabled is not None and not is_enabled(level):
            if kept == (listener,):
                return ()
            kept = tuple([each for each in kept if each is not listener])
    return kept


def emit(event: Event, listeners: tuple[Sink, ...], redact: Redactor | None = None) -> None:
    """Stamps the event and sends it to every listener; raises the SinkError of a strict one."""
    _send([(event, listeners)], redact)


def _send(
    emitted: list[tuple[Event, tuple[Sink, ...]]],
    redact: Redactor | None,
    beside: Enclosure | None = None,
    failure: BaseException | None = None,
) -> None:
    """Stamps events of one moment, and sends each to its listeners.

    What a listener calls runs beside the attempts, if that is not arranged already.
    """
    frame, time = sys._getframe(), stamp(clock.current.wall())
    if beside is not None:
        OPEN[frame] = beside
    try:
        for event, listeners in emitted:
            refusal: SinkError | None = None
            force_setattr(event, "timestamp", time)
            for listener in listeners:
                try:
                    listener(event)
                except SinkError as error:
                    refusal = error  # the others receive it all the same
                except Exception as error:
                    _passed_over(error, event, redact)
            if refusal is not None:
                raise refusal
    except SinkError as error:
        if failure is not None:
            error.__context__ = failure
        raise
    finally:
        if beside is not None:
            del OPEN[frame]
        del frame


def _passed_over(error: Exception, event: Event, redact: Redactor | None) -> None:
    from mainstay.runtime.reports.report_failure import report

    message = "a listener raised on %s and was passed over"
    report(error, message, event.event_type, redact=redact)
