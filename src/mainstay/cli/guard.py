"""Between a command and the process: runs the command line, and ends well whatever happens.

Errors go to stderr, without a traceback, with what to do next; with `--json` as a JSON object.
`MAINSTAY_DEBUG=1` shows the traceback too. errors.py has the meaning of each error.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

import click

from mainstay.cli.app import app
from mainstay.cli.exits import Exit
from mainstay.cli.options import asks_for_json
from mainstay.cli.screen.output import write_error, write_json_error
from mainstay.runtime.reports.logs import print_warnings

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    """Runs the command line; returns the exit code, and never raises."""
    try:
        _accept_any_text()
        print_warnings()
        _know_secrets(arguments)
        code = _invoke(list(arguments))
        _flush()
        return code
    except BaseException as error:
        return _end(error, as_json=asks_for_json(list(arguments)))


def _know_secrets(arguments: Sequence[str]) -> None:
    """Has the screens hide what the environment holds; help and version have nothing to hide."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if own and not {"--help", "-h", "--version"}.intersection(own):
        from mainstay.runtime.reports.known_secrets import know_environment

        know_environment()


def _invoke(arguments: list[str]) -> int:
    """What click's own main() does, but for its way with errors."""
    complete = os.environ.get("_MAINSTAY_COMPLETE")
    if complete:
        from click.shell_completion import shell_complete

        return shell_complete(app, {}, "mainstay", "_MAINSTAY_COMPLETE", complete)
    try:
        with app.make_context("mainstay", arguments) as context:
            code = app.invoke(context)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    return int(code or Exit.OK)


def _accept_any_text() -> None:
    """A character that the terminal's encoding lacks is replaced, not fatal."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _flush() -> None:
    """Full disks and closed pipes show here at the latest, while they can still be reported."""
    if sys.stdout is not None:
        sys.stdout.flush()


def _end(error: BaseException, *, as_json: bool) -> int:
    from mainstay.cli.errors import explain

    report = explain(error)
    if report.exit_code in (Exit.CANNOT_WRITE, Exit.CLOSED_PIPE):
        _abandon_stdout()
    if os.environ.get("MAINSTAY_DEBUG") and report.message:
        import traceback

        write_error("".join(traceback.format_exception(error)).rstrip())
    if report.message:
        if as_json:
            write_json_error(report.as_document())
        else:
            write_error(report.as_text())
    return report.exit_code


def _abandon_stdout() -> None:
    """Discards what is still buffered, or Python would report it while it ends."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError, AttributeError):
        return
