"""Listeners as they are given: none, one, or several; and those that follow single calls.

If a listener has `follow(plan)`, it is asked for a follower when a call begins, which is notified
when each attempt begins and ends. A follower cannot change what happens: what it raises is reported
and ignored.
"""

from __future__ import annotations

from mainstay.core.base.functions import is_async
from mainstay.core.base.validate import Checker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mainstay.core.base.types import UserValue
    from mainstay.drivers.call.site import Site
    from mainstay.ports import Follower, Sink


def listeners_of(subject: str, listener: UserValue) -> tuple[Sink, ...]:
    """The listeners as a tuple; raises if one cannot be called."""
    if listener is None:
        return ()
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


def begun(listeners: tuple[Sink, ...], site: Site) -> tuple[tuple[Sink, ...], tuple[Follower, ...]]:
    """The listeners of one call, and those among them that follow its attempts."""
    receivers: list[Sink] = []
    followers: list[Follower] = []
    for listener in listeners:
        follower = _quietly(listener, "follow", site) if id(listener) in site.followed else None
        if follower is not None:
            followers.append(follower)
        receivers.append(follower or listener)
    return tuple(receivers), tuple(followers)


def notify(followers: tuple[Follower, ...], what: str, *about: object) -> None:
    """Calls a method of each of them, in order."""
    for follower in followers:
        _quietly(follower, what, *about)


def _quietly(listener: object, what: str, *about: object) -> Any:
    method = getattr(listener, what, None)
    if method is None:
        return None
    try:
        return method(*about)
    except Exception as error:
        from mainstay.runtime.reports.report_failure import report

        report(error, "a listener raised on %s and was passed over", what)
        return None
