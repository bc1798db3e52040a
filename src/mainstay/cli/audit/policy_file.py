"""Policies from a file, YAML or JSON: one policy, or several with the operations they are for.

max_attempts: 5                 one policy, for every operation
backoff: {kind: exponential, initial: 0.2}

policies:                       several: each in place of the one of that name,
  patient: {max_attempts: 8}
operations:                     or for the operations that are named here
  billing.charge: patient
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mainstay.cli.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from mainstay import RetryPolicy

_HINT = "see docs/how-to/audit-analysis.md for what such a file holds"


class PolicyFile:
    """The policies of a file, each for the operations it is meant for."""

    def __init__(self, path: str) -> None:
        self.path = path
        content = _read(path)
        self.only: RetryPolicy | None = None
        self.policies: dict[str, RetryPolicy] = {}
        self.operations: dict[str, str] = {}
        if "policies" not in content:
            self.only = _policy(content)
            return
        self._check(content)
        for name, fields in content["policies"].items():
            self.policies[str(name)] = _policy({"name": str(name), **fields})
        self.operations = dict(content.get("operations") or {})
        for operation, name in self.operations.items():
            if name not in self.policies:
                self._refuse(f"operations: {operation}: no policy is named {name!r}")

    def choose(self, operation: str, policy: str) -> RetryPolicy | None:
        """The policy for an operation whose recorded policy has this name; None: as it was."""
        if self.only is not None:
            return self.only
        return self.policies.get(self.operations.get(operation, policy))

    def _check(self, content: Mapping[str, Any]) -> None:
        strange = sorted(set(content) - {"policies", "operations"})
        if strange:
            self._refuse(f"{strange[0]}: there are policies and operations")
        for name in ("policies", "operations"):
            if not isinstance(content.get(name) or {}, dict):
                self._refuse(f"{name}: must be a mapping of names")
        for name, fields in content["policies"].items():
            if not isinstance(fields, dict):
                self._refuse(f"policies: {name}: must be a mapping of fields")

    def _refuse(self, what: str) -> None:
        raise CommandError(f"{self.path}: {what}", hint=_HINT)


def _read(path: str) -> dict[str, Any]:
    """What the file holds, by the reader of configurations: it bounds size, nesting and aliases."""
    from mainstay.config.files.load_file import read_file
    from mainstay.config.report import Report

    report = Report({})
    tree = read_file(Path(path), path, report).tree
    if report.problems:
        raise CommandError("; ".join(map(str, report.problems[:3])), hint=_HINT)
    content = None if tree is None else tree.plain
    if not content or not isinstance(content, dict):
        raise CommandError(f"{path}: must be a mapping of a policy's fields", hint=_HINT)
    return content


def _policy(fields: Mapping[str, Any]) -> RetryPolicy:
    from mainstay import RetryPolicy

    return RetryPolicy.from_dict(fields)
