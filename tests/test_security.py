"""The threat model: each row that holds names a test, and the test is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/security.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(test_[a-z0-9_]+)`")


def rows():
    """The rows of the tables whose last column is a test."""
    is_tested = False
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            is_tested = False
        elif cells[-1] == "test":
            is_tested = True
        elif is_tested and not set(line) <= set("|- :"):
            yield cells


def names():
    """Every test of the project."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name


@pytest.fixture(scope="module")
def tests():
    """The names of all tests."""
    return set(names())


def test_each_row_that_holds_names_its_test(tests):
    """A claim without a test is no claim."""
    found = list(rows())
    assert len(found) > 50
    unnamed = [cells for cells in found if not NAMED.findall(cells[-1])]
    assert unnamed == []
    missing = [name for cells in found for name in NAMED.findall(cells[-1]) if name not in tests]
    assert missing == []


def test_each_attacker_has_what_holds_and_what_does_not():
    """A model that only lists what holds is advertising."""
    for part in PAGE.split("\n## ")[1:]:
        if "| test |" in part:
            assert "Does not hold" in part, part.splitlines()[0]
