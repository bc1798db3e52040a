"""Plain text and JSON to stdout, without secrets. Tables and live displays are in console.py.

Whatever is written may hold a text from elsewhere: a key of a file, a name, the text of an error.
So each line is shielded here, after redaction, and not only where its author has thought of it.
"""

from __future__ import annotations

import errno
import sys

import click


def write(text: str) -> None:
    """One line or several."""
    _echo(shown(text))


def write_ours(text: str) -> None:
    """A text of mainstay's own, without values that might be secret."""
    _echo(text)


def write_json(document: object) -> None:
    """A document that any JSON reader takes: ASCII, no NaN, one value."""
    _echo(_json(document, indent=2))


def write_error(text: str, *, colour: str | None = None) -> None:
    """A line for stderr; if even that cannot be written, nothing is left to do."""
    line = shown(text)
    _complain(click.style(line, fg=colour) if colour else line)


def write_json_error(document: object) -> None:
    """A document for stderr, on one line."""
    _complain(_json(document))


def shown(text: str) -> str:
    """A text without secrets, and without what a terminal obeys."""
    return shielded_lines(_redacted(text))


def _redacted(text: str) -> str:
    """A text without secrets; a long one line by line, since the redactor has a limit."""
    from mainstay.core.redact.redactor import LONGEST, REDACTOR

    if len(text) <= LONGEST:
        return REDACTOR.text(text)
    return "\n".join(map(REDACTOR.text, text.split("\n")))


def shielded(text: str) -> str:
    r"""A text from elsewhere, fit for a terminal: what that would obey is shown instead.

    >>> shielded("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    if text.isprintable():
        return text
    from mainstay.core.base.printable import printable

    return printable(text)


def shielded_lines(text: str) -> str:
    r"""The same for several lines.

    >>> shielded_lines("a\x1b[2J\nb")
    'a\\x1b[2J\nb'
    """
    if text.isprintable():
        return text
    from mainstay.core.base.printable import printable_lines

    return printable_lines(text)


def _json(document: object, indent: int | None = None) -> str:
    import json

    from mainstay.core.redact.redactor import REDACTOR

    return json.dumps(REDACTOR.data(document), indent=indent, allow_nan=False)


def _echo(text: str) -> None:
    if sys.stdout is None:  # closed before the start: click would print nothing
        raise OSError(errno.EBADF, "standard output is closed")
    click.echo(text)


def _complain(text: str) -> None:
    try:
        click.echo(text, err=True)
    except OSError:
        return
