"""What differs between event loops: shielding, worker threads, cancellation."""

from __future__ import annotations

import sys
from contextvars import copy_context
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import TypeVar

    R = TypeVar("R")


def is_trio() -> bool:
    """Whether this runs in a task of trio.

    trio is loaded in many processes that run asyncio: httpx loads it. To ask it there takes longer
    than to catch an exception, so the name of the running library is read first, where trio keeps
    one (sniffio's, in its own namespace).
    """
    trio = sys.modules.get("trio")
    if trio is None:
        return False
    running = RUNNING[trio]
    if running is not None and running.name != "trio":
        return False
    return bool(trio.lowlevel.in_trio_task())


class _Running(dict[ModuleType, Any]):
    """Where trio keeps the name of the running library; None if it keeps none."""

    def __missing__(self, trio: ModuleType) -> Any:
        names = getattr(trio.run, "__globals__", {})
        return self.setdefault(trio, names.get("sniffio_library"))


RUNNING = _Running()
"""Read by what asks before each wait, too."""


def is_cancellation(error: BaseException) -> bool:
    """Whether this is how an event loop cancels a task."""
    if is_trio():
        return isinstance(error, sys.modules["trio"].Cancelled)
    return isinstance(error, sys.modules["asyncio"].CancelledError)


async def shielded(
    work: Callable[[], Coroutine[Any, Any, R]],
) -> tuple[R, BaseException | None]:
    """What the work returns, which no cancellation of this task ends; and the cancellation."""
    if is_trio():
        with sys.modules["trio"].CancelScope(shield=True):
            return await work(), None
    asyncio = sys.modules["asyncio"]
    task, cancelled = asyncio.ensure_future(_caught(work)), None
    while True:
        try:
            found, exited = await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.done():
                raise
            cancelled = error
        else:
            if exited is not None:
                raise exited
            return found, cancelled


async def _caught(work: Callable[[], Coroutine[Any, Any, R]]) -> Any:
    """What the work returns, and what ends it that would stop the event loop from a task."""
    try:
        return await work(), None
    except (SystemExit, KeyboardInterrupt) as error:
        return None, error


async def in_thread(function: Callable[[], R]) -> R:
    """The result of a plain function, which may wait: it runs in a thread, in this context.

    A cancellation is raised when the function has ended: what comes after must not overtake it.
    """
    if is_trio():
        return await sys.modules["trio"].to_thread.run_sync(function)  # type: ignore[no-any-return]
    asyncio = sys.modules["asyncio"]
    loop, cancelled = asyncio.get_running_loop(), None
    # As asyncio.to_thread, without its task: SystemExit in one would stop the event loop.
    future = loop.run_in_executor(None, copy_context().run, function)
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None and not future.cancelled():
        future.exception()  # it was looked at
        raise cancelled
    return future.result()  # type: ignore[no-any-return]
