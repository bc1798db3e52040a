"""The faults of a proxy as values: what is wrong now, a reply to lose, how a connection ends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Faults:
    """What is wrong at the moment."""

    delay: float = 0.0
    jitter: float = 0.0
    rate: float | None = None
    is_hole: bool = False
    is_mute: bool = False
    is_reset: bool = False
    cut: int | None = None


class Ending(Enum):
    """How a lane or a connection comes to its end."""

    CLOSED = "closed"
    """As it should: what was sent arrives."""
    RESET = "reset"
    """Both sides see a reset."""
    LOST = "lost"
    """The client sees a reset, the server that it was closed."""


class Trap:
    """A reply that is to be lost; looks for its request on every connection."""

    def __init__(
        self, after: bytes | Callable[[bytes], object], then: Callable[[], object] | None
    ) -> None:
        self.then = then
        self._after = after
        self._ends: WeakKeyDictionary[object, bytes] = WeakKeyDictionary()

    def holds(self, lane: object, data: bytes) -> bool:
        """Whether this is the request; bytes are looked for across pieces."""
        if not isinstance(self._after, bytes):
            return bool(self._after(data))
        seen = self._ends.get(lane, b"") + data
        self._ends[lane] = seen[max(0, len(seen) - len(self._after) + 1) :]
        return self._after in seen
