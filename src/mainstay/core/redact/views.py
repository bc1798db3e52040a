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


def views(text: str, view: View | None = None) -> Iterator[View]:
    """The text itself, then without each sort of escapes that it has, one after another.

    If the text is that of a view, that one is the first.
    """
    view = view or View(text)
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


def _bytes(sign: str) -> str:
    """The bytes of a letter outside of ASCII, as UTF-8 has it."""
    more = f"{sign}[89abAB][0-9A-Fa-f]"
    first = f"{sign}[cdCD][0-9A-Fa-f]|{sign}[eE][0-9A-Fa-f]{more}|{sign}[fF][0-4]{more}{more}"
    return f"((?:{first}){more})"


_ESCAPES = (
    (
        "[0m",
        re.compile(r"(?:\x1b|\\(?:x1[bB]|033|e|u001[bB]))?\[[0-9]{1,2}(?:;[0-9]{1,3}){0,4}m()()()"),
        1,
    ),
    (
        "\\",
        re.compile(
            r"\\(?:u([0-9A-Fa-f]{4})|x([0-7][0-9A-Fa-f])|([\"'`/\\nrt]|01[125](?![0-9])))"
            "|" + _bytes(r"\\x")
        ),
        3,
    ),
    (
        "&",
        re.compile(
            r"&(?:#[xX]([0-9A-Fa-f]{2,5})|#([0-9]{2,6})"
            r"|(lt|gt|quot|apos|amp|colon|equals|commat|nbsp|ntilde));"
        ),
        2,
    ),
    ("%", re.compile(r"%([2-7][0-9A-Fa-f]|0[9aAdD])()()|" + _bytes("%")), 3),
    ("#01", re.compile(r"#()()(01[125])(?![0-9])"), 1),  # of rsyslog
)
_NAMED = {
    "n": "\n", "r": "\r", "t": "\t", "lt": "<", "gt": ">", "quot": '"', "apos": "'", "amp": "&",
    "colon": ":", "equals": "=", "commat": "@", "nbsp": " ", "ntilde": "\u00f1",
    "011": "\t", "012": "\n", "015": "\r",
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
    coded, other, name, *more = found.groups()
    if found[0].endswith("m") and "[" in found[0]:
        return ""
    if more and more[0]:
        return bytes.fromhex(_NO_HEX.sub("", more[0])).decode("utf-8", "replace")
    if name:
        return _NAMED.get(name, name)
    number = int(other) if found[0].startswith("&#") and other else int(coded or other, 16)
    return chr(number)


_NO_HEX = re.compile(r"[\\x%]")
