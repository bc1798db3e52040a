"""The environment and `--set`: other leaves for the tree of a file.

`MAINSTAY_RETRY__POLICIES__STANDARD__MAX_ATTEMPTS=5` names a path, `__` between its keys, in any
case; `--set retry.policies.standard.maxAttempts=5` names it as messages do. A value is written as
in YAML: a number, a word, or a list such as `[a, b]`. The environment can change the names that are
there (of policies, operations, circuits), and no others: it does not know their case.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mainstay.config.check import key_of
from mainstay.config.fields import CONFIG
from mainstay.config.report import Report, nearest
from mainstay.config.shapes import NameMap, Section, camel, snake
from mainstay.config.tree import Node, Template, joined, scalar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstay.config.shapes import Shape

PREFIX = "MAINSTAY_"
OURS = (
    "MAINSTAY_CONFIG",
    "MAINSTAY_DEBUG",
    "MAINSTAY_NEW_SECRET",
    "MAINSTAY_OPERATOR_SECRET",
    "MAINSTAY_REQUIRE_ALL",
)
"""What mainstay reads for other reasons; and everything that begins with MAINSTAY_TEST_."""
BUILT_IN = "standard"
_SEGMENT = r'"((?:[^"\\]|\\.)*)"|([^."\s=]+)'


def from_environment(tree: Node, report: Report) -> None:
    """Replaces what the environment names."""
    names = [n for n in sorted(report.env) if n.startswith(PREFIX) and n not in OURS]
    names = [n for n in names if not n.startswith("MAINSTAY_TEST_")]
    asked = set(_asked(tree)) if names else set()
    for name in names:
        if name not in asked:
            segments = name.removeprefix(PREFIX).split("__")
            source = Node(None, None, name)
            _replace(tree, segments, report.env[name], source, report, is_exact=False)


def from_options(tree: Node, options: Iterable[str], report: Report) -> None:
    """Replaces what `--set PATH=VALUE` names."""
    for option in options:
        path, equals, value = _split(option)
        source = Node(None, None, f"--set {path}" if path else f"--set {option}")
        if not equals or not path:
            text = "must be PATH=VALUE, such as retry.policies.fast.maxAttempts=5"
            report.problem(source, (), text)
            continue
        segments = [
            quoted.replace('\\"', '"') or plain for quoted, plain in re.findall(_SEGMENT, path)
        ]
        _replace(tree, segments, value, source, report, is_exact=True)


def _split(option: str) -> tuple[str, str, str]:
    """The path, the equals sign outside of quotes, and the value."""
    found = re.match(r'((?:"(?:[^"\\]|\\.)*"|[^"=])*)(=)([\s\S]*)', option)
    return (found[1].strip(), found[2], found[3]) if found else ("", "", "")


def _asked(node: Node) -> Iterable[str]:
    """The environment variables that the file itself asks for."""
    if type(node.value) is Template:
        yield from node.value.names
    elif type(node.value) in (dict, list):
        values = node.value.values() if type(node.value) is dict else node.value
        for child in values:
            yield from _asked(child)


def _replace(
    tree: Node, segments: list[str], value: str, source: Node, report: Report, *, is_exact: bool
) -> None:
    """Sets the leaf of a path, and whatever is missing above it."""
    node, shape, path = tree, CONFIG, ()  # type: tuple[Node, Shape, tuple[str, ...]]
    for number, segment in enumerate(segments):
        key = _key(shape, node, segment, is_exact=is_exact)
        if key is None:
            _unknown(shape, node, segment, path, source, report)
            return
        below = shape.keys[key][1] if isinstance(shape, Section) and key in shape.keys else None
        below = shape.shape if isinstance(shape, NameMap) else below
        path = (*path, key)
        if number == len(segments) - 1:
            leaf = _leaf(value, source, path, report)
            if leaf is not None:
                _put(shape, node, key, leaf)
        elif isinstance(below, Section | NameMap):
            node, shape = _below(shape, node, key, below, source), below
        else:
            report.problem(source, path, "has no keys below it")
            return


def _leaf(value: str, source: Node, path: tuple[str, ...], report: Report) -> Node | None:
    """The value as YAML; its text stays, for a field that takes texts."""
    if "${" in value:
        return Node(Template(value), None, source.source)
    if re.fullmatch(_WORD, value):
        return Node(scalar(value), None, source.source, text=value)
    from mainstay.config.files.yaml import read_yaml  # loads if there is such a value to read

    own = Report(report.env)
    found = read_yaml(value, source.source, own) if value.strip() else Node(None, None, "")
    if found is None or own.problems:
        report.problem(source, path, "is not a value as YAML has them")
        return None
    text = value if not isinstance(found.value, dict | list) else None
    if text is not None and found.value == {}:  # an empty document
        found = Node(None, None, "")
    return _without_lines(found, source.source, text)


_WORD = r"[A-Za-z0-9_/](?:[A-Za-z0-9_./:@+?=&%~-]*[A-Za-z0-9_/])?"
"""What is one plain word in YAML, too: a name, a number, a path, a URL."""


def _without_lines(node: Node, source: str, text: str | None = None) -> Node:
    value = node.value
    if type(value) is dict:
        value = {key: _without_lines(child, source) for key, child in value.items()}
    elif type(value) is list:
        value = [_without_lines(child, source) for child in value]
    return Node(value, None, source, text=text)


def _put(shape: Shape, node: Node, key: str, leaf: Node) -> None:
    """Sets a key, in place of every other spelling of the same field."""
    if isinstance(shape, Section) and key in shape.keys:
        for other in shape.keys[key][0].spellings:
            if other != key:
                node.value.pop(other, None)
    node.value[key] = leaf


def _below(shape: Shape, node: Node, key: str, below: Section | NameMap, source: Node) -> Node:
    """The mapping under a key, made if there is none; a scalar becomes what it stands for."""
    if isinstance(shape, Section) and key in shape.keys:
        key = key_of(shape, node, shape.keys[key][0].name) or key
    child = node.value.get(key)
    if child is None or type(child.value) is not dict:
        entries: dict[str, Node] = {}
        if child is not None and child.value is not None and isinstance(below, Section):
            short = below.flag if type(child.value) is bool else below.text or below.number
            entries = {short: child} if short else {}
        made = Node(
            entries, child.line if child else None, child.source if child else source.source
        )
        node.value[key] = made
        return made
    # An alias may share the mapping with others, which are not meant.
    own = node.value[key] = Node(dict(child.value), child.line, child.source)
    return own


def _key(shape: Shape, node: Node, segment: str, *, is_exact: bool) -> str | None:
    """The key that a segment means; exactly, or whatever its case."""
    known = _known(shape, node)
    if is_exact:
        is_free = isinstance(shape, NameMap) or (isinstance(shape, Section) and shape.is_open)
        return segment if segment in known or is_free else None
    wanted = _bare(segment)
    found = [name for name in known if _bare(name) == wanted]
    alike = [name for name in found if name.lower() == segment.lower()]
    if isinstance(shape, Section):
        if found:
            return found[0]
        return camel(segment.lower()) if shape.is_open else None
    return (alike or found)[0] if len(alike or found) == 1 else None


def _bare(name: str) -> str:
    return re.sub(r"[_\-\s]", "", name).lower()


def _known(shape: Shape, node: Node) -> list[str]:
    there = list(node.value) if type(node.value) is dict else []
    if isinstance(shape, Section):
        return [*shape.keys, *(there if shape.is_open else [])]
    is_policies = isinstance(shape, NameMap) and shape.what == "policy"
    return [*there, *([BUILT_IN] if is_policies and BUILT_IN not in there else [])]


def _unknown(
    shape: Shape,
    node: Node,
    segment: str,
    path: tuple[str, ...],
    source: Node,
    report: Report,
) -> None:
    names = shape.names if isinstance(shape, Section) else _known(shape, node)
    shown = ", ".join(names) or "none"
    what = shape.what if isinstance(shape, NameMap) else "key"
    place = f" in {joined(path)}" if path else ""
    text = f"no {what}{place} is called {segment!r}; there are {shown}"
    bare = {_bare(name): name for name in names}
    near = nearest(_bare(segment), bare)
    meant = shape.meant.get(snake(segment), "") if isinstance(shape, Section) else ""
    report.problem(source, (), text, allowed=shown, nearest=meant or bare.get(near, ""))
