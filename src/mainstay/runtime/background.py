"""Short jobs in a background thread, and a bounded wait for one: by a thread or an event loop.

A call that needs a step of a store, but must not depend on how long the store takes, posts it here
and waits for a fraction of a second. If the job is not done by then, the call goes on without it
and the thread carries it out later.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.runtime.fork import PROCESS, reset_in_child

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from mainstay.core.base.types import Answer

    Work: TypeAlias = Callable[[], Answer]


def detached_thread(run: Callable[..., object], name: str, *args: Any) -> threading.Thread:
    """A daemon thread, not started yet, that begins in an empty context.

    A free-threaded Python, or any from 3.14 on with `-X thread_inherit_context=1`, gives a thread
    the context of the code that starts it. A thread that works for every call must not keep the
    deadline, the lease or the tenant of the call that happened to be the first.
    """
    return threading.Thread(target=Context().run, args=(run, *args), name=name, daemon=True)


class Job:
    """A piece of work that was posted; times are real, also under virtual time.

    Attributes:
        answer: what the work returned; None until then, and if it raised.
        error: what it raised.
        is_done: whether it has ended.
    """

    __slots__ = ("_lock", "_wakers", "_work", "answer", "error", "is_done", "posted")

    def __init__(self, work: Work) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._wakers: list[Callable[[], object]] = []
        self.answer: Answer = None
        self.error: Exception | None = None
        self.is_done = False
        self.posted = clock.SYSTEM.steady()

    def run(self) -> None:
        """Does the work and wakes those that wait."""
        try:
            self.answer = self._work()
        except Exception as error:
            self.error = error
        self._end()

    def refuse(self, error: Exception) -> Job:
        """Ends it without doing the work."""
        self.error = error
        self._end()
        return self

    def _end(self) -> None:
        with self._lock:
            self.is_done = True
            wakers, self._wakers = self._wakers, []
        for wake in wakers:
            wake()

    @property
    def age(self) -> float:
        """Seconds since it was posted."""
        return clock.SYSTEM.steady() - self.posted

    def wait(self, limit: float) -> bool:
        """Whether it is done, `limit` seconds after it was posted at the latest.

        The thread of an event loop does not wait: it would block the loop.
        """
        seconds = limit - self.age
        if self.is_done or seconds <= 0.0 or is_in_loop():
            return self.is_done
        return self._wait(seconds)

    def _wait(self, seconds: float) -> bool:
        done = threading.Event()
        if self._wake_by(done.set):
            done.wait(seconds)
        return self.is_done

    async def awaited(self, limit: float) -> bool:
        """The same for an event loop, asyncio or trio."""
        seconds = limit - self.age
        if self.is_done or seconds <= 0.0:
            return self.is_done
        trio = sys.modules.get("trio")
        if trio is not None and trio.lowlevel.in_trio_task():
            return await trio.to_thread.run_sync(self._wait, seconds)  # type: ignore[no-any-return]
        if clock.current is not clock.SYSTEM:  # virtual time would jump past a thread
            return self._wait(seconds)
        loop = sys.modules["asyncio"].get_running_loop()
        future: Future[None] = loop.create_future()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(_set, future)
            except RuntimeError:  # the loop was closed: no caller waits any more
                return

        if self._wake_by(wake):
            timer = loop.call_later(seconds, _set, future)
            try:
                await future
            finally:
                timer.cancel()
        return self.is_done

    def _wake_by(self, wake: Callable[[], object]) -> bool:
        """Calls it at the end; False if that has been."""
        with self._lock:
            if not self.is_done:
                self._wakers.append(wake)
            return not self.is_done


def _set(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def is_in_loop() -> bool:
    """Whether this thread runs an event loop, which a wait would block."""
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_task():
        return True
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None  # noqa: SLF001 -- public, and None in place of an error


class Background:
    """One thread that carries out jobs in the order in which they were posted.

    It is started with the first job. A forked child begins with a thread of its own and without
    the jobs of its parent.

    >>> background = Background("example")
    >>> job = background.post(lambda: 6 * 7)
    >>> job.wait(5.0), job.answer
    (True, 42)
    >>> background.close(5.0)
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._begin()
        reset_in_child(self, Background._begin)

    def _begin(self) -> None:
        self._jobs: deque[Job] = deque()
        self._ready = threading.Condition(threading.Lock())
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def post(self, work: Work) -> Job:
        """Hands in work; after `close`, or without a thread, it is refused: the job is done."""
        PROCESS.notice()  # a child that was forked without hooks has no thread
        job = Job(work)
        with self._ready:
            if not self._is_closed:
                try:
                    self._start_locked()
                except RuntimeError as error:  # too many threads, or the interpreter ends
                    return job.refuse(error)
                self._jobs.append(job)
                self._ready.notify()
                return job
        return job.refuse(RuntimeError("the background thread has ended"))

    def start(self) -> None:
        """Starts the thread ahead of the first job: a process that ends can start none any more."""
        with self._ready, suppress(RuntimeError):
            if not self._is_closed:
                self._start_locked()

    def _start_locked(self) -> None:
        if self._thread is None:
            thread = detached_thread(self._run, self._name)
            thread.start()
            self._thread = thread

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._jobs:
                    if self._is_closed:
                        return
                    self._ready.wait()
                job = self._jobs.popleft()
            job.run()
            del job  # nothing is held while nothing is to be done

    def close(self, seconds: float) -> None:
        """Carries out what was posted, and ends the thread; waits for so long at most."""
        with self._ready:
            self._is_closed = True
            self._ready.notify()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds)
