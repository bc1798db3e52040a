"""Governance: rules that are read anew when their file changes, and a check of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mainstay.config.files.governance import read_governance
from mainstay.config.files.load_file import LARGEST
from mainstay.core.pipeline.governance import GovernanceRules
from mainstay.drivers.pipeline.gate import Gate
from mainstay.runtime.private_files import read_regular

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import Any

    from mainstay.drivers.pipeline.context import StageContext


class Governance:
    """What governance allows: rules or a file of them, and a check of your own.

    Args:
        rules: GovernanceRules, or the path of a YAML or JSON file, which is read anew when it
            changes: what is blocked meanwhile is not retried.
        check: called with a data set id and the StageContext before each call of a stage; it
            returns a reason to refuse it, or None. It may be async for async stages.

    >>> rules = GovernanceRules(council=("ann",))
    >>> Governance(rules).rules.council
    ('ann',)
    """

    def __init__(
        self,
        rules: GovernanceRules | str | os.PathLike[str] | None = None,
        *,
        check: Callable[[str, StageContext], Any] | None = None,
    ) -> None:
        is_file = rules is not None and not isinstance(rules, GovernanceRules)
        self._path = Path(rules).absolute() if is_file else None  # type: ignore[arg-type]
        self._rules = rules if isinstance(rules, GovernanceRules) else GovernanceRules()
        self._seen: bytes | None = None
        self.check = check
        self.rules  # noqa: B018  what cannot be read is refused now

    @classmethod
    def of(cls, given: Governance | GovernanceRules | str | os.PathLike[str] | None) -> Governance:
        """What was given, as it is or of its rules.

        >>> Governance.of(None).rules.council
        ()
        """
        return given if isinstance(given, Governance) else cls(given)

    @property
    def rules(self) -> GovernanceRules:
        """The rules as they are now."""
        if self._path is not None:
            content = _content(self._path)
            if content is None or content != self._seen:
                self._rules, self._seen = read_governance(self._path), content
        return self._rules

    def gate(self) -> Gate:
        """The gate before each call of a stage."""
        return Gate(lambda: self.rules, self.check)


def _content(path: Path) -> bytes | None:
    """What is in the file, by which a change is seen: a date and a size may stay the same."""
    try:
        return read_regular(path, LARGEST)
    except OSError:
        return None
