"""The governance file of pipelines: data sets and the council, with the line of what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mainstay.config.files.yaml import read_yaml
from mainstay.config.report import Report
from mainstay.core.pipeline.governance import GovernanceRules
from mainstay.errors import LedgerError

if TYPE_CHECKING:
    import os
    from typing import Any

    from mainstay.config.tree import Node


def read_governance(path: str | os.PathLike[str]) -> GovernanceRules:
    """The rules in a YAML or JSON file; LedgerError with the line if it is damaged.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "governance.yml")
    >>> _ = path.write_text("datasets: {d-7: {status: blocked}}")
    >>> read_governance(path).of("d-7").status
    'blocked'
    """
    name, report = str(path), Report({})
    tree = read_yaml(Path(path).read_text(encoding="utf-8"), name, report)
    for problem in report.problems:
        raise LedgerError(name, problem.line or 1, str(problem.allowed or problem))
    assert tree is not None
    plain = _plain(tree)
    found = plain.get("version", 1) if isinstance(plain, dict) else None
    if found != 1:
        reason = f"it has version {found!r}, and this mainstay reads version 1"
        raise LedgerError(name, _line(tree, ["version"]), reason)
    try:
        return msgspec.convert(plain, GovernanceRules)
    except msgspec.ValidationError as error:
        words, _, at = str(error).partition(" - at `$")
        steps = at.rstrip("`").replace("[...]", "").replace("[", ".").split(".")[1:]
        raise LedgerError(name, _line(tree, steps), words) from error


def _plain(node: Node) -> Any:
    value = node.value
    if isinstance(value, dict):
        return {name: _plain(child) for name, child in value.items()}
    if isinstance(value, list):
        return [_plain(child) for child in value]
    return value


def _line(node: Node, steps: list[str]) -> int:
    """The line of a value, as near as its path can be followed."""
    for step in steps:
        value = node.value
        if not isinstance(value, dict) or step not in value:
            break
        node = value[step]
    return node.line or 1
