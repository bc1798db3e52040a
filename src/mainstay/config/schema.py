"""The declared fields as JSON Schema (draft 2020-12), for editors and other checkers.

Every section is a definition. Keys in camelCase are `properties`, which editors complete; their
other spellings are `patternProperties`, which they accept. Of the spellings and forms of one field
only one may be there. If a scalar is allowed, so is a text with `${NAME}` in it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mainstay.config.durations import EXAMPLES, PATTERN
from mainstay.config.fields import CONFIG
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
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mainstay.config.shapes import Field, Shape

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TEMPLATE = {"$ref": "#/$defs/fromEnvironment"}
_END = r"(?![\s\S])"  # as $, but not before a last line's end


def schema() -> dict[str, Any]:
    """The whole schema."""
    made = _Maker()
    root = made.section(CONFIG)
    return {
        "$schema": DIALECT,
        "title": "mainstay",
        "description": "The configuration of mainstay: mainstay.yml, [tool.mainstay]",
        **root,
        "$defs": {
            "fromEnvironment": {
                "type": "string",
                "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*\}",
                "description": "a value of the environment",
            },
            "duration": {
                "type": "string",
                "pattern": f"^(?:{PATTERN}){_END}",
                "description": f"a length of time with its units, such as {EXAMPLES}",
            },
            **made.definitions,
        },
    }


class _Maker:
    """Turns shapes into schemas; a section that is used more than once is written once."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self._names: dict[int, str] = {}

    def of(self, shape: Shape, name: str) -> dict[str, Any]:
        return _KINDS[type(shape)](self, shape, name)

    def reference(self, shape: Section, name: str) -> dict[str, Any]:
        """Where a section is defined; defines it if it is new."""
        known = self._names.get(id(shape))
        if known is None:
            known, number = name, 2
            while known in self.definitions:
                known, number = f"{name}{number}", number + 1
            self._names[id(shape)] = known
            self.definitions[known] = {}
            self.definitions[known] = self._short(shape, self.section(shape))
        return {"$ref": f"#/$defs/{known}"}

    def section(self, shape: Section) -> dict[str, Any]:
        """A mapping with known keys."""
        properties: dict[str, Any] = {}
        patterns: dict[str, Any] = {}
        only: list[dict[str, Any]] = []
        for field in shape.fields:
            for name, form in field.forms:
                made = {**self.of(form, camel(name)), "description": _described(field)}
                properties[camel(name)] = made
                if name != camel(name):
                    patterns[f"^{re.escape(name)}{_END}"] = made
            only += _only_one(field)
        if shape.has_extras:
            patterns["^x-"] = {}
        found: dict[str, Any] = {"type": ["object", "null"], "properties": properties}
        if patterns:
            found["patternProperties"] = patterns
        if not shape.is_open:
            found["additionalProperties"] = False
        needed = [_present(field) for field in shape.fields if field.name in shape.needs]
        if only or needed:
            found["allOf"] = [*only, *needed]
        if needed:  # nothing would be a section without what it needs
            found["type"] = "object"
        return found

    def _short(self, shape: Section, whole: dict[str, Any]) -> dict[str, Any]:
        """A section, or the scalar that stands for one of its fields."""
        others = []
        if shape.text:
            others.append(self.of(shape.keys[shape.text][1], shape.text))
        if shape.number:
            others.append(self.of(shape.keys[shape.number][1], shape.number))
        if shape.flag:
            others.append(self.of(shape.keys[shape.flag][1], shape.flag))
        return {"anyOf": [whole, *others]} if others else whole


def _described(field: Field) -> str:
    return field.means + (f" (default: {field.default})" if field.default else "")


def _only_one(field: Field) -> list[dict[str, Any]]:
    """Every two spellings of a field exclude each other."""
    keys = field.spellings
    pairs = [(a, b) for n, a in enumerate(keys) for b in keys[n + 1 :]]
    return [{"not": {"type": "object", "required": [a, b]}} for a, b in pairs]


def _present(field: Field) -> dict[str, Any]:
    return {"anyOf": [{"required": [key]} for key in field.spellings]}


def _or_template(made: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [made, _TEMPLATE]}


def _text(_maker: _Maker, shape: Text, _name: str) -> dict[str, Any]:
    if shape.choices:
        return _or_template({"enum": list(shape.choices)})
    return _or_template({"type": "string", "pattern": f"^(?:{shape.pattern}){_END}"})


def _number(_maker: _Maker, shape: Number, _name: str) -> dict[str, Any]:
    low = "exclusiveMinimum" if shape.above else "minimum"
    sort = ["number", "null"] if shape.optional else "number"
    made = {"type": sort, low: shape.low, "maximum": shape.high}
    if not shape.is_time:
        return _or_template(made)
    return {"anyOf": [made, {"$ref": "#/$defs/duration"}, _TEMPLATE]}


def _whole(_maker: _Maker, shape: Whole, _name: str) -> dict[str, Any]:
    sort = ["integer", "null"] if shape.optional else "integer"
    return _or_template({"type": sort, "minimum": shape.least, "maximum": shape.most})


def _flag(_maker: _Maker, _shape: Flag, _name: str) -> dict[str, Any]:
    return _or_template({"type": "boolean"})


def _anything(_maker: _Maker, _shape: Anything, _name: str) -> dict[str, Any]:
    return {}


def _either(maker: _Maker, shape: Either, name: str) -> dict[str, Any]:
    return {"anyOf": [maker.of(each, name) for each in shape.shapes]}


def _listing(maker: _Maker, shape: Listing, name: str) -> dict[str, Any]:
    one = maker.of(shape.shape, name)
    several = {"type": "array", "items": one}
    return {"anyOf": [one, several]} if shape.or_one else several


def _names(maker: _Maker, shape: NameMap, _name: str) -> dict[str, Any]:
    key: dict[str, Any] = {"pattern": f"^(?:{shape.key.pattern}){_END}"}
    if shape.key.choices:
        key = {"enum": list(shape.key.choices)}
    named = maker.of(shape.shape, shape.what)
    if type(shape.shape) is Section:
        named = {"allOf": [named, {"not": {"type": "null"}}]}
    return {"type": ["object", "null"], "propertyNames": key, "additionalProperties": named}


def _section(maker: _Maker, shape: Section, name: str) -> dict[str, Any]:
    return maker.reference(shape, name)


_KINDS: dict[type[Shape], Callable[[_Maker, Any, str], dict[str, Any]]] = {
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
