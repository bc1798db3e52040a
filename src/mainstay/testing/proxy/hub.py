"""The hub of a proxy: listens, keeps the connections, applies the faults; in the proxy's loop."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from mainstay.testing.proxy.connection import Connection, abort
from mainstay.testing.proxy.faults import Ending, Faults

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future
    from typing import Any

    from mainstay.testing.proxy.faults import Trap

    Ended = Iterable[asyncio.Task[None]]

HOST = "127.0.0.1"
_MOST = 1000
"""Connections at once; more are reset."""


class Hub:
    """Listens, keeps the connections and the faults. Runs in the loop of the proxy."""

    def __init__(self, host: str, port: int) -> None:
        self.faults = Faults()
        self.connections: set[Connection] = set()
        self.accepted = 0
        self.passed = {"up": 0, "down": 0}
        self.trap: Trap | None = None
        self.error: BaseException | None = None
        self.addresses: list[tuple[Any, ...]] = []
        self.loop: asyncio.AbstractEventLoop
        self.stopped: asyncio.Event
        self._target = (host, port)
        self._changed: asyncio.Event
        self._held: socket.socket | None = None
        self._listener: socket.socket | None = None
        self._place = (HOST, 0)

    def find_target(self) -> None:
        """Looks the server up, in the thread that starts the proxy."""
        found = socket.getaddrinfo(*self._target, type=socket.SOCK_STREAM)
        self.addresses = [(family, address) for family, _, _, _, address in found]

    async def run(self, ready: Future[int]) -> None:
        """From the first socket to the last."""
        self.loop = asyncio.get_running_loop()
        self.stopped, self._changed = asyncio.Event(), asyncio.Event()
        try:
            self._take_port()
            self._listen()
        except BaseException as error:
            ready.set_exception(error)
        else:
            ready.set_result(self._place[1])
            await self.stopped.wait()
        self._stop_listening()
        if self._held is not None:
            self._held.close()
        await asyncio.gather(*self._end_all(Ending.CLOSED), return_exceptions=True)

    # --- listening --------------------------------------------------------------------------------

    def _take_port(self) -> None:
        """Binds a socket that never listens, so that no other process gets the port meanwhile.

        Without it a client could even meet itself: on loopback, a connection from a free port to
        the same port succeeds.
        """
        self._held = _bound(self._place)
        self._place = self._held.getsockname()

    def _listen(self) -> None:
        if self._listener is not None:
            return
        try:
            self._listener = _bound(self._place)
        except OSError:  # some systems do not let two sockets have the same port
            assert self._held is not None
            self._held.close()
            self._listener = _bound(self._place)
        self._listener.listen(128)
        self.loop.add_reader(self._listener, self._accept, self._listener)

    def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            self.loop.remove_reader(listener)
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except OSError:  # gone again
            return
        self.accepted += 1
        if self.faults.is_reset or len(self.connections) >= _MOST:
            abort(client)
            return
        client.setblocking(False)
        connection = Connection(self, client)
        self.connections.add(connection)
        connection.task.add_done_callback(lambda task: self._over(connection, task))

    def _over(self, connection: Connection, task: asyncio.Task[None]) -> None:
        self.connections.discard(connection)
        connection.close()
        if not task.cancelled() and task.exception() is not None:
            self.error = task.exception()

    # --- faults: each returns the tasks of the connections that it ends ---------------------------

    def change(self, faults: Faults) -> Ended:
        self.faults = faults
        self._changed.set()
        self._changed = asyncio.Event()
        return ()

    def reset(self) -> Ended:
        self.change(replace(self.faults, is_reset=True))
        return self._end_all(Ending.RESET)

    def refuse(self) -> Ended:
        self._stop_listening()
        return self._end_all(Ending.CLOSED)

    def cut_after(self, count: int) -> Ended:
        for connection in self.connections:
            connection.down.left = count
        return self.change(replace(self.faults, cut=count))

    def arm(self, trap: Trap) -> Ended:
        self.trap = trap
        return ()

    def heal(self) -> Ended:
        self.trap = None
        for connection in self.connections:
            connection.trap = connection.down.left = None
        self.change(Faults())
        self._listen()
        return [
            connection.end(Ending.RESET)
            for connection in list(self.connections)
            if connection.has_lost
        ]

    def _end_all(self, how: Ending) -> Ended:
        return [connection.end(how) for connection in list(self.connections)]

    async def pause(self, seconds: float) -> None:
        """Waits for this time, or until the faults change."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()


def _bound(place: tuple[str, int]) -> socket.socket:
    """A socket of that address."""
    sock = socket.socket()
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind(place)
    except BaseException:
        sock.close()
        raise
    return sock


class RealLoop(asyncio.SelectorEventLoop):
    """A loop that virtual time does not reach: its step is taken from asyncio at import."""

    _run_once = asyncio.BaseEventLoop._run_once  # type: ignore[attr-defined]  # noqa: SLF001

    def time(self) -> float:
        return time.monotonic()
