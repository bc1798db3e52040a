"""What a rule is."""

from __future__ import annotations

from msgspec import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainstay.core.comply.evidence import Evidence
    from mainstay.core.comply.finding import Finding


class Rule(Struct, frozen=True, kw_only=True):
    """A rule: its id, what it finds, what to do about it, and the function that finds it."""

    id: str
    finds: str
    """One sentence for the table of the documentation."""
    fix: str
    """What to do about a finding."""
    check: Callable[[Evidence], Iterable[Finding]]
