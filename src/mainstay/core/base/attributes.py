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


SIGNALS = ("__notes__", "headers", "response", "retry_after", "status", "status_code")
"""What of an exception decides about it, whatever library it is from."""
CACHE_SIZE = 1000
"""Classes that are remembered; far more than a program raises."""
_has_own: dict[type, bool] = {}


def signals_of(exception: BaseException) -> dict[str, UserValue] | None:
    """The attributes of an exception, if all SIGNALS that it has are among them.

    None if its class may have one: as a property, a class attribute, a slot or by `__getattr__`.
    Reading a dict takes a fraction of the time that a careful `getattr` takes.

    >>> signals_of(OSError(2, "no such file"))
    {}
    """
    cls = type(exception)
    found = _has_own.get(cls)
    if found is None:
        if len(_has_own) >= CACHE_SIZE:
            _has_own.clear()
        reads: object = getattr(cls, "__getattribute__", None)
        is_own = reads is not BaseException.__getattribute__
        found = is_own or any(carries(cls, name) for name in (*SIGNALS, "__getattr__", "__slots__"))
        _has_own[cls] = found
    return None if found else exception.__dict__


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
