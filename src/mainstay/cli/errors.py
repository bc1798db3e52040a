"""From the exception of a command to the report for a person or a program.

Three sources: click (a mistake on the command line), mainstay's own errors, the system. Anything
else is reported as a bug of mainstay.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import click

from mainstay.cli.exits import MISSING, Exit
from mainstay.errors import MainstayError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


class CommandError(click.ClickException):
    """A command cannot go on: what happened, what to do next, and the exit code."""

    def __init__(self, message: str, *, hint: str, exit_code: int = Exit.USAGE) -> None:
        super().__init__(message)
        self.hint = hint
        self.exit_with = exit_code


class Report:
    """The report of an error; without a message nothing is printed."""

    __slots__ = ("code", "exit_code", "hint", "message", "type")

    def __init__(
        self, exit_code: int, message: str = "", hint: str = "", code: str = "", name: str = ""
    ) -> None:
        self.exit_code = exit_code
        self.message = message
        self.hint = hint
        self.code = code
        self.type = name

    def as_text(self) -> str:
        return f"mainstay: {self.message}" + (f"\n  next: {self.hint}" if self.hint else "")

    def as_document(self) -> dict[str, Any]:
        names = ("code", "type", "message", "hint", "exit_code")
        return {"error": {name: getattr(self, name) for name in names}}


def explain(error: BaseException) -> Report:
    """The report of any exception."""
    for classes, report_of in _REPORTS:
        if isinstance(error, classes):
            return report_of(error)
    return _of_bug(error)


def _of_interrupt(_error: BaseException) -> Report:
    return Report(Exit.INTERRUPTED)


def _of_click(error: click.ClickException) -> Report:
    name = type(error).__name__
    if isinstance(error, CommandError):
        return Report(error.exit_with, error.message, error.hint, "command", name)
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "mainstay"
    message = error.format_message().rstrip(".")
    return Report(Exit.USAGE, message, f"{path} --help", "usage", name)


def _of_ours(error: MainstayError) -> Report:
    code = Exit.USAGE if isinstance(error, UsageError) else Exit.NEGATIVE
    message = error.message or type(error).__name__
    return Report(code, message, error.hint, error.code, type(error).__name__)


_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


def _of_system(error: OSError) -> Report:
    name, words = type(error).__name__, error.strerror or str(error)
    if isinstance(error, BrokenPipeError):
        return Report(Exit.CLOSED_PIPE)
    if error.errno in _UNWRITABLE:
        hint = "make room, or send the output somewhere else"
        return Report(Exit.CANNOT_WRITE, f"cannot write: {words}", hint, "output", name)
    if error.filename is not None:
        hint = "check the path and its permissions"
        return Report(Exit.USAGE, f"{error.filename}: {words}", hint, "file", name)
    return _of_bug(error)


def _of_import(error: ModuleNotFoundError) -> Report:
    if (error.name or "").partition(".")[0] != "rich":
        return _of_bug(error)
    return Report(Exit.USAGE, MISSING, code="MS105", name="MissingExtraError")


def _of_bug(error: BaseException) -> Report:
    name = type(error).__name__
    message = f"internal error: {name}: {error}"
    hint = (
        "this is a bug; report it with the command, the output of `mainstay doctor --json`"
        " and what MAINSTAY_DEBUG=1 shows"
    )
    return Report(Exit.INTERNAL, message, hint, "internal", name)


_REPORTS: tuple[tuple[tuple[type[BaseException], ...], Callable[[Any], Report]], ...] = (
    ((KeyboardInterrupt, click.Abort), _of_interrupt),
    ((click.ClickException,), _of_click),
    ((MainstayError,), _of_ours),
    ((ModuleNotFoundError,), _of_import),
    ((OSError,), _of_system),
)
