"""The core decides and does nothing else: no clock, randomness, I/O, async, printing.

import-linter forbids the modules (`make layers`); this forbids what can be reached without one:
`datetime.now`, a builtin `open`, an `await`. It reads the source, so that a line nobody runs
counts too.
"""

import ast
from pathlib import Path

import pytest

CORE = Path(__file__).parents[1] / "src/mainstay/core"
MODULES = frozenset(
    [
        "asyncio",
        "concurrent",
        "importlib",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "queue",
        "random",
        "secrets",
        "select",
        "selectors",
        "signal",
        "socket",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "trio",
        "uuid",
    ]
)
BUILTINS = frozenset({"__import__", "breakpoint", "eval", "exec", "input", "open", "print"})
METHODS = frozenset(
    [
        "monotonic",
        "monotonic_ns",
        "now",
        "perf_counter",
        "sleep",
        "today",
        "urandom",
        "utcnow",
        "uuid1",
        "uuid4",
    ]
)
ASYNC = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)


def impurities(source: str) -> list[str]:
    """What in a source text is not pure, with its line."""
    found = [(node.lineno, word) for node in ast.walk(ast.parse(source)) for word in sins(node)]
    return [f"line {line}: {word}" for line, word in sorted(found)]


def sins(node: ast.AST) -> list[str]:
    """What one node does that the core may not."""
    if isinstance(node, ast.Import):
        return [f"import {a.name}" for a in node.names if a.name.split(".")[0] in MODULES]
    if isinstance(node, ast.ImportFrom):
        return [f"from {node.module}"] * ((node.module or "").split(".")[0] in MODULES)
    if isinstance(node, ast.Name):
        return [node.id] * (node.id in BUILTINS)
    if isinstance(node, ast.Attribute):
        return [f".{node.attr}"] * (node.attr in METHODS)
    return [type(node).__name__] * isinstance(node, ASYNC)


@pytest.mark.req("CP-16")
@pytest.mark.parametrize(
    "path", sorted(CORE.rglob("*.py")), ids=lambda path: path.relative_to(CORE).as_posix()
)
def test_the_core_is_pure(path):
    """No file of the core reaches for the world."""
    assert impurities(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("planted", "word"),
    [
        ("import time", "import time"),
        ("import os.path", "import os.path"),
        ("from random import random", "from random"),
        ("def f():\n    import uuid", "import uuid"),
        ("at = datetime.now()", ".now"),
        ("at = datetime.datetime.utcnow()", ".utcnow"),
        ("clock = date.today", ".today"),
        ("key = u.uuid4()", ".uuid4"),
        ("open('x')", "open"),
        ("print('x')", "print"),
        ("show = print", "print"),
        ("__import__('time').time()", "__import__"),
        ("async def f(): pass", "AsyncFunctionDef"),
    ],
)
def test_a_planted_line_is_found(planted, word):
    """The rule above can fail."""
    found = impurities(f"import math\n{planted}\n")
    assert [line.partition(": ")[2] for line in found] == [word]


def test_there_is_a_core_to_look_at():
    """An empty folder would be pure as well."""
    assert len(list(CORE.rglob("*.py"))) > 1
