"""Which names may be operations in what is wrong in a configuration.

In a tree: each key below a place that has a problem, by itself and with the keys above it; in
`retry` each text, too. In a text that has no tree: whatever is a key in some reading. Other values
are not taken: they may be secrets, and an engine shows the names of its operations.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from itertools import islice
from typing import TYPE_CHECKING

from mainstay.config.fields import CONFIG
from mainstay.config.shapes import NameMap, Section
from mainstay.config.tree import Node, joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mainstay.config.shapes import Shape

_LONGEST = 1000
"""Characters of a key that is all since the beginning of a line or since a bracket."""
_SEPARATORS = 8
"""Colons and equals signs of a line that may end a key: a key may have some itself."""
_QUOTED = re.compile(r"""("[^"\n]+"|'[^'\n]+')""")
_ESCAPED = re.compile(r"""("(?:[^"\\\n]|\\.)*+"?)""")
"""Also a quote that nothing closes: to begin anew behind it would take quadratic time."""
_WORD = re.compile(r"""[^\s"'{}\[\],;|:=#]+""")
_LONG_WORD = re.compile(r"""[^\s"'{}\[\],]+""")
"""With its colons and equals signs."""
_PARTS = re.compile(r"[{}\[\],]")
_END = re.compile(r"[:=]")
_YAML_END = re.compile(r":(?=\s|$)")
_ITEM = re.compile(r"\A(?:[-?][ \t]+)+")
_AROUND = "\"' \t-?;#:=&!"
"""What may stand around a key and be no part of it."""
_ANY = "*?\"'#[]{}.-"
"""A word of these alone is a pattern of everything, or none: only as a key of a tree is it one."""


class Doubts:
    """The places of a tree with a problem, and the names that may be operations there."""

    def __init__(self, tree: Node, paths: Iterable[str]) -> None:
        self._tree = tree
        self._paths = sorted(set(paths))

    def names(self) -> Iterator[tuple[str, bool]]:
        """Each name, and whether it is a key that may belong to the map of operations."""
        if "" in self._paths or not isinstance(self._tree.value, dict):
            yield from _all_in(self._tree, (), is_key=True)
        else:
            yield from self._names(self._tree, CONFIG, ())

    def has(self, path: str) -> bool:
        """Whether a problem is at that very place."""
        at = bisect_left(self._paths, path)
        return at < len(self._paths) and self._paths[at] == path

    def _names(
        self, node: Node, shape: Shape | None, path: tuple[object, ...]
    ) -> Iterator[tuple[str, bool]]:
        for key, child in _children(node):
            below = _below(shape, key)
            at = (*path, key)
            where = joined(at)
            is_key = at[0] == "retry" or at[0] not in CONFIG.keys
            if self.has(where):
                keys = _strings(at)
                if not isinstance(shape, Section) or below is None:
                    yield from ((name, is_key) for name in _joins(keys))
                elif not isinstance(below, NameMap) and not _children(child):
                    continue  # a field with a wrong value, which is no name
                yield from _all_in(child, keys, is_key=is_key)
            elif self._has_below(where):
                yield from self._names(child, below, at)

    def _has_below(self, start: str) -> bool:
        at = bisect_left(self._paths, start)
        return at < len(self._paths) and self._paths[at].startswith(start)


def _children(node: Node) -> list[tuple[object, Node]]:
    if isinstance(node.value, dict):
        return list(node.value.items())
    return list(enumerate(node.value)) if isinstance(node.value, list) else []


def _below(shape: Shape | None, key: object) -> Shape | None:
    if isinstance(shape, NameMap):
        return shape.shape
    if isinstance(shape, Section) and key in shape.keys:
        return shape.keys[str(key)][1]
    return None


def _strings(path: Iterable[object]) -> tuple[str, ...]:
    return tuple(key for key in path if isinstance(key, str))


def _all_in(node: Node, keys: tuple[str, ...], *, is_key: bool) -> Iterator[tuple[str, bool]]:
    """The keys below a place, each by itself and joined, and what its texts may name."""
    for key, child in _children(node):
        if isinstance(key, str):
            at = (*keys, key)
            yield from ((name, is_key) for name in _joins(at))
            yield from _all_in(child, at, is_key=is_key)
        else:
            yield from _all_in(child, keys, is_key=is_key)
    if keys[:1] == ("retry",) and type(node.value) in (str, int, float):
        yield from ((name, False) for name in names_in(str(node.value)))


def _joins(keys: tuple[str, ...]) -> Iterator[str]:
    """The last key, its words, and as a pattern the key with those above it."""
    name = keys[-1].strip() if keys else ""
    if not name:
        return
    yield name
    words = re.split(r"[\s,;|]+", name)
    yield from (word for word in words if word.strip(_ANY)) if len(words) > 1 else ()
    for above in reversed(keys[:-1]):
        name = f"{above.strip()}*{name}"
        yield name
        if "[" in name:
            yield name.replace("[", "[[]")


def names_in(text: str) -> Iterator[str]:
    """Each text that is a key in some reading of a text.

    A key ends at a colon or an equals sign, and may have some itself: so it is what is quoted or a
    word before the last one, all since the beginning of the line, or all since a bracket or comma.
    In a line without any it is each word.
    """
    for line in text.splitlines():
        before = line[: _last_end(line)]
        quoted = _QUOTED.findall(before) + (_ESCAPED.findall(before) if "\\" in before else [])
        found = [*map(_unquoted, quoted), *_WORD.findall(before)]
        found += _LONG_WORD.findall(before)
        found += line.lstrip(_AROUND).split(maxsplit=1)[:1]  # a colon may be missing
        for part in (line, *_PARTS.split(line)):
            for pattern in (_END, _YAML_END):
                ends = islice(pattern.finditer(part), _SEPARATORS)
                found += [part[: end.start()] for end in ends if end.start() <= _LONGEST]
        trimmed = (each for name in found for each in _trimmed(name))
        yield from (name for name in dict.fromkeys(trimmed) if name.strip(_ANY))


def _trimmed(name: str) -> tuple[str, ...]:
    """A name, without the sign of an item, and without all that may be no part of it."""
    return name.strip(), _ITEM.sub("", name.strip()), name.strip(_AROUND)


def _last_end(line: str) -> int:
    """Where the last key of a line ends, if it has one."""
    last = max(line.rfind(":"), line.rfind("="))
    return len(line) if last < 0 else last


def _unquoted(quoted: str) -> str:
    """What is in the quotes, without escapes if it is a text as JSON has them."""
    if "\\" in quoted and quoted[0] == '"':
        try:
            return str(json.loads(quoted))
        except ValueError:
            return quoted[1:-1]
    return quoted[1:-1]
