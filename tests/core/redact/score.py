"""How much of the corpora redaction finds: `python -m tests.core.redact.score`.

The misses are printed, then the totals of each half. Both halves of all corpora are read: README.md
has what each one scored before that. `--quiet` prints totals.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from mainstay.core.redact.redactor import Redactor

FIRST = Path(__file__).with_name("corpus")
SECOND = FIRST / "second"
THIRD = FIRST / "third"
FOURTH = FIRST / "fourth"
FIFTH = FIRST / "fifth"
SIXTH = FIRST / "sixth"
SEVENTH = FIRST / "seventh"
EIGHTH = FIRST / "eighth"
NINTH = FIRST / "ninth"


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


def lines(name: str, *, scored: bool, corpus: Path = FIRST) -> list[Line]:
    """One half of a file of a corpus."""
    found = []
    for row in (corpus / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        fields = json.loads(row)
        secrets = fields.get("secrets") or [fields[key] for key in ("secret",) if key in fields]
        found.append(Line(fields["group"], fields["text"], tuple(secrets)))
    return [line for line in found if line.is_scored == scored]


def score(name: str, *, scored: bool, corpus: Path = FIRST) -> Score:
    """Redacts one half of a file."""
    redactor, found = Redactor(), Score(Counter(), Counter(), [])
    for line in lines(name, scored=scored, corpus=corpus):
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


def report(name: str, *, scored: bool, corpus: Path, misses: bool = True) -> None:
    """Prints the score of one half of a file."""
    found = score(name, scored=scored, corpus=corpus)
    for line, shown in found.misses if misses else ():
        show(f"{line.group}\n   {line.text!r}\n   {shown!r}\n   {list(line.secrets)}")
    half = f"{corpus.name} {name} {'scored' if scored else 'patterns'}"
    for group, total in found.lines.items():
        show(f"{half:26} {group:20} {found.right[group]:4} / {total}")
    show(f"{half:26} {'all':20} {found.right.total():4} / {found.lines.total()}")


def main(arguments: list[str]) -> None:
    """Prints the scores of the files, by half."""
    misses = "--quiet" not in arguments
    for name in ("secrets", "harmless"):
        for corpus in (FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH, SEVENTH, EIGHTH, NINTH):
            for scored in (False, True):
                report(name, scored=scored, corpus=corpus, misses=misses)


if __name__ == "__main__":
    main(sys.argv[1:])
