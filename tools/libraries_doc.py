"""The reference of known errors, docs/reference/libraries.md, made from the tables.

python tools/libraries_doc.py            print it
python tools/libraries_doc.py --write    write docs/reference/libraries.md
"""

from __future__ import annotations

import argparse
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from mainstay.core.known.listing import lines, lines_of
from mainstay.core.known.table import by_status
from mainstay.integrations.errors import FILES, table
from tools import provoked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from mainstay.core.known.listing import Line

    Hows: TypeAlias = dict[tuple[str, str], str]

FILE = Path(__file__).parents[1] / "docs" / "reference" / "libraries.md"
HEAD = """\
<!-- Made by tools/libraries_doc.py from src/mainstay/integrations/errors/; edit those, then:
     .venv/bin/python tools/libraries_doc.py --write -->

# Errors of libraries

What is known of the exceptions of libraries, without importing them. A policy without `on`, an
`Engine()` and `on=mainstay.transient` retry what has "yes" under *retried*. If a failure is
ambiguous, the request may have been carried out: an operation that is declared `unsafe` is not
repeated, nor is a POST or PATCH that has no Idempotency-Key, if the exception carries the request.

The last column is how the tests of mainstay saw it: *client* if the real library raised it, in a
call to a server or by itself; *parser* if only its own parser of an answer did; *never* if it
cannot raise it, such as a base class; nothing if no test has seen it. Of the rows that a library
can raise, at least four fifths are of the first kind, which a test checks.

`mainstay explain-error httpx.ReadTimeout` prints one entry. How rules and tables work together,
and how to register a table of your own:
[choose what is retried](../how-to/choose-what-is-retried.md).

## HTTP statuses

An exception that carries a status, of whichever library:

"""
TITLES = (
    "| error | kind | retried | ambiguous | why | seen |",
    "| --- | --- | --- | --- | --- | --- |",
)
SHORT_TITLES = ("| error | kind | retried | ambiguous | why |", "| --- | --- | --- | --- | --- |")
BY_STATUS = "[by its status](#http-statuses)"


def main() -> int:
    """Prints the page, or writes it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true")
    text = "\n".join(page())
    if parser.parse_args().write:
        FILE.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


def page() -> Iterator[str]:
    """The lines of the page."""
    yield HEAD + SHORT_TITLES[0]
    yield SHORT_TITLES[1]
    yield from (_row(line) for line in lines_of("status", by_status()) if line.case != "otherwise")
    yield ""
    shown: dict[tuple[str, ...], str] = {}
    for file in sorted(set(FILES.values())):
        known = table(file)
        yield f"## {known.library}\n"
        if known.retries:
            yield f"Its own retries: {known.retries}.\n"
        if file in provoked.summary():
            yield f"{_seen(file)}\n"
        yield from TITLES
        hows = provoked.hows(file)
        for name, group in groupby(lines(known), key=lambda line: line.name):
            yield from _entry(name, list(group), shown, hows)
        yield ""


def _seen(file: str) -> str:
    """How many rows the tests have seen."""
    hows = [*provoked.summary().get(file, {}).values()]
    possible = len(hows) - hows.count(provoked.NEVER)
    text = f"Rows that the library can raise: {possible}. The tests saw it raise"
    text += f" {hows.count(provoked.CLIENT)}"
    parsed = hows.count(provoked.PARSER)
    return f"{text}, and its parser {parsed} more." if parsed else f"{text}."


def _entry(
    name: str, group: list[Line], shown: dict[tuple[str, ...], str], hows: Hows
) -> Iterator[str]:
    """The rows of a class; cases that another class has too are listed once on the page."""
    cases = [line for line in group if line.case and line.row and line.case != "otherwise"]
    cases = [line for line in cases if _STANDARD.get(line.case) != line.why]
    if len(cases) < len([line for line in group if line.case.startswith("status ")]):
        yield f"| `{name}`, status | {BY_STATUS} | | | | |"
    key = tuple(f"{line.case} {line.kind} {line.is_ambiguous} {line.why}" for line in cases)
    first = shown.setdefault(key, f"`{name}`") if len(key) > FEW else f"`{name}`"
    if first == f"`{name}`":
        yield from (_row(line, hows) for line in cases)
    else:
        yield f"| `{name}`, {cases[0].case.partition(' ')[0]} | as {first} | | | | |"
    rest = [line for line in group if line.row is None or line.case in ("", "otherwise")]
    yield from (_row(line, hows) for line in rest)


FEW = 8
"""Cases that are listed again for a second class."""
_STANDARD = {line.case: line.why for line in lines_of("", by_status()) if line.case != "otherwise"}


def _row(line: Line, hows: Hows | None = None) -> str:
    retried = {True: "yes", False: "no", None: ""}[line.is_retried]
    why = f"as `{line.ancestor}`" if line.ancestor else line.why
    case = f", {line.case}" if line.case else ""
    kind = "" if line.ancestor and line.row is None else line.kind
    retried = "" if line.ancestor and line.row is None else retried
    ambiguous = "ambiguous" if line.is_ambiguous else ""
    name = case.removeprefix(", ") if line.name == "status" else f"`{line.name}`{case}"
    row = f"| {name} | {kind} | {retried} | {ambiguous} | {why} |"
    if hows is None:
        return row
    how = hows.get((line.name, line.case), "")
    return f"{row} {'' if how == provoked.OPEN else how} |"


if __name__ == "__main__":
    sys.exit(main())
