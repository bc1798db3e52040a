"""Worker threads of a publisher whose client blocks: bounded, of one process, started when used."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar

from mainstay.core.base.functions import discard, is_awaitable
from mainstay.runtime.fork import PROCESS, leave_to_parent, make_lock, reset_in_child

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstay.core.outbox.message import Message

T = TypeVar("T")


class WorkerThreads:
    """Calls functions in threads, in the context of the caller; a thread that is late goes on."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._lock = make_lock()
        self._workers: ThreadPoolExecutor | None = None
        reset_in_child(self, WorkerThreads._reset)

    def _reset(self) -> None:
        leave_to_parent(self._workers)
        self._workers = None

    async def run(self, function: Callable[[Message], T], message: Message) -> T:
        """What the function returns; if the caller is cancelled, no caller gets it."""
        PROCESS.notice()  # a child that was forked without hooks has none of the threads
        with self._lock:
            if self._workers is None:
                self._workers = ThreadPoolExecutor(self._threads, "mainstay-publish")
            call = self._workers.submit(copy_context().run, function, message)
        try:
            return await asyncio.wrap_future(call)
        except asyncio.CancelledError:
            call.add_done_callback(_discarded)
            raise

    def close(self) -> None:
        """Ends the threads that are idle; `run` starts others."""
        PROCESS.notice()
        with self._lock:
            workers, self._workers = self._workers, None
        if workers is not None:
            workers.shutdown(wait=False)


def _discarded(call: Future[T]) -> None:
    """What a function returned that no caller waits for; it may be something to await."""
    if not call.cancelled() and call.exception() is None and is_awaitable(call.result()):
        discard(call.result())
