"""The spaces of a store are named in one place."""

import ast
import re
from pathlib import Path

import mainstay
from mainstay.core.base.spaces import Space

SOURCE = Path(mainstay.__file__).parent
READS = {"transact", "atransact", "read", "aread", "scan", "listed"}
"""What takes a space: of these, `listed` as its second argument."""
PING = ""
"""A store asks for a record that cannot exist to see whether its server answers."""


def spaces_in(tree):
    """The nodes that calls pass as a space."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) > 1:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in READS:
                yield node.args[name == "listed"]


def literals_as_spaces(tree, constants):
    """String literals that a call passes as a space, or that one of these constants holds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            names = [_name(each) for target in node.targets for each in _parts(target)]
            values = _parts(node.value)
            yield from (
                _text(value)
                for name, value in zip(names, values, strict=False)
                if _text(value) and (name in constants or _text(value) in set(Space))
                and name.isupper()
            )  # fmt: skip
    yield from (text for text in map(_text, spaces_in(tree)) if text not in (None, PING))


def _name(node):
    return node.id if isinstance(node, ast.Name) else ""


def _parts(node):
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _text(node):
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def test_no_two_spaces_are_one():
    """Two kinds of records in one space would read each other's bytes."""
    values = [space.value for space in Space.__members__.values()]
    assert len(set(values)) == len(Space.__members__)


def test_the_values_of_spaces_do_not_change():
    """They are in every store that was ever written."""
    assert {space.value for space in Space} == {
        "records", "inbox", "operators", "operators.first", "circuits",
        "circuits.permits", "budgets", "tokens", "purges", "waits", "identity", "records.counts",
        "tasks", "sagas", "sagas.open", "pipelines.runs", "pipelines.open", "pipelines.datasets",
    }  # fmt: skip


def test_a_space_is_named_by_the_enum_and_by_no_literal():
    """A contributor who adds a kind of record finds every space in one place."""
    paths = [p for p in sorted(SOURCE.rglob("*.py")) if "testing" not in p.parts]
    texts = {str(p.relative_to(SOURCE)): p.read_text("utf-8") for p in paths}
    del texts[str(Path("core/base/spaces.py"))]
    reading = matching(texts, rf"\b({'|'.join(READS)})\(")
    constants = {_name(node) for tree in reading.values() for node in spaces_in(tree)} - {""}
    assert {"SPACE", "FIRST", "TOKENS"} <= constants
    naming = matching(texts, rf"^({'|'.join(constants)})\b|['\"]({'|'.join(Space)})['\"]")
    found = {
        path: [*literals_as_spaces(tree, constants)] for path, tree in (reading | naming).items()
    }
    assert {path: literals for path, literals in found.items() if literals} == {}


def matching(texts, pattern):
    """The files in which an expression occurs, parsed: most of them have nothing of the kind."""
    sought = re.compile(pattern, re.MULTILINE)
    return {path: ast.parse(text) for path, text in texts.items() if sought.search(text)}


def test_a_literal_would_be_found():
    """By its position in a call, by its value, and by the name of its constant."""
    codes = ('store.read("inbox", key)', 'listed(store, "a", decode)', 'A, B = "inbox", "b"')
    for code in (*codes, 'FIRST = "new"'):
        assert list(literals_as_spaces(ast.parse(code), {"FIRST"})), code
