"""Types that threads decode are made ready when their module is imported."""

import ast
import importlib
from functools import cache
from pathlib import Path

import msgspec

import mainstay

SOURCE = Path(mainstay.__file__).parent
READS = {"read_as": 0, "convert": 1}
MAKES = ("ready", "Decoder", "reader")
NAMES = {*READS, *MAKES, "decode"}


@cache
def calls():
    """Every call of these names in the source: its module, the name, and the node."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(("mainstay", *path.relative_to(SOURCE).with_suffix("").parts))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in NAMES:
                    found.append((module, name, node))
    return found


def decoded():
    """The types that are decoded by name, each with the module in which that happens."""
    for module, name, node in calls():
        given = [each.value for each in node.keywords if each.arg == "type" and name == "decode"]
        if name in READS and len(node.args) > READS[name]:
            given.append(node.args[READS[name]])
        yield from ((module, each.id) for each in given if isinstance(each, ast.Name))


def test_every_struct_that_is_decoded_is_made_ready_by_its_module():
    """Two threads that decode one for the first time at once would end the process."""
    made = {
        each.id
        for _, name, node in calls()
        if name in MAKES
        for each in node.args
        if isinstance(each, ast.Name)
    }
    found = set()
    for module, name in decoded():
        kind = getattr(importlib.import_module(module), name, None)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            found.add(name)
    assert {"Circuit", "Permits", "Table"} <= found
    assert found - made == set()
