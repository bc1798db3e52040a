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
    r"""The line of what msgspec could not decode: of its byte, or its field; else the last line.

    >>> line_of_error(b"{\n?", ValueError("JSON is malformed: invalid character (byte 2)"))
    2
    """
    text = str(error)
    byte = re.search(r"\(byte (\d+)\)", text)
    if byte is not None:
        return line_at(data, int(byte[1]))
    field = re.search(r"`\$\.(\w+)|unknown field `(\w+)`", text)
    place = -1 if field is None else data.find(f'"{field[1] or field[2]}"'.encode())
    return line_at(data, len(data.rstrip()) if place < 0 else place)


def places(data: bytes, parts: Iterable[msgspec.Raw], start: int = 0) -> Iterator[int]:
    """Where each part of a list begins, in their order, from a place on."""
    end = start
    for part in parts:
        text = bytes(part)
        found = data.index(text, end)
        end = found + len(text)
        yield found
