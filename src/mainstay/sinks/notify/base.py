"""What all notifications of new inbox items have in common: a buffer, and one event at a time.

It takes the event and returns; a thread of its own delivers, and repeats with growing delays what
could not be delivered for now. A notification that is refused for good is reported and dropped, or
it would block everything after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.base.validate import Checker
from mainstay.core.inbox.events import InboxRaised
from mainstay.core.inbox.items import RANKS
from mainstay.integrations.webhooks.post import in_time
from mainstay.runtime.reports.report_failure import report
from mainstay.sinks.delivery.base import BufferedSink

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from socket import socket as Socket  # noqa: N812 -- the class, beside what is called so

    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Seconds


class Refused(Exception):
    """The receiver will never accept this notification."""


class Notifier(BufferedSink):
    """Sends a notification for each new item; a subclass defines how.

    `least` is the lowest severity of items that are notified.
    """

    def __init__(
        self,
        name: str,
        *,
        least: str = "low",
        spill: str | os.PathLike[str] | bool | None = None,
        timeout: Seconds = 10.0,
    ) -> None:
        check = Checker(type(self).__name__)
        check.choice("least", least, RANKS)
        self._timeout = check.duration("timeout", timeout, 0.01, 600.0)
        check.close()
        self._severities = frozenset(RANKS[: RANKS.index(least) + 1])
        self._sent: set[str] = set()
        """Of a batch that failed half-way: what was delivered of it."""
        super().__init__(name, spill=spill, timeout=timeout)

    def __call__(self, event: Event) -> None:
        """Takes the event of a new item, and no other."""
        if isinstance(event, InboxRaised) and event.severity in self._severities:
            super().__call__(event)

    def _deliver(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, InboxRaised) and delivery_of(event) not in self._sent:
                try:
                    self._send(event)
                except Refused as error:
                    report(error, "%s: item %s is not notified", self.name, event.item)
                self._sent.add(delivery_of(event))
        self._sent.clear()

    def _in_time(self, open_socket: Callable[[], Socket | None]) -> AbstractContextManager[None]:
        return in_time(open_socket, self._timeout)

    def _send(self, event: InboxRaised) -> None:
        raise NotImplementedError("a subclass knows how")


def delivery_of(event: InboxRaised) -> str:
    """What one notification is known by: the item, and when it was raised.

    >>> delivery_of(InboxRaised(item="3f2a", timestamp="2026-01-02T03:04:05Z"))
    '3f2a.20260102T030405Z'
    """
    return f"{event.item}.{event.timestamp.replace('-', '').replace(':', '')}"
