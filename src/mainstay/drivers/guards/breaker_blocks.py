"""`with breaker:` and `async with breaker:`: a block of code as one call of a circuit."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.circuit.breaker import Ticket
from mainstay.drivers.call.guard import WAIT, Guard, guards_around
from mainstay.errors import Refused
from mainstay.runtime.enclosing import enclosures

if TYPE_CHECKING:
    from types import FrameType
    from typing import Self, TypeAlias

    from mainstay.drivers.call.guard import GuardTicket
    from mainstay.runtime.background import Job

    Block: TypeAlias = tuple[FrameType, Ticket, float]

ALONG = Ticket(-1)
"""Of a call that is part of one around it: of no generation, so it is not counted."""


class Blocks(Guard):
    """The two sorts of block; the breaker keeps those that are open in `_blocks`."""

    __slots__ = ()
    if TYPE_CHECKING:
        _blocks: list[Block]

    def __enter__(self) -> Self:
        ticket = self.enter(is_retry=False, now=clock.current.monotonic())
        job = self._pending(ticket)
        if job is not None:
            job.wait(WAIT)
        self._begin(sys._getframe(1), ticket, is_pending=job is not None)
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        job = self._end(sys._getframe(1), error)
        if job is not None:
            job.wait(WAIT)

    async def __aenter__(self) -> Self:
        ticket = self.enter(is_retry=False, now=clock.current.monotonic())
        job = self._pending(ticket)
        if job is not None:
            await job.awaited(WAIT)
        self._begin(sys._getframe(1), ticket, is_pending=job is not None)
        return self

    async def __aexit__(
        self, _type: object, error: BaseException | None, _traceback: object
    ) -> None:
        job = self._end(sys._getframe(1), error)
        if job is not None:
            await job.awaited(WAIT)

    def _pending(self, ticket: GuardTicket | Refused) -> Job | None:
        """The permit that a probe of a shared circuit waits for."""
        return None if isinstance(ticket, Refused) else self.pending(ticket)

    def _begin(self, frame: FrameType, ticket: GuardTicket | Refused, *, is_pending: bool) -> None:
        """Admits the block of a frame, or raises; a block is a frame, a ticket and its start."""
        now = clock.current.monotonic()
        if is_pending and not isinstance(ticket, Refused):
            ticket = self.confirm(ticket, is_retry=False, now=now)
        if isinstance(ticket, Refused):
            if not any(self in guards_around(each) for each in enclosures(3)):
                raise ticket
            ticket = ALONG
        assert isinstance(ticket, Ticket)
        self._blocks.append((frame, ticket, now))

    def _end(self, frame: FrameType, error: BaseException | None) -> Job | None:
        """Ends the block of that frame; if another function left it, the one entered last.

        Returns what to wait for, if it has opened a shared circuit.
        """
        blocks = self._blocks
        mine = [index for index, each in enumerate(blocks) if each[0] is frame]
        _, ticket, started = blocks.pop(mine[-1] if mine else -1)
        now = clock.current.monotonic()
        self.left(ticket, error, now - started, now)
        return self.pending(None)


def is_inside_block(blocks: list[Block], frame: FrameType | None) -> bool:
    """Whether one of these blocks is around the frame: then they are one call."""
    entered = {each[0] for each in blocks}
    while frame is not None:
        if frame in entered:
            return True
        frame = frame.f_back
    return False
