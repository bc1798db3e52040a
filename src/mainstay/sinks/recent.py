"""The latest events in memory, to watch a process while it runs."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mainstay.core.events.encode import encode
from mainstay.ports import SinkWants
from mainstay.sinks.queues import content_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.core.base.event import Event


class RecentEvents:
    """A sink that keeps the latest events, and drops the oldest for a new one.

    >>> from mainstay.events import CallSucceeded
    >>> recent = RecentEvents(most=2)
    >>> for operation in "abc":
    ...     recent(CallSucceeded(operation=operation))
    >>> len(list(recent.records()))
    2
    """

    wants = SinkWants()

    def __init__(self, most: int) -> None:
        self._events: deque[Event] = deque(maxlen=most)

    def __call__(self, event: Event) -> None:
        self._events.append(event)

    def records(self) -> Iterator[tuple[str, bytes]]:
        """The events as a log has them: the writer, who is this process, and the record."""
        for event in content_of(self._events):  # calls go on meanwhile
            yield "", encode(event)
