"""Those who follow single calls: they are told when each attempt begins and ends.

A listener that has `follow(plan)` is asked, when a call begins, for one who hears of that call
alone. Whoever follows cannot change what happens: what it raises is reported and passed over.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mainstay.drivers.call.site import Site
    from mainstay.ports import Follower, Sink


def begun(listeners: tuple[Sink, ...], site: Site) -> tuple[tuple[Sink, ...], tuple[Follower, ...]]:
    """The listeners of one call, and those among them who follow its attempts."""
    receivers: list[Sink] = []
    followers: list[Follower] = []
    for listener in listeners:
        follower = _quietly(listener, "follow", site) if listener in site.followed else None
        if follower is not None:
            followers.append(follower)
        receivers.append(follower or listener)
    return tuple(receivers), tuple(followers)


def notify(followers: tuple[Follower, ...], what: str, *about: object) -> None:
    """Tells each of them, in order."""
    for follower in followers:
        _quietly(follower, what, *about)


def _quietly(whom: object, what: str, *about: object) -> Any:
    method = getattr(whom, what, None)
    if method is None:
        return None
    try:
        return method(*about)
    except Exception as error:
        from mainstay.runtime.report_failure import report

        report(error, "a listener raised on %s and was passed over", what)
        return None
