"""Report how the tests provoke the rows of the tables of libraries' errors.

    python -m pytest -p tools.provoked tests/integrations/errors
    python tools/provoked.py [LIBRARY ...]
    python tools/provoked.py --write

The first command writes what the tables judged while the tests ran, the second one prints the
report; with the name of a library also the rows that no test provokes. The third one writes
tests/integrations/errors/provoked.txt, from which the reference of known errors and a test take it.
A row counts as one of

- `client`: an exception that came to it was raised by a call into the real library;
- `parser`: only by the library's own parser of an answer, in a test with `@pytest.mark.parser`;
- `never`: the library cannot raise it; its own reason says so, or unprovoked.txt does;
- `open`: none of these.

It does not count if the test raised the exception itself or only made it, unless the library
handed the exception over and the test says so (`handed`). Classes that share the rows of a code or
a status share them here too; a row that a class inherits, and classes of other versions, are left
out.
"""

from __future__ import annotations

import atexit
import dis
import importlib
import json
import os
import sys
from functools import cache
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from mainstay.core.known.listing import Line, lines
from mainstay.core.known.resolve import known_by_table
from mainstay.core.known.table import Cases, Inner, Row
from mainstay.core.retry import classify, kinds
from mainstay.integrations import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeVar

    import pytest

    from mainstay.core.known.kind import Known
    from mainstay.core.known.registry import Found
    from mainstay.core.known.table import Entry, Table

    Error = TypeVar("Error", bound=BaseException)

ROOT = Path(__file__).parents[1]
FOLDER = Path(os.environ.get("MAINSTAY_PROVOKED", ".provoked"))
SUMMARY = ROOT / "tests/integrations/errors/provoked.txt"
REASONS = ROOT / "tests/integrations/errors/unprovoked.txt"
CLIENT, PARSER, NEVER, OPEN = "client", "parser", "never", "open"
NOT_RAISED = ("a base class", "a base of ")
"""How the reason of a row begins whose class the library does not raise itself."""
_seen: set[tuple[str, str, str, str]] = set()
_around = [False]
_how = [CLIENT]
_ASKING = (kinds, classify)
"""Who asks known_by_table, the one place where an exception comes to its row."""


def pytest_configure() -> None:
    """Write down what the tables judge, from here on, in every worker."""
    for module in _ASKING:
        module.known_by_table = _recorded  # type: ignore[attr-defined]  # it is imported there
    atexit.register(_write)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that calls a parser says so with its mark."""
    _how[0] = PARSER if item.get_closest_marker("parser") else CLIENT


def _recorded(
    found: Found,
    exception: BaseException,
    kind_of: Callable[[BaseException, int], Known],
    depth: int = 0,
) -> Known:
    table, name, entry = found
    is_real = is_provoked(exception) or (depth > 0 and _around[-1])
    if is_real:
        _seen.add((table.library, name_of(table, name), case_of(entry, exception), _how[0]))
    _around.append(is_real)  # what a library has put inside was never raised
    try:
        return known_by_table(found, exception, kind_of, depth)
    finally:
        _around.pop()


def name_of(table: Table, name: str) -> str:
    """The name of the entry of a class, which may be that of its module.

    >>> name_of(errors.table("asyncpg"), "asyncpg.exceptions.DeadlockDetectedError")
    'asyncpg.exceptions.*'
    """
    return name if name in table.entries else f"{name.rpartition('.')[0]}.*"


def handed(exception: Error) -> Error:
    """An exception that the library made and handed over, in a callback or a result, unraised.

    >>> is_provoked(handed(RuntimeError()))
    True
    """
    exception.handed_over = True  # type: ignore[attr-defined]  # for is_provoked
    return exception


def is_provoked(exception: BaseException) -> bool:
    """Whether a call raised it, and not a test.

    >>> is_provoked(ValueError())
    False
    """
    if getattr(exception, "handed_over", False):
        return True
    step = exception.__traceback__
    if step is None:
        return False
    while step.tb_next is not None:
        step = step.tb_next
    code = step.tb_frame.f_code
    is_test = f"{os.sep}tests{os.sep}" in code.co_filename
    if not is_test or "site-packages" in code.co_filename:
        return True
    at = {each.offset: each.opname for each in dis.get_instructions(code)}
    return at.get(step.tb_lasti) not in ("RAISE_VARARGS", "RERAISE")


def case_of(entry: Entry, exception: BaseException) -> str:
    """The line of the table that decides, as `listing.lines` names it."""
    is_first = True
    while not isinstance(entry, Row):
        if isinstance(entry, Cases):
            found = [case for case in entry.cases(exception) if entry.of_case(case) is not None]
            if found:
                return f"{entry.of} {_row_of(entry, found[0])}"
        elif isinstance(entry, Inner) and entry.of(exception) is not None:
            return "wraps"
        entry, is_first = entry.otherwise, False  # type: ignore[union-attr]  # `Same` was followed
    return "" if is_first else "otherwise"


def _row_of(entry: Cases, case: str) -> str:
    names = [str(name) for name in entry.rows]
    prefixes = [name for name in names if name.endswith("*") and case.startswith(name[:-1])]
    return case if case in names else max(prefixes, key=len)


def _write() -> None:
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"{os.getpid()}.json"  # an earlier process may have had the number
    before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else ()
    rows = sorted(_seen | {tuple(row) for row in before})
    file.write_text(json.dumps(rows), encoding="utf-8")


def libraries() -> list[str]:
    """The tables of libraries; mainstay's own errors are no library's."""
    found = {file for package, file in errors.FILES.items() if not package.startswith("mainstay")}
    return sorted(found)


def rows_of(library: str) -> Iterator[tuple[str, tuple[object, ...], Line, str]]:
    """The rows of a library that count: name, what rows that are alike share, line and case."""
    known = errors.table(library)
    module = importlib.import_module(f"mainstay.integrations.errors.{library}")
    others = getattr(module, "OTHER_VERSIONS", ())
    for line in lines(known):
        if not line.ancestor and line.name not in others:
            case = "wraps" if line.row is None else line.case
            yield f"{line.name} {case}".strip(), _alike(line, case), line, case


def provoked(library: str, seen: Iterable[tuple[str, ...]]) -> dict[str, str]:
    """How each row of a library is provoked."""
    known, kept = errors.table(library), set(seen)
    never = reasons().get(library, {})
    names: dict[tuple[object, ...], str] = {}
    best: dict[tuple[object, ...], str] = {}
    for name, alike, line, case in rows_of(library):
        names.setdefault(alike, name)
        found = [how for how in (CLIENT, PARSER) if (known.library, line.name, case, how) in kept]
        if not found:
            found = [NEVER if name in never or line.why.startswith(NOT_RAISED) else OPEN]
        best[alike] = min(best.get(alike, OPEN), found[0], key=_ORDER.index)
    return {names[alike]: how for alike, how in best.items()}


_ORDER = (CLIENT, PARSER, NEVER, OPEN)


def _alike(line: Line, case: str) -> tuple[object, ...]:
    if line.row is None or case in ("", "otherwise"):
        return line.name, case
    return case.rpartition(" ")[2], line.row.kind, line.row.why, line.row.ambiguous


def share(found: Iterable[str]) -> float:
    """The part of the rows that a library can raise and that no server provokes.

    >>> share(["client", "client", "client", "parser", "never"])
    0.25
    """
    counted = [how for how in found if how != NEVER]
    return sum(how != CLIENT for how in counted) / max(len(counted), 1)


@cache
def reasons() -> dict[str, dict[str, str]]:
    """Why a library cannot raise a row: library, row, reason."""
    return _sections(REASONS, lambda line: line.split(": ", 1))


@cache
def summary() -> dict[str, dict[str, str]]:
    """How each row is provoked, as it was last written: library, row, how."""
    return _sections(SUMMARY, lambda line: line.split(" ", 1)[::-1])


def hows(library: str) -> dict[tuple[str, str], str]:
    """How each line of a table is provoked, as it was last written: by its class and its case."""
    written = summary().get(library, {})
    first: dict[tuple[object, ...], str] = {}
    found = {}
    for name, alike, line, _ in rows_of(library):
        found[line.name, line.case] = written.get(first.setdefault(alike, name), OPEN)
    return found


def hows_by_row(library: str) -> list[tuple[str, str]]:
    """How each row is provoked, also those that share one with another class: name and how."""
    written = summary().get(library, {})
    first: dict[tuple[object, ...], str] = {}
    return [
        (name, written.get(first.setdefault(alike, name), OPEN))
        for name, alike, *_ in rows_of(library)
    ]


def _sections(path: Path, parts: Callable[[str], list[str]]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    library = ""
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if line.startswith("["):
            library = line.strip("[]")
        elif line and not line.startswith("#"):
            name, value = parts(line)
            found.setdefault(library, {})[name] = value
    return found


HEAD = """\
# How the tests provoke the rows of the tables of libraries' errors; written by
#     python -m pytest -p tools.provoked tests/integrations/errors
#     python tools/provoked.py --write
# client: through the real library; parser: by its own parser of an answer; never: the library
# cannot raise it, and unprovoked.txt or the row has the reason; open: nothing provokes it yet.
"""


def text(all_rows: dict[str, dict[str, str]]) -> str:
    """The summary as it is written."""
    parts = [
        f"\n[{library}]\n" + "".join(f"{how} {name}\n" for name, how in rows.items())
        for library, rows in all_rows.items()
    ]
    return HEAD + "".join(parts)


def main() -> int:
    """Print the report, or write the summary."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")]
    seen = {tuple(row) for file in files for row in file}
    all_rows = {library: provoked(library, seen) for library in libraries()}
    if "--write" in sys.argv[1:]:
        SUMMARY.write_text(text(all_rows), encoding="utf-8")
    for library, rows in all_rows.items():
        found = [*rows.values()]
        counts = ", ".join(f"{found.count(how):3} {how}" for how in _ORDER)
        print(f"{library:16} {len(rows):4} rows: {counts}; not by a server {share(found):.0%}")
        if library in sys.argv[1:]:
            left = [f"    {how:6} {name}\n" for name, how in rows.items() if how in (PARSER, OPEN)]
            print("".join(left), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
