"""The seams: what the engine needs from outside, and anybody may supply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from mainstay.core.events import Event

Reply = TypeVar("Reply")


class Clock(Protocol):
    """Reads time, and waits without an event loop.

    Example:
        >>> from mainstay.clock import SystemClock
        >>> clock: Clock = SystemClock()
    """

    def monotonic(self) -> float: ...
    def wall(self) -> float: ...
    def sleep(self, seconds: float, cancel: threading.Event | None = None) -> bool: ...


class Sink(Protocol):
    """Anything that listens: a callable that takes an event. The only shape there is.

    It may have two things more: `flush()`, called when an engine closes; and `hears_successes`,
    which says, when an operation is first used, whether calls that never failed are to be told of.
    Where nobody wants to hear of them, they cost nothing.

    Example:
        >>> heard = []
        >>> sink: Sink = heard.append
    """

    def __call__(self, event: Event, /) -> object: ...


class Store(Protocol):
    """Keeps records and changes them atomically.

    `transact` is the whole of it: the store reads the record, lets the pure `decide(record, now)`
    choose what to write and what to answer, and writes, as one step and on the store's own clock.

    Example:
        >>> from mainstay.stores.memory import MemoryStore
        >>> store: Store = MemoryStore()
        >>> store.transact("counters", "a", lambda record, now: ((record or 0) + 1, "counted"))
        'counted'
    """

    url: str
    abilities: frozenset[str]

    def transact(
        self, space: str, key: str, decide: Callable[[Any, float], tuple[Any, Reply]]
    ) -> Reply: ...
    def close(self) -> None: ...
