"""Which tests show which requirement.

    python tools/trace.py [--json | --quiet] [ROOT]

Reads, by syntax alone, `@pytest.mark.req("ID", ...)` in tests/ (on a function, on a class, in a
parameter's marks, or as `pytestmark`) and `req: ID` in bench/*.py. Compares them with
tests/requirements.txt (claimed) and tests/requirements-all.txt (every id there is). A mark counts
only where a test carries it: one on a function or class that pytest would not collect is a
problem. Exits 1 on any problem, 0 otherwise.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ID = r"[A-Z]+(?:-\d+)+"
RANGE = re.compile(rf"({ID})(?:\.\.(\d+))?")
IN_BENCH = re.compile(rf"\breq:\s*({ID}(?:[,\s]+{ID})*)")


@dataclass
class Trace:
    """What was found: the tests of each id, and what is wrong."""

    every: list[str]
    claimed: list[str]
    shown: dict[str, list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def unclaimed(self) -> list[str]:
        """The ids that no test claims yet."""
        return [i for i in self.every if i not in set(self.claimed)]

    def add(self, identifier: str, where: str) -> None:
        """Note that `where` shows `identifier`."""
        if identifier not in self.every:
            self.problems.append(f"{where}: {identifier} is not in tests/requirements-all.txt")
        places = self.shown.setdefault(identifier, [])
        if where not in places:
            places.append(where)


def main(arguments: list[str] | None = None) -> int:
    """Print the trace of a repository; 1 where it has problems."""
    parser = argparse.ArgumentParser(description="Which tests show which requirement.")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--quiet", action="store_true", help="only the counts and the problems")
    options = parser.parse_args(arguments)
    trace = collect(options.root)
    print(as_json(trace) if options.json else as_text(trace, quiet=options.quiet))
    return 1 if trace.problems else 0


def collect(root: Path) -> Trace:
    """Read the repository at `root`."""
    trace = Trace(
        every=read_ids(root / "tests/requirements-all.txt"),
        claimed=read_ids(root / "tests/requirements.txt"),
    )
    for path in sorted((root / "tests").rglob("*.py")):
        collect_tests(trace, path, path.relative_to(root).as_posix())
    for path in sorted((root / "bench").rglob("*.py")):
        collect_bench(trace, path, path.relative_to(root).as_posix())
    for identifier in trace.claimed:
        if identifier not in trace.every:
            trace.problems.append(f"{identifier} is claimed, but not in tests/requirements-all.txt")
        elif identifier not in trace.shown:
            trace.problems.append(f"{identifier} is claimed, but no test shows it")
    return trace


def read_ids(path: Path) -> list[str]:
    """The ids of a list: one a line, `#` comments, `A-01..09` for a range."""
    lines = (line.partition("#")[0].strip() for line in path.read_text("utf-8").splitlines())
    return [identifier for line in lines if line for identifier in expand(line, path)]


def expand(line: str, path: Path) -> Iterator[str]:
    """The ids of one line."""
    match = RANGE.fullmatch(line)
    if match is None:
        raise SystemExit(f"{path}: {line!r} is neither an id nor a range such as CP-01..09")
    first, last = match.groups()
    stem, _, start = first.rpartition("-")
    for number in range(int(start), int(last or start) + 1):
        yield f"{stem}-{number:0{len(start)}}"


def collect_tests(trace: Trace, path: Path, name: str) -> None:
    """Add the marks of one test file."""
    tree = ast.parse(path.read_text("utf-8"), name)
    collected = path.name.startswith("test_") or path.name.endswith("_test.py")
    collect_scope(trace, tree, name, tests_in(tree, name) if collected else [])


def collect_scope(
    trace: Trace, scope: ast.Module | ast.ClassDef, name: str, tests: list[str]
) -> None:
    """Add the marks of a module or class and of what stands in it; `tests` are those inside."""
    for node in scope.body:
        if isinstance(node, ast.ClassDef):
            inside = [t for t in tests if t.startswith(f"{name}::{node.name}::")]
            add_marks(trace, node.decorator_list, f"{name}::{node.name}", inside)
            collect_scope(trace, node, f"{name}::{node.name}", inside)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            here = f"{name}::{node.name}"
            add_marks(trace, node.decorator_list, here, [t for t in tests if t == here])
        elif is_pytestmark(node):
            add_marks(trace, [node], f"{name} (pytestmark)", tests)
        else:
            add_marks(trace, [node], f"{name}, line {node.lineno}", [])


def add_marks(trace: Trace, nodes: Iterable[ast.AST], where: str, tests: list[str]) -> None:
    """Add the marks inside `nodes` to each of `tests`."""
    for call in (c for node in nodes for c in ast.walk(node) if is_mark(c)):
        assert isinstance(call, ast.Call)
        if not tests:
            trace.problems.append(f"{where}: a req mark that no test carries")
        if not call.args:
            trace.problems.append(f"{where}: a req mark without an id")
        for argument in call.args:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                for test in tests:
                    trace.add(argument.value, test)
            else:
                trace.problems.append(f"{where}: a req mark takes ids written out as strings")


def is_mark(node: ast.AST) -> bool:
    """Whether this is `pytest.mark.req(...)`."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.req")


def is_pytestmark(node: ast.stmt) -> bool:
    """Whether this assigns `pytestmark`."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in targets)


def tests_in(scope: ast.Module | ast.ClassDef, name: str) -> list[str]:
    """The tests that pytest collects in a module or class."""
    found: list[str] = []
    for node in scope.body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            found += tests_in(node, f"{name}::{node.name}")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found += [f"{name}::{node.name}"] * node.name.startswith("test")
    return found


def collect_bench(trace: Trace, path: Path, name: str) -> None:
    """Add the ids that a benchmark names."""
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        for match in IN_BENCH.finditer(line):
            for identifier in re.findall(ID, match[1]):
                trace.add(identifier, f"{name}:{number}")


def as_text(trace: Trace, *, quiet: bool = False) -> str:
    """The trace for people: id → tests, then the counts, then what is wrong."""
    lines = [] if quiet else [as_line(i, trace.shown[i]) for i in trace.every if i in trace.shown]
    early = [i for i in trace.unclaimed if i in trace.shown]
    lines.append(
        f"{len(trace.claimed)} of {len(trace.every)} requirements claimed,"
        f" {len(trace.unclaimed)} unclaimed"
        + (f" ({len(early)} of those have a test)" if early else "")
    )
    lines += [f"problem: {problem}" for problem in trace.problems]
    return "\n".join(lines)


def as_line(identifier: str, places: list[str]) -> str:
    """One id, the first place that shows it and the number of others."""
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return f"{identifier:<10} → {places[0]}{more}"


def as_json(trace: Trace) -> str:
    """The trace for programs."""
    shown = {i: trace.shown[i] for i in sorted(trace.shown)}
    counts = {"all": len(trace.every), "claimed": len(trace.claimed)}
    document = {
        "requirements": shown,
        "claimed": trace.claimed,
        "unclaimed": trace.unclaimed,
        "counts": counts,
        "problems": trace.problems,
    }
    return json.dumps(document, indent=2)


if __name__ == "__main__":
    sys.exit(main())
