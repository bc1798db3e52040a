"""Notifications of new inbox items: by a function, a signed webhook, or e-mail.

Each is a sink that receives `inbox_raised`, which is emitted once for a new item and not for its
repetitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.base.functions import is_async
from mainstay.core.base.validate import Checker
from mainstay.integrations.webhooks.signature import is_genuine, signature_of
from mainstay.ports import SinkWants
from mainstay.runtime.reports.report_failure import report
from mainstay.sinks.notify.base import Notifier
from mainstay.sinks.notify.mail import NotifyMail
from mainstay.sinks.notify.webhook import NotifyWebhook

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Seconds
    from mainstay.core.inbox.events import InboxRaised

__all__ = [
    "NotifyHook",
    "NotifyMail",
    "NotifySink",
    "NotifyWebhook",
    "is_genuine",
    "signature_of",
]


class NotifyHook(Notifier):
    """Calls a function with the event of each new item, in a thread of its own.

    If the function raises, the error is reported and the notification is not repeated.

    Args:
        notify: the function.
        least: the lowest severity of items that are notified.

    >>> from mainstay import Engine, Item
    >>> texts = []
    >>> sink = NotifyHook(lambda event: texts.append(event.text))
    >>> with Engine(sinks=[sink]) as engine:
    ...     item = Item(kind="alert", subject="a", operation="fetch", text="failing")
    ...     for _ in range(3):
    ...         done = engine.inbox.put(item)
    >>> texts
    ['failing']
    """

    def __init__(self, notify: Callable[[InboxRaised], object], *, least: str = "low") -> None:
        check = Checker("NotifyHook")
        if not callable(notify):
            check.note("notify", notify, "a function of one event")
        elif is_async(notify):
            check.note("notify", notify, "a plain function of one event: nothing awaits it")
        check.close()
        self._notify = notify
        super().__init__("notify hook", least=least, spill=False)

    def _send(self, event: InboxRaised) -> None:
        try:
            self._notify(event)
        except Exception as error:
            report(error, "the hook raised on item %s", event.item)


class NotifySink:
    """Notifies of new items by webhook, e-mail or both, as a configuration names them.

    Args:
        webhook: the options of NotifyWebhook; without a secret it is not signed.
        email: the options of NotifyMail.
        least: the lowest severity of items that are notified.

    >>> NotifySink(webhook={"url": "https://example.org/hook"}).stats()["lost"]
    0
    """

    wants = SinkWants(successes=False)

    def __init__(
        self,
        webhook: Mapping[str, Any] | None = None,
        email: Mapping[str, Any] | None = None,
        *,
        least: str = "low",
    ) -> None:
        self._ways: list[Notifier] = []
        if webhook:
            self._ways.append(NotifyWebhook(**{"secret": None, "least": least, **webhook}))
        if email:
            self._ways.append(NotifyMail(**{"least": least, **email}))

    def __call__(self, event: Event) -> None:
        """Takes the event of a new item, and no other."""
        for way in self._ways:
            way(event)

    def flush(self, timeout: Seconds | None = None) -> bool:
        """Waits until everything is delivered, or safe on disk here; whether it is."""
        results = [way.flush(timeout) for way in self._ways]  # each of them, also after a False
        return all(results)

    def close(self) -> None:
        """Flushes, and lets go of what is open."""
        for way in self._ways:
            way.close()

    def stats(self) -> dict[str, int]:
        """How many events were taken, delivered, spilled, recovered and lost, in all."""
        total: dict[str, int] = {}
        for way in self._ways:
            for name, count in way.stats().items():
                total[name] = total.get(name, 0) + count
        return total
