"""The spans of one call: one for the call, one for each attempt, and what is put on them.

An attempt's span is the current one while the attempt runs, so that spans of the user's own and of
instrumented libraries are its children. Names are those of the semantic conventions if there are
any (`error.type`, `exception.*`, `http.*`), and begin with `mainstay.` otherwise. Ids may stand in
a span.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import mainstay.events as events
from mainstay.core.known.http import status_of
from mainstay.core.retry.effects import Returned
from mainstay.errors import MissingExtraError
from mainstay.runtime.context import CONTEXT

try:
    from opentelemetry import context as otel
    from opentelemetry import trace
    from opentelemetry.trace import (
        INVALID_SPAN,
        Link,
        NonRecordingSpan,
        SpanContext,
        Status,
        StatusCode,
    )
except ImportError:
    raise MissingExtraError("opentelemetry-api", "otel") from None

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from opentelemetry.trace import Span, Tracer

    from mainstay.core.retry.events import GivenUp
    from mainstay.core.retry.plan import Plan
    from mainstay.runtime.context import Context


class CallTrace:
    """The spans of one call; receives its attempts from the drivers, and its events."""

    __slots__ = (
        "_attempt", "_attempts", "_call", "_count", "_inside", "_operation", "_token", "_tracer",
    )  # fmt: skip

    def __init__(self, tracer: Tracer, plan: Plan, count: Callable[[Any], object]) -> None:
        context = CONTEXT.get()
        parent, links = _origin(context.trace_id)
        self._call: Span = INVALID_SPAN
        self._attempt: Span | None = None
        self._tracer = tracer
        self._count = count
        self._operation = plan.operation
        self._call = tracer.start_span(
            plan.operation, parent, links=links, attributes=_attributes(plan, context)
        )
        self._inside = trace.set_span_in_context(self._call, parent)
        self._attempts = 0
        self._token: Any = None

    def attempt_began(self, number: int) -> None:
        """Starts an attempt's span, and makes it the current one."""
        self._attempts = number
        attributes: dict[str, Any] = {
            "mainstay.operation": self._operation,
            "mainstay.attempt": number,
        }
        name = f"{self._operation} attempt"
        self._attempt = self._tracer.start_span(name, self._inside, attributes=attributes)
        here = trace.set_span_in_context(self._attempt, self._inside)
        self._token = (here, otel.attach(here))

    def attempt_ended(self, outcome: object) -> None:
        """The attempt's span is the current one no more; the event that follows ends it."""
        self._detach()
        status = _http_status(outcome)
        if status is not None and self._attempt is not None:
            self._attempt.set_attribute("http.response.status_code", status)
            if self._attempts > 1:
                self._attempt.set_attribute("http.request.resend_count", self._attempts - 1)

    def __call__(self, event: Any) -> None:
        """Counts the event, and puts it on the span it belongs to."""
        try:
            handle = _HANDLERS.get(type(event))
            if handle is not None:
                handle(self, event)
        finally:
            self._count(event)

    def call_ended(self) -> None:
        """Ends the spans that are still open."""
        self._detach()
        self._end_attempt()
        self._end_call()

    def __del__(self) -> None:  # a block that was left and never came to an end
        with suppress(Exception):
            self._end_attempt()
            self._end_call()

    def _detach(self) -> None:
        token, self._token = self._token, None
        # A coroutine may be closed in another context than it ran in: there is nothing to undo.
        if token is not None and otel.get_current() is token[0]:
            otel.detach(token[1])

    def _end_call(self) -> None:
        if self._call.is_recording():
            self._call.end()

    def _end_attempt(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.end()

    def attempt_failed(self, e: events.AttemptFailed) -> None:
        """Ends the attempt's span as failed."""
        self._call.set_attribute("mainstay.call_id", e.call_id)
        if self._attempt is not None:
            self._attempt.set_attribute("mainstay.kind", e.kind)
            self._attempt.set_attribute("mainstay.reason", e.reason)
            _fail(self._attempt, e.exception_type, e.exception_message)
        self._end_attempt()

    def retry_scheduled(self, e: events.RetryAttempt) -> None:
        """Notes the retry, with its delay, on the call's span."""
        names = ("attempt_number", "max_attempts", "delay_seconds", "kind", "exception_type")
        self._call.add_event(e.event_type, attributes_of(e, names))

    def hook_failed(self, e: events.HookFailed) -> None:
        """Notes the hook on the call's span."""
        names = ("hook", "exception_type", "exception_message")
        self._call.add_event(e.event_type, attributes_of(e, names))

    def succeeded(self, e: events.CallSucceeded) -> None:
        """Ends the spans."""
        self._ended("success", e.total_attempts)

    def gave_up(self, e: GivenUp) -> None:
        """Ends the call's span as failed."""
        is_exhausted = type(e) is events.RetryExhausted
        self._call.set_attribute("mainstay.kind", e.kind)
        self._call.set_attribute("mainstay.reason", e.reason)
        _fail(self._call, e.final_exception_type, e.final_exception_message)
        self._ended("exhausted" if is_exhausted else "failed", e.total_attempts)

    def refused(self, e: events.CallRefused) -> None:
        """Ends the call's span as failed: no attempt was made."""
        _fail(self._call, e.by, e.reason)
        self._ended("refused", 0)

    def interrupted(self, e: events.CallInterrupted) -> None:
        """Cut off from outside: that is no error of what was called."""
        self._call.set_attribute("mainstay.cancelled_by", e.by)
        if self._attempt is not None:
            self._attempt.set_attribute("mainstay.outcome", "cancelled")
        self._ended("cancelled", e.total_attempts)

    def _ended(self, outcome: str, attempts: int) -> None:
        self._end_attempt()
        self._call.set_attribute("mainstay.outcome", outcome)
        self._call.set_attribute("mainstay.attempts", attempts)
        self._end_call()


_HANDLERS: dict[type[events.Event], Callable[[CallTrace, Any], None]] = {
    events.AttemptFailed: CallTrace.attempt_failed,
    events.RetryAttempt: CallTrace.retry_scheduled,
    events.HookFailed: CallTrace.hook_failed,
    events.CallSucceeded: CallTrace.succeeded,
    events.CallFailed: CallTrace.gave_up,
    events.RetryExhausted: CallTrace.gave_up,
    events.CallRefused: CallTrace.refused,
    events.CallInterrupted: CallTrace.interrupted,
}
"""What an event of a call does to its spans."""


def _attributes(plan: Plan, context: Context) -> dict[str, str]:
    """What is known of a call when it begins."""
    given = {
        "mainstay.operation": plan.operation,
        "mainstay.policy": plan.policy.name,
        "mainstay.tenant_id": context.tenant_id,
        "mainstay.correlation_id": context.correlation_id,
        "mainstay.trace_id": context.trace_id,
        "mainstay.retry_category": context.category,
    }
    return {name: value for name, value in given.items() if value is not None}


def _origin(trace_id: str | None) -> tuple[Any, list[Link]]:
    """Where a call comes from, by the trace id of `mainstay.context()`.

    A W3C traceparent is the parent if no span is current, and a link if one of another trace
    is. An id of any other form stands on the span as an attribute.
    """
    remote = _span_context(trace_id) if trace_id else None
    if remote is None:
        return None, []
    current = trace.get_current_span().get_span_context()
    if not current.is_valid:
        return trace.set_span_in_context(NonRecordingSpan(remote)), []
    return None, [Link(remote)] if current.trace_id != remote.trace_id else []


def _span_context(text: str) -> SpanContext | None:
    """The span of a traceparent; None for what is none.

    >>> _span_context("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").is_remote
    True
    >>> _span_context("request-17")
    """
    parts = text.split("-")
    if [len(part) for part in parts[:4]] != [2, 32, 16, 2]:
        return None
    try:
        trace_id, span_id, flags = (int(part, 16) for part in parts[1:4])
    except ValueError:
        return None
    found = SpanContext(trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(flags))
    return found if found.is_valid else None


def _fail(span: Span, name: str, message: str) -> None:
    """Marks a span as failed, as the semantic conventions define it."""
    kind = name or "result_not_accepted"
    span.set_attribute("error.type", kind)
    span.add_event("exception", {"exception.type": kind, "exception.message": message})
    span.set_status(Status(StatusCode.ERROR, message))


def _http_status(outcome: object) -> int | None:
    """The HTTP status of a failure, or of a response that was returned.

    Only a class named Response is read: on a proxy of some service, reading might call it.
    """
    holder: Any = outcome.value if isinstance(outcome, Returned) else outcome
    is_asked = isinstance(outcome, BaseException) or "Response" in type(holder).__name__
    return status_of(holder) if is_asked else None


def attributes_of(event: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Some fields of an event as attributes."""
    return {f"mainstay.{name}": getattr(event, name) for name in names}
