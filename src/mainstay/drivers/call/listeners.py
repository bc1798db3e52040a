"""Listeners as they are given: none, one, or several."""

from __future__ import annotations

from mainstay.core.base.functions import is_async
from mainstay.core.base.validate import Checker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.base.types import UserValue
    from mainstay.ports import Sink


def listeners_of(subject: str, listener: UserValue) -> tuple[Sink, ...]:
    """The listeners as a tuple; raises if one cannot be called."""
    check = Checker(subject)
    found = check_listeners(check, listener)
    check.close()
    return found


def check_listeners(check: Checker, listener: UserValue) -> tuple[Sink, ...]:
    """The listeners as a tuple; notes those that cannot be called."""
    if listener is None:
        return ()
    several = hasattr(listener, "__iter__") and not callable(listener)
    listeners = tuple(listener) if several else (listener,)
    for each in listeners:
        if not callable(each):
            check.note("listener", each, "a function of one event")
        elif is_async(each):
            check.note("listener", each, "a plain function of one event: nothing awaits it")
    return listeners
