"""Requirement ids in the source: on tests, by syntax alone, and in benchmarks.

`@pytest.mark.req("ID", ...)` in tests/ (on a function, on a class, in a parameter's marks, or as
`pytestmark`) and `req: ID` in bench/*.py. An id may have a part: `AG-01.memory`. A mark counts only
if a test carries it: one on a function or class that pytest would not collect is a problem.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ID = r"[A-Z]+(?:-\d+)+"
IN_BENCH = re.compile(rf"\breq:\s*({ID}(?:[,\s]+{ID})*)")


@dataclass
class Marks:
    """The places that name each id, and marks that show nothing."""

    tests: dict[str, list[str]] = field(default_factory=dict)
    """By id: node ids, without parameters."""
    bench: dict[str, list[str]] = field(default_factory=dict)
    """By id: file and line."""
    problems: list[str] = field(default_factory=list)


def marks_in(root: Path) -> Marks:
    """All marks of a repository."""
    marks = Marks()
    for path in sorted((root / "tests").rglob("*.py")):
        _collect_tests(marks, path, path.relative_to(root).as_posix())
    for path in sorted((root / "bench").rglob("*.py")):
        _collect_bench(marks, path, path.relative_to(root).as_posix())
    return marks


def _add(found: dict[str, list[str]], identifier: str, where: str) -> None:
    places = found.setdefault(identifier, [])
    if where not in places:
        places.append(where)


def _collect_tests(marks: Marks, path: Path, name: str) -> None:
    """Add the marks of one test file."""
    tree = ast.parse(path.read_text("utf-8"), name)
    collected = path.name.startswith("test_") or path.name.endswith("_test.py")
    _collect_scope(marks, tree, name, _tests_in(tree, name) if collected else [])


def _collect_scope(
    marks: Marks, scope: ast.Module | ast.ClassDef, name: str, tests: list[str]
) -> None:
    """Add the marks of a module or class and of what stands in it; `tests` are those inside."""
    for node in scope.body:
        if isinstance(node, ast.ClassDef):
            inside = [t for t in tests if t.startswith(f"{name}::{node.name}::")]
            _add_marks(marks, node.decorator_list, f"{name}::{node.name}", inside)
            _collect_scope(marks, node, f"{name}::{node.name}", inside)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            here = f"{name}::{node.name}"
            _add_marks(marks, node.decorator_list, here, [t for t in tests if t == here])
        elif _is_pytestmark(node):
            _add_marks(marks, [node], f"{name} (pytestmark)", tests)
        else:
            _add_marks(marks, [node], f"{name}, line {node.lineno}", [])


def _add_marks(marks: Marks, nodes: Iterable[ast.AST], where: str, tests: list[str]) -> None:
    """Add the marks inside `nodes` to each of `tests`."""
    for call in (c for node in nodes for c in ast.walk(node) if _is_mark(c)):
        assert isinstance(call, ast.Call)
        if not tests:
            marks.problems.append(f"{where}: a req mark that no test carries")
        if not call.args:
            marks.problems.append(f"{where}: a req mark without an id")
        for argument in call.args:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                for test in tests:
                    _add(marks.tests, argument.value, test)
            else:
                marks.problems.append(f"{where}: a req mark takes ids written out as strings")


def _is_mark(node: ast.AST) -> bool:
    """Whether this is `pytest.mark.req(...)`."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.req")


def _is_pytestmark(node: ast.stmt) -> bool:
    """Whether this assigns `pytestmark`."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in targets)


def _tests_in(scope: ast.Module | ast.ClassDef, name: str) -> list[str]:
    """The tests that pytest collects in a module or class."""
    found: list[str] = []
    for node in scope.body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            found += _tests_in(node, f"{name}::{node.name}")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found += [f"{name}::{node.name}"] * node.name.startswith("test")
    return found


def _collect_bench(marks: Marks, path: Path, name: str) -> None:
    """Add the ids that a benchmark names."""
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        for match in IN_BENCH.finditer(line):
            for identifier in re.findall(ID, match[1]):
                _add(marks.bench, identifier, f"{name}:{number}")
