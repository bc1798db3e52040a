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
from mainstay.core.retry.events import CallInterrupted
from mainstay.drivers.call.guard import label_of
from mainstay.drivers.call.site import LONG
from mainstay.errors import SinkError
from mainstay.ports import wants_evidence_now
from mainstay.runtime.context import CONTEXT, NO_CONTEXT
from mainstay.runtime.enclosing import SENDING
from mainstay.runtime.plan_registry import register
from mainstay.runtime.reports.deferred_events import Facts
from mainstay.runtime.reports.levels import is_wanted
from mainstay.runtime.reports.logs import LEVELS, LOGS, QUIET

if TYPE_CHECKING:
    from typing import Any, TypeVar

    from mainstay.core.base.event import Event
    from mainstay.core.redact.redactor import Redactor
    from mainstay.core.retry.classify import Classification
    from mainstay.drivers.call.site import Site
    from mainstay.ports import Sink
    from mainstay.runtime.reports.logs import Way

    R = TypeVar("R")


_DEBUG, _INFO, _ERROR = LEVELS["DEBUG"], LEVELS["INFO"], LEVELS["ERROR"]
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


def builder_for(site: Site, started: float, opening: tuple[Any, ...] | None) -> EventBuilder:
    """The event builder of one call; with an opening it keeps proof."""
    who = CONTEXT.get()
    opened, plan_id = (None, "") if opening is None else (Opening(*opening), plan_of(site))
    return EventBuilder(
        site, started, opened, plan_id, "", who.category, who.tenant_id, who.correlation_id,
        who.trace_id,
    )  # fmt: skip


def plan_of(site: Site) -> str:
    """The number of a site's plan, which is declared if it is new."""
    if site.plan_id is None:
        guards = () if site.gate is None else site.gate.guards
        rules = tuple((label_of(each), each.rule) for each in guards)
        site.plan_id = register(site.policy, site.idempotency, rules)
    return site.plan_id


class Notes(EventBuilder):
    """What a call on the fast path keeps for its listeners.

    Those that take facts receive them once, when it ends. The others receive each event when it
    happens, if they want it; the builder of the flow makes them, so they are the same events. What
    the core decides on the way is passed in: whether another attempt comes, and after which delay.
    One object is both, since to make two for each failing call costs as much as an event.
    """

    __slots__ = (
        "_facts",
        "_key",
        "_levelled",
        "_listeners",
        "_made",
        "_shown",
        "_site",
        "_starts",
        "by_type",
        "verdict",
    )  # fmt: skip

    def __init__(
        self,
        site: Site,
        key: int,
        started: float | None,
        listeners: tuple[Sink, ...],
        levelled: tuple[Way, ...],
    ) -> None:
        began, who = clock.current.monotonic() if started is None else started, CONTEXT.get()
        opening, plan_id = None, ""
        if (site.may_want_evidence or levelled) and wants_evidence_now(listeners, levelled):
            opening, plan_id = Opening(), plan_of(site)
        EventBuilder.__init__(self, site, began, opening, plan_id, f"{key:x}")
        if who is not NO_CONTEXT:
            self.make_for(who.category, who.tenant_id, who.correlation_id, who.trace_id)
        self._site, self._key, self._starts = site, key, started
        self._listeners, self._levelled = listeners, levelled
        """Who is yet to receive events; nobody once the call has ended or the flow goes on."""
        self._made, self._shown = 1, 0
        self.verdict: Classification | None = None
        """The classification of the last failure, by the core."""
        self._facts: Facts | None = None
        self.by_type = False
        if site.takers:
            self._facts = Facts(site, site.plan_id or plan_of(site), key, began, who, [])
            self.by_type = True

    def failed(self, failure: BaseException, delay: float = 0.0) -> None:
        """An attempt has failed; the next one comes after the delay, or none below zero."""
        site, to, levelled, made = self._site, self._listeners, self._levelled, self._made
        facts, verdict = self._facts, self.verdict
        wall = clock.current.wall() if facts is None else facts.failed(failure, self._starts, delay)
        if delay >= LONG and site.waits is not None:
            self._shown = site.waits.show(site, made, failure, delay)
        if not to:
            return
        assert verdict is not None
        policy = site.policy
        if made > 1 and facts is not None:  # the clock may have been set since the first failure
            wall = clock.current.wall()
        self.at = stamp(wall)
        failed: Event | None = None
        event: Event | None = None
        before = to
        if levelled:
            loud = LEVELS[policy.log_level] if delay >= 0.0 else _ERROR
            before, to = wanted_both(to, levelled, loud)
        if before:
            starts = self._starts
            self.took = None if starts is None else clock.current.monotonic() - starts
            failed = self.attempt_failed(failure, verdict, made, policy.max_attempts, self._key)
        if to:
            now = 0.0 if delay >= 0.0 else clock.current.monotonic()
            event = self.next_step(failure, verdict, made, delay, self._key, now)
            if failed is not None and before is to:
                _send((failed, event), to, site.redact, site, failure)
                return
        if failed is not None:
            _send((failed,), before, site.redact, site, failure)
        if event is not None:
            _send((event,), to, site.redact, site, failure)

    def waited(self) -> None:
        """The next attempt starts now."""
        self._starts = clock.current.monotonic()
        self._made += 1
        if self._shown:
            self._end_wait()

    def _end_wait(self) -> None:
        assert self._site.waits is not None
        self._site.waits.end(self._shown)
        self._shown = 0

    def returned(self, value: R) -> R:
        """The call has succeeded, after retries."""
        facts, to, levelled, site = self._facts, self._listeners, self._levelled, self._site
        if facts is not None:
            facts.ended = clock.current.monotonic()
        self._listeners = ()
        for asks, log, _ in levelled:  # as `wanted` does, without a call
            if not asks(_INFO):
                to = () if to == (log,) else tuple([each for each in to if each is not log])
        if to:
            self.at = stamp(clock.current.wall())
            event = self.call_succeeded(self._made, clock.current.monotonic())
            _send((event,), to, site.redact, site)
        return value

    def end_here(self, failure: BaseException) -> tuple[float | None, float | None]:
        """Hands over to a Call; returns when the call and its last attempt began."""
        self._listeners = ()
        try:
            self.close()
        except BaseException as stop:  # a SinkError, or Ctrl+C
            stop.__context__ = failure
            raise
        if self._starts is None:  # the first attempt failed, and nobody had asked for its start
            return None, None
        return self.started, self._starts

    def close(self, stop: BaseException | None = None) -> None:
        """Hands the facts over; emits that the call was interrupted, if that stops it."""
        if self._shown:
            self._end_wait()
        by = "" if stop is None or isinstance(stop, Exception) else type(stop).__name__
        facts, self._facts = self._facts, None
        if facts is not None and facts.attempts:
            facts.made = self._made
            if by:
                facts.by, facts.ended = by, clock.current.monotonic()
            self._hand_over(facts)
        if by and (to := self._listeners):
            site, self._listeners = self._site, ()
            if listeners := wanted(to, self._levelled, _INFO):
                self.at = stamp(clock.current.wall())
                event = self.call_interrupted(self._made, by)
                _send((event,), listeners, site.redact, site)

    def _hand_over(self, facts: Facts) -> None:
        refusal: SinkError | None = None
        for listener in self._site.takers:
            try:
                listener.take(facts)  # type: ignore[attr-defined]
            except SinkError as error:
                refusal = error  # as below: the others receive it all the same
            except Exception as error:
                from mainstay.runtime.reports.report_failure import report

                message = "a listener raised on the facts of %s and was passed over"
                report(error, message, facts.plan.operation, redact=facts.plan.redact)
        if refusal is not None:
            raise refusal


def succeeded(site: Site, started: float) -> None:
    """Emits that a first attempt has succeeded, where a listener wants that."""
    if listeners := _first_listeners(site, "DEBUG"):
        builder = _first_builder(site, started, listeners)
        event = builder.call_succeeded(1, clock.current.monotonic())
        _send((event,), listeners, site.redact, site)


def interrupted(site: Site, started: float, stop: BaseException) -> None:
    """Emits that a first attempt was cut off, where a listener wants its success too."""
    if listeners := _first_listeners(site, CallInterrupted.level):
        builder = _first_builder(site, started, listeners)
        event = builder.call_interrupted(1, type(stop).__name__)
        _send((event,), listeners, site.redact, site)


def _first_builder(site: Site, started: float, listeners: tuple[Sink, ...]) -> EventBuilder:
    wants_evidence = site.is_clocked or wants_evidence_now(listeners)
    builder = builder_for(site, started, () if wants_evidence else None)
    builder.at = stamp(clock.current.wall())
    return builder


def _first_listeners(site: Site, level: str) -> tuple[Sink, ...]:
    """Who receives an event of a call that ended with its first attempt."""
    listeners = (*site.listeners, *site.overrides.listeners)
    if LOGS.root.handlers or LOGS.own.handlers != QUIET:
        listeners = (*listeners, *site.logs.listeners)
    if not site.levelled and not site.logs.ways:
        return listeners
    return tuple([each for each in listeners if is_wanted(each, level)])


def wanted(listeners: tuple[Sink, ...], levelled: tuple[Way, ...], level: int) -> tuple[Sink, ...]:
    """Those that want an event of that level now: a log may be off, or set to a higher one."""
    for asks, log, _ in levelled:
        if not asks(level):
            if listeners == (log,):  # that log alone; to go through a list is a frame
                return ()
            listeners = tuple([each for each in listeners if each is not log])
    return listeners


def wanted_both(
    listeners: tuple[Sink, ...], levelled: tuple[Way, ...], level: int
) -> tuple[tuple[Sink, ...], tuple[Sink, ...]]:
    """Those that want an event at DEBUG, and those that want one of that level."""
    before = listeners
    for asks, log, _ in levelled:
        if not asks(_DEBUG):
            is_alone = before == (log,)
            before = () if is_alone else tuple([each for each in before if each is not log])
        if not asks(level):
            is_alone = listeners == (log,)
            listeners = () if is_alone else tuple([each for each in listeners if each is not log])
    return before, listeners


def emit(event: Event, listeners: tuple[Sink, ...], redact: Redactor | None = None) -> None:
    """Stamps the event and sends it to every listener; raises the SinkError of a strict one."""
    force_setattr(event, "timestamp", stamp(clock.current.wall()))
    _send((event,), listeners, redact)


def _send(
    events: tuple[Event, ...],
    listeners: tuple[Sink, ...],
    redact: Redactor | None,
    site: Site | None = None,  # noqa: ARG001 -- for what looks at this frame
    failure: BaseException | None = None,
) -> None:
    """Sends events of one moment to those that want them, one after the other.

    With a site, what a listener calls runs beside the attempts of its call, which is found by a
    wrapper: runtime/enclosing.py knows this frame.
    """
    try:
        for event in events:
            refusal: SinkError | None = None
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


SENDING.append(_send.__code__)


def _passed_over(error: Exception, event: Event, redact: Redactor | None) -> None:
    from mainstay.runtime.reports.report_failure import report

    message = "a listener raised on %s and was passed over"
    report(error, message, event.event_type, redact=redact)
