"""`with breaker:` and `async with breaker:`: a block of code as one call of a circuit.

The breaker is one object for all its blocks, so what leaves a block must find the ticket that it
was entered with. A `with` statement enters and leaves in one frame, an exit stack in methods of its
own: the frame, or the stack, is the key of the block, and no two threads, tasks or generators have
one in common. If a function enters and another one leaves, the last block of that thread or task is
meant.
"""

from __future__ import annotations

import sys
from threading import get_ident
from types import FrameType
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.circuit.breaker import Ticket
from mainstay.drivers.call.guard import WAIT, Guard, guards_around
from mainstay.errors import Refused
from mainstay.runtime.enclosing import enclosures

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self, TypeAlias

    from mainstay.drivers.call.guard import GuardTicket
    from mainstay.runtime.background import Job

    OpenBlocks: TypeAlias = dict[object, list["Block"]]
    """By what has entered them: a frame, or an exit stack."""

ALONG = Ticket(-1)
"""Of a call that is part of one around it: of no generation, so it is not counted."""
_GENERATORS = 0x20 | 0x200
"""The flags of code that may be suspended while other code of the same thread or task runs."""


class Block:
    """A block that was entered and not left: its ticket, when it began, and what runs it."""

    __slots__ = ("owner", "started", "ticket")

    def __init__(self, ticket: Ticket, started: float) -> None:
        self.ticket = ticket
        self.started = started
        self.owner = _running()


class Blocks(Guard):
    """The two sorts of block; the breaker keeps those that are open in `_blocks`."""

    __slots__ = ()
    if TYPE_CHECKING:
        _blocks: OpenBlocks

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
        """Admits the block of a frame, or raises."""
        now = clock.current.monotonic()
        if is_pending and not isinstance(ticket, Refused):
            ticket = self.confirm(ticket, is_retry=False, now=now)
        if isinstance(ticket, Refused):
            if not any(self in guards_around(each) for each in enclosures(3)):
                raise ticket
            ticket = ALONG
        assert isinstance(ticket, Ticket)
        self._blocks.setdefault(_key_of(frame), []).append(Block(ticket, now))

    def _end(self, frame: FrameType, error: BaseException | None) -> Job | None:
        """Ends the block of that frame, or of the exit stack that it belongs to.

        Returns what to wait for, if it has opened a shared circuit.
        """
        block = _taken(self._blocks, _key_of(frame)) or _taken_elsewhere(self._blocks, frame)
        now = clock.current.monotonic()
        if block is not None:
            self.left(block.ticket, error, now - block.started, now)
        return self.pending(None)


def is_inside_block(blocks: OpenBlocks, frame: FrameType | None) -> bool:
    """Whether one of these blocks is around the frame: then they are one call."""
    stack = list(_stack(frame))
    if any(each in blocks for each in stack):
        return True
    return any(not _may_be_suspended(key) for key, _ in _owned(blocks))


def _taken(blocks: OpenBlocks, key: object) -> Block | None:
    """Takes out the block that was entered last under a key."""
    entered = blocks.get(key)
    try:
        return entered.pop() if entered else None
    except IndexError:  # another thread left it just now, though it has not entered it
        return None
    finally:
        if not entered:
            blocks.pop(key, None)


def _taken_elsewhere(blocks: OpenBlocks, frame: FrameType) -> Block | None:
    """Takes out the block that is most likely meant, if nothing was entered under this key.

    That of this thread or task which no function below is still in, the last one first; or, if
    another one has entered it, what was entered last. None if no block is open.
    """
    stack = set(_stack(frame))
    own = [key for key, _ in _owned(blocks)]
    for key in [*(key for key in own if key not in stack), *own, *reversed(list(blocks))]:
        block = _taken(blocks, key)
        if block is not None:
            return block
    return None


def _owned(blocks: OpenBlocks) -> list[tuple[object, Block]]:
    """The blocks that this thread or task has entered, by their keys, the last one first."""
    me = _running()
    found = [(key, block) for key, entered in list(blocks.items()) for block in list(entered)]
    return [(key, block) for key, block in reversed(found) if block.owner == me]


def _key_of(frame: FrameType) -> object:
    """What enters or leaves a block: the frame, or the exit stack whose method it is."""
    if frame.f_globals.get("__name__") == "contextlib":
        return frame.f_locals.get("self", frame)
    return frame


def _may_be_suspended(key: object) -> bool:
    return isinstance(key, FrameType) and bool(key.f_code.co_flags & _GENERATORS)


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _running() -> object:
    """What runs now: a task of an event loop, or a thread."""
    asyncio, trio = sys.modules.get("asyncio"), sys.modules.get("trio")
    loop = asyncio and asyncio._get_running_loop()  # noqa: SLF001 -- raises not
    task = asyncio.current_task(loop) if asyncio and loop else None
    if task is None and trio is not None and trio.lowlevel.in_trio_task():
        task = trio.lowlevel.current_task()
    return get_ident() if task is None else task
