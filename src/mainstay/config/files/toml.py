"""TOML as a tree. The reader of the standard library knows no lines, so they are looked for.

A key is found where its table's header and `key = ` stand as they usually do. What is inside an
inline table or an array has the line of the key before it. If a key is not found, its line is
unknown, and no message gives one.
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

from mainstay.config.tree import Node, written

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from mainstay.config.report import Report

_KEY = r"""[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*'"""
_DOTTED = rf"(?:{_KEY})(?:\s*\.\s*(?:{_KEY}))*"
_HEADER = re.compile(rf"\s*\[\s*({_DOTTED})\s*\]\s*(?:#.*)?")
_LIST_HEADER = re.compile(rf"\s*\[\[\s*({_DOTTED})\s*\]\]\s*(?:#.*)?")
_PAIR = re.compile(rf"\s*({_DOTTED})\s*=")
_AT = re.compile(r"^(.*) \(at line (\d+), column \d+\)$", re.DOTALL)


def read_toml(text: str, source: str, report: Report) -> Node | None:
    """The tree of a text; None if it is broken."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _AT.match(str(error))
        words, line = (found[1], int(found[2])) if found else (str(error), None)
        report.file(source, line, f"is not TOML: {words}")
    except RecursionError:
        report.file(source, None, "is nested too deep")
    else:
        return _node(document, (), None, dict(_lines(text)), source)
    return None


def _node(
    value: Any,
    path: tuple[object, ...],
    above: int | None,
    lines: dict[tuple[object, ...], tuple[int, bool] | None],
    source: str,
) -> Node:
    """A value with its line; `above` is that of the key whose line it shares, if it does."""
    line, is_pair = lines.get(path) or (above, above is not None)
    below = line if is_pair else None
    if isinstance(value, dict):
        children = {k: _node(v, (*path, k), below, lines, source) for k, v in value.items()}
        return Node(children, line, source)
    if isinstance(value, list):
        items = [_node(v, (*path, n), below, lines, source) for n, v in enumerate(value)]
        return Node(items, line, source)
    if isinstance(value, str):
        return Node(written(value), line, source)
    is_plain = isinstance(value, bool | int | float)
    return Node(value if is_plain else str(value), line, source)


def _lines(text: str) -> Iterator[tuple[tuple[object, ...], tuple[int, bool] | None]]:
    """Paths with their line and whether it is that of a `key =`; None if there are several."""
    table: tuple[object, ...] = ()
    seen: set[tuple[object, ...]] = set()
    counts: dict[tuple[object, ...], int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if listed := _LIST_HEADER.fullmatch(line):
            name = _keys(listed[1])
            counts[name] = counts.get(name, -1) + 1
            table = path = (*name, counts[name])
        elif header := _HEADER.fullmatch(line):
            table = path = _keys(header[1])
        elif pair := _PAIR.match(line):
            path = (*table, *_keys(pair[1]))
        else:
            continue
        yield path, None if path in seen else (number, path is not table)
        seen.add(path)


def _keys(dotted: str) -> tuple[str, ...]:
    """The keys of a dotted key, without their quotes."""
    found = re.findall(_KEY, dotted)
    return tuple(key[1:-1] if key[0] in "\"'" else key for key in found)
