"""The governance file of pipelines: data sets and the council, with file and line of what is wrong.

What is cut off must not allow more than the whole: a file without rules and a key without a value
are refused, other than in the configuration.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mainstay.config.check import BAD, check
from mainstay.config.files.load_file import read_file
from mainstay.config.report import Report
from mainstay.config.shapes import Field, Listing, NameMap, Section, Text, Whole
from mainstay.core.pipeline.governance import MOST_MASKING, STATUSES, GovernanceRules

if TYPE_CHECKING:
    import os

    from mainstay.config.report import Path as Keys
    from mainstay.config.tree import Node

_VERSION = 1
_NAMES = Listing(Text())
_DATASET = Section(
    Field("status", Text(choices=STATUSES), "who may be given it"),
    Field("care_labels", _NAMES, "what a stage must be cleared for"),
    Field("masking", Whole(0, MOST_MASKING), "the weakest masking"),
)
_RULES = Section(
    Field("version", Whole(_VERSION, _VERSION), "of the file"),
    Field("council", _NAMES, "who decides about conflicts"),
    Field("datasets", NameMap(_DATASET), "by their ids"),
)


def read_governance(path: str | os.PathLike[str]) -> GovernanceRules:
    """The rules in a YAML or JSON file; ConfigError with the line of every problem.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "governance.yml")
    >>> _ = path.write_text("datasets: {d-7: {status: blocked}}")
    >>> read_governance(path).of("d-7").status
    'blocked'
    """
    name, report = str(path), Report({})
    tree = read_file(Path(path), name, report).tree
    found = {} if tree is None or not report.is_sound else _checked(tree, name, report)
    report.sort(name)
    report.close()
    return msgspec.convert(found, GovernanceRules)


def _checked(tree: Node, name: str, report: Report) -> object:
    if not tree.value:
        report.file(name, tree.line, "holds no rules; write `version: 1` if there are none")
        return {}
    version = tree.value.get("version") if isinstance(tree.value, dict) else None
    if version is not None and type(version.value) is int and version.value > _VERSION:
        text = f"has version {version.value}, and this mainstay reads version {_VERSION}"
        report.file(name, version.line, text)
        return {}
    _refuse_empty(tree, (), report)
    found = {} if report.problems else check(_RULES, tree, (), report)
    return {} if found is BAD else found


def _refuse_empty(node: Node, keys: Keys, report: Report) -> None:
    """Reports keys without a value: what stood there may be lost."""
    value = node.value
    if value is None:
        report.problem(node, keys, "has no value")
    elif isinstance(value, dict):
        for key, child in value.items():
            _refuse_empty(child, (*keys, key), report)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            _refuse_empty(child, (*keys, index), report)
