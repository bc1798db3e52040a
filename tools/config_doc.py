"""The configuration reference and its JSON Schema, made from the declared fields.

    python tools/config_doc.py            print the page
    python tools/config_doc.py --write    write docs/reference/configuration.md and the schema

NameMap, what is allowed, defaults and meanings come from mainstay.config.fields.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mainstay.config.fields import CONFIG
from mainstay.config.schema import schema
from mainstay.config.shapes import Listing, NameMap, Number, Section, camel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.config.shapes import Field, Shape

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "configuration.md"
SCHEMA = ROOT / "docs" / "reference" / "mainstay.schema.json"
HOW = "run .venv/bin/python tools/config_doc.py --write and review the diff"

HEAD = """\
<!-- Made by tools/config_doc.py; edit the fields in src/mainstay/config/, then:
     .venv/bin/python tools/config_doc.py --write -->

# Configuration

Every section and key. How to use them: [configuration](../how-to/configuration.md). The same as
JSON Schema: [mainstay.schema.json](mainstay.schema.json), or `mainstay config schema`.

Keys are written in camelCase or in snake_case (`maxAttempts`, `max_attempts`); the same key in both
is a problem. Times are seconds; under the name with `Ms` at its end, milliseconds. Instead of the
number a text with units may be given: `500ms`, `30s`, `2m`, `1h30m`, `1d`. A value may be, or hold,
`${NAME}`: it is taken from the environment, and shown nowhere. A section with nothing in it is one
with its defaults. Keys at the top that begin with `x-` are passed over.
"""


def sections() -> list[Section]:
    """Every section, each once, in the order in which the page has them."""
    return [shape for _, shape in _walk(CONFIG, ())]


def render() -> str:
    """The whole page."""
    parts = [HEAD]
    for path, shape in _walk(CONFIG, ()):
        title = ".".join(path) or "The whole file"
        parts.append(f"## {title}\n\n{_also(shape)}{_table(shape)}")
    return "\n".join(parts)


def schema_text() -> str:
    """The schema as it is written to its file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _walk(shape: Section, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Section]]:
    """Sections below sections, each the first time it is met."""
    seen: set[int] = set()
    waiting: list[tuple[tuple[str, ...], Shape]] = [(path, shape)]
    while waiting:
        here, found = waiting.pop(0)
        if isinstance(found, NameMap):
            waiting.insert(0, ((*here, f"<{found.what}>"), found.shape))
        elif isinstance(found, Listing):
            waiting.insert(0, ((*here, "<each>"), found.shape))
        elif isinstance(found, Section) and id(found) not in seen:
            seen.add(id(found))
            yield here, found
            below = [((*here, camel(field.name)), field.shape) for field in found.fields]
            waiting = [*below, *waiting]


def _also(shape: Section) -> str:
    """What may stand in place of the section."""
    notes = []
    for sort, name in (("A text", shape.text), ("A number", shape.number)):
        if name:
            notes.append(f"{sort} alone is its `{camel(name)}`.")
    if shape.flag:
        notes.append(f"`true` or `false` alone is its `{camel(shape.flag)}`.")
    if shape.is_open:
        notes.append("Further keys are options of what is made of it.")
    return " ".join(notes) + "\n\n" if notes else ""


def _table(shape: Section) -> str:
    lines = ["| key | takes | default | meaning |", "| --- | --- | --- | --- |"]
    lines += [_row(field, shape) for field in shape.fields]
    return "\n".join(lines) + "\n"


def _row(field: Field, shape: Section) -> str:
    keys = "<br>".join(f"`{camel(name)}`" for name, _ in field.forms)
    default = "needed" if field.name in shape.needs else field.default or "–"
    return f"| {keys} | {_takes(field.shape)} | {default} | {field.means} |"


def _takes(shape: Shape) -> str:
    if isinstance(shape, NameMap):
        return f"a mapping: each {shape.what} with {_takes(shape.shape)}"
    if isinstance(shape, Listing):
        return shape.expected if shape.or_one else f"a list, each {_takes(shape.shape)}"
    return shape.in_short if isinstance(shape, Number) else shape.expected


def main() -> int:
    """Prints the page, or writes it and the schema."""
    parser = argparse.ArgumentParser(description="the configuration reference, from its fields")
    parser.add_argument("--write", action="store_true", help="write the page and the schema")
    if parser.parse_args().write:
        PAGE.write_text(render(), encoding="utf-8")
        SCHEMA.write_text(schema_text(), encoding="utf-8")
    else:
        print(render(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
