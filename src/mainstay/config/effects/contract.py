"""Contracts from YAML, with file and line for everything that is wrong.

A contract has much besides retries; that is left to the code that reads it. A key beside those that
are read here and nearly spelled like one is a problem: it would be ignored. So is an empty file, or
a section without a value: what is cut off must not be retried more often than the whole.
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from mainstay.config.check import BAD, check
from mainstay.config.files.load_file import read_file
from mainstay.config.report import Report
from mainstay.config.shapes import Number, Whole, snake
from mainstay.config.tree import Node
from mainstay.core.effects.contract import BOUNDS, MOST_RETRIES, OrchestratorContract
from mainstay.errors import UsageError

if TYPE_CHECKING:
    from typing import Any

    from mainstay.config.report import Path as Keys
    from mainstay.config.shapes import Shape

_COUNT = Whole(0, MOST_RETRIES)
_RULES: dict[str, Shape] = {"max_retries": _COUNT}
_POLICY: dict[str, Shape] = {
    "max_retries": _COUNT,
    **{name: Number(low, high) for name, (low, high) in BOUNDS.items()},
}
_RULES_AT = ("coordination_rules",)
_POLICY_AT = ("error_handling", "retry_policy")
_OWN_RETRIES = frozenset(
    {"max_retries", "max_attempts", "retries", "backoff", "exponential_base", "jitter_factor"}
)
"""Keys of retries besides those that begin with `retry` or end with `_backoff_seconds`."""
_BELONGS = "an effect runs once: retries belong into the contract of its orchestrator"


def read_orchestrator_contract(path: str | os.PathLike[str]) -> OrchestratorContract:
    """The retries of an orchestrator's contract; raises ConfigError with every problem.

    What a contract leaves out has the document's default.
    """
    report = Report(os.environ)
    tree = _tree(path, report)
    found = {} if tree is None else _retries(tree, report)
    report.sort(str(path))
    report.close()
    return OrchestratorContract(**found, source=str(path))


def _retries(tree: Node, report: Report) -> dict[str, Any]:
    _near(tree, (), ("coordination_rules", "error_handling"), report)
    rules = _section(tree, _RULES_AT, report)
    handling = _section(tree, _POLICY_AT[:1], report)
    policy = _section(handling, _POLICY_AT, report)
    _near(rules, _RULES_AT, tuple(_RULES), report)
    _near(handling, _POLICY_AT[:1], ("retry_policy",), report)
    _strange(policy, report)
    total = _values(rules, _RULES_AT, _RULES, report).get("max_retries")
    found = _values(policy, _POLICY_AT, _POLICY, report)
    if total is not None:
        found = {"max_retries": total, **found, "total_retries": total}
    return found


def read_effect_contract(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The contract of an effect as plain data; a section on retries in it is refused."""
    report = Report(os.environ)
    tree = _tree(path, report)
    if tree is not None:
        _refuse_retries(tree, (), report)
    report.sort(str(path))
    report.close()
    assert tree is not None, "a file that cannot be read is a problem"
    plain: dict[str, Any] = tree.plain
    return plain


def _tree(path: str | os.PathLike[str], report: Report) -> Node | None:
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"contract = {path!r}: must be the path of a contract.yaml")
    found = read_file(Path(path), str(path), report).tree
    if found is not None and type(found.value) is not dict:
        report.file(str(path), found.line, "is no contract: it must be a mapping")
        return None
    if found is not None and not found.value:
        report.file(str(path), found.line, "is empty: a contract that is cut off is not used")
        return None
    return found


def _section(node: Node, keys: Keys, report: Report) -> Node:
    """The mapping below a key; an empty one if it is not there."""
    child = node.value.get(keys[-1])
    if child is None:
        return Node({}, node.line, node.source)
    if type(child.value) is not dict:
        if child.value is None:
            report.problem(child, keys, "has no value")
        else:
            report.wrong(child, keys, "a mapping")
        return Node({}, node.line, node.source)
    assert isinstance(child, Node)
    return child


def _values(node: Node, keys: Keys, shapes: dict[str, Shape], report: Report) -> dict[str, Any]:
    found = {
        name: check(shape, node.value[name], (*keys, name), report)
        for name, shape in shapes.items()
        if name in node.value
    }
    return {name: value for name, value in found.items() if value is not BAD}


def _near(node: Node, keys: Keys, known: tuple[str, ...], report: Report) -> None:
    """Reports keys that are nearly those that are read."""
    for key, child in node.value.items():
        close = get_close_matches(snake(key), known, n=1, cutoff=0.8)
        if key not in known and close and close[0] not in node.value:
            report.problem(child, (*keys, key), "unknown key", nearest=close[0])


def _strange(node: Node, report: Report) -> None:
    """Reports every key of the retry policy that is not known: it would be ignored."""
    for key, child in node.value.items():
        if key not in _POLICY:
            close = get_close_matches(snake(key), _POLICY, n=1)
            text = "unknown key" if close else f"unknown key; there are {', '.join(_POLICY)}"
            report.problem(child, (*_POLICY_AT, key), text, nearest="".join(close))


def _refuse_retries(node: Node, keys: Keys, report: Report) -> None:
    if type(node.value) is dict:
        for key, child in node.value.items():
            if _is_of_retries(snake(key)):
                report.problem(child, (*keys, key), _BELONGS)
            else:
                _refuse_retries(child, (*keys, key), report)
    elif type(node.value) is list:
        for number, child in enumerate(node.value):
            _refuse_retries(child, (*keys, number), report)


def _is_of_retries(key: str) -> bool:
    return key.startswith("retry") or key in _OWN_RETRIES or key.endswith("_backoff_seconds")
