"""The lines of `mainstay exec` itself, on stderr, beside the output of the command."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from typing import TYPE_CHECKING

from mainstay.cli.screen.output import shielded, write_error, write_json_error

if TYPE_CHECKING:
    from typing import Any

    from mainstay.core.retry.hooks import RetryInfo


class Reporter:
    """Writes the lines; with --quiet, none about retries."""

    def __init__(self, *, quiet: bool, as_json: bool) -> None:
        self.is_quiet = quiet
        self._as_json = as_json
        self._is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"

    def retry(self, info: RetryInfo) -> None:
        """An attempt has failed, and there will be another."""
        reason = what_failed(info.exception)
        self.note(
            f"{info.operation}: attempt {info.attempt} of {info.max_attempts}: {reason};"
            f" next in {info.delay:.2f} s",
            event="retry",
            operation=info.operation,
            attempt=info.attempt,
            max_attempts=info.max_attempts,
            exit_code=getattr(info.exception, "exit_code", None),
            reason=reason,
            delay_seconds=round(info.delay, 3),
        )

    def note(self, text: str, **fields: Any) -> None:
        """A line that --quiet leaves out."""
        if not self.is_quiet:
            self._write(text, "cyan", fields)

    def warn(self, text: str, **fields: Any) -> None:
        """A line that is always written."""
        self._write(text, "yellow", fields)

    def advise(self, *lines: str) -> None:
        """Lines under another: what to do next. An object has them as fields."""
        if not self._as_json:
            for line in lines:
                write_error(f"  {line}")

    def _write(self, text: str, colour: str, fields: dict[str, Any]) -> None:
        if self._as_json:
            write_json_error({"event": "note", **fields, "message": text})
            return
        line = f"mainstay: {shielded(text)}"
        is_coloured = not self._is_plain and sys.stderr is not None and sys.stderr.isatty()
        write_error(line, colour=colour if is_coloured else None)

    def listen(self) -> None:
        """Writes warnings and log records as lines, too; events have lines of their own."""
        logger = logging.getLogger("mainstay")
        logger.handlers = [_Lines(self)]
        logger.propagate = False
        warnings.showwarning = lambda message, *_args, **_kwargs: self.warn(str(message))


class _Lines(logging.Handler):
    """Log records of warnings as lines."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__(logging.WARNING)
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        if not hasattr(record, "mainstay"):  # an event has a line of its own
            self._reporter.warn(record.getMessage())


def what_failed(failure: BaseException | None) -> str:
    """A failure in few words, without the operation's name.

    >>> from mainstay.errors import AttemptTimeout, CommandFailed
    >>> what_failed(CommandFailed("rsync", 23)), what_failed(AttemptTimeout(2.0))
    ('exit 23', 'timed out after 2 s')
    """
    from mainstay.errors import AttemptTimeout, CommandFailed

    if isinstance(failure, AttemptTimeout):
        return f"timed out after {failure.timeout:.3g} s"
    if isinstance(failure, CommandFailed):
        return failure.reason or f"exit {failure.exit_code}"
    return str(failure)
