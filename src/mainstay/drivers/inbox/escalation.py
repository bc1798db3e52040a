"""Brings operations that were given up to a person, if they ask for it.

A listener of one operation: it receives `retry_exhausted`, in the call's own thread, and raises an
item. Whatever goes wrong there is reported, and changes nothing for the call. In an event loop it
is done in a thread of its own, since a store may take its time.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING

from mainstay.core.inbox.items import Item
from mainstay.core.retry.events import RetryExhausted
from mainstay.drivers.call.emit import keep_item_id
from mainstay.drivers.inbox.authentication import writable
from mainstay.errors import SinkError
from mainstay.ports import SinkWants
from mainstay.runtime.background import detached_thread
from mainstay.runtime.context import is_in_event_loop
from mainstay.runtime.fork import make_lock
from mainstay.runtime.reports.report_failure import report

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from typing import Protocol

    from mainstay.core.base.event import Event
    from mainstay.core.redact.redactor import Redactor
    from mainstay.drivers.call.site import Site
    from mainstay.drivers.inbox.inbox import Inbox

    class KeyedCall(Protocol):
        """A call with a key, as an item names it."""

        @property
        def site(self) -> Site: ...
        @property
        def operation(self) -> str: ...
        @property
        def key(self) -> str: ...
        @property
        def address(self) -> str: ...


_LONGEST_WAIT = 10.0
"""Seconds for which an engine that closes waits for items on their way."""

ABOUT: ContextVar[KeyedCall | None] = ContextVar("mainstay_escalated", default=None)
"""The keyed call under way: its key distinguishes one matter from another."""


class Escalation:
    """Raises an item for each call of an operation that was given up."""

    wants = SinkWants(successes=False, escalates=True)

    def __init__(self, inbox: Inbox, redact: Redactor | None = None) -> None:
        self._inbox = inbox
        self._redact = redact
        self._threads: set[threading.Thread] = set()
        self._lock = make_lock()

    def __call__(self, event: Event) -> None:
        if not isinstance(event, RetryExhausted):
            return
        item = self._item(event)
        if is_in_event_loop():
            self._later(item)
            keep_item_id(item.id)
        elif self._put(item):
            keep_item_id(item.id)

    def _item(self, event: RetryExhausted) -> Item:
        call = ABOUT.get()
        is_keyed = call is not None and call.operation == event.operation
        name, key = event.operation, f" with key {call.key!r}" if call and is_keyed else ""
        error = ": ".join(filter(None, (event.final_exception_type, event.final_exception_message)))
        return Item(
            kind="exhausted",
            subject=writable(call.address if call and is_keyed else name),
            operation=name,
            text=f"{name}{key}: gave up after {event.total_attempts} attempts ({event.reason}):"
            f" {error}",
            attempts=event.total_attempts,
            data={"address": call.address} if call and is_keyed else {},
        )

    def _put(self, item: Item) -> bool:
        """Puts the item into the inbox; False if that failed."""
        try:
            self._inbox.put(item)
        except SinkError:
            raise
        except Exception as error:
            message = "%s was given up, and could not be put into the inbox"
            report(error, message, item.operation, redact=self._redact)
            return False
        return True

    def _later(self, item: Item) -> None:
        def step() -> None:
            try:
                self._put(item)
            except SinkError as error:
                report(error, "a strict sink did not keep an item", redact=self._redact)
            finally:
                with self._lock:
                    self._threads.discard(threading.current_thread())

        thread = detached_thread(step, "mainstay-escalation")
        with self._lock:
            self._threads.add(thread)
        thread.start()

    def flush(self) -> None:
        """Waits for items on their way to the store."""
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(_LONGEST_WAIT)


def about(call: KeyedCall) -> AbstractContextManager[None]:
    """While it is on, what is given up is given up for this keyed call."""
    return _about(call) if call.site.escalates else nullcontext()


@contextmanager
def _about(call: KeyedCall) -> Iterator[None]:
    token = ABOUT.set(call)
    try:
        yield
    finally:
        ABOUT.reset(token)
