"""The connections of a publisher: one for each event loop of this process, replaced when lost.

Clients of brokers belong to the loop that they were opened in, and to the process. A publisher may
be used from several loops, one after the other or in several threads, and in a forked child. There
a loop of the parent is refused: it would read from the parent's connections.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from mainstay.errors import UsageError
from mainstay.runtime.fork import PROCESS, leave_to_parent, make_lock, reset_in_child

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

_CLOSES_WITHIN = 5.0
"""Seconds for closing one connection; its client has shorter limits of its own."""


class Link:
    """A connection to a broker, in one event loop; a subclass has the client.

    Attributes:
        is_dropped: whether the publisher has given it up.
        answered: when the broker last acknowledged a message, on the clock of the loop.
    """

    is_dropped = False
    answered = float("-inf")

    @property
    def is_lost(self) -> bool:
        """Whether the next message needs another one."""
        return self.is_dropped

    async def close(self) -> None:
        """Ends it, in good order if the broker answers; called once."""
        raise NotImplementedError("a subclass has the client")


L = TypeVar("L", bound=Link)


class _Place(Generic[L]):
    """What one event loop has of a publisher."""

    def __init__(self) -> None:
        self.link: L | None = None
        self.turn = asyncio.Lock()
        """Held by the task that opens a connection: a hundred that need one wait for the first."""
        self.ending: set[asyncio.Task[None]] = set()
        self.keeper: AsyncGenerator[None, None] | None = None

    def drop(self) -> None:
        """Ends the connection in the background: no message waits for that."""
        link, self.link = self.link, None
        if link is not None:
            link.is_dropped = True
            task = asyncio.get_running_loop().create_task(_ended(link))
            self.ending.add(task)
            task.add_done_callback(self.ending.discard)

    async def close(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            link.is_dropped = True
            await _ended(link)
        if self.ending:
            await asyncio.gather(*self.ending, return_exceptions=True)


async def _ended(link: Link) -> None:
    with contextlib.suppress(Exception):  # it is of no more use, however it ends
        async with asyncio.timeout(_CLOSES_WITHIN):
            await link.close()


class LoopConnections(Generic[L]):
    """The connections of one publisher, by event loop.

    A connection is closed by `close()` in its loop, or when the loop ends.

    Args:
        opening: opens a connection in the running loop; leaves nothing open if it fails.
    """

    def __init__(self, opening: Callable[[], Awaitable[L]]) -> None:
        self._opening = opening
        self._lock = make_lock()
        self._places: WeakKeyDictionary[asyncio.AbstractEventLoop, _Place[L]] = WeakKeyDictionary()
        self._inherited: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
        """The loops in which the parent of this process has connections."""
        reset_in_child(self, LoopConnections._reset)

    def _reset(self) -> None:
        self._inherited.update(self._places)
        leave_to_parent(dict(self._places))
        self._places = WeakKeyDictionary()

    async def get(self) -> L:
        """The connection of this loop; opens one if there is none that can be used."""
        place = self._place()
        link = place.link
        if link is not None and not link.is_lost:
            return link
        async with place.turn:
            if place.keeper is None:
                place.keeper = _closed_at_the_end(place)
                await anext(place.keeper)
            link = place.link
            if link is None or link.is_lost:
                place.drop()
                link = place.link = await self._opening()
        return link

    def drop(self, link: L) -> None:
        """The connection is not used again; those who wait for an answer on it get an error."""
        place = self._place()
        if place.link is link:
            place.drop()

    async def close(self) -> None:
        """Closes the connection of this loop; `get` opens another."""
        PROCESS.notice()
        with self._lock:
            place = self._places.pop(asyncio.get_running_loop(), None)
        if place is not None:
            await place.close()
            if place.keeper is not None:
                await place.keeper.aclose()

    def _place(self) -> _Place[L]:
        loop = asyncio.get_running_loop()
        PROCESS.notice()  # a child that was forked without hooks
        if loop in self._inherited:
            text = "this event loop reads from the connections of the process that was forked here"
            raise UsageError(text, hint="publish in a loop of the child's own: asyncio.run(...)")
        with self._lock:
            place = self._places.get(loop)
            if place is None:
                place = self._places[loop] = _Place()
        return place


async def _closed_at_the_end(place: _Place[L]) -> AsyncGenerator[None, None]:
    """Waits for its loop to end: asyncio closes the generators that are left, in the loop."""
    try:
        yield
    finally:
        await place.close()
