"""How much of the corpus redaction finds: `python -m tests.core.redact.score`.

The misses are printed, then the totals of each half. Patterns were written on one half first; the
other was scored twice before its misses were read. Both are read now: what a new pattern finds in
texts that nobody has seen needs a new corpus.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from typing import NamedTuple

from mainstay.core.redact.redactor import Redactor

CORPUS = Path(__file__).with_name("corpus")


class Line(NamedTuple):
    """A text of the corpus; without secrets, a harmless one."""

    group: str
    text: str
    secrets: tuple[str, ...]

    @property
    def is_scored(self) -> bool:
        """Whether it belongs to the half that was only scored at first."""
        return hashlib.sha256(self.text.encode()).digest()[0] % 2 == 1


class Score(NamedTuple):
    """What came out right, of how many, for each group; and the lines that did not."""

    right: Counter[str]
    lines: Counter[str]
    misses: list[tuple[Line, str]]


def lines(name: str, *, scored: bool) -> list[Line]:
    """One half of a file of the corpus."""
    found = []
    for row in (CORPUS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        fields = json.loads(row)
        secrets = fields.get("secrets") or [fields[key] for key in ("secret",) if key in fields]
        found.append(Line(fields["group"], fields["text"], tuple(secrets)))
    return [line for line in found if line.is_scored == scored]


def score(name: str, *, scored: bool) -> Score:
    """Redacts one half of a file."""
    redactor, found = Redactor(), Score(Counter(), Counter(), [])
    for line in lines(name, scored=scored):
        shown = redactor.text(line.text)
        left = any(secret in shown for secret in line.secrets)
        is_right = not left if line.secrets else shown == line.text
        found.lines[line.group] += 1
        found.right[line.group] += is_right
        if not is_right:
            found.misses.append((line, shown))
    return found


def show(text: str) -> None:
    """One line of the report."""
    sys.stdout.write(f"{text}\n")


def main() -> None:
    """Prints both files' scores, by half."""
    for name, scored in product(("secrets", "harmless"), (False, True)):
        found = score(name, scored=scored)
        for line, shown in found.misses:
            show(f"{line.group}\n   {line.text!r}\n   {shown!r}\n   {list(line.secrets)}")
        for group, total in found.lines.items():
            show(f"{name:9} {group:20} {found.right[group]:4} / {total}")
        show(f"{name:9} {'all':20} {found.right.total():4} / {found.lines.total()}")


if __name__ == "__main__":
    main()
