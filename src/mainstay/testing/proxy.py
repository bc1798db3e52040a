"""A TCP proxy that fails on command: what lies between a client and its server, in a test's hands.

`FaultProxy` is what tests use, from any thread. Everything else lives in the proxy's own thread and
event loop: the `_Hub` accepts, a `_Wire` is one connection, a `_Lane` one of its two directions.

A lane reads ahead, 4 MB at most, and passes on when the faults of the moment allow; who sends more
has to wait, as without a proxy. Faults are one frozen value, looked at anew for each piece of data
and whenever they change. A byte stream has no holes: a connection of which bytes were swallowed is
reset, at the latest by `heal()`.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from mainstay.core.base.validate import Checker
from mainstay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from types import TracebackType
    from typing import Any, Self

    Ended = Iterable[asyncio.Task[None]]

_HOST = "127.0.0.1"
_CHUNK = 65_536
_AHEAD = 64
"""Chunks that a lane reads ahead."""
_MOST = 1000
"""Connections at once; more are reset."""
_CONNECTS_WITHIN = 10.0
_OBEYS_WITHIN = 10.0
_TICK = 0.02
"""Seconds between two pieces of a slow connection."""
_ABORT = struct.pack("hh" if os.name == "nt" else "ii", 1, 0)
"""For SO_LINGER: closing sends a reset instead of the end of the stream."""


class FaultProxy:
    """Stands between a client and a TCP server on loopback, and fails as it is told.

    Faults add up, hold for open and for new connections, and last until `heal()`; each is in force
    when its method returns. The proxy waits in real time, also inside `virtual_time()`.

    Args:
        target_host: where the server is.
        target_port: its port.

    Attributes:
        host: where the proxy listens: 127.0.0.1.
        port: its port, chosen when it starts.

    >>> import socket, threading
    >>> def echo(server):
    ...     with server, server.accept()[0] as client:
    ...         while data := client.recv(100):
    ...             client.sendall(data)
    >>> server = socket.create_server(("127.0.0.1", 0))
    >>> threading.Thread(target=echo, args=[server], daemon=True).start()
    >>> proxy = FaultProxy(*server.getsockname()).start()
    >>> client = socket.create_connection((proxy.host, proxy.port), timeout=5)
    >>> client.sendall(b"hello"); client.recv(100)
    b'hello'
    >>> proxy.refuse()
    >>> client.recv(100)  # the server has hung up
    b''
    >>> client.close(); proxy.close()
    """

    def __init__(self, target_host: str, target_port: int) -> None:
        self.host = _HOST
        self.port = 0
        self._hub = _Hub(target_host, target_port)
        self._thread: threading.Thread | None = None

    # --- its life ---------------------------------------------------------------------------------

    def start(self) -> Self:
        """Starts to listen; `with` does it too."""
        if self._thread is None:
            self._hub.find_target()
            ready: Future[int] = Future()
            self._thread = threading.Thread(
                target=self._live, args=[ready], name="mainstay-fault-proxy", daemon=True
            )
            self._thread.start()
            self.port = ready.result(_OBEYS_WITHIN)
        elif not self._thread.is_alive():
            raise UsageError("the proxy was closed", hint="make a new one")
        return self

    def _live(self, ready: Future[int]) -> None:
        with asyncio.Runner(loop_factory=_RealLoop) as runner:
            runner.run(self._hub.live(ready))

    def close(self) -> None:
        """Ends every connection, the sockets and the thread.

        Raises what a function given to `drop_reply_once` has raised.
        """
        thread = self._thread
        if thread is not None and thread.is_alive():
            with suppress(RuntimeError):  # it is just ending
                self._hub.loop.call_soon_threadsafe(self._hub.stopped.set)
            thread.join(_OBEYS_WITHIN)
        trouble, self._hub.trouble = self._hub.trouble, None
        if trouble is not None:
            raise trouble

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def url(self, original: str) -> str:
        """The same URL with the proxy as its host: user, path, query stay as they are.

        >>> proxy = FaultProxy("127.0.0.1", 6379); proxy.port = 5000
        >>> proxy.url("redis://me:secret@127.0.0.1:6379/0?timeout=1")
        'redis://me:secret@127.0.0.1:5000/0?timeout=1'
        """
        if not self.port:
            raise UsageError("the proxy has no port yet", hint="use it in a `with` block")
        parts = urlsplit(original)
        user, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{user}{at}{self.host}:{self.port}").geturl()

    # --- what has passed --------------------------------------------------------------------------

    @property
    def connections(self) -> int:
        """How many connections were accepted so far."""
        return self._hub.accepted

    @property
    def open_connections(self) -> int:
        """How many of them are open."""
        return len(self._hub.wires)

    @property
    def bytes_to_server(self) -> int:
        """How much was passed on to the server."""
        return self._hub.passed["up"]

    @property
    def bytes_to_client(self) -> int:
        """How much was passed on to clients."""
        return self._hub.passed["down"]

    # --- faults -----------------------------------------------------------------------------------

    def latency(self, seconds: float, jitter: float = 0.0) -> None:
        """A round trip takes so much longer, and up to `jitter` more: half of it each way."""
        check = Checker("FaultProxy.latency")
        delay = check.number("seconds", seconds, 0.0, 3600.0)
        jitter = check.number("jitter", jitter, 0.0, 3600.0)
        check.close()
        self._set(delay=delay, jitter=jitter)

    def slow(self, bytes_per_second: float) -> None:
        """No more than so many bytes a second pass, on each connection and each way."""
        check = Checker("FaultProxy.slow")
        rate = check.number("bytes_per_second", bytes_per_second, 0.001, 1e12)
        check.close()
        self._set(rate=rate)

    def black_hole(self) -> None:
        """Connections are accepted and stay; whatever is sent, either way, is swallowed."""
        self._set(is_hole=True)

    def drop_replies(self) -> None:
        """Requests reach the server; what it answers is swallowed."""
        self._set(is_mute=True)

    def reset(self) -> None:
        """Resets every connection now, and each new one as soon as it is accepted."""
        self._do(self._hub.reset)

    def refuse(self) -> None:
        """Like a server that has been stopped: connections end, new ones are refused."""
        self._do(self._hub.refuse)

    def cut_after(self, count: int) -> None:
        """Each connection ends once so many more bytes have come from the server."""
        check = Checker("FaultProxy.cut_after")
        count = check.count("count", count, 2**62, least=0)
        check.close()
        self._do(lambda: self._hub.cut_after(count))

    def drop_reply_once(
        self,
        after: bytes | Callable[[bytes], object],
        then: Callable[[], object] | None = None,
    ) -> None:
        """Loses one reply: the server has done its work, and the client does not hear of it.

        The next request that matches is passed on. The first bytes that then come from the server
        on that connection are swallowed, and the connection is reset.

        Args:
            after: bytes that the request contains, also in two pieces; or a function that is given
                each piece of a request as it arrives, 64 KB at most.
            then: called when the reply is swallowed, before the client can notice; it may switch
                another fault on. Both functions are called in the proxy's thread.
        """
        if not (callable(after) or (isinstance(after, bytes) and after)):
            raise UsageError(f"after = {after!r}: must be bytes, at least one, or a function")
        trap = _Trap(after, then)
        self._do(lambda: self._hub.arm(trap))

    def heal(self) -> None:
        """Ends every fault; connections of which bytes were swallowed are reset."""
        self._do(self._hub.heal)

    def _set(self, **faults: Any) -> None:
        def change() -> Ended:
            return self._hub.change(replace(self._hub.faults, **faults))

        self._do(change)

    def _do(self, act: Callable[[], Ended]) -> None:
        """Carries it out in the proxy's thread, and waits for connections that end by it."""
        thread = self._thread
        if thread is None or not thread.is_alive():
            raise UsageError("the proxy is not running", hint="use it in a `with` block")
        if thread is threading.current_thread():
            act()
            return
        asyncio.run_coroutine_threadsafe(_done(act), self._hub.loop).result(_OBEYS_WITHIN)


async def _done(act: Callable[[], Ended]) -> None:
    await asyncio.gather(*act(), return_exceptions=True)


class _RealLoop(asyncio.SelectorEventLoop):
    """A loop that virtual time does not reach: its step is taken from asyncio at import."""

    _run_once = asyncio.BaseEventLoop._run_once  # type: ignore[attr-defined]  # noqa: SLF001

    def time(self) -> float:
        return time.monotonic()


@dataclass(frozen=True, slots=True)
class _Faults:
    """What is wrong at the moment."""

    delay: float = 0.0
    jitter: float = 0.0
    rate: float | None = None
    is_hole: bool = False
    is_mute: bool = False
    is_reset: bool = False
    cut: int | None = None


class _Trap:
    """A reply that is to be lost; looks for its request on every connection."""

    def __init__(
        self, after: bytes | Callable[[bytes], object], then: Callable[[], object] | None
    ) -> None:
        self.then = then
        self._after = after
        self._ends: WeakKeyDictionary[_Lane, bytes] = WeakKeyDictionary()

    def holds(self, lane: _Lane, data: bytes) -> bool:
        """Whether this is the request; bytes are looked for across pieces."""
        if not isinstance(self._after, bytes):
            return bool(self._after(data))
        seen = self._ends.get(lane, b"") + data
        self._ends[lane] = seen[max(0, len(seen) - len(self._after) + 1) :]
        return self._after in seen


class _Hub:
    """Listens, keeps the connections, and knows the faults. Lives in the proxy's loop."""

    def __init__(self, host: str, port: int) -> None:
        self.faults = _Faults()
        self.wires: set[_Wire] = set()
        self.accepted = 0
        self.passed = {"up": 0, "down": 0}
        self.trap: _Trap | None = None
        self.trouble: BaseException | None = None
        self.addresses: list[tuple[Any, ...]] = []
        self.loop: asyncio.AbstractEventLoop
        self.stopped: asyncio.Event
        self._target = (host, port)
        self._changed: asyncio.Event
        self._held: socket.socket | None = None
        self._listener: socket.socket | None = None
        self._place = (_HOST, 0)

    def find_target(self) -> None:
        """Looks the server up, in the thread of whoever starts the proxy."""
        found = socket.getaddrinfo(*self._target, type=socket.SOCK_STREAM)
        self.addresses = [(family, address) for family, _, _, _, address in found]

    async def live(self, ready: Future[int]) -> None:
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
        await asyncio.gather(*self._end_all(_Ending.CLOSED), return_exceptions=True)

    # --- listening --------------------------------------------------------------------------------

    def _take_port(self) -> None:
        """Binds a socket that never listens, so that nobody else gets the port meanwhile.

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
        except OSError:  # where two sockets may not have the same port
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
        if self.faults.is_reset or len(self.wires) >= _MOST:
            _abort(client)
            return
        client.setblocking(False)
        wire = _Wire(self, client)
        self.wires.add(wire)
        wire.task.add_done_callback(lambda task: self._over(wire, task))

    def _over(self, wire: _Wire, task: asyncio.Task[None]) -> None:
        self.wires.discard(wire)
        wire.close()
        if not task.cancelled() and task.exception() is not None:
            self.trouble = task.exception()

    # --- faults: each answers with the connections that end by it ---------------------------------

    def change(self, faults: _Faults) -> Ended:
        self.faults = faults
        self._changed.set()
        self._changed = asyncio.Event()
        return ()

    def reset(self) -> Ended:
        self.change(replace(self.faults, is_reset=True))
        return self._end_all(_Ending.RESET)

    def refuse(self) -> Ended:
        self._stop_listening()
        return self._end_all(_Ending.CLOSED)

    def cut_after(self, count: int) -> Ended:
        for wire in self.wires:
            wire.down.left = count
        return self.change(replace(self.faults, cut=count))

    def arm(self, trap: _Trap) -> Ended:
        self.trap = trap
        return ()

    def heal(self) -> Ended:
        self.trap = None
        for wire in self.wires:
            wire.trap = wire.down.left = None
        self.change(_Faults())
        self._listen()
        return [wire.end(_Ending.RESET) for wire in list(self.wires) if wire.has_lost]

    def _end_all(self, how: _Ending) -> Ended:
        return [wire.end(how) for wire in list(self.wires)]

    async def pause(self, seconds: float) -> None:
        """Waits so long, or until the faults change."""
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


def _abort(sock: socket.socket) -> None:
    """Closes it so that the other side sees a reset."""
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
    sock.close()


class _Ending(Enum):
    """How a lane or a connection comes to its end."""

    CLOSED = "closed"
    """As it should: what was sent arrives."""
    RESET = "reset"
    """Both sides see a reset."""
    LOST = "lost"
    """The client sees a reset, the server that it was closed."""


class _Wire:
    """One connection: the client's socket, the server's, and a lane each way."""

    def __init__(self, hub: _Hub, client: socket.socket) -> None:
        self.hub = hub
        self.trap: _Trap | None = None
        self.has_lost = False
        self.up, self.down = _Lane(self, "up"), _Lane(self, "down")
        self._client = client
        self._server: socket.socket | None = None
        self._ending: _Ending | None = None
        self.task = hub.loop.create_task(self._live())

    async def _live(self) -> None:
        pumps: list[asyncio.Task[None]] = []
        try:
            self._server = await self._connected()
            client, server = _prompt(self._client), _prompt(self._server)
            work = [*self.up.work(client, server), *self.down.work(server, client)]
            pumps += [self.hub.loop.create_task(part) for part in work]
            await asyncio.gather(*pumps)
        except OSError:  # one side is gone: the other hears of it
            self._ending = _Ending.RESET
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _connected(self) -> socket.socket:
        """A connection to the server, at the first of its addresses that answers."""
        trouble = OSError("the server has no address")
        for family, address in self.hub.addresses:
            server = socket.socket(family)
            try:
                server.setblocking(False)
                async with asyncio.timeout(_CONNECTS_WITHIN):
                    await self.hub.loop.sock_connect(server, address)
                return server
            except OSError as error:
                server.close()
                trouble = error
            except BaseException:
                server.close()
                raise
        raise trouble

    def end(self, how: _Ending) -> asyncio.Task[None]:
        """Ends the connection; the first word counts."""
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
            if self._ending is _Ending.RESET or (self._ending is _Ending.LOST and is_client):
                _abort(sock)
            else:
                with suppress(OSError):  # the end of the stream goes before all else
                    sock.shutdown(socket.SHUT_WR)
                sock.close()

    def ask(self, function: Callable[..., object], *args: object) -> object:
        """Calls a function of the test's; what it raises ends the connection, and is kept."""
        try:
            return function(*args)
        except BaseException as error:
            self.hub.trouble = error
            self.end(_Ending.RESET)
            return None

    def look_at(self, data: bytes) -> None:
        """Whether this is the request whose reply is to be lost."""
        trap = self.hub.trap
        if trap is not None and self.ask(trap.holds, self.up, data):
            self.trap, self.hub.trap = trap, None

    def lose(self, trap: _Trap) -> None:
        """The reply has been swallowed."""
        self.trap, self.has_lost = None, True
        if trap.then is not None:
            self.ask(trap.then)


def _prompt(sock: socket.socket) -> socket.socket:
    """A socket that sends at once, as small as it may be."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class _Lane:
    """One direction of a connection: "up" to the server, or "down" to the client."""

    def __init__(self, wire: _Wire, name: str) -> None:
        self.left = wire.hub.faults.cut if name == "down" else None
        """Bytes that may still pass; None without a limit."""
        self._wire = wire
        self._hub = wire.hub
        self._name = name
        self._queue: asyncio.Queue[tuple[float, float, bytes] | _Ending] = asyncio.Queue(_AHEAD)

    def work(
        self, source: socket.socket, sink: socket.socket
    ) -> tuple[Coroutine[Any, Any, None], Coroutine[Any, Any, None]]:
        """Both halves of it: one reads ahead, one passes on."""
        return self._read(source), self._write(sink)

    async def _read(self, source: socket.socket) -> None:
        loop, wire, end = self._hub.loop, self._wire, _Ending.CLOSED
        try:
            while data := await loop.sock_recv(source, _CHUNK):
                if wire.trap is not None and self._name == "down":
                    wire.lose(wire.trap)
                    end = _Ending.LOST
                    break
                u = random.random()  # noqa: S311 -- spreads delays
                await self._queue.put((loop.time(), u, data))
        except OSError:
            end = _Ending.RESET
        await self._queue.put(end)

    async def _write(self, sink: socket.socket) -> None:
        while not isinstance(item := await self._queue.get(), _Ending):
            arrived, u, data = item
            await self._wait(arrived, u)
            await self._pass_on(sink, data)
        if self._is_swallowed():
            self._wire.has_lost = True
        elif item is _Ending.CLOSED:
            with suppress(OSError):  # the other side may be gone
                sink.shutdown(socket.SHUT_WR)
        else:
            self._wire.end(item)

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
            self._wire.look_at(data)
        rest = memoryview(data)
        while rest:
            if self._is_swallowed():
                self._wire.has_lost = True
                return
            piece = rest[: self._most()]
            self._count(len(piece))  # before anybody can have seen it
            await self._hub.loop.sock_sendall(sink, piece)
            rest = rest[len(piece) :]
            if self.left == 0:
                self._wire.end(_Ending.CLOSED)
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
