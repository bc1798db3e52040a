"""How much is kept of keyed calls, and how often what has expired is purged; light to load."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.base.validate import Checker

MAX_RESULT = 64 << 20
"""Bytes of a result that are kept at most, unless another number is chosen. Over a slow connection
larger ones would not be written within the timeout of a store."""
PURGE_EVERY = 300.0
"""Seconds between two purges."""


def check_max_result(check: Checker, max_result: int | None) -> int | None:
    """The bytes of a result that are kept at most."""
    if max_result is None:
        return None
    return check.count("max_result", max_result, 1 << 50)
