"""Plain text and JSON to stdout. Tables and live displays are screen.py's."""

from __future__ import annotations

import errno
import sys

import click


def write(text: str) -> None:
    """One line or several."""
    if sys.stdout is None:  # closed before we began: click would say nothing
        raise OSError(errno.EBADF, "standard output is closed")
    click.echo(text)


def write_json(document: object) -> None:
    """A document that any JSON reader takes: ASCII, no NaN, one value."""
    import json

    write(json.dumps(document, indent=2, allow_nan=False))


def write_error(text: str) -> None:
    """A line for stderr; where even that cannot be written, nothing is left to do."""
    try:
        click.echo(text, err=True)
    except OSError:
        return
