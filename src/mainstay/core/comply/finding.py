"""What a rule finds."""

from __future__ import annotations

from msgspec import Struct


class Finding(Struct, frozen=True, kw_only=True):
    """One violation: the rule, what was found, and where.

    >>> Finding(rule="altered-ledger", text="entry 3 was altered", file="a.json").index is None
    True
    """

    rule: str
    text: str
    file: str = ""
    """The file, the store or the log that shows it."""
    index: int | None = None
    """Which record or entry of the file, from 0; the number of the record in an audit log."""
    line: int | None = None
    """The line in the file, once it was looked up."""
    pipeline_id: str = ""
    run_id: str = ""
    stage: str = ""
    call_id: str = ""
