"""What is wrong so far: one list for reading, overriding, checking and building."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.config.tree import joined
from mainstay.errors import ConfigError, ConfigProblem

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mainstay.config.tree import Node

Path = tuple[object, ...]


class Report:
    """Collects problems; knows the environment that `${NAME}` is looked up in."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = env
        self.problems: list[ConfigProblem] = []
        self.is_sound = True
        """Whether the tree has all that is in the file."""

    def wrong(self, node: Node, path: Path, allowed: str, nearest: str = "") -> None:
        """A value that is not allowed there."""
        self._add(node.source, node.line, path, _visible(node), allowed=allowed, nearest=nearest)

    def problem(
        self, node: Node, path: Path, text: str, *, allowed: str = "", nearest: str = ""
    ) -> None:
        """Anything else that is wrong at a place; without the value."""
        self._add(node.source, node.line, path, None, allowed=allowed, nearest=nearest, text=text)

    def file(self, source: str, line: int | None, text: str, path: Path = ()) -> None:
        """Something that is wrong with a file, so that a part of it may be missing."""
        self.is_sound = False
        self._add(source, line, path, None, text=text)

    def _add(
        self,
        source: str,
        line: int | None,
        path: Path,
        value: object,
        *,
        allowed: str = "",
        nearest: str = "",
        text: str = "",
    ) -> None:
        where = joined(path)
        self.problems.append(
            ConfigProblem(where, value, allowed, file=source, line=line, nearest=nearest, text=text)
        )

    def sort(self, file: str | None) -> None:
        """The file's own problems first, from top to bottom."""
        self.problems.sort(key=lambda each: (each.file != file, each.line or 0))

    def close(self) -> None:
        """Raises if anything is wrong."""
        if self.problems:
            raise ConfigError(self.problems)


def _visible(node: Node) -> object:
    """The value for a message. Of what holds others only the sort: secrets may be among them."""
    if node.shown is not None:
        return node.shown
    if isinstance(node.value, dict | list):
        return type(node.value)()
    if node.value is None:
        return NULL if node.text is None else node.text
    return node.visible


class _Null(str):
    """A null that is in the file, as distinct from a value that is not shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "null"


NULL = _Null("null")


def nearest(word: object, known: Collection[str]) -> str:
    """The one that was most likely meant, or nothing.

    >>> nearest("maxAtempts", ["maxAttempts", "backoff"]), nearest("x", ["maxAttempts"])
    ('maxAttempts', '')

    A file may be another user's, and to compare takes the product of the lengths: long words have
    no suggestion, nor have words of a file with very many names.
    """
    word = str(word).lower()
    if len(word) > _LONGEST or len(known) > _MOST:
        return ""
    names = {name.lower(): name for name in reversed(list(known)) if len(name) <= _LONGEST}
    from difflib import get_close_matches  # for a mistake

    near = get_close_matches(word, names, n=1, cutoff=0.6)
    return names[near[0]] if near else ""


_LONGEST, _MOST = 200, 500
"""Characters of a word, and names, that are compared."""
