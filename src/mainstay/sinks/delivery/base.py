"""A sink behind a buffer: what those that write to files and servers have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.ports import SinkWants
from mainstay.sinks.delivery.buffer import Buffer

if TYPE_CHECKING:
    import os

    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Seconds


class BufferedSink:
    """Takes events at once, and delivers them from a thread of its own; a subclass defines how.

    `successes`: whether calls that succeed at the first attempt are delivered too.
    """

    def __init__(
        self,
        name: str,
        *,
        successes: bool = False,
        spill: str | os.PathLike[str] | bool | None = None,
        timeout: Seconds = 5.0,
        strict: bool = False,
    ) -> None:
        self.name = name
        self.wants = SinkWants(successes=successes)
        self._buffer = Buffer(self._deliver, name=name, spill=spill, timeout=timeout, strict=strict)
        self.pressure = self._buffer.pressure

    def __call__(self, event: Event) -> None:
        """Takes an event."""
        self._buffer.put(event)

    def flush(self, timeout: Seconds | None = None) -> bool:
        """Waits until everything is kept there, or safe on disk here; whether it is."""
        return self._buffer.flush(timeout)

    def close(self) -> None:
        """Flushes, and lets go of what is open; a later event opens it again."""
        self._buffer.close()

    def stats(self) -> dict[str, int]:
        """How many events were taken, delivered, spilled to disk, recovered from it and lost."""
        return self._buffer.stats()

    def _deliver(self, events: list[Event]) -> None:
        raise NotImplementedError("a subclass knows where to")
