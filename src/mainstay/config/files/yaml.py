"""YAML as a tree: from the parser's events, so that every value has its line.

Plain data only: no tags but !!str. Anchors, aliases and `<<` are taken. A key that stands twice in
a mapping is a problem, other than in most YAML readers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)

from mainstay.config.tree import Node, scalar, written

if TYPE_CHECKING:
    from typing import Any

    from mainstay.config.report import Path, Report

MOST_VALUES = 500_000
"""What aliases may multiply to."""
DEEPEST = 50
_STR = "tag:yaml.org,2002:str"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(text: str, source: str, report: Report) -> Node | None:
    """The tree of a text; None if it is broken, and an empty mapping if it is empty."""
    reader = _Reader(text, source, report)
    try:
        return reader.document()
    except yaml.YAMLError as error:
        line, words = _parser_error(error, text)
        report.file(source, line, f"is not YAML: {words}")
    except _Stop:
        pass
    finally:
        reader.close()
    return None


class _Stop(Exception):
    """The problem is reported; reading on is of no use."""


class _Reader:
    def __init__(self, text: str, source: str, report: Report) -> None:
        self.source = source
        self.report = report
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._count = 0
        self._loader = _LOADER(text)
        self._next: Any = self._loader.get_event

    def close(self) -> None:
        self._loader.dispose()

    def document(self) -> Node:
        self._next()  # the stream's beginning
        if isinstance(self._next(), StreamEndEvent):
            return Node({}, 1, self.source)
        found = self._node(self._next(), ())
        ended = self._next()
        assert isinstance(ended, DocumentEndEvent)
        more: Any = self._next()
        if isinstance(more, DocumentStartEvent):
            mark: Any = more.start_mark
            line = mark.line + 1
            self.report.file(self.source, line, "holds a second document (---): one is enough")
        return Node({}, 1, self.source) if found.value is None else found

    def _node(self, event: Any, path: Path) -> Node:
        line = event.start_mark.line + 1
        if type(event) is AliasEvent:
            return self._alias(event.anchor, line, path)
        before = self._count
        self._count += 1
        if type(event) is ScalarEvent:
            found = Node(self._scalar(event, line, path), line, self.source)
        else:
            found = Node(self._several(event, line, path), line, self.source)
        if event.anchor:
            self._anchors[event.anchor] = (found, self._count - before)
        return found

    def _alias(self, anchor: Any, line: int, path: Path) -> Node:
        if anchor not in self._anchors:
            self._stop(line, f"*{anchor} stands for nothing: there is no &{anchor} before it", path)
        found, size = self._anchors[anchor]
        self._count += size
        if self._count > MOST_VALUES:
            self._stop(line, f"has more than {MOST_VALUES} values, aliases included", path)
        return found

    def _scalar(self, event: Any, line: int, path: Path) -> Any:
        if event.tag not in (None, "!", _STR):
            self.report.file(self.source, line, f"the tag {event.tag} is not taken here", path)
        text = event.value
        if "${" in text:
            return written(text)
        return scalar(text) if event.implicit[0] else text

    def _several(self, event: Any, line: int, path: Path) -> Any:
        if event.tag is not None:
            self.report.file(self.source, line, f"the tag {event.tag} is not taken here", path)
        if len(path) >= DEEPEST:
            self._stop(line, f"is nested more than {DEEPEST} deep", path[:3])
        if type(event) is MappingStartEvent:
            return self._mapping(path)
        found: list[Node] = []
        while type(event := self._next()) is not SequenceEndEvent:
            found.append(self._node(event, (*path, len(found))))
        return found

    def _mapping(self, path: Path) -> dict[str, Node]:
        found: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        while type(event := self._next()) is not MappingEndEvent:
            line = event.start_mark.line + 1
            key = self._key(event, line, path)
            child = self._node(self._next(), (*path, key))
            if key == "<<" and event.implicit[0]:
                self._merge(merged, child, line, path)
            elif key in found:
                text = f"is given twice in the mapping; first in line {found[key].line}"
                self.report.file(self.source, line, text, (*path, key))
            else:
                found[key] = child if child.line == line else self._moved(child, line)
        return {**merged, **found} if merged else found

    def _moved(self, child: Node, line: int) -> Node:
        """The same value under the line of its key, if an alias has none of its own."""
        is_below = type(child.value) in (dict, list) and (child.line or 0) > line
        return Node(child.value, line, self.source) if is_below else child

    def _key(self, event: Any, line: int, path: Path) -> str:
        if type(event) is AliasEvent:
            found = self._alias(event.anchor, line, path).value
            if isinstance(found, str):
                return str(found)
        elif type(event) is ScalarEvent:
            if event.anchor:
                self._anchors[event.anchor] = (Node(event.value, line, self.source), 1)
            return str(event.value)
        self._stop(line, "has a key that is no text", path)
        raise AssertionError

    def _merge(self, merged: dict[str, Node], child: Node, line: int, path: Path) -> None:
        for each in child.value if type(child.value) is list else [child]:
            if type(each.value) is not dict:
                self.report.file(self.source, line, "<< takes a mapping, or a list of them", path)
                continue
            for key, value in each.value.items():
                merged.setdefault(key, value)

    def _stop(self, line: int, text: str, path: Path) -> None:
        self.report.file(self.source, line, text, path)
        raise _Stop


def _parser_error(error: yaml.YAMLError, text: str) -> tuple[int | None, str]:
    """The line, and the parser's message in one line; tabs and odd characters by their name."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        position = getattr(error, "position", None)
        line = None if position is None else text.count("\n", 0, position) + 1
        odd = getattr(error, "character", None)
        named = f" (U+{odd:04X})" if isinstance(odd, int) else ""
        return line, f"{getattr(error, 'reason', None) or error}{named}"
    line = mark.line + 1
    lines = text.splitlines()
    there = lines[mark.line] if mark.line < len(lines) else ""
    if there[: len(there) - len(there.lstrip())].count("\t"):
        return line, "the line begins with a tab; indent with spaces"
    context = getattr(error, "context", None)
    problem = getattr(error, "problem", None) or "it cannot be read"
    return line, f"{problem}, {context}" if context else str(problem)
