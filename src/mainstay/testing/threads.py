"""The threads that event loops wait for: while one of them works, virtual time does not jump.

A thread works in real time, and nothing can hurry it. So a loop that waits for one lets as much
real time pass as its next timer is left, and only then takes the thread for late: what a machine
under load does to a thread decides nothing. What counts as work is known from where it is handed
over, not guessed from what threads seem to be doing: a step given to a pool, a future of another
thread that a loop awaits, and the end of a loop's own pool.

Threads that other code starts are not seen here, nor are their results.
"""

from __future__ import annotations

import time as _time
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

STUCK = 30.0
"""Real seconds after which a thread that still works is taken for one that never ends."""

_LOOK = 0.02
"""Real seconds between two looks at threads that do not wake a loop."""

_NAP = 0.0005
"""Real seconds between two looks of trio's loop, which the end of a thread wakes."""

_real_monotonic, _real_sleep = _time.monotonic, _time.sleep


class Threads:
    """The work of other threads, from `watch()` until what that returned is called."""

    def __init__(self) -> None:
        self._given: dict[Any, None] = {}
        """Futures of pools; any thread adds and removes, each in one step."""
        self._awaited: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()
        """What a loop awaits → the other thread's future; only the loop's thread touches it."""
        self._owed: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()
        """What other threads await of a loop: they wait for it, and it not for them."""

    def work_for(self, loop: Any) -> bool:
        """Whether a pool has work, or a loop awaits an answer of another thread."""
        awaited = self._awaited.get(loop, {}).items()
        work = {source for future, source in awaited if not future.done()}
        owed = [future for future in self._owed.get(loop, ()) if not future.done()]
        return len(work.union(self._given)) > len(owed)

    def outlast(self, loop: Any, seconds: float, is_over: Callable[[], bool]) -> Any:
        """Waits for threads while they work, up to some real seconds; returns what woke it."""
        end = _real_monotonic() + min(seconds, STUCK)
        while self.work_for(loop) and not is_over():
            left = end - _real_monotonic()
            if left <= 0:
                break
            if events := loop._selector.select(min(left, _LOOK)):
                return events
        return loop._selector.select(0)  # the last thing a thread did may be to wake the loop

    def watch(self) -> Callable[[], None]:
        """Begins to watch pools and asyncio's loops."""
        undo = [self._watch_pools(), self._watch_futures(), self._watch_the_end()]

        def stop() -> None:
            for step in undo:
                step()

        return stop

    def _watch_pools(self) -> Callable[[], None]:
        from concurrent.futures import ThreadPoolExecutor

        pools: Any = ThreadPoolExecutor
        real = pools.submit

        def submit(pool: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            future = real(pool, function, *args, **kwargs)
            self._given[future] = None
            future.add_done_callback(lambda done: self._given.pop(done, None))
            return future

        pools.submit = submit
        return lambda: setattr(pools, "submit", real)

    def _watch_futures(self) -> Callable[[], None]:
        """The seam through which run_in_executor, to_thread and wrap_future all go."""
        import asyncio.futures

        module: Any = asyncio.futures
        real = module._chain_future

        def chain(source: Any, destination: Any) -> None:
            real(source, destination)
            if asyncio.isfuture(source):
                owed = self._owed.setdefault(source.get_loop(), set())
                owed.add(source)
                source.add_done_callback(owed.discard)
            elif asyncio.isfuture(destination):
                self._await(destination, source)

        module._chain_future = chain
        return lambda: setattr(module, "_chain_future", real)

    def _watch_the_end(self) -> Callable[[], None]:
        """asyncio.run waits for the loop's pool in a thread; 3.13 and later with a timer."""
        from asyncio.base_events import BaseEventLoop

        loops: Any = BaseEventLoop
        real = loops.shutdown_default_executor

        async def shutdown_default_executor(loop: Any, *args: Any, **kwargs: Any) -> None:
            ended = loop.create_future()
            self._await(ended, ended)
            try:
                await real(loop, *args, **kwargs)
            finally:
                ended.cancel()

        loops.shutdown_default_executor = shutdown_default_executor
        return lambda: setattr(loops, "shutdown_default_executor", real)

    def _await(self, future: Any, source: Any) -> None:
        awaited = self._awaited.setdefault(future.get_loop(), {})
        awaited[future] = source
        future.add_done_callback(lambda done: self._forget(done, awaited))

    def _forget(self, future: Any, awaited: dict[Any, Any]) -> None:
        """The answer is there, or the loop waits for it no longer, whatever the thread does."""
        self._given.pop(awaited.pop(future, None), None)


def make_patient(clock: Any) -> None:
    """Lets a mock clock of trio jump only if no thread of trio's works, or one is late.

    Trio takes no clock of another class for one that jumps, so this one is changed to.
    """
    import trio
    from trio.testing import active_thread_count

    jump, late = clock._autojump, _Late()

    def autojump() -> None:
        limiter = trio.to_thread.current_default_thread_limiter()
        left = trio.lowlevel.current_statistics().seconds_to_next_deadline
        same = clock.current_time(), limiter.statistics().borrowers
        if not active_thread_count() or late.is_so(same, min(left, STUCK)):
            jump()
        else:
            _real_sleep(_NAP)

    clock._autojump = autojump


class _Late:
    """Whether the same has been so for longer than it may."""

    def __init__(self) -> None:
        self._same: object = None
        self._since = 0.0

    def is_so(self, same: object, seconds: float) -> bool:
        if same != self._same:
            self._same, self._since = same, _real_monotonic()
        return _real_monotonic() - self._since >= seconds
