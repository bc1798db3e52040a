"""Marks in the place of secrets."""

from __future__ import annotations

import re

from mainstay.core.redact import MARK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    Span = tuple[int, int]

_MARKS = re.compile(re.escape(MARK))


def marked(text: str, spans: Iterable[Span]) -> str:
    """The text with one mark for all spans, and marks from before, that touch each other.

    >>> marked("a secret here", [(2, 5), (4, 8)])
    'a [redacted] here'
    """
    parts: list[str] = []
    done = 0
    start = end = -1
    for each in sorted((*spans, *(found.span() for found in _MARKS.finditer(text)))):
        if start >= 0 and each[0] <= end:
            end = max(end, each[1])
            continue
        if start >= 0:
            parts += (text[done:start], MARK)
            done = end
        start, end = each
    return "".join((*parts, text[done:start], MARK, text[end:]))
