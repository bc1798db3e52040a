r"""A text as it is, and as it reads without escapes: `\"`, `\u0022`, `&quot;`, `%22`, colours.

Programs put texts into texts: JSON into JSON, a header into the repr of bytes, a query into a
query. Each view is searched as if it were a text of its own, and a place in it has its place in the
text that was given. Nothing else in this package knows about escapes of such texts.
"""

from __future__ import annotations

import re
from bisect import bisect_right

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


class View:
    """A text and where each of its characters stands in the text that was given.

    >>> [(view.text, view.origin(2)) for view in views("a%3Db")]
    [('a%3Db', 2), ('a=b', 4)]
    """

    __slots__ = ("_ends", "_parent", "_starts", "text")

    def __init__(
        self,
        text: str,
        parent: View | None = None,
        starts: tuple[int, ...] = (),
        ends: tuple[int, ...] = (),
    ) -> None:
        self.text = text
        self._parent = parent
        self._starts = starts
        self._ends = ends

    def origin(self, at: int) -> int:
        """The place in the text that was given."""
        if self._parent is None:
            return at
        number = bisect_right(self._starts, at) - 1
        return self._parent.origin(self._ends[number] + at - self._starts[number])


def views(text: str) -> Iterator[View]:
    """The text itself, then without each sort of escapes that it has, one after another."""
    view = View(text)
    yield view
    for sign, escapes, times in _ESCAPES:
        for _ in range(times):
            if sign not in view.text:
                break
            plain = _without(escapes, view)
            if plain is None:
                break
            view = plain
            yield view


_ESCAPES = (
    (
        "[0m",
        re.compile(r"(?:\x1b|\\(?:x1[bB]|033|e|u001[bB]))?\[[0-9]{1,2}(?:;[0-9]{1,3}){0,4}m()()()"),
        1,
    ),
    ("\\", re.compile(r"\\(?:u00([0-7][0-9A-Fa-f])|x([0-7][0-9A-Fa-f])|([\"'`/\\nrt]))"), 3),
    ("&", re.compile(r"&(?:#[xX]([2-7][0-9A-Fa-f])|#([0-9]{2,3})|(lt|gt|quot|apos|amp));"), 2),
    ("%", re.compile(r"%([2-7][0-9A-Fa-f]|0[9aAdD])()()"), 3),
)
_NAMED = {
    "n": "\n", "r": "\r", "t": "\t", "lt": "<", "gt": ">", "quot": '"', "apos": "'", "amp": "&",
}  # fmt: skip


def _without(escapes: re.Pattern[str], view: View) -> View | None:
    """The view without one level of escapes, if there are some."""
    parts: list[str] = []
    starts, ends = [0], [0]
    done = size = 0
    for found in escapes.finditer(view.text):
        meaning = _meaning(found)
        parts += (view.text[done : found.start()], meaning)
        size += found.start() - done + len(meaning)
        done = found.end()
        starts.append(size)
        ends.append(done)
    if not parts:
        return None
    return View("".join((*parts, view.text[done:])), view, tuple(starts), tuple(ends))


def _meaning(found: re.Match[str]) -> str:
    """The character that an escape stands for; a colour stands for none."""
    coded, other, name = found.groups()
    if found[0].endswith("m") and "[" in found[0]:
        return ""
    if name:
        return _NAMED.get(name, name)
    if found[0].startswith("&#") and other:
        return chr(int(other))
    return chr(int(coded or other, 16))
