"""The moment of a record in seconds, for differences."""

from __future__ import annotations

from datetime import UTC, datetime

from mainstay.core.base.timestamps import sortable


def moment(stamp: str) -> float | None:
    """The Unix seconds of a record's time; None if it has none.

    >>> moment("1970-01-01T00:00:05Z"), moment("")
    (5.0, None)
    """
    at = sortable(stamp)
    return datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp() if at else None
