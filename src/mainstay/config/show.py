"""A configuration for people and for the log: as it holds, where each value came from, no secrets.

A value that comes from the environment by `${NAME}` is shown as that, unless it is known to be a
secret: fields that hold one, options that are called like one, passwords in URLs, and whatever else
core/redact/redactor.py finds are shown as `[redacted]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.config.shapes import Anything, Either, Listing, NameMap, Section, Text, camel
from mainstay.config.tree import SECRET, Node, Template, joined
from mainstay.core.redact.redactor import REDACTOR

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from mainstay.config.shapes import Shape

_ANYTHING = Anything()


def visible(shape: Shape, node: Node) -> Any:
    """The value of a tree as plain data, keys in camelCase, without secrets."""
    if type(node.value) is dict:
        pairs = (_child(shape, key, child) for key, child in node.value.items())
        return {key: SECRET if form is None else visible(form, child) for key, form, child in pairs}
    if type(node.value) is list:
        inner = shape.shape if isinstance(shape, Listing) else shape
        return [visible(inner, child) for child in node.value]
    return _scalar(shape, node)


def leaves(shape: Shape, node: Node, path: tuple[object, ...] = ()) -> Iterator[tuple[str, str]]:
    """Each scalar or list by its path, with the place it came from."""
    if type(node.value) is dict and node.value:
        for key, form, child in (_child(shape, k, c) for k, c in node.value.items()):
            yield from leaves(form or _ANYTHING, child, (*path, key))
    elif path:
        yield joined(path), origin(node)


def origin(node: Node) -> str:
    """Where a value came from: a file and a line, a variable, an option."""
    return node.source if node.line is None else f"{node.source}:{node.line}"


def _child(shape: Shape, key: str, child: Node) -> tuple[str, Shape | None, Node]:
    """The key as it is usually written, and the shape below; None for a secret."""
    if isinstance(shape, Section) and key in shape.keys:
        field, form = shape.keys[key]
        names = [name for name, _ in field.forms]
        return camel(next((n for n in names if key in (n, camel(n))), key)), form, child
    if isinstance(shape, NameMap):
        return key, shape.shape, child
    ((name, value),) = REDACTOR.data({key: "-"}).items()  # a key may hold a secret itself
    return name, None if value == SECRET else _ANYTHING, child


def _scalar(shape: Shape, node: Node) -> Any:
    value = node.value
    if isinstance(shape, Listing):
        shape = shape.shape
    if isinstance(shape, Section) and shape.text in shape.keys:
        shape = shape.keys[shape.text][1]
    if isinstance(shape, Text | Either) and node.text is not None:
        value = node.text
    if isinstance(shape, Text) and shape.is_secret and type(value) is not Template:
        return SECRET
    return REDACTOR.text(value) if isinstance(value, str) else value
