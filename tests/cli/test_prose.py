"""The command line reads attributes: it searches no message of ours for what happened."""

import ast
from pathlib import Path

import pytest

import mainstay.cli

ROOT = Path(mainstay.cli.__file__).parent
PROSE = frozenset({"message", "hint", "reason", "text", "stop", "cause", "__notes__", "result"})
"""Attributes of ours that hold text for people."""
SEARCHES = frozenset(
    "find rfind index rindex count startswith endswith removeprefix removesuffix partition"
    " rpartition split rsplit splitlines match search fullmatch findall finditer sub".split()
)


def searches(source):
    """The lines that search a text for people: an attribute of ours, str() or a name for one."""
    return [
        node.lineno
        for scope in ast.walk(ast.parse(source))
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef)
        for names in [_names_of_prose(scope)]
        for node in ast.walk(scope)
        if _is_search(node, names)
    ]


def _is_search(node, names):
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        return _is_text(node.left) and _is_prose(node.comparators[0], names)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr not in SEARCHES or not node.args:  # split() alone only folds white space
        return False
    return any(_is_prose(each, names) for each in (node.func.value, *node.args))


def _is_text(node):
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _is_prose(node, names):
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and each.attr in PROSE:
            return True
        if isinstance(each, ast.Name) and each.id in names:
            return True
        if isinstance(each, ast.Constant) and each.value == "__notes__":
            return True
        if isinstance(each, ast.Call) and getattr(each.func, "id", "") in ("str", "repr"):
            return True
    return False


def _names_of_prose(scope):
    """What a function calls a text for people: by assignment, by a loop, by a comprehension."""
    names = set()
    for _ in range(3):
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign) and _is_prose(node.value, names):
                names.update(_bound(*node.targets))
            elif isinstance(node, ast.For | ast.comprehension) and _is_prose(node.iter, names):
                names.update(_bound(node.target))
    return names


def _bound(*targets):
    return {each.id for one in targets for each in ast.walk(one) if isinstance(each, ast.Name)}


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: path.stem)
def test_no_command_searches_our_own_messages(path):
    """A reason or an id is an attribute: a message may be reworded without breaking a command."""
    assert searches(path.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        'return "deadline" in failure.stop',
        'return event.reason.partition("; ")[0]',
        'return error.message.removeprefix(f"{error.command}: ")',
        'return re.search("item ([0-9a-f]+)", str(error))',
        'return [n for n in getattr(e, "__notes__", ()) if "gave up" in n]',
        'words = str(error)\n    return words.split(": ")[-1]',
    ],
)
def test_such_a_search_is_found(line):
    """Whatever is searched, and whatever it is called meanwhile."""
    assert searches(f"def f():\n    {line}") != []
