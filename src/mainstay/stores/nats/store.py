"""The store of a NATS server: a JetStream key-value bucket, shared by processes.

A step reads the record and its revision, decides, and writes only if the revision is still the
same; a step that lost the race reads and decides again. Records are read where they are written, at
the leader of the bucket, so a decision to keep is as fresh as one to write.

Here are the methods for callers, and the way from their threads and event loops into the store's
own thread and back. steps.py has what a step does there, thread.py the thread, wire.py the
messages, and url.py the URL and the subjects; the connection itself is in runtime/nats/.
"""

from __future__ import annotations

import asyncio
import sys
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from mainstay.errors import StoreUnavailable
from mainstay.runtime.fork import PROCESS, leave_to_parent, make_lock, reset_in_child
from mainstay.runtime.nats.connection import CLOSE_TIMEOUT
from mainstay.stores.nats.steps import NatsStep, unwrapped
from mainstay.stores.nats.thread import NatsThread
from mainstay.stores.nats.url import NatsUrl
from mainstay.stores.nats.wire import HEADERS, Clock
from mainstay.stores.time_left import shown, time_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from mainstay.core.base.change import Decide, Reply
    from mainstay.ports import Step
    from mainstay.stores.nats.thread import Work


_LATE = 0.02
"""Seconds by which the thread may be late, if the deadline of the caller ends the wait."""


class NatsStore:
    """Keeps records in a bucket of a NATS server with JetStream, safe between processes.

    The store connects when it is first used, and then creates the bucket if it does not exist.

    Args:
        url: `nats://user:password@host:4222`, or `tls://…`, or a token instead of user and
            password; several servers as `nats://a:4222,b:4222`. With `?timeout=5` seconds for any
            operation, `&bucket=mainstay` and `&replicas=1`.

    >>> NatsStore("nats://me:secret@127.0.0.1:4222").url
    'nats://me@127.0.0.1:4222'
    """

    abilities = frozenset({"records", "circuits", "budgets", "inbox", "durable"})
    locks = False

    def __init__(self, url: str) -> None:
        self._address = NatsUrl(url)
        self.url = self._address.shown
        self.timeout = self._address.timeout
        self._clock = Clock()
        self._nats_thread: NatsThread | None = None
        self._guard = make_lock()
        self._is_closed = False
        self._cursor = 1
        self.is_swept = True
        """Whether the last purge has come to the end of the bucket."""
        reset_in_child(self, NatsStore._reset)

    @property
    def max_value(self) -> int | None:
        """The bytes of a key and its value that the server takes; None before it is connected."""
        thread = self._nats_thread
        known = None if thread is None else thread.max_payload
        return None if known is None else max(0, known - HEADERS)

    # --- steps -----------------------------------------------------------------------------------

    def transact(self, space: str, key: str, decide: Decide[Reply]) -> Reply:
        """Reads, decides and writes as one step."""
        return self._wait("write", lambda at: at.transact(space, key, decide))  # type: ignore[no-any-return]

    def transact_many(self, steps: Sequence[Step]) -> list[Any]:
        """Many steps, their requests on the way at the same time."""
        return self._wait("write", lambda at: at.transact_many(steps))  # type: ignore[no-any-return]

    async def atransact(self, space: str, key: str, decide: Decide[Reply]) -> Reply:
        """The same without blocking, from any event loop."""
        return await self._await("write", lambda at: at.transact(space, key, decide))  # type: ignore[no-any-return]

    def read(self, space: str, key: str) -> tuple[bytes | None, float]:
        """The record and the server's clock."""
        return self._wait("read", lambda at: at.read(space, key))  # type: ignore[no-any-return]

    async def aread(self, space: str, key: str) -> tuple[bytes | None, float]:
        """The same without blocking, from any event loop."""
        return await self._await("read", lambda at: at.read(space, key))  # type: ignore[no-any-return]

    def scan(self, space: str, after: str = "", limit: int = 100) -> list[tuple[str, bytes]]:
        """The records of a space in the order of their keys, page by page.

        Each page lists the names of the whole space (100,000 to an answer of the server) and reads
        as many records as it returns, besides those whose key is too long for a name.
        """
        return self._wait("scan", lambda at: at.scan(space, after, limit))  # type: ignore[no-any-return]

    def purge(self, limit: int = 1000) -> int:
        """Drops records that have expired; how many. Also clears what dropped records left.

        It looks at every record, without its value, for half the timeout at most; the next one
        goes on from there.
        """

        async def work(at: NatsStep) -> int:
            dropped, self._cursor = await at.purge(limit, self._cursor)
            self.is_swept = self._cursor == 1
            return dropped

        return self._wait("purge", work)  # type: ignore[no-any-return]

    # --- looking ---------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """What there is to know: version, limits, how long an answer took, how sure the time is."""
        return self._wait("describe", lambda at: at.describe())  # type: ignore[no-any-return]

    def close(self) -> None:
        """Ends the connection and the thread; steps under way fail with StoreUnavailable."""
        PROCESS.notice()  # before the lock, which a thread of the parent may have
        with self._guard:
            self._is_closed, thread, self._nats_thread = True, self._nats_thread, None
        if thread is not None:
            thread.close()

    # --- from here into the thread and back -------------------------------------------------------

    def _submit(self, what: str, work: Callable[[NatsStep], Work], seconds: float) -> Future[Any]:
        PROCESS.notice()  # resets the store in a child that was forked without hooks
        with self._guard:
            if self._is_closed:
                raise StoreUnavailable(self.url, what, "it was closed")
            if self._nats_thread is None:
                self._nats_thread = NatsThread(self._address, self._clock)
                weakref.finalize(self, self._nats_thread.close)
            begin = partial(NatsStep, self._nats_thread, what, seconds)
            return self._nats_thread.submit(begin, work)

    def _wait(
        self, what: str, work: Callable[[NatsStep], Work], seconds: float | None = None
    ) -> Any:
        seconds = time_for(self.timeout) if seconds is None else seconds
        future = self._submit(what, work, seconds)
        try:
            answer = future.result(seconds + (CLOSE_TIMEOUT if seconds == self.timeout else _LATE))
        except TimeoutError:
            future.cancel()
            limit = shown(seconds, self.timeout)
            reason = f"no answer within {limit}, and its own thread does not answer either"
            raise StoreUnavailable(self.url, what, reason) from None
        except BaseException:  # Ctrl+C: no caller waits any more
            future.cancel()
            raise
        return unwrapped(answer)

    async def _await(self, what: str, work: Callable[[NatsStep], Work]) -> Any:
        trio = sys.modules.get("trio")
        if trio is not None and trio.lowlevel.in_trio_task():
            return await trio.to_thread.run_sync(self._wait, what, work, time_for(self.timeout))
        future = self._submit(what, work, time_for(self.timeout))
        return unwrapped(await asyncio.wrap_future(future))

    def _reset(self) -> None:
        """A forked child has no thread, and must not touch its parent's connection."""
        leave_to_parent(self._nats_thread)
        self._nats_thread, self._clock = None, self._clock.unmeasured()
