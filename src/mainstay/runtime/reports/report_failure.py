"""Reports to the log of what went wrong beside a call, with a traceback that holds no secret.

The exception itself is not on the record: a formatter would print its text, and some show
the arguments of every frame. The record carries the traceback as text, in `exc_text`, which the
standard library's formatters print. It has its own lines; what else a terminal obeys is escaped.
"""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING

from mainstay.core.base.printable import printable_lines
from mainstay.core.events.describe import describe, usual_redactor
from mainstay.runtime.reports.logs import logger, write

if TYPE_CHECKING:
    from mainstay.core.redact.redactor import Redactor

_log = logger()


def report(
    error: BaseException | None,
    message: str,
    *args: object,
    level: int = logging.ERROR,
    redact: Redactor | None = None,
) -> None:
    """Logs a message, what was raised, and where."""
    if not _log.isEnabledFor(level):
        return
    redact, text = redact or usual_redactor(), message % args
    if error is not None:
        text += ": " + ": ".join(filter(None, describe(error, redact)))
    file, line, function, _ = _log.findCaller(stack_info=False, stacklevel=2)
    arguments = (redact.text(text),)
    record = _log.makeRecord(_log.name, level, file, line, "%s", arguments, None, function)
    if error is not None:
        record.exc_text = printable_lines(redact.text(_traceback(error)))
    try:
        write(_log.handle, record)
    except Exception:  # a handler or a filter of the program's: a broken log costs no call
        logging.Handler().handleError(record)  # as logging treats what a handler fails with


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error)).rstrip()
    except Exception:  # one that cannot be shown must not cost the report
        return ""
