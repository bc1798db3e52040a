"""Followers of single calls: they are notified when each attempt begins and ends.

If a listener has `follow(plan)`, it is asked for a follower when a call begins. A follower cannot
change what happens: what it raises is reported and ignored.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mainstay.drivers.call.site import Site
    from mainstay.ports import Follower, Sink


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
