"""Reads what strangers' exceptions carry, without trusting them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.base.types import UserValue


def attribute(holder: object, name: str) -> UserValue:
    """An attribute, or None; a property may raise, as httpx's do before they are set.

    >>> attribute(OSError(2, "no such file"), "errno")
    2
    """
    try:
        return getattr(holder, name, None)
    except Exception:
        return None
