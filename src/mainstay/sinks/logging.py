"""Events as log records, through the standard library's logging.

Levels: each attempt DEBUG; a scheduled retry at the policy's `log_level`; success INFO after
retries and DEBUG without; given up ERROR. The fields are on the record, under `mainstay`;
JsonFormatter writes them, one JSON object a line. Security events (a circuit that opens, an order,
an operator) go to the logger's child `security`, so that they can be sent elsewhere.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mainstay.core.base.printable import printable_json
from mainstay.core.base.timestamps import stamp
from mainstay.core.events.describe import shown, usual_redactor
from mainstay.ports import SinkWants
from mainstay.runtime.reports import logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mainstay.core.base.event import Event
    from mainstay.core.redact.redactor import Redactor

_ALL, _FAILURES = SinkWants(), SinkWants(successes=False)


class LoggingSink(logs.EventLog):
    """Writes every event to a logger.

    Whether DEBUG is enabled is asked when an operation is first used.

    >>> from mainstay.sinks.logging import LoggingSink
    >>> from mainstay import Engine
    >>> engine = Engine(sinks=[LoggingSink("my.retries")])
    """

    def __init__(self, logger: str | logging.Logger = logs.NAME) -> None:
        """The logger's child `security` is for security events; its parent's handlers get them."""
        super().__init__(logs.logger(logger) if isinstance(logger, str) else logger)

    @property
    def wants(self) -> SinkWants:
        """Calls that succeed at the first attempt are logged at DEBUG, if that is enabled."""
        return _ALL if self.logger.isEnabledFor(logging.DEBUG) else _FAILURES


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON: level, logger, message, and the fields of its event.

    What is no event of ours has a `timestamp` of its own, an `exception` if there is one, and
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
            line |= fields
            line.pop("proof", None)
        given = record.__dict__
        if not given.keys() <= _STANDARD:
            own = {name: value for name, value in given.items() if name not in _STANDARD}
            line = {**line, **self._looked_at(own), **line}
        if (record.exc_text or record.exc_info) and (error := self._error(record)):
            line["exception"] = error
        data = _json(line)
        if data.isascii() and _DELETE not in data:  # other controls are escapes in it
            return data.decode()
        return printable_json(data.decode())

    def _looked_at(self, fields: dict[str, Any]) -> dict[str, Any]:
        import json  # when it is needed, as below

        plain = json.loads(_json(fields))
        return (self._redact or usual_redactor()).data(plain)  # type: ignore[no-any-return]

    def _error(self, record: logging.LogRecord) -> str:
        """The traceback, if there is one; never kept on the record, which others read."""
        text = record.exc_text or ""
        if record.exc_info and record.exc_info[0] is not None:
            text = self.formatException(record.exc_info)
        return shown(text, self._redact) if text else ""


def _json(line: dict[str, Any]) -> bytes:
    if not _encode:
        import msgspec  # few write JSON to a log, and it takes long to load

        _encode.append(msgspec.json.Encoder(enc_hook=str).encode)
    try:
        return _encode[0](line)
    except UnicodeEncodeError:  # half a surrogate, which has no UTF-8
        import json  # when it is needed: msgspec writes the others

        return json.dumps(line, default=str, separators=(",", ":")).encode()


_encode: list[Callable[[object], bytes]] = []
_DELETE = b"\x7f"


_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "mainstay"}
"""What every record has; the rest was given as `extra`."""


def level_of(event: Event) -> int:
    """The level an event is logged at."""
    return logs.LEVELS[event.logged_at]
