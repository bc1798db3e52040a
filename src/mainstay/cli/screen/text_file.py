"""A text from a file that the user has named."""

from __future__ import annotations

from mainstay.cli.errors import CommandError


def text_of(path: str, most: int = -1) -> str:
    """The text of a file, so many characters at most; what is no text is told, with its name."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  pathlib loads slowly
            return file.read(most)
    except UnicodeDecodeError as error:
        message = f"{path}: no text in UTF-8 (byte {error.start + 1})"
        raise CommandError(message, hint="check the name") from error
