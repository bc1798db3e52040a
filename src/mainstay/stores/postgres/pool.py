"""Connections to PostgreSQL: a bounded number of them, and none that waits for ever.

There is one pool for threads, and one for each event loop, because an async connection belongs to
its loop. A step that needs a connection makes it, within its own timeout: a refusal of the server
is raised at once, and no thread or task is kept for it. Rules of the room:

- A connection goes back only if it is idle. After anything else (a cancellation, an answer that did
  not come in time, a transaction left open) it is closed, and the server rolls back.
- If one turns out to be dead, all idle ones are closed: they are of the same age.
- Each process has pools of its own, so that a forked child never uses its parent's sockets.
"""

from __future__ import annotations

import asyncio
import math
import queue
import threading
from collections import deque
from typing import TYPE_CHECKING

import psycopg
from psycopg import waiting
from psycopg.pq import TransactionStatus

from mainstay.runtime.clock import SYSTEM
from mainstay.runtime.fork import PROCESS, leave_to_parent, reset_in_child
from mainstay.stores.postgres.statements import patience

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Generator
    from typing import Any

_INTERVAL = 0.1
"""Seconds between two looks at the clock while an answer is awaited, as psycopg has them."""


class _Connecting(threading.local):
    """When the connection that this thread makes must be there."""

    until: float = math.inf


_CONNECTING = _Connecting()

_SESSION = """
SET default_transaction_isolation = 'read committed';
SET lock_timeout = '{patience}';
SET idle_in_transaction_session_timeout = {milliseconds};
SELECT set_config(name, '100', false) FROM pg_settings
WHERE name = 'client_connection_check_interval'
"""
"""The settings of a new session. A step that stalls loses its lock, and others go on; a statement
that waits for a lock when its client leaves is cancelled (from PostgreSQL 14 on)."""


class TimedOutError(psycopg.OperationalError):
    """No answer came in time, or no connection was free."""

    def __init__(self, text: str = "the server did not answer in time", **more: Any) -> None:
        super().__init__(text, **more)  # psycopg makes one of all that several hosts have raised


_TimedOut: type[Exception] = getattr(psycopg.errors, "_WaitTimeout", TimedOutError)
"""What psycopg raises if it bounds a wait itself, as it does since 3.3."""


class Connection(psycopg.Connection["tuple[Any, ...]"]):
    """A connection whose every wait ends at a given moment."""

    until: float = math.inf
    own_cursor: Any = None
    """One for all statements about one record, which come one after the other: making one is half
    of the client's work of a round trip."""

    def wait(self, gen: Any, interval: float = 0.0, timeout: float | None = None) -> Any:  # noqa: ARG002 -- psycopg's
        """Waits for an answer; a connection that was left waiting is closed."""
        try:
            if _TimedOut is TimedOutError:
                every = _interval(self.until)
                return waiting.wait(_until(gen, self.until), self.pgconn.socket, every)
            left = self.until - SYSTEM.monotonic()
            return waiting.wait(gen, self.pgconn.socket, _INTERVAL, left)
        except BaseException as error:
            _leave(self.pgconn, error)
            raise

    @classmethod
    def _connect_gen(cls, *args: Any, **kwargs: Any) -> Any:
        """Connects; psycopg's own timeout has whole seconds, 2 of them at least."""
        return _connecting(super()._connect_gen(*args, **kwargs), _CONNECTING.until)


class AsyncConnection(psycopg.AsyncConnection["tuple[Any, ...]"]):
    """The same for event loops; cancelling it closes it."""

    until: float = math.inf
    own_cursor: Any = None

    async def wait(
        self,
        gen: Any,
        interval: float = 0.0,  # noqa: ARG002 -- psycopg's; 3.2 has only this one
        timeout: float | None = None,  # noqa: ARG002, ASYNC109
    ) -> Any:
        """Waits for an answer; a connection that was left waiting is closed."""
        try:
            if _TimedOut is TimedOutError:
                gen, every = _until(gen, self.until), _interval(self.until)
                return await waiting.wait_async(gen, self.pgconn.socket, every)
            left = self.until - SYSTEM.monotonic()
            return await waiting.wait_async(gen, self.pgconn.socket, _INTERVAL, left)
        except BaseException as error:
            _leave(self.pgconn, error)
            raise


def _leave(pgconn: Any, error: BaseException) -> None:
    """Ends a connection that was left waiting, and raises TimedOutError if it took too long."""
    if pgconn.transaction_status == TransactionStatus.ACTIVE:
        pgconn.finish()
    if type(error) is _TimedOut:
        raise TimedOutError from None


def _until(gen: Any, until: float) -> Generator[Any, Any, Any]:
    """The generator of a psycopg without timeouts, until the deadline."""
    try:
        wants = next(gen)
        while SYSTEM.monotonic() < until:
            wants = gen.send((yield wants))
    except StopIteration as done:
        return done.value
    raise TimedOutError


def _interval(until: float) -> float:
    """Seconds between two looks at the clock, such that one comes when the time is over."""
    left = max(0.001, until - SYSTEM.monotonic())
    return left / math.ceil(left / _INTERVAL) if left != math.inf else _INTERVAL


def _connecting(gen: Any, until: float) -> Generator[Any, Any, Any]:
    """Connects until the deadline, and no longer: a generator that waits for another one.

    psycopg's own wait for a connection has a timeout of whole seconds, 2 at least.
    """
    left = until - SYSTEM.monotonic()
    if left <= 0.0:
        raise TimedOutError
    try:
        if _TimedOut is TimedOutError:
            return waiting.wait_conn(_until(gen, until), _interval(until))
        return waiting.wait_conn(gen, _INTERVAL, left)
    except _TimedOut:
        raise TimedOutError from None
    yield  # it asks for nothing


class _Idle:
    """The idle connections of a pool, the latest first; any thread may close them."""

    def __init__(self) -> None:
        self.is_closed = False
        self._connections: deque[Any] = deque()

    def pop(self) -> Any:
        """One of them, or None."""
        try:
            return self._connections.pop()
        except IndexError:
            return None

    def push(self, connection: Any) -> None:
        """Takes a connection back if it is idle, and ends it otherwise."""
        is_idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
        if is_idle and not self.is_closed:
            self._connections.append(connection)
            if self.is_closed:  # meanwhile
                self.clear()
        else:
            end(connection)

    def clear(self) -> None:
        """Ends all of them."""
        while (connection := self.pop()) is not None:
            end(connection)


class Pool:
    """Connections for threads."""

    def __init__(self, settings: _Settings, size: int) -> None:
        self.idle = _Idle()
        self._settings = settings
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()
        """An entry for each connection that may be in use: a faster semaphore."""
        for _ in range(size):
            self._room.put(None)

    def take(self, until: float) -> tuple[Connection, bool]:
        """A connection, and whether it is new."""
        try:
            self._room.get(timeout=max(0.0, until - SYSTEM.monotonic()))
        except queue.Empty:
            raise TimedOutError("every connection of the pool was in use") from None
        try:
            connection = self.idle.pop()
            is_new = connection is None
            if is_new:
                connection = self._connect(until)
        except BaseException:
            self._room.put(None)
            raise
        connection.until = until
        return connection, is_new

    def _connect(self, until: float) -> Connection:
        _CONNECTING.until = until
        connection = Connection.connect(**self._settings.params(until))
        connection.until = until
        try:
            connection.execute(self._settings.session)
        except BaseException:
            end(connection)
            raise
        connection.own_cursor = psycopg.Cursor(connection)
        return connection

    def give(self, connection: Connection) -> None:
        """Takes it back; its entry is free also if that is interrupted."""
        try:
            self.idle.push(connection)
        except BaseException:
            end(connection)
            raise
        finally:
            self._room.put(None)


class AsyncPool:
    """Connections for the tasks of one event loop."""

    def __init__(self, settings: _Settings, size: int) -> None:
        self.idle = _Idle()
        self._settings = settings
        self._room = asyncio.Semaphore(size)

    async def take(self, until: float) -> tuple[AsyncConnection, bool]:
        """A connection, and whether it is new."""
        await self._enter(until)
        try:
            connection = self.idle.pop()
            is_new = connection is None
            if is_new:
                connection = await self._connect(until)
        except BaseException:
            self._room.release()
            raise
        connection.until = until
        return connection, is_new

    async def _connect(self, until: float) -> AsyncConnection:
        try:
            async with asyncio.timeout(max(0.0, until - SYSTEM.monotonic())):
                connection = await AsyncConnection.connect(**self._settings.params(until))
        except TimeoutError:
            raise TimedOutError from None
        connection.until = until
        try:
            await connection.execute(self._settings.session)
        except BaseException:
            end(connection)
            raise
        connection.own_cursor = psycopg.AsyncCursor(connection)
        return connection

    async def _enter(self, until: float) -> None:
        if not self._room.locked():
            await self._room.acquire()
            return
        try:
            async with asyncio.timeout(max(0.0, until - SYSTEM.monotonic())):
                await self._room.acquire()
        except TimeoutError:
            raise TimedOutError("every connection of the pool was in use") from None

    def give(self, connection: AsyncConnection) -> None:
        """Takes it back."""
        self.idle.push(connection)
        self._room.release()


class Pools:
    """The pools of a store: of this process's threads, and of each event loop."""

    def __init__(
        self, params: dict[str, Any], size: int, timeout: float, session: str = ""
    ) -> None:
        self.is_closed = False
        self._settings = _Settings(params, timeout, session)
        self._size = size
        self._by_process: dict[int, tuple[Pool, dict[AbstractEventLoop, AsyncPool]]] = {}
        reset_in_child(self, Pools._reset)

    def _reset(self) -> None:
        """In a forked child: its parent's connections are neither used nor closed."""
        leave_to_parent(self._by_process)
        self._by_process = {}

    def of_threads(self) -> Pool:
        """The pool for sync code."""
        return self._here()[0]

    def of_loop(self) -> AsyncPool:
        """The pool of the running event loop; those of loops that are over are closed."""
        loops = self._here()[1]
        running = asyncio.get_running_loop()
        pool = loops.get(running)
        if pool is None:
            self._close_loops(only_over=True)
            pool = loops.setdefault(running, AsyncPool(self._settings, self._size))
        return pool

    def _here(self) -> tuple[Pool, dict[AbstractEventLoop, AsyncPool]]:
        mine = self._by_process.get(PROCESS.pid)
        if mine is None:
            mine = self._by_process.setdefault(PROCESS.pid, (Pool(self._settings, self._size), {}))
        return mine

    def _close_loops(self, *, only_over: bool) -> None:
        loops = self._here()[1]
        for loop, pool in list(loops.items()):
            if loop.is_closed() or not only_over:
                pool.idle.is_closed = True
                pool.idle.clear()
                loops.pop(loop, None)

    def close(self) -> None:
        """Ends every idle connection now, and the others when they come back."""
        self.is_closed = True
        pool, _ = self._here()
        pool.idle.is_closed = True
        pool.idle.clear()
        self._close_loops(only_over=False)


class _Settings:
    """How connections are made."""

    def __init__(self, params: dict[str, Any], timeout: float, session: str) -> None:
        self._params = params
        self.session = session + _SESSION.format(
            milliseconds=math.ceil(timeout * 1000), patience=patience(timeout)
        )

    def params(self, until: float) -> dict[str, Any]:
        """The parameters of a connection; psycopg takes 2 seconds at least, for each host."""
        hosts = str(self._params.get("host", "")).count(",") + 1
        left = math.ceil(max(0.0, until - SYSTEM.monotonic()) / hosts)
        limit = min(left, int(self._params.get("connect_timeout") or left))
        return {**self._params, "autocommit": True, "connect_timeout": max(2, limit)}


def end(connection: Any) -> None:
    """Closes a connection of either colour, from any thread; nothing is awaited."""
    connection.pgconn.finish()
