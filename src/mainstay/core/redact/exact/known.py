"""Secrets that are known by their values, found in a text in any notation.

Eight characters of each notation, from its rarest letter on, make one expression, so that a text
is searched once, however many secrets are known; what matches is compared with the few that have
those eight.
"""

from __future__ import annotations

import re

from mainstay.core.redact.exact.marks import marked
from mainstay.core.redact.exact.notations import in_base64, notations
from mainstay.core.redact.exact.rarity import LEAST, is_declarable
from mainstay.core.redact.names import rarity
from mainstay.core.redact.views import View, views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Span = tuple[int, int]

_ROUNDS = 3
"""Escapes in escapes, of one sort behind another."""


class Known:
    """Some secrets. Their values are shown nowhere.

    >>> known = Known(["x9Qz-1aP"])
    >>> known.hide('{"auth": "x9Qz-1aP"} at ?a=x9Qz%2D1aP'), known
    ('{"auth": "[redacted]"} at ?a=[redacted]', <1 secret>)
    """

    __slots__ = ("_anchors", "_expression", "_values")

    def __init__(self, values: Iterable[str]) -> None:
        self._values = frozenset(filter(is_declarable, values))
        self._anchors: dict[str, list[tuple[int, str, int, int]]] = {}
        words = {(form, 0, 0) for value in self._values for form in notations(value)}
        for word, before, behind in words.union(*map(in_base64, self._values)):
            at = _rarest(word)
            self._anchors.setdefault(word[at : at + LEAST], []).append((at, word, before, behind))
        self._expression = re.compile(_one_of(sorted(self._anchors)), re.DOTALL)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Known) and self._values == other._values

    def __hash__(self) -> int:
        return hash(self._values)

    def __repr__(self) -> str:
        return f"<{len(self)} secret{'s' * (len(self) != 1)}>"

    def __reduce__(self) -> str:
        raise TypeError(
            "known secrets are not pickled: all who read the pickle would have them; make the"
            " Redactor where it is used"
        )

    def hide(self, text: str) -> str:
        """The text with a mark in the place of each secret."""
        spans = [
            (view.origin(start), view.origin(end))
            for view in _all_views(text)
            for start, end in self._found(view.text)
        ]
        return marked(text, spans) if spans else text

    def _found(self, text: str) -> Iterator[Span]:
        """Where secrets stand; one may begin in another."""
        found = self._expression.search(text)
        while found is not None:
            for at, word, before, behind in self._anchors[found[0]]:
                start = found.start() - at
                if start >= 0 and text.startswith(word, start):
                    end = start + len(word)
                    first = start - (before and text[start - 1 : start] in _DIGITS)
                    yield first, end + (behind and text[end : end + 1] in _DIGITS)
            found = self._expression.search(text, found.start() + 1)


_DIGITS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
"""Of base64."""


def _rarest(word: str) -> int:
    """Where the rarest letter is that has enough others behind it."""
    return max(range(len(word) - LEAST + 1), key=lambda at: (rarity(word[at]), -at))


def _all_views(text: str) -> Iterator[View]:
    """The text, and without its escapes in whatever order they were made."""
    view = View(text)
    yield view
    for _ in range(_ROUNDS):
        before = view
        for view in views(before.text, before):
            if view is not before:
                yield view
        if view is before:
            return


def _one_of(words: list[str]) -> str:
    """An expression for words of the same length, by their common beginnings."""
    groups: dict[str, list[str]] = {}
    for word in words:
        groups.setdefault(word[:1], []).append(word[1:])
    parts = [
        re.escape(first) + ("" if rest == [""] else _one_of(rest)) for first, rest in groups.items()
    ]
    if not parts:
        return "(?!)"
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"
