"""The deadline at the sockets of httpx and httpx2: the streams that their connection pools use.

Each timeout of a request becomes a `Until`, a number that also has the moment at which everything
must be over. The streams read what is left from it before each read and write. So a server that
sends a byte a second is given up on in time, whichever timeout the client has for one read.

The pools are those of httpcore and httpcore2, which have the same names for everything that is
used here. `Sockets` makes the classes below into classes of one of the two; the types are written
as those of httpcore.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from mainstay.integrations.http_exchange import Until
from mainstay.integrations.http_lookup import addresses

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable
    from types import ModuleType
    from typing import Any

    from httpcore import (
        SOCKET_OPTION,
        AsyncNetworkBackend,
        AsyncNetworkStream,
        NetworkBackend,
        NetworkStream,
    )

_PIECE = 65536
"""Bytes that are written before the time that is left is looked at again."""


class Sockets:
    """The backends of one library: what makes its connections.

    Args:
        core: httpcore or httpcore2.
    """

    __slots__ = ("_async", "_core", "_sync")

    def __init__(self, core: ModuleType) -> None:
        self._core: Any = core
        self._sync = _of(core, Backend, "NetworkBackend", _of(core, Stream, "NetworkStream"))
        stream = _of(core, AsyncStream, "AsyncNetworkStream")
        self._async = _of(core, AsyncBackend, "AsyncNetworkBackend", stream)

    def bind(self, transport: object) -> int:
        """Has the connections of a transport of the library's end at the deadline of each request.

        Its pool is the only place where they are made; another transport gets the timeouts alone.
        Returns how often the pool repeats connecting by itself.
        """
        pool: Any = getattr(transport, "_pool", None)
        backend = getattr(pool, "_network_backend", None)
        if isinstance(backend, self._core.NetworkBackend) and not isinstance(backend, Backend):
            pool._network_backend = self._sync(backend)  # noqa: SLF001 -- there is no option for it
        elif isinstance(backend, self._core.AsyncNetworkBackend) and not isinstance(
            backend, AsyncBackend
        ):
            pool._network_backend = self._async(backend)  # noqa: SLF001 -- as above
        return getattr(pool, "_retries", 0)


def _of(core: ModuleType, ours: type, base: str, stream: type | None = None) -> Any:
    """A class of ours as one of the library's, which its pools and their users may ask for."""
    members = {"__module__": __name__, "core": core, "stream": stream}
    return type(ours.__name__, (ours, getattr(core, base)), members)


def _left(timeout: float | None, error: type[Exception]) -> float | None:
    return timeout.left(error) if type(timeout) is Until else timeout


class Stream:
    """A connection whose reads and writes end at the deadline."""

    core: Any

    def __init__(self, stream: NetworkStream) -> None:
        self._stream = stream
        self.close = stream.close
        self.get_extra_info = stream.get_extra_info

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Some bytes, as soon as there are any."""
        return self._stream.read(max_bytes, _left(timeout, self.core.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Writes all of it, a piece at a time."""
        if type(timeout) is not Until or len(buffer) <= _PIECE:
            self._stream.write(buffer, _left(timeout, self.core.WriteTimeout))
            return
        for start in range(0, len(buffer), _PIECE):
            piece = buffer[start : start + _PIECE]
            self._stream.write(piece, timeout.left(self.core.WriteTimeout))

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> Stream:
        """The stream of TLS over this one, which has a deadline too."""
        left = _left(timeout, self.core.ConnectTimeout)
        return type(self)(self._stream.start_tls(ssl_context, server_hostname, left))


class Backend:
    """What makes connections, to addresses that are looked up in time."""

    core: Any
    stream: type[Stream]

    def __init__(self, backend: NetworkBackend) -> None:
        self._backend = backend
        self.sleep = backend.sleep

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> Stream:
        """A connection to the first address of a host that answers."""
        core, made, connect = self.core, self.stream, self._backend.connect_tcp
        if type(timeout) is not Until:
            return made(connect(host, port, timeout, local_address, socket_options))
        *others, last = self._looked_up(host, port, timeout)
        for address in others:
            with suppress(core.ConnectError, core.ConnectTimeout):
                left = timeout.left(core.ConnectTimeout)
                return made(connect(address, port, left, local_address, socket_options))
        left = timeout.left(core.ConnectTimeout)
        return made(connect(last, port, left, local_address, socket_options))

    def _looked_up(self, host: str, port: int, timeout: Until) -> list[str]:
        try:
            return addresses(host, port, timeout)
        except TimeoutError as error:
            raise self.core.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise self.core.ConnectError(str(error)) from error

    def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> Stream:
        """A connection to a socket of the file system."""
        left = _left(timeout, self.core.ConnectTimeout)
        return self.stream(self._backend.connect_unix_socket(path, left, socket_options))


class AsyncStream:
    """A connection of an event loop whose reads and writes end at the deadline."""

    core: Any

    def __init__(self, stream: AsyncNetworkStream) -> None:
        self._stream = stream
        self.aclose = stream.aclose
        self.get_extra_info = stream.get_extra_info

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 -- httpcore's
        """Some bytes, as soon as there are any."""
        return await self._stream.read(max_bytes, _left(timeout, self.core.ReadTimeout))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 -- httpcore's
        """Writes all of it; a loop ends the write of it all in time."""
        await self._stream.write(buffer, _left(timeout, self.core.WriteTimeout))

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 -- httpcore's
    ) -> AsyncStream:
        """The stream of TLS over this one, which has a deadline too."""
        left = _left(timeout, self.core.ConnectTimeout)
        return type(self)(await self._stream.start_tls(ssl_context, server_hostname, left))


class AsyncBackend:
    """What makes the connections of an event loop, which ends a lookup in time by itself."""

    core: Any
    stream: type[AsyncStream]

    def __init__(self, backend: AsyncNetworkBackend) -> None:
        self._backend = backend
        self.sleep = backend.sleep

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 -- httpcore's
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> AsyncStream:
        """A connection to a host."""
        left = _left(timeout, self.core.ConnectTimeout)
        connect = self._backend.connect_tcp
        return self.stream(await connect(host, port, left, local_address, socket_options))

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 -- httpcore's
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> AsyncStream:
        """A connection to a socket of the file system."""
        left = _left(timeout, self.core.ConnectTimeout)
        return self.stream(await self._backend.connect_unix_socket(path, left, socket_options))
