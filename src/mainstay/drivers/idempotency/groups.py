"""Work at the same time, in threads and in tasks of asyncio and trio: each outcome, as it comes."""

from __future__ import annotations

import sys
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

from mainstay.runtime.context import carry
from mainstay.runtime.loops import is_trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

T = TypeVar("T")


class Group:
    """Coroutines at the same time: each outcome, as it comes.

    What ends one of them and is neither an outcome nor a cancellation, such as SystemExit, is
    raised once the others have ended and their outcomes were returned.
    """

    def __init__(self) -> None:
        self._running = 0
        self._raised: BaseException | None = None
        self._tasks: list[Any] = []
        self._queue: Any = None
        self._scopes: list[Any] = []
        self.is_cancelled = False
        """Whether those that still run were cancelled by this."""

    @property
    def running(self) -> int:
        """How many were started, and not returned by `next`."""
        return self._running

    def start(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Starts one step; its outcome is in the queue when it ends."""
        self._running += 1
        if is_trio():
            self._start_on_trio(work)
            return
        asyncio = sys.modules["asyncio"]
        if self._queue is None:
            self._queue = asyncio.Queue()

        async def run() -> None:
            self._queue.put_nowait(await _ended(work))

        self._tasks.append(asyncio.ensure_future(run()))

    def _start_on_trio(self, work: Callable[[], Awaitable[Any]]) -> None:
        trio = sys.modules["trio"]
        if self._queue is None:
            self._queue = trio.open_memory_channel(1000)
        scope, (send, _) = trio.CancelScope(), self._queue
        self._scopes.append(scope)

        async def run() -> None:
            with scope:
                outcome = await _ended(work)
            with trio.CancelScope(shield=True):
                await send.send(outcome)

        from contextvars import copy_context

        trio.lowlevel.spawn_system_task(run, context=copy_context())

    async def next(self) -> Any:
        """The next outcome."""
        while self._running:
            found = await (self._queue[1].receive() if is_trio() else self._queue.get())
            self._running -= 1
            if not isinstance(found, BaseException):
                return found
            self._raised = self._raised or found
        assert self._raised is not None
        raise self._raised

    def cancel(self) -> None:
        """Cancels those that still run: each has an outcome all the same."""
        self.is_cancelled = True
        for each in (*self._tasks, *self._scopes):
            each.cancel()

    async def rest(self) -> None:
        """Waits for those that still run, and drops their outcomes."""
        while self._running:
            await (self._queue[1].receive() if is_trio() else self._queue.get())
            self._running -= 1


class Threads(Generic[T]):
    """Plain functions at the same time, in threads: each outcome, as it comes.

    What ends a thread and is no outcome, such as SystemExit, is raised in the thread that waits
    once the others have ended and their outcomes were returned. So is a Ctrl+C while it waits;
    a second one does not wait for them.
    """

    __slots__ = ("_is_interrupted", "_name", "_queue", "_raised", "_running")

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[T | BaseException] = SimpleQueue()
        self._running = 0
        self._raised: BaseException | None = None
        self._is_interrupted = False
        """Whether the thread that waits was: the last outcome is then not returned."""

    @property
    def running(self) -> int:
        """How many were started, and not returned by `next`."""
        return self._running

    def start(self, name: str, work: Callable[[], T]) -> None:
        """Starts one of them."""

        def run() -> None:
            try:
                self._queue.put(work())
            except BaseException as error:
                self._queue.put(error)

        thread = threading.Thread(target=carry(run), name=f"{self._name}-{name}", daemon=True)
        thread.start()
        self._running += 1

    def next(self) -> T:
        """The next outcome."""
        while self._running:
            found = self._found()
            if found is None:
                continue
            self._running -= 1
            if isinstance(found, BaseException):
                self._raised = self._raised or found
            elif self._running or not self._is_interrupted:
                return found
        assert self._raised is not None
        raise self._raised

    def _found(self) -> T | BaseException | None:
        try:
            return self._queue.get()
        except BaseException as error:
            if self._is_interrupted:
                self._running = 0
                raise
            self._raised, self._is_interrupted = error, True
            return None

    def rest(self) -> None:
        """Waits for those that still run, and drops their outcomes."""
        while self._running:
            self._queue.get()
            self._running -= 1


class Workers:
    """Threads that work at the same time: each result, as it comes.

    They are started as they are needed, and end with the process: one that hangs keeps none alive.
    """

    def __init__(self, most: int) -> None:
        self.running = 0
        self._most = most
        self._threads: list[threading.Thread] = []
        self._tasks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._results: SimpleQueue[object] = SimpleQueue()

    @property
    def is_full(self) -> bool:
        """Whether all of them work."""
        return self.running >= self._most

    def start(self, work: Callable[[], object]) -> None:
        """Has a thread do it; what it raises is a result as well."""
        self.running += 1
        self._tasks.put(carry(work))
        if self.running > len(self._threads):
            name = f"mainstay-sagas-{len(self._threads) + 1}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def next(self, timeout: float | None = None) -> Any:
        """The next result; None if there is none after some seconds."""
        try:
            found = self._results.get(timeout=timeout)
        except Empty:
            return None
        self.running -= 1
        return found

    def close(self) -> None:
        """Ends the threads, each after what it does; waits for them if they do nothing."""
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads if not self.running else ():
            thread.join()

    def _run(self) -> None:
        while (work := self._tasks.get()) is not None:
            try:
                self._results.put(work())
            except BaseException as error:
                self._results.put(error)


async def _ended(work: Callable[[], Awaitable[Any]]) -> Any:
    """The outcome of a step, or what ended it without one."""
    try:
        return await work()
    except BaseException as error:
        return error
