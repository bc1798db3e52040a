"""Lines of JSON texts: of an error, and of the parts of a list."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import msgspec


def line_at(data: bytes, place: int) -> int:
    r"""The line of a byte, from 1.

    >>> line_at(b"{\n}", 2)
    2
    """
    return data.count(b"\n", 0, place) + 1


def line_of_error(data: bytes, error: Exception) -> int:
    r"""The line of what msgspec could not decode: where its byte is; else the last line.

    >>> line_of_error(b"{\n?", ValueError("JSON is malformed: invalid character (byte 2)"))
    2
    """
    byte = re.search(r"\(byte (\d+)\)", str(error))
    return line_at(data, len(data.rstrip()) if byte is None else int(byte[1]))


def places(data: bytes, parts: Iterable[msgspec.Raw], start: int = 0) -> Iterator[int]:
    """Where each part of a list begins, in their order, from a place on."""
    end = start
    for part in parts:
        text = bytes(part)
        found = data.index(text, end)
        end = found + len(text)
        yield found
