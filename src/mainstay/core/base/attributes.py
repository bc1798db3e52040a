"""Reads what strangers' exceptions carry, and leaves notes on them, without trusting them."""

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


def carries(holder: object, name: str) -> bool:
    """Whether there is such an attribute; one that raises is there.

    >>> carries(OSError(), "errno"), carries(OSError(), "status")
    (True, False)
    """
    try:
        return hasattr(holder, name)
    except Exception:
        return True


def add_note(exception: BaseException, note: str) -> None:
    """Leaves a note if the exception takes one: a frozen one does not, and is not lost for it.

    >>> error = OSError("gone")
    >>> add_note(error, "while reading the index")
    >>> error.__notes__
    ['while reading the index']
    """
    try:
        exception.add_note(note)
    except Exception:
        return
