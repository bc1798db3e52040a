"""The spaces of a store are named in one place."""

import ast
from pathlib import Path

import mainstay
from mainstay.core.base.spaces import Space

SOURCE = Path(mainstay.__file__).parent
READS = {"transact", "atransact", "read", "aread", "scan", "listed"}
"""What takes a space: of these, `listed` as its second argument."""
PING = ""
"""A store asks for a record that cannot exist to see whether its server answers."""


def literals_as_spaces(tree):
    """String literals that a call passes as a space, or that a constant holds as one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) > 1:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            values = [node.args[name == "listed"]] if name in READS else []
        elif isinstance(node, ast.Assign) and all(map(_is_constant, node.targets)):
            values = [each for each in _parts(node.value) if _text(each) in set(Space)]
        else:
            values = []
        yield from (text for text in map(_text, values) if text not in (None, PING))


def _is_constant(target):
    return all(isinstance(each, ast.Name) and each.id.isupper() for each in _parts(target))


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
        "records", "inbox", "operators", "circuits", "budgets", "tokens",
    }  # fmt: skip


def test_a_space_is_named_by_the_enum_and_by_no_literal():
    """Whoever adds a kind of record finds every space in one place."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name != "spaces.py" and "testing" not in path.parts:
            texts = list(literals_as_spaces(ast.parse(path.read_text("utf-8"))))
            found |= {str(path.relative_to(SOURCE)): texts} if texts else {}
    assert found == {}


def test_a_literal_would_be_found():
    """By position in a call, and in a constant."""
    for code in ('store.read("inbox", key)', 'listed(store, "a", decode)', 'A, B = "inbox", "b"'):
        assert list(literals_as_spaces(ast.parse(code))), code
