"""The specification documents: their code blocks and tables, for the tests beside this file.

A clone of the project does not have them; the tests then skip with that reason. They are looked for
in the folder that MAINSTAY_TEST_SPEC names, and in `shared/spec` beside the project or its parent.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = os.environ.get("MAINSTAY_TEST_SPEC")
BESIDE = (ROOT.parent / "shared/spec", ROOT.parent.parent / "shared/spec")
PLACES = BESIDE if NAMED is None else (Path(NAMED),)
WHY_NOT = (
    "the documents are not here: they belong into ../shared/spec, or MAINSTAY_TEST_SPEC names them"
)


def path_of(name):
    """Where a document is; None if it is not here."""
    return next((place / name for place in PLACES if (place / name).is_file()), None)


@dataclass(frozen=True)
class Block:
    """A code block: the heading it stands under, its place there, its language and its text."""

    heading: str
    place: int
    language: str
    text: str

    @property
    def key(self):
        """The heading, with the place of the block below it if it is not the first."""
        return self.heading if self.place == 1 else f"{self.heading} ({self.place})"


def read(name):
    """The text of a document; empty if it is not here."""
    path = path_of(name)
    return "" if path is None else path.read_text(encoding="utf-8")


HEADING = re.compile(r"^#+\s+(?:\d+\.\s+)?(.*?)\s*$")
FENCE = re.compile(r"^```(\w*)\s*$")


def blocks(text):
    """Every code block of a document, in order."""
    found, heading, places = [], "", {}
    lines = iter(text.splitlines())
    for line in lines:
        if title := HEADING.match(line):
            heading = title[1]
        elif fence := FENCE.match(line):
            body = []
            for inside in lines:
                if inside.startswith("```"):
                    break
                body.append(inside)
            places[heading] = places.get(heading, 0) + 1
            found.append(Block(heading, places[heading], fence[1], "\n".join(body) + "\n"))
    return found


def tables(text):
    """Every table of a document, by its heading: a list of rows, each by the names of columns."""
    found, heading, columns, is_code = {}, "", None, False
    for line in text.splitlines():
        is_code ^= line.startswith("```")
        if is_code:
            continue
        if title := HEADING.match(line):
            heading = title[1]
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.lstrip().startswith("|"):
            columns = None
        elif columns is None:
            columns = cells
        elif not set("".join(cells)) <= set("-: "):
            found.setdefault(heading, []).append(dict(zip(columns, cells, strict=True)))
    return found


def run(block, **names):
    """What a block of Python defines, with these names given to it."""
    made = {"__name__": "sample", **names}
    exec(compile(block.text, block.heading, "exec", dont_inherit=True), made)
    return {name: value for name, value in made.items() if names.get(name, made) is not value}
