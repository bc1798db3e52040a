"""What all notifications of new inbox items have in common: a buffer, and one event at a time.

It takes the event and returns; a thread of its own delivers, and repeats with growing delays what
could not be delivered for now. A notification that is refused for good is reported and dropped, or
it would block everything after it.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from socket import SHUT_RDWR
from socket import socket as Socket  # noqa: N812 -- the class, beside what is called so
from typing import TYPE_CHECKING

from mainstay.core.base.validate import Checker
from mainstay.core.inbox.events import InboxRaised
from mainstay.core.inbox.items import RANKS
from mainstay.runtime.reports.report_failure import report
from mainstay.sinks.delivery.base import BufferedSink

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Seconds


_AGAIN = 0.05
"""Seconds until a connection is cut again."""


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

    @contextmanager
    def _in_time(self, open_socket: Callable[[], Socket | None]) -> Iterator[None]:
        """Cuts a connection when the time for the delivery is up.

        A socket's own timeout is for one read: a server that answers byte by byte would hold up
        every later notification without limit. It is cut until the delivery has ended: at first
        there may be no connection yet, or one that TLS is just taking over.
        """
        is_late, is_over = threading.Event(), threading.Event()

        def cut() -> None:
            is_late.set()
            while not is_over.is_set():
                with suppress(OSError, AttributeError):  # it is closed, or not open yet
                    found = open_socket()
                    if found is not None:
                        Socket.shutdown(found, SHUT_RDWR)
                is_over.wait(_AGAIN)

        timer = threading.Timer(self._timeout, cut)
        timer.daemon = True
        with suppress(RuntimeError):  # at the interpreter's end no thread can be started
            timer.start()
        try:
            yield
        finally:
            timer.cancel()
            is_over.set()
            if is_late.is_set():
                raise TimeoutError(f"no answer within {self._timeout:g} s")

    def _send(self, event: InboxRaised) -> None:
        raise NotImplementedError("a subclass knows how")


def delivery_of(event: InboxRaised) -> str:
    """What one notification is known by: the item, and when it was raised.

    >>> delivery_of(InboxRaised(item="3f2a", timestamp="2026-01-02T03:04:05Z"))
    '3f2a.20260102T030405Z'
    """
    return f"{event.item}.{event.timestamp.replace('-', '').replace(':', '')}"
