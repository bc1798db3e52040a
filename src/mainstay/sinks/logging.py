"""Events as log records, through the standard library's logging.

Levels: each attempt DEBUG; a scheduled retry at the policy's `log_level`; success INFO after
retries and DEBUG without; given up ERROR. The fields are on the record, under `mainstay`;
JsonFormatter writes them, one JSON object a line. What tells who may do what (a circuit that opens,
an order, an operator) goes to the logger's child `security`, so that it can be sent elsewhere.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from mainstay.core.base.timestamps import stamp
from mainstay.core.events.catalogue import (
    AlertCleared,
    AlertFired,
    AttemptFailed,
    AttemptHedged,
    CallFailed,
    CallInterrupted,
    CallRefused,
    CallsCounted,
    CallSucceeded,
    CircuitOrdered,
    CircuitStateChanged,
    FallbackUsed,
    HookFailed,
    Idempotency,
    InboxClosed,
    InboxDecided,
    InboxRaised,
    OperatorAdded,
    OperatorChanged,
    OperatorRefused,
    PlanDeclared,
    RetryAttempt,
    RetryExhausted,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mainstay.core.events.catalogue import Event
    from mainstay.core.redact.redactor import Redactor


class LoggingSink:
    """Writes every event to a logger.

    Whether DEBUG is enabled is asked when an operation is first used.

    >>> from mainstay.sinks.logging import LoggingSink
    >>> from mainstay import Engine
    >>> engine = Engine(sinks=[LoggingSink("my.retries")])
    """

    def __init__(self, logger: str | logging.Logger = "mainstay") -> None:
        self.logger = logging.getLogger(logger) if isinstance(logger, str) else logger
        self.security = self.logger.getChild("security")
        """For security events; what it is given, its parent's handlers get too."""

    @property
    def hears_successes(self) -> bool:
        """Calls that never failed are logged at DEBUG: only where that is enabled."""
        return self.logger.isEnabledFor(logging.DEBUG)

    def __call__(self, event: Event) -> None:
        level, logger = level_of(event), self.security if event.is_security else self.logger
        if logger.isEnabledFor(level):
            logger.log(level, "%s", sentence(event), extra={"mainstay": event.to_dict()})


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON: level, logger, message, and the fields of its event.

    What is no event of ours has a `timestamp` of its own, an `exception` where there is one, and
    the fields given as `extra`. All of it is redacted, also what comes from other loggers.

    Args:
        redact: a Redactor of your own, for what is secret with you beside the usual.

    >>> record = logging.makeLogRecord({"name": "app", "levelname": "INFO", "msg": "token=abc"})
    >>> JsonFormatter().format(record)
    '{"level":"INFO","logger":"app","message":"token=[redacted]","timestamp":"..."}'
    """

    def __init__(self, redact: Redactor | None = None) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON, on one line."""
        line: dict[str, Any] = {
            "level": record.levelname,
            "logger": record.name,
            "message": shown(record.getMessage(), self._redact),
            "timestamp": stamp(record.created),
        }
        fields = getattr(record, "mainstay", None)
        if isinstance(fields, dict):
            line |= {name: value for name, value in fields.items() if name != "proof"}
        own = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if own:
            line = {**line, **self._looked_at(own), **line}
        trouble = self._trouble(record)
        if trouble:
            line["exception"] = trouble
        return msgspec.json.encode(line, enc_hook=str).decode()

    def _looked_at(self, fields: dict[str, Any]) -> dict[str, Any]:
        from mainstay.core.redact.redactor import REDACTOR

        plain = msgspec.json.decode(msgspec.json.encode(fields, enc_hook=str))
        return (self._redact or REDACTOR).data(plain)  # type: ignore[no-any-return]

    def _trouble(self, record: logging.LogRecord) -> str:
        """The traceback, where there is one; never kept on the record, which others read."""
        text = record.exc_text or ""
        if record.exc_info and record.exc_info[0] is not None:
            text = self.formatException(record.exc_info)
        return shown(text, self._redact) if text else ""


_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "mainstay"}
"""What every record has; the rest was given as `extra`."""


def level_of(event: Event) -> int:
    """The level an event is logged at."""
    if isinstance(event, RetryAttempt):
        return logging.getLevelNamesMapping()[event.log_level]
    if isinstance(event, CallSucceeded) and event.total_attempts <= 1:
        return logging.DEBUG
    return logging.getLevelNamesMapping()[event.level]


def sentence(event: Event) -> str:
    """The event as a person would say it."""
    say = _SENTENCES.get(type(event))
    return say(event) if say is not None else f"{event.operation}: {event.event_type}"


def _attempt_failed(e: Any) -> str:
    return (
        f"{e.operation}: attempt {e.attempt_number} of {e.max_attempts} failed"
        f" ({e.kind}; {e.reason}): {e.exception_type}: {e.exception_message}"
    )


def _retry_attempt(e: Any) -> str:
    return (
        f"{e.operation}: attempt {e.attempt_number} of {e.max_attempts} failed with"
        f" {e.exception_type}: {e.exception_message}; next in {e.delay_seconds:.3f} s"
    )


def _gave_up(e: Any) -> str:
    attempts = "1 attempt" if e.total_attempts == 1 else f"{e.total_attempts} attempts"
    return (
        f"{e.operation}: gave up after {attempts} in {e.total_seconds:.3f} s ({e.reason}):"
        f" {e.final_exception_type}: {e.final_exception_message}"
    )


def _succeeded(e: Any) -> str:
    return f"{e.operation}: succeeded on attempt {e.total_attempts} after {e.total_seconds:.3f} s"


def _interrupted(e: Any) -> str:
    return f"{e.operation}: cancelled by {e.by} after {e.total_attempts} attempt(s)"


def _hook_failed(e: Any) -> str:
    return f"{e.operation}: {e.hook} raised {e.exception_type}: {e.exception_message}"


def _refused(e: Any) -> str:
    return f"{e.operation}: not called; {e.reason}"


def _circuit(e: Any) -> str:
    return f"{e.operation}: circuit {e.from_state} -> {e.to_state} ({e.reason})"


def _hedged(e: Any) -> str:
    return (
        f"{e.operation}: no answer after {e.waited_seconds:.3f} s, hedge {e.hedge_number} started"
    )


def _fallback(e: Any) -> str:
    return f"{e.operation}: the fallback answered for {e.exception_type}: {e.exception_message}"


def _alert_fired(e: Any) -> str:
    return (
        f"{e.operation or e.group or 'everything'}: alert {e.alert} fired: {e.metric} is"
        f" {e.value:.4g}, threshold {e.threshold:.4g}, over {e.window_seconds:g} s"
    )


def _alert_cleared(e: Any) -> str:
    return (
        f"{e.operation or e.group or 'everything'}: alert {e.alert} cleared after"
        f" {e.lasted_seconds:.0f} s: {e.metric} is {e.value:.4g}"
    )


def _counted(e: Any) -> str:
    return f"{e.operation}: {e.calls:,} calls succeeded at once"


def _keyed(e: Any) -> str:
    told = "its outcome is kept under" if e.action == "record" else "answered from the record of"
    return f"{e.operation}: {told} the key {e.idempotency_key!r}"


def _plan(e: Any) -> str:
    name, most = e.fields.get("name", ""), e.fields.get("max_attempts", "?")
    whose = f"{e.operation}: " if e.operation else ""
    return f"{whose}by the policy {name!r} from here on: {most} attempts at most (plan {e.plan})"


def _ordered(e: Any) -> str:
    why = f": {e.why}" if e.why else ""
    return f"{e.operation}: {e.operator} ordered the circuit to {e.order}{why}"


def _inbox_raised(e: Any) -> str:
    return f"{e.operation}: a person must decide ({e.item_kind}, {e.severity}, {e.item}): {e.text}"


def _inbox_decided(e: Any) -> str:
    why = f": {e.why}" if e.why else ""
    return f"{e.operation}: {e.operator} decided {e.decision} on {e.item_kind} {e.item}{why}"


def _inbox_closed(e: Any) -> str:
    return f"{e.operation}: {e.decision} of {e.item_kind} {e.item} was carried out: {e.result}"


def _operator_refused(e: Any) -> str:
    return f"{e.operation}: {e.operator} was refused ({e.about}): {e.reason}"


def _operator_added(e: Any) -> str:
    by = f" by {e.authorised_by}" if e.authorised_by else ""
    return f"{e.operation}: {e.operator} was added{by}"


def _operator_changed(e: Any) -> str:
    return f"{e.operation}: {e.operator} was {e.change} by {e.authorised_by}"


_SENTENCES: dict[type[Event], Callable[[Any], str]] = {
    AlertCleared: _alert_cleared,
    AlertFired: _alert_fired,
    AttemptFailed: _attempt_failed,
    AttemptHedged: _hedged,
    CallFailed: _gave_up,
    CallInterrupted: _interrupted,
    CallRefused: _refused,
    CallSucceeded: _succeeded,
    CallsCounted: _counted,
    CircuitOrdered: _ordered,
    CircuitStateChanged: _circuit,
    FallbackUsed: _fallback,
    HookFailed: _hook_failed,
    Idempotency: _keyed,
    InboxClosed: _inbox_closed,
    InboxDecided: _inbox_decided,
    InboxRaised: _inbox_raised,
    OperatorAdded: _operator_added,
    OperatorChanged: _operator_changed,
    OperatorRefused: _operator_refused,
    PlanDeclared: _plan,
    RetryAttempt: _retry_attempt,
    RetryExhausted: _gave_up,
}
