"""FaultProxy, as tests use it: from any thread, each fault in force when its method returns."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mainstay.core.base.validate import Checker
from mainstay.errors import UsageError
from mainstay.testing.proxy.faults import Trap
from mainstay.testing.proxy.hub import HOST, Hub, RealLoop

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, Self

    from mainstay.core.base.types import Seconds
    from mainstay.testing.proxy.hub import Ended

_OBEYS_WITHIN = 10.0
"""Seconds for the proxy's thread to start, to apply a fault, and to end."""


class FaultProxy:
    """Stands between a client and a TCP server on loopback, and fails on command.

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
        self.host = HOST
        self.port = 0
        self._hub = Hub(target_host, target_port)
        self._thread: threading.Thread | None = None

    # --- start and close --------------------------------------------------------------------------

    def start(self) -> Self:
        """Starts to listen; `with` does it too."""
        if self._thread is None:
            self._hub.find_target()
            ready: Future[int] = Future()
            self._thread = threading.Thread(
                target=self._run, args=[ready], name="mainstay-fault-proxy", daemon=True
            )
            self._thread.start()
            self.port = ready.result(_OBEYS_WITHIN)
        elif not self._thread.is_alive():
            raise UsageError("the proxy was closed", hint="make a new one")
        return self

    def _run(self, ready: Future[int]) -> None:
        with asyncio.Runner(loop_factory=RealLoop) as runner:
            runner.run(self._hub.run(ready))

    def close(self) -> None:
        """Ends every connection, the sockets and the thread.

        Raises what a function given to `drop_reply_once` has raised.
        """
        thread = self._thread
        if thread is not None and thread.is_alive():
            with suppress(RuntimeError):  # it is just ending
                self._hub.loop.call_soon_threadsafe(self._hub.stopped.set)
            thread.join(_OBEYS_WITHIN)
        error, self._hub.error = self._hub.error, None
        if error is not None:
            raise error

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
        return len(self._hub.connections)

    @property
    def bytes_to_server(self) -> int:
        """How much was passed on to the server."""
        return self._hub.passed["up"]

    @property
    def bytes_to_client(self) -> int:
        """How much was passed on to clients."""
        return self._hub.passed["down"]

    # --- faults -----------------------------------------------------------------------------------

    def latency(self, seconds: Seconds, jitter: Seconds = 0.0) -> None:
        """A round trip takes this much longer, and up to `jitter` more: half of it each way."""
        check = Checker("FaultProxy.latency")
        delay = check.duration("seconds", seconds, 0.0, 3600.0)
        most = check.duration("jitter", jitter, 0.0, 3600.0)
        check.close()
        self._set(delay=delay, jitter=most)

    def slow(self, bytes_per_second: float) -> None:
        """Limits the bytes a second, on each connection and each way."""
        check = Checker("FaultProxy.slow")
        rate = check.number("bytes_per_second", bytes_per_second, 0.001, 1e12)
        check.close()
        self._set(rate=rate)

    def black_hole(self) -> None:
        """Connections are accepted and stay; all data, either way, is swallowed."""
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
        """Each connection ends once this number of further bytes has come from the server."""
        check = Checker("FaultProxy.cut_after")
        count = check.count("count", count, 2**62, least=0)
        check.close()
        self._do(lambda: self._hub.cut_after(count))

    def drop_reply_once(
        self,
        after: bytes | Callable[[bytes], object],
        then: Callable[[], object] | None = None,
    ) -> None:
        """Loses one reply: the server has done its work, and the client gets no answer.

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
        trap = Trap(after, then)
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
