"""Report which rows of the tables of libraries' errors the tests provoke through the real library.

    python -m pytest -p tools.provoked tests/integrations
    python tools/provoked.py [LIBRARY ...]

The first command writes what the tables judged while the tests ran, the second one prints the
report; with the name of a library also the rows that nothing has provoked. A row counts if an
exception that came to it was raised by a call into a library. It does not if the test raised the
exception itself or only made it. Classes that share the rows of a code or a status share them here
too; a row that a class inherits, and classes of other versions, are left out.
"""

from __future__ import annotations

import atexit
import dis
import importlib
import json
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from mainstay.core.known import resolve
from mainstay.core.known.listing import Line, lines
from mainstay.core.known.registry import REGISTRY
from mainstay.core.known.table import Cases, Inner, Row
from mainstay.integrations import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainstay.core.known.kind import Known
    from mainstay.core.known.table import Entry, Table

FOLDER = Path(os.environ.get("MAINSTAY_PROVOKED", ".provoked"))
_seen: set[tuple[str, str, str]] = set()
_around = [False]
_judged = resolve._judged  # noqa: SLF001 -- the one place where an exception comes to its row


def pytest_configure() -> None:
    """Write down what the tables judge, from here on, in every worker."""
    resolve._judged = _recorded  # noqa: SLF001 -- as above
    atexit.register(_write)


def _recorded(
    table: Table,
    entry: Entry,
    exception: BaseException,
    kind_of: Callable[[BaseException, int], Known],
    depth: int,
) -> Known:
    found = REGISTRY.entry_of(type(exception))
    is_real = is_provoked(exception) or (depth > 0 and _around[-1])
    if found is not None and is_real:
        _seen.add((table.library, found[1], case_of(entry, exception)))
    _around.append(is_real)  # what a library has put inside was never raised
    try:
        return _judged(table, entry, exception, kind_of, depth)
    finally:
        _around.pop()


def is_provoked(exception: BaseException) -> bool:
    """Whether a call raised it, and not a test.

    >>> is_provoked(ValueError())
    False
    """
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
    (FOLDER / f"{os.getpid()}.json").write_text(json.dumps(sorted(_seen)), encoding="utf-8")


def missing(library: str, seen: Iterable[tuple[str, ...]]) -> tuple[int, list[str]]:
    """The number of rows of a library, and those that nothing has provoked."""
    known, seen = errors.table(library), set(seen)
    module = importlib.import_module(f"mainstay.integrations.errors.{library}")
    others = getattr(module, "OTHER_VERSIONS", ())
    rows: dict[tuple[object, ...], str] = {}
    done = set()
    for line in lines(known):
        if line.ancestor or line.name in others:
            continue
        case = "wraps" if line.row is None else line.case
        rows.setdefault(_alike(line, case), f"{line.name} {case}".strip())
        if (known.library, line.name, case) in seen:
            done.add(_alike(line, case))
    return len(rows), [name for alike, name in rows.items() if alike not in done]


def _alike(line: Line, case: str) -> tuple[object, ...]:
    if line.row is None or case in ("", "otherwise"):
        return line.name, case
    return case.rpartition(" ")[2], line.row.kind, line.row.why, line.row.ambiguous


def main() -> int:
    """Print the report."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")]
    seen = {tuple(row) for file in files for row in file}
    for library in sorted(set(errors.FILES.values())):
        rows, left = missing(library, seen)
        print(f"{library:16} {rows:4} rows, {len(left):4} not provoked, {len(left) / rows:.0%}")
        if library in sys.argv[1:]:
            print("".join(f"    {name}\n" for name in left), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
