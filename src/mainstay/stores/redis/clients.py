"""The Redis store's clients: their connections, timeouts, and when they close.

All threads share one client, whose connections wait no longer than the step they work for. Each
event loop has a client of its own, closed when the loop ends.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import redis

from mainstay.runtime.clock import SYSTEM
from mainstay.runtime.fork import make_lock
from mainstay.stores.redis.protocol import WriteLocks

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import AsyncGenerator, Callable
    from typing import Any


def blocking_client(address: str, pool: int, timeout: float) -> Any:
    """A client for threads, without a connection; it connects when it is used."""
    secure = urlsplit(address).scheme == "rediss"
    base: Any = redis.SSLConnection if secure else redis.Connection
    bounded = type("Bounded", (_BoundedConnection, base), {})
    waiting: Any = type("Waiting", (_BoundedPool, redis.BlockingConnectionPool), {})
    connections = waiting.from_url(address, connection_class=bounded, **_limits(pool, timeout))
    return redis.Redis(connection_pool=connections)


def async_client(address: str, pool: int, timeout: float) -> Any:
    """The same for one event loop.

    Its sockets have no limits of their own, for which redis-py would start a task with every
    command: a step has one timeout as a whole, and a step that exceeds it ends its connection.
    """
    from redis import asyncio as aredis

    limits = _limits(pool, timeout) | {"socket_timeout": None}
    passing: Any = type("Passing", (_NotifyingPool, aredis.BlockingConnectionPool), {})
    return aredis.Redis(connection_pool=passing.from_url(address, **limits))


def _limits(pool: int, timeout: float) -> dict[str, Any]:
    return {
        "max_connections": pool,
        "timeout": timeout,
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "socket_keepalive": True,
        "protocol": 2,  # no handshake; the replies are the same
    }


def drop_idle(pool: Any) -> None:
    """Closes the unused connections of threads; before redis-py 7, all of them."""
    if "inuse_connections" in inspect.signature(pool.disconnect).parameters:
        pool.disconnect(inuse_connections=False)
    else:
        pool.disconnect()


class _Deadline(threading.local):
    """When the step of this thread must end, and its timeout."""

    at = most = 0.0


DEADLINE = _Deadline()


class _BoundedConnection:
    """A connection that waits no longer than the step it works for; mixed into redis-py's own.

    A fixed socket timeout would count anew with every command and every handshake.
    """

    _sock: Any
    _is_limited = False
    socket_timeout: float | None

    @property
    def socket_connect_timeout(self) -> float:
        """Read for each address of a host, and for what follows: never more than is left."""
        return max(0.001, DEADLINE.at - SYSTEM.monotonic())

    @socket_connect_timeout.setter
    def socket_connect_timeout(self, _: float | None) -> None:
        """The store's own timeout, which bounds the step already."""

    def _connect(self) -> Any:
        self._is_limited = True  # TLS, which follows, has what is left too
        self.socket_timeout = self.socket_connect_timeout
        return super()._connect()  # type: ignore[misc]

    def send_packed_command(self, *args: Any, **kwargs: Any) -> Any:
        self._limit()
        return super().send_packed_command(*args, **kwargs)  # type: ignore[misc]

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        self._limit()
        return super().read_response(*args, **kwargs)  # type: ignore[misc]

    def _limit(self) -> None:
        """Sets the socket's timeout once a tenth of the time is gone: it costs a system call."""
        left = DEADLINE.at - SYSTEM.monotonic()
        if left > 0.9 * DEADLINE.most and not self._is_limited:
            return
        if self._sock is not None:
            self._sock.settimeout(max(0.001, left))
            self._is_limited = left < DEADLINE.most * 0.9


class _BoundedPool:
    """A pool that waits for a free connection no longer than the step has; mixed in likewise."""

    @property
    def timeout(self) -> float:
        """The seconds that are left of the step of this thread."""
        return max(0.0, DEADLINE.at - SYSTEM.monotonic())

    @timeout.setter
    def timeout(self, _: float) -> None:
        """The store's own timeout, which bounds the step already."""


class _NotifyingPool:
    """A pool whose free connection reaches the next waiting task; mixed into redis-py's own.

    If a task is notified of a free connection and is cancelled before it takes it, asyncio's
    Condition may lose the notification: the next task would wait for a connection that is free.
    """

    _condition: Any

    async def get_connection(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super().get_connection(*args, **kwargs)  # type: ignore[misc]
        except BaseException:
            async with self._condition:
                self._condition.notify()
            raise


class LoopClients:
    """A client for each event loop, closed when its loop ends."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._lock = make_lock()
        self._kept: weakref.WeakKeyDictionary[AbstractEventLoop, tuple[Any, WriteLocks, Any]]
        self._kept = weakref.WeakKeyDictionary()
        self._closing: set[Any] = set()

    async def client(self) -> tuple[Any, WriteLocks]:
        """The client and the turns of the running loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        found = self._kept.get(loop)
        if found is None:
            client = self._make()
            found = client, WriteLocks(asyncio.Lock), _closed_at_the_end(client)
            with self._lock:
                for other in [other for other in self._kept if other.is_closed()]:
                    del self._kept[other]
                self._kept[loop] = found
            await anext(found[2])
        return found[:2]

    def close(self) -> None:
        """Closes all of them, each in its own loop; a second call does nothing."""
        with self._lock:
            found = list(self._kept.items())
        for loop, (_, _, keeper) in found:
            if not loop.is_closed():
                self._close(loop, keeper)

    def _close(self, loop: AbstractEventLoop, keeper: Any) -> None:
        import asyncio

        if loop is asyncio._get_running_loop():  # noqa: SLF001 -- the public one raises without one
            task = loop.create_task(_ended(keeper))  # no caller can wait for it here
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        elif loop.is_running():
            with contextlib.suppress(TimeoutError):  # a loop that is blocked
                asyncio.run_coroutine_threadsafe(_ended(keeper), loop).result(2.0)
        else:  # it runs for a moment, in another thread because here another loop may be running
            thread = threading.Thread(target=loop.run_until_complete, args=(_ended(keeper),))
            thread.start()
            thread.join(2.0)


async def _ended(keeper: Any) -> None:
    with contextlib.suppress(RuntimeError):  # its loop is ending it already
        await keeper.aclose()


async def _closed_at_the_end(client: Any) -> AsyncGenerator[None, None]:
    """Waits for its loop to end: asyncio closes the generators that are left, in the loop.

    It closes one connection after another without waiting, where the pool's own `disconnect` would
    start tasks: a loop that is ending cancels those before they have begun.
    """
    try:
        yield
    finally:
        pool = client.connection_pool
        for connection in [*pool._available_connections, *pool._in_use_connections]:  # noqa: SLF001
            await connection.disconnect(nowait=True)


def in_trio() -> bool:
    """Whether the caller runs in trio, for which redis-py has no client."""
    trio = sys.modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_task())


async def in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Calls the sync function in a thread of trio's."""
    import trio

    return await trio.to_thread.run_sync(partial(function, *args))
