"""Reads what strangers' exceptions carry, and leaves notes on them, without trusting them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from typing import TypeVar

    from mainstay.core.base.types import UserValue

    T = TypeVar("T")


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


class PerClass(dict[type, "T"]):
    """What is found out about a class when it is first asked for; bounded.

    Reading a dict is no call of a Python function, and failing calls read several.

    >>> names = PerClass(lambda cls: cls.__name__)
    >>> names[OSError], len(names)
    ('OSError', 1)
    """

    __slots__ = ("find",)

    def __init__(self, find: Callable[[type], T]) -> None:
        self.find = find

    def __missing__(self, cls: type) -> T:
        if len(self) >= CACHE_SIZE:
            self.clear()
        found = self[cls] = self.find(cls)
        return found


def _keeps_signals(cls: type) -> bool:
    reads: object = getattr(cls, "__getattribute__", None)
    if reads is not BaseException.__getattribute__:
        return False
    return not any(carries(cls, name) for name in (*SIGNALS, "__getattr__", "__slots__"))


KEEPS_SIGNALS = PerClass(_keeps_signals)
"""Whether all SIGNALS that an exception of the class has are in its dict.

Not if the class may have one: as a property, a class attribute, a slot or by `__getattr__`. Reading
a dict takes a fraction of the time that a careful `getattr` takes.
"""


def signals_of(exception: BaseException) -> dict[str, UserValue] | None:
    """The attributes of an exception, if all SIGNALS that it has are among them; or None.

    >>> signals_of(OSError(2, "no such file"))
    {}
    """
    return exception.__dict__ if KEEPS_SIGNALS[type(exception)] else None


def is_direct(exception: BaseException) -> bool:
    """Whether the function that was called raised it by itself, so that no client did.

    >>> is_direct(TimeoutError())
    True
    """
    trace = exception.__traceback__
    trace = None if trace is None else trace.tb_next  # the first frame is that of the caller
    return trace is None or trace.tb_next is None


def comes_through(exception: BaseException, modules: Container[object]) -> bool:
    """Whether a function of one of these modules is in its traceback.

    >>> comes_through(TimeoutError(), {"http.client"})
    False
    """
    trace = exception.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") in modules:
            return True
        trace = trace.tb_next
    return False


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
