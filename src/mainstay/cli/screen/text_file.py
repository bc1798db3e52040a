"""A text from a file that the user has named."""

from __future__ import annotations

from mainstay.cli.errors import CommandError


def text_of(path: str, most: int = -1) -> str:
    """The text of a file, at most `most` characters; CommandError if it is not UTF-8."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  pathlib loads slowly
            return file.read(most)
    except UnicodeDecodeError as error:
        message = f"{path}: not UTF-8 (byte {error.start + 1})"
        raise CommandError(message, hint="check the name") from error
