"""`with breaker:` and `async with breaker:`: a block of code as one call of a circuit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.circuit.breaker import Ticket
from mainstay.drivers.call.guard import guards_around
from mainstay.errors import CircuitOpenError
from mainstay.runtime.enclosing import enclosures

if TYPE_CHECKING:
    from types import FrameType
    from typing import TypeAlias

    from mainstay.drivers.call.guard import Guard

    Block: TypeAlias = tuple[FrameType, Ticket, float]

ALONG = Ticket(-1)
"""Of a call that is part of one around it: of no generation, so it is not counted."""


def enter_block(breaker: Guard, blocks: list[Block], frame: FrameType) -> None:
    """Admits the block of a frame, or raises; a block is a frame, a ticket and its start."""
    now = clock.current.monotonic()
    ticket = breaker.enter(is_retry=False, now=now)
    if isinstance(ticket, CircuitOpenError):
        if not any(breaker in guards_around(each) for each in enclosures(3)):
            raise ticket
        ticket = ALONG
    assert isinstance(ticket, Ticket)
    blocks.append((frame, ticket, now))


def leave_block(
    breaker: Guard, blocks: list[Block], frame: FrameType, error: BaseException | None
) -> None:
    """Ends the block of that frame; if another function left it, the one entered last."""
    mine = [index for index, each in enumerate(blocks) if each[0] is frame]
    _, ticket, started = blocks.pop(mine[-1] if mine else -1)
    now = clock.current.monotonic()
    breaker.left(ticket, error, now - started, now)


def is_inside_block(blocks: list[Block], frame: FrameType | None) -> bool:
    """Whether one of these blocks is around the frame: then they are one call."""
    entered = {each[0] for each in blocks}
    while frame is not None:
        if frame in entered:
            return True
        frame = frame.f_back
    return False
