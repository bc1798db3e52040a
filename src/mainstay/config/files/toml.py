"""TOML as a tree. The reader of the standard library knows no lines, so they are looked for.

A key is found where its table's header and `key = ` stand as they usually do. What is inside an
inline table or an array has the line of the key before it. If a key is not found, its line is
unknown, and no message gives one.

A file may be another user's. The reader of the standard library needs time that grows with the
square of the parts of a dotted key, and Python refuses long numbers with an error of its own: so
keys are looked at before they are read, and numbers and nesting are bounded as in YAML.
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
DEEPEST = 50
"""How deep tables and lists may be nested, and how many parts a dotted key may have."""
LONGEST = 300
"""Digits of a number."""
_TEXT = re.compile(r"""\"(?:[^"\\\n]|\\.)*+\"|'[^'\n]*+'""")
_DOT = re.compile(r"(?<![ \t])[ \t]*+\.[ \t]*+")
_PART = r"""(?:[\w-]++|"")"""
_LONG_KEY = re.compile(rf"(?<![\w.-])(?:{_PART}\.){{{DEEPEST},}}+{_PART}[ \t]*+[=\]]")
"""All in linear time: each begins where no other match could have begun before."""
_AT = re.compile(r"^(.*) \(at line (\d+), column \d+\)$", re.DOTALL)


def read_toml(text: str, source: str, report: Report) -> Node | None:
    """The tree of a text; None if it is broken."""
    try:
        _check_keys(text)
        return _node(tomllib.loads(text), (), None, dict(_lines(text)), source)
    except _Stop as stop:
        report.file(source, stop.line, stop.text)
    except tomllib.TOMLDecodeError as error:
        found = _AT.match(str(error))
        words, line = (found[1], int(found[2])) if found else (str(error), None)
        report.file(source, line, f"is not TOML: {words}")
    except RecursionError:
        report.file(source, None, f"is nested more than {DEEPEST} deep")
    except ValueError:  # Python's own limit, of 4,300 digits
        report.file(source, None, _TOO_LONG)
    return None


def _has_long_key(line: str) -> bool:
    without_texts = _TEXT.sub('""', line)
    return _LONG_KEY.search(_DOT.sub(".", without_texts)) is not None


_TOO_LONG = f"has a number of more than {LONGEST} digits"


class _Stop(Exception):
    """Reading on would cost too much, or be of no use."""

    def __init__(self, line: int | None, text: str) -> None:
        super().__init__(text)
        self.line, self.text = line, text


def _check_keys(text: str) -> None:
    """Refuses a dotted key of very many parts, before the reader takes its time for it."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") >= DEEPEST and _has_long_key(line):
            raise _Stop(number, f"has a key of more than {DEEPEST} parts")


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
    if len(path) > DEEPEST:
        raise _Stop(line, f"is nested more than {DEEPEST} deep")
    if isinstance(value, dict):
        children = {k: _node(v, (*path, k), below, lines, source) for k, v in value.items()}
        return Node(children, line, source)
    if isinstance(value, list):
        items = [_node(v, (*path, n), below, lines, source) for n, v in enumerate(value)]
        return Node(items, line, source)
    if isinstance(value, str):
        return Node(written(value), line, source)
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise _Stop(line, _TOO_LONG)
    is_plain = isinstance(value, bool | int | float)
    return Node(value if is_plain else str(value), line, source)


_MOST_BITS = (10**LONGEST).bit_length()


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
