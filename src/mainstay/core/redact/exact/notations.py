"""The notations of a known secret that no view of a text undoes.

Escapes of JSON, URLs, XML and reprs are undone by `views`; what is left is base64, where a value
has three forms by its place, a space as `+`, quotes as languages double them, characters outside of
ASCII as some write them, and the lines of a secret that has several.
"""

from __future__ import annotations

from binascii import b2a_base64

from mainstay.core.redact.exact.rarity import LEAST, is_rare
from mainstay.core.redact.plain import is_random

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_URL_SAFE = str.maketrans("+/", "-_")
_QUOTES = {"'": ("''", "'\\''", "'\"'\"'"), '"': ('""',)}


def notations(value: str) -> set[str]:
    """A secret as it is, and as it may stand in texts.

    >>> sorted(notations("an otter"))
    ['an otter', 'an+otter']
    """
    found = {value, value.replace(" ", "+")}
    for quote, doubled in _QUOTES.items():
        if quote in value:
            found |= {value.replace(quote, each) for each in doubled}
    if not value.isascii():
        found |= {"".join(map(_halved, value)), "".join(map(_escaped, value))}
        found |= {ascii(value)[1:-1], "".join(map(_in_ascii, value))}
    lines = value.splitlines()
    if len(lines) > 1:
        found |= {line for line in lines if is_rare(line) and is_random(line, LEAST, is_named=True)}
        found |= {"\r\n".join(lines), " ".join(lines)}
    return found


def in_base64(value: str) -> Iterator[tuple[str, int, int]]:
    """What stands in the base64 of any text that holds the value, by the bit where it begins.

    And how many characters before and behind hold some of its bits, with others.

    >>> list(in_base64("hunter22"))[::2]
    [('aHVudGVyMj', 0, 1), ('h1bnRlcjIy', 1, 0), ('odW50ZXIyM', 1, 1)]
    """
    data = value.encode("utf-8", "surrogatepass")
    for before, first in ((0, 0), (1, 2), (2, 3)):
        text = b2a_base64(bytes(before) + data, newline=False).decode()
        bits = (before + len(data)) * 8
        whole = text[first : bits // 6]
        for written in (whole, whole.translate(_URL_SAFE)):
            yield written, int(first > 0), int(bits % 6 > 0)


def _halved(char: str) -> str:
    """A character as JSON writes it in two halves, each of which a view takes for one."""
    if char <= "\uffff":
        return char
    data = char.encode("utf-16-be")
    return "".join(chr(int.from_bytes(data[at : at + 2])) for at in (0, 2))


def _escaped(char: str) -> str:
    """A character as `ascii()` writes it, where views do not undo that."""
    if "\x80" <= char <= "\xff":
        return f"\\x{ord(char):02x}"
    return f"\\U{ord(char):08x}" if char > "\uffff" else char


def _in_ascii(char: str) -> str:
    """A character as `ascii()` writes it, if it is none of ASCII."""
    return char if char.isascii() else ascii(char)[1:-1]
