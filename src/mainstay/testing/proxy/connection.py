"""One connection through the proxy: two sockets, and a lane for each direction."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

from mainstay.testing.proxy.faults import Ending

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any, Protocol

    from mainstay.testing.proxy.faults import Faults, Trap

    class Owner(Protocol):
        """What a connection needs of its hub."""

        faults: Faults
        addresses: list[tuple[Any, ...]]
        loop: asyncio.AbstractEventLoop
        passed: dict[str, int]
        trap: Trap | None
        error: BaseException | None

        async def pause(self, seconds: float) -> None: ...


_CHUNK = 65_536
_AHEAD = 64
"""Chunks that a lane reads ahead."""
_CONNECTS_WITHIN = 10.0
_TICK = 0.02
"""Seconds between two pieces of a slow connection."""
_ABORT = struct.pack("hh" if os.name == "nt" else "ii", 1, 0)
"""For SO_LINGER: closing sends a reset instead of the end of the stream."""


class Connection:
    """One connection: the client's socket, the server's, and a lane each way."""

    def __init__(self, hub: Owner, client: socket.socket) -> None:
        self.hub = hub
        self.trap: Trap | None = None
        self.has_lost = False
        self.up, self.down = Lane(self, "up"), Lane(self, "down")
        self._client = client
        self._server: socket.socket | None = None
        self._ending: Ending | None = None
        self.task = hub.loop.create_task(self._run())

    async def _run(self) -> None:
        pumps: list[asyncio.Task[None]] = []
        try:
            self._server = await self._connected()
            client, server = _prompt(self._client), _prompt(self._server)
            work = [*self.up.work(client, server), *self.down.work(server, client)]
            pumps += [self.hub.loop.create_task(part) for part in work]
            await asyncio.gather(*pumps)
        except OSError:  # one side is gone: the other sees a reset
            self._ending = Ending.RESET
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _connected(self) -> socket.socket:
        """A connection to the server, at the first of its addresses that answers."""
        last = OSError("the server has no address")
        for family, address in self.hub.addresses:
            server = socket.socket(family)
            try:
                server.setblocking(False)
                async with asyncio.timeout(_CONNECTS_WITHIN):
                    await self.hub.loop.sock_connect(server, address)
                return server
            except OSError as error:
                server.close()
                last = error
            except BaseException:
                server.close()
                raise
        raise last

    def end(self, how: Ending) -> asyncio.Task[None]:
        """Ends the connection; the first call decides how."""
        if self._ending is None:
            self._ending = how
            self.task.cancel()
        return self.task

    def close(self) -> None:
        """Closes both sockets, once nothing is waiting for them."""
        for sock in (self._server, self._client):
            is_client = sock is self._client
            if sock is None:
                continue
            if self._ending is Ending.RESET or (self._ending is Ending.LOST and is_client):
                abort(sock)
            else:
                with suppress(OSError):  # the end of the stream goes before all else
                    sock.shutdown(socket.SHUT_WR)
                sock.close()

    def ask(self, function: Callable[..., object], *args: object) -> object:
        """Calls a function of the test's; what it raises ends the connection, and is kept."""
        try:
            return function(*args)
        except BaseException as error:
            self.hub.error = error
            self.end(Ending.RESET)
            return None

    def look_at(self, data: bytes) -> None:
        """Checks whether this is the request whose reply is to be lost."""
        trap = self.hub.trap
        if trap is not None and self.ask(trap.holds, self.up, data):
            self.trap, self.hub.trap = trap, None

    def lose(self, trap: Trap) -> None:
        """The reply has been swallowed."""
        self.trap, self.has_lost = None, True
        if trap.then is not None:
            self.ask(trap.then)


def _prompt(sock: socket.socket) -> socket.socket:
    """A socket that sends at once, as small as it may be."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Lane:
    """One direction of a connection: "up" to the server, or "down" to the client."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.left = connection.hub.faults.cut if name == "down" else None
        """Bytes that may still pass; None without a limit."""
        self._connection = connection
        self._hub = connection.hub
        self._name = name
        self._queue: asyncio.Queue[tuple[float, float, bytes] | Ending] = asyncio.Queue(_AHEAD)

    def work(
        self, source: socket.socket, sink: socket.socket
    ) -> tuple[Coroutine[Any, Any, None], Coroutine[Any, Any, None]]:
        """Both halves of it: one reads ahead, one passes on."""
        return self._read(source), self._write(sink)

    async def _read(self, source: socket.socket) -> None:
        loop, connection, end = self._hub.loop, self._connection, Ending.CLOSED
        try:
            while data := await loop.sock_recv(source, _CHUNK):
                if connection.trap is not None and self._name == "down":
                    connection.lose(connection.trap)
                    end = Ending.LOST
                    break
                u = random.random()  # noqa: S311 -- spreads delays
                await self._queue.put((loop.time(), u, data))
        except OSError:
            end = Ending.RESET
        await self._queue.put(end)

    async def _write(self, sink: socket.socket) -> None:
        while not isinstance(item := await self._queue.get(), Ending):
            arrived, u, data = item
            await self._wait(arrived, u)
            await self._pass_on(sink, data)
        if self._is_swallowed():
            self._connection.has_lost = True
        elif item is Ending.CLOSED:
            with suppress(OSError):  # the other side may be gone
                sink.shutdown(socket.SHUT_WR)
        else:
            self._connection.end(item)

    def _is_swallowed(self) -> bool:
        faults = self._hub.faults
        return faults.is_hole or (faults.is_mute and self._name == "down")

    async def _wait(self, arrived: float, u: float) -> None:
        """Until the delay of the moment is over; it is worked out again when faults change."""
        while not self._is_swallowed():
            faults = self._hub.faults
            due = arrived + (faults.delay + u * faults.jitter) / 2
            if (left := due - self._hub.loop.time()) <= 0.0:
                return
            await self._hub.pause(left)

    async def _pass_on(self, sink: socket.socket, data: bytes) -> None:
        if self._name == "up" and not self._is_swallowed():
            self._connection.look_at(data)
        rest = memoryview(data)
        while rest:
            if self._is_swallowed():
                self._connection.has_lost = True
                return
            piece = rest[: self._most()]
            self._count(len(piece))  # before the other side can have seen it
            await self._hub.loop.sock_sendall(sink, piece)
            rest = rest[len(piece) :]
            if self.left == 0:
                self._connection.end(Ending.CLOSED)
                return
            if (rate := self._hub.faults.rate) is not None:
                await self._hub.pause(len(piece) / rate)

    def _most(self) -> int:
        """How many bytes may go in one piece."""
        rate = self._hub.faults.rate
        most = _CHUNK if rate is None else max(1, int(rate * _TICK))
        return most if self.left is None else min(most, self.left)

    def _count(self, size: int) -> None:
        self._hub.passed[self._name] += size
        if self.left is not None:
            self.left -= size


def abort(sock: socket.socket) -> None:
    """Closes it so that the other side sees a reset."""
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
    sock.close()
