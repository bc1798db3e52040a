"""Checks a tree against the declared fields. Every problem is reported; what is right is returned.

What comes back is plain data: a section as a dict of field names (in snake_case) to values, in the
units that the field's name means. A value that is wrong is left out. Rules between fields, and
between names, are settings.py's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mainstay.config.durations import seconds_in
from mainstay.config.report import nearest
from mainstay.config.shapes import (
    Anything,
    Either,
    Flag,
    Listing,
    NameMap,
    Number,
    Section,
    Text,
    Whole,
    camel,
    is_time,
    snake,
)
from mainstay.config.tree import SECRET, Node, Template, scalar
from mainstay.core.events.describe import usual_redactor

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mainstay.config.report import Path, Report
    from mainstay.config.shapes import Field, Shape

BAD: Any = object()
"""A value that was wrong, and has been reported."""


def check(shape: Shape, node: Node, path: Path, report: Report) -> Any:
    """The value of a node, as the shape means it; or BAD."""
    if type(node.value) is Template:
        filled = fill(node, path, report)
        if filled is None:
            return BAD
        node = filled
    return _CHECKS[type(shape)](shape, node, path, report)


def fill(node: Node, path: Path, report: Report) -> Node | None:
    """The node with the environment's values in place of `${NAME}`, which are shown nowhere."""
    template = node.value
    missing = [name for name in template.names if name not in report.env]
    for name in dict.fromkeys(missing):
        report.problem(node, path, f"needs the environment variable {name}, which is not set")
    if missing:
        return None
    text = template.filled(report.env)
    shown = usual_redactor().text(str(template))
    return Node(scalar(text), node.line, node.source, text=text, shown=shown)


def _text(shape: Text, node: Node, path: Path, report: Report) -> Any:
    value = node.value if node.text is None else node.text
    if type(value) is str:
        if shape.choices:
            if value in shape.choices:
                return value
        elif re.fullmatch(shape.pattern, value):
            return value
    if shape.is_secret and node.shown is None:
        node = Node(value, node.line, node.source, shown=SECRET)
    expected = shape.expected
    if type(value) in (int, float, bool) and not shape.choices:
        expected += "; put it in quotes"
    near = nearest(value, shape.choices) if node.shown is None and value is not None else ""
    if shape.is_rule and str(value).startswith("kind:"):
        value = nearest(str(value).removeprefix("kind:"), shape.meant)
    near = shape.meant.get(str(value), near)
    report.wrong(node, path, expected, near)
    return BAD


def _number(shape: Number, node: Node, path: Path, report: Report) -> Any:
    value = node.value
    if shape.is_time and type(value) is str and (seconds := seconds_in(value)) is not None:
        value = seconds * shape.per
    if type(value) in (int, float):
        if (shape.low < value if shape.above else shape.low <= value) and value <= shape.high:
            return value / shape.per
    elif value is None and shape.optional:
        return None
    report.wrong(node, path, shape.expected)
    return BAD


def _whole(shape: Whole, node: Node, path: Path, report: Report) -> Any:
    value = node.value
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is int and shape.least <= value <= shape.most:
        return value
    if value is None and shape.optional:
        return None
    report.wrong(node, path, shape.expected)
    return BAD


def _flag(shape: Flag, node: Node, path: Path, report: Report) -> Any:
    if type(node.value) is bool:
        return node.value
    report.wrong(node, path, shape.expected)
    return BAD


def _either(shape: Either, node: Node, path: Path, report: Report) -> Any:
    before = len(report.problems)
    for each in shape.shapes:
        found = check(each, node, path, report)
        if found is not BAD:
            del report.problems[before:]
            return found
    del report.problems[before:]
    choices = [word for each in shape.shapes if type(each) is Text for word in each.choices]
    near = nearest(node.value, choices) if type(node.value) is str else ""
    report.wrong(node, path, shape.expected, near)
    return BAD


def _anything(shape: Anything, node: Node, path: Path, report: Report) -> Any:
    if type(node.value) is dict:
        pairs = {k: check(shape, v, (*path, k), report) for k, v in node.value.items()}
        return {key: value for key, value in pairs.items() if value is not BAD}
    if type(node.value) is list:
        items = [check(shape, v, (*path, n), report) for n, v in enumerate(node.value)]
        return [item for item in items if item is not BAD]
    return node.value


def _listing(shape: Listing, node: Node, path: Path, report: Report) -> Any:
    if type(node.value) is not list:
        if shape.or_one and type(node.value) is not dict:
            found = check(shape.shape, node, path, report)
            return BAD if found is BAD else [found]
        report.wrong(node, path, shape.expected)
        return BAD
    items = [check(shape.shape, v, (*path, n), report) for n, v in enumerate(node.value)]
    return [item for item in items if item is not BAD]


def _names(shape: NameMap, node: Node, path: Path, report: Report) -> Any:
    if node.value is None:
        return {}
    if type(node.value) is not dict:
        report.wrong(node, path, shape.expected)
        return BAD
    found = {}
    for key, child in node.value.items():
        where = (*path, key)
        if _is_key(shape.key, key, child, where, report):
            value = _named(shape.shape, child, where, report)
            if value is not BAD:
                found[key] = value
    return found


def _named(shape: Shape, node: Node, path: Path, report: Report) -> Any:
    """The value of a name. Nothing is not the defaults: what stood there may have been lost."""
    if node.value is None and type(shape) is Section:
        report.wrong(node, path, f"{shape.expected}; {{}} has the defaults")
        return BAD
    return check(shape, node, path, report)


def _is_key(shape: Text, key: str, child: Node, path: Path, report: Report) -> bool:
    if key in shape.choices if shape.choices else re.fullmatch(shape.pattern, key):
        return True
    text = f"the key must be {shape.expected}"
    report.problem(child, path, text, allowed=shape.expected, nearest=nearest(key, shape.choices))
    return False


def _section(shape: Section, node: Node, path: Path, report: Report) -> Any:
    value = node.value
    if type(value) is not dict:
        value = _short(shape, node)
        if value is None:
            report.wrong(node, path, shape.expected)
            return BAD
    found: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for key, child in value.items():
        known = shape.keys.get(key)
        if known is None:
            _strange(shape, key, child, path, report, found)
            continue
        field, form = known
        if field.name in keys:
            _twice(key, keys[field.name], child, path, report)
            continue
        keys[field.name] = key
        got = check(form, child, (*path, key) if child is not node else path, report)
        if got is not BAD:
            found[field.name] = got
    for name in shape.needs:
        if name not in keys:
            key = camel(name)
            report.problem(node, path, f"{key} is missing", allowed=f"given with {key}")
    return found if all(name in found for name in shape.needs) else BAD


def _short(shape: Section, node: Node) -> dict[str, Node] | None:
    """What a scalar in place of a section stands for; nothing is a section with nothing in it."""
    if node.value is None:
        return {}
    sort = type(node.value)
    name = shape.flag if sort is bool else shape.number if sort in (int, float) else ""
    if not name and (sort is str or node.text is not None):
        name = shape.text
    if not name and sort is str and shape.number and is_time(shape.keys[shape.number][1]):
        name = shape.number if seconds_in(node.value) is not None else ""
    return {name: node} if name else None


def _twice(key: str, first: str, child: Node, path: Path, report: Report) -> None:
    text = f"means the same as {first}, which is given too; keep one of them"
    report.problem(child, (*path, key), text, allowed=f"left out, or {first}")


def _strange(
    shape: Section, key: str, child: Node, path: Path, report: Report, found: dict[str, Any]
) -> None:
    """A key that is not known: taken by an open section, or reported with the nearest name."""
    if shape.is_open:
        got = check(_ANYTHING, child, (*path, key), report)
        if got is not BAD:
            found[key] = got
        return
    if shape.has_extras and key.startswith("x-"):
        return
    reason = shape.refused.get(snake(key), "")
    known = shape.names
    meant = "" if reason else shape.meant.get(snake(key)) or nearest(key, known)
    text = reason or ("unknown key" if meant else f"unknown key; there are {', '.join(known)}")
    report.problem(child, (*path, key), text, allowed=", ".join(known), nearest=meant)


def locate(shape: Shape, node: Node, names: tuple[str, ...]) -> tuple[Node, list[str]]:
    """The node of a field, by the names of fields; as near as there is one. And its keys."""
    keys: list[str] = []
    for name in names:
        if type(node.value) is not dict:
            break
        key = key_of(shape, node, name)
        if key is None:
            break
        if isinstance(shape, Section) and key in shape.keys:
            shape = shape.keys[key][1]
        elif isinstance(shape, NameMap):
            shape = shape.shape
        node = node.value[key]
        keys.append(key)
    return node, keys


def key_of(shape: Shape, node: Node, name: str) -> str | None:
    """The key under which a field stands in a mapping."""
    if not isinstance(shape, Section):
        return name if name in node.value else None
    field: Field | None = next((f for f in shape.fields if f.name == name), None)
    if field is None:
        return next((key for key in node.value if snake(key) == name), None)
    return next((key for key in field.spellings if key in node.value), None)


_ANYTHING = Anything()
_CHECKS: dict[type[Shape], Callable[[Any, Node, Path, Report], Any]] = {
    Anything: _anything,
    Either: _either,
    Flag: _flag,
    Listing: _listing,
    NameMap: _names,
    Number: _number,
    Section: _section,
    Text: _text,
    Whole: _whole,
}
