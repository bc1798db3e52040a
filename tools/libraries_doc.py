"""The reference of known errors, docs/reference/libraries.md, made from the tables.

python tools/libraries_doc.py            print it
python tools/libraries_doc.py --write    write docs/reference/libraries.md
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mainstay.core.known.listing import lines, lines_of
from mainstay.core.known.table import by_status
from mainstay.integrations.errors import FILES, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.core.known.listing import Line

FILE = Path(__file__).parents[1] / "docs" / "reference" / "libraries.md"
HEAD = """\
<!-- Made by tools/libraries_doc.py from src/mainstay/integrations/errors/; edit those, then:
     .venv/bin/python tools/libraries_doc.py --write -->

# Errors of libraries

What is known of the exceptions of libraries, without importing them. A policy without `on`, an
`Engine()` and `on=mainstay.transient` retry what has "yes" under *retried*. If a failure is
ambiguous, the request may have been carried out: an operation that is declared `unsafe` is not
repeated, nor is a POST or PATCH that has no Idempotency-Key, if the exception carries the request.

`mainstay explain-error httpx.ReadTimeout` prints one entry. How rules and tables work together,
and how to register a table of your own:
[choose what is retried](../how-to/choose-what-is-retried.md).

## HTTP statuses

An exception that carries a status, of whichever library:

"""
TITLES = ("| error | kind | retried | ambiguous | why |", "| --- | --- | --- | --- | --- |")
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
    yield HEAD + TITLES[0]
    yield TITLES[1]
    yield from (_row(line) for line in lines_of("status", by_status()) if line.case != "otherwise")
    yield ""
    for file in sorted(set(FILES.values())):
        known = table(file)
        yield f"## {known.library}\n"
        if known.retries:
            yield f"Its own retries: {known.retries}.\n"
        yield from TITLES
        yield from dict.fromkeys(map(_short, lines(known)))
        yield ""


def _short(line: Line) -> str:
    """A row; the statuses that every client shares are one."""
    if line.row is not None and _STANDARD.get(line.case) == line.row.why:
        return f"| `{line.name}`, status | {BY_STATUS} | | | |"
    return _row(line)


_STANDARD = {line.case: line.why for line in lines_of("", by_status()) if line.case != "otherwise"}


def _row(line: Line) -> str:
    retried = {True: "yes", False: "no", None: ""}[line.is_retried]
    why = f"as `{line.ancestor}`" if line.ancestor else line.why
    case = f", {line.case}" if line.case else ""
    kind = "" if line.ancestor and line.row is None else line.kind
    retried = "" if line.ancestor and line.row is None else retried
    ambiguous = "ambiguous" if line.is_ambiguous else ""
    name = case.removeprefix(", ") if line.name == "status" else f"`{line.name}`{case}"
    return f"| {name} | {kind} | {retried} | {ambiguous} | {why} |"


if __name__ == "__main__":
    sys.exit(main())
