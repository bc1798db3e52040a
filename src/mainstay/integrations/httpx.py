"""httpx: transports that retry, end at the deadline, and hand on what the next service needs.

A failure of httpx, and a response with an error status, are judged by the policy; the last response
is returned as httpx would return it. An attempt ends where the transport returns, with the headers
of the response: the body is read later, and is bounded by the same deadline but not repeated.

How the deadline reaches the socket: each timeout of the request becomes a `Until`, a number that
also has the moment at which everything must be over. The streams below, which the connection pool
of httpx uses for its sockets, read what is left from it before each read and write. So a server
that sends a byte a second is given up on in time, whichever timeout httpx has for one read.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import httpcore
import httpx

import mainstay.runtime.clock as clock
from mainstay.errors import UsageError
from mainstay.integrations.http_exchange import LONGEST, PATIENCE, Exchange, Until, limited
from mainstay.integrations.http_headers import PORTS, Outgoing
from mainstay.integrations.http_lookup import addresses

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Iterable, Iterator, MutableMapping
    from typing import Any, Self

    from httpcore import SOCKET_OPTION

    from mainstay.integrations.http_headers import Calls, Operations

_PHASES = ("connect", "read", "write", "pool")
_PIECE = 65536
"""Bytes that are written before the time that is left is looked at again."""


class Transport(httpx.BaseTransport):
    """A transport for `httpx.Client(transport=...)` that retries and ends at the deadline.

    Args:
        retry: a RetryPolicy, an Engine, or an operation of one; None for one attempt.
        transport: what sends; by default `httpx.HTTPTransport()`.
        trust: the hosts that get our headers, and whose give-up is believed: names, patterns such
            as "*.svc.local", networks, each with or without a port.
        operation: the operation of the engine.

    Example:
        >>> import httpx, mainstay
        >>> transport = Transport(mainstay.RetryPolicy(attempts=3), trust=["orders.internal"])
        >>> with httpx.Client(transport=transport) as client:
        ...     client.timeout.connect
        5.0
    """

    def __init__(
        self,
        retry: Calls | Operations | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
        trust: Iterable[str] = (),
        operation: str = "httpx",
    ) -> None:
        self._outgoing = Outgoing(retry, trust, operation)
        self._inner = httpx.HTTPTransport() if transport is None else transport
        _bound(self._inner, self._outgoing)
        self._send = self._outgoing.retried(_send)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Sends the request, as often as the policy allows; returns the last response."""
        exchange = _Exchange(self._outgoing, request)
        try:
            return self._send(exchange, self._inner)
        except BaseException as error:
            self._outgoing.warn_of_client(request.headers)
            response: httpx.Response | None = exchange.last_response(error)
            if response is None:
                if exchange.response is not None:
                    exchange.response.close()
                raise
            return response

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *how: object) -> None:
        self._inner.__exit__(*how)  # type: ignore[arg-type]

    def close(self) -> None:
        """Closes the transport that sends."""
        self._inner.close()


class AsyncTransport(httpx.AsyncBaseTransport):
    """A transport for `httpx.AsyncClient(transport=...)`, on asyncio and on Trio.

    The arguments are those of Transport.

    Example:
        >>> import asyncio, httpx, mainstay
        >>> async def main():
        ...     transport = AsyncTransport(mainstay.RetryPolicy(attempts=3))
        ...     async with httpx.AsyncClient(transport=transport) as client:
        ...         return client.timeout.connect
        >>> asyncio.run(main())
        5.0
    """

    def __init__(
        self,
        retry: Calls | Operations | None = None,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        trust: Iterable[str] = (),
        operation: str = "httpx",
    ) -> None:
        self._outgoing = Outgoing(retry, trust, operation)
        self._inner = httpx.AsyncHTTPTransport() if transport is None else transport
        _bound(self._inner, self._outgoing)
        self._send = self._outgoing.retried(_asend)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sends the request, as often as the policy allows; returns the last response."""
        exchange = _AsyncExchange(self._outgoing, request)
        try:
            return await self._send(exchange, self._inner)
        except BaseException as error:
            self._outgoing.warn_of_client(request.headers)
            response: httpx.Response | None = exchange.last_response(error)
            if response is None:
                if exchange.response is not None:
                    await exchange.response.aclose()
                raise
            return response

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *how: object) -> None:
        await self._inner.__aexit__(*how)  # type: ignore[arg-type]

    async def aclose(self) -> None:
        """Closes the transport that sends."""
        await self._inner.aclose()


# --- one request, in one or more attempts ---------------------------------------------------------


def _send(exchange: _Exchange, transport: httpx.BaseTransport) -> httpx.Response:
    """One attempt."""
    if exchange.attempt and exchange.check_repeat():
        exchange.release()
    exchange.begin()
    try:
        response = transport.handle_request(exchange.request)
    except httpx.RequestError as error:
        raise exchange.failed(error)  # noqa: B904 -- the same one, with its request
    except Exception:
        exchange.is_under_way = False
        raise
    finally:
        if exchange.is_touched:
            exchange.end()
    exchange.is_under_way = False
    if response.status_code >= 400:
        exchange.answered(response, response.status_code)
    exchange.response = response  # to be closed, if the policy does not accept it
    return response


async def _asend(exchange: _Exchange, transport: httpx.AsyncBaseTransport) -> httpx.Response:
    """One attempt."""
    if exchange.attempt and exchange.check_repeat():
        await exchange.release()
    exchange.begin()
    try:
        response = await transport.handle_async_request(exchange.request)
    except httpx.RequestError as error:
        raise exchange.failed(error)  # noqa: B904 -- the same one, with its request
    except Exception:
        exchange.is_under_way = False
        raise
    finally:
        if exchange.is_touched:
            exchange.end()
    exchange.is_under_way = False
    if response.status_code >= 400:
        exchange.answered(response, response.status_code)
    exchange.response = response  # to be closed, if the policy does not accept it
    return response


_send.__qualname__ = _asend.__qualname__ = "httpx"  # what notes and events call it


class _Exchange(Exchange):
    request: httpx.Request
    status_error = httpx.HTTPStatusError
    _body: _Body | None = None
    _extensions: dict[str, Any] | None = None
    _timeouts: dict[str, Any] | None = None

    def __init__(self, outgoing: Outgoing, request: httpx.Request) -> None:
        super().__init__(outgoing, request)
        is_plain = type(request.stream) is httpx.ByteStream
        if not is_plain and not isinstance(request, httpx.Request):
            library = type(request).__module__.partition(".")[0]
            raise UsageError(
                f"a request of {library}: must be one of httpx",
                hint="retry around the calls of that client, with @mainstay.retry",
            )
        if not is_plain and outgoing.attempts > 1 and not _is_repeatable(request.stream):
            self._body = request.stream = _Body(request.stream)

    @property
    def address(self) -> tuple[str, int | None]:
        url = self.request.url
        return url.host, url.port or PORTS.get(url.scheme)

    @property
    def is_spent(self) -> bool:
        return self._body is not None and self._body.begun

    def marks_of(self, response: httpx.Response) -> MutableMapping[str, Any]:
        return response.extensions

    def late(self, text: str) -> Exception:
        return httpx.ConnectTimeout(text, request=self.request)

    def cut(self, text: str) -> Exception:
        return httpx.ReadTimeout(text, request=self.request)

    def limit(self, end: float) -> None:
        self._extensions = own = self.request.extensions
        given = own.get("timeout") or {}
        made = {each: limited(each, end) for each in {given.get(phase) for phase in _PHASES}}
        self._timeouts = {phase: made[given.get(phase)] for phase in _PHASES}
        self.request.extensions = {**own, "timeout": self._timeouts}
        self.is_touched = True

    def release(self) -> Any:
        response, body = self.response, []
        with suppress(Exception), self._hurried() as is_worth_it:  # a body that breaks off is lost
            for part in response.stream if is_worth_it else ():
                body.append(part)
                if sum(map(len, body)) > LONGEST:
                    break
            else:
                self.is_released = is_worth_it
            response.stream.close()
        self._keep(body)

    @contextmanager
    def _hurried(self) -> Iterator[bool]:
        """Has the rest of a body come soon; False if it is not to be read at all.

        Many responses share a connection of HTTP/2: it is not held, and a timeout would end it.
        """
        response = self.response
        is_shared = response.extensions.get("http_version") == b"HTTP/2"
        timeouts = self._timeouts or self.request.extensions.get("timeout")
        if is_shared or not self.has_short_body() or not isinstance(timeouts, dict):
            yield False
            return
        given = timeouts.get("read")
        end = clock.current.monotonic() + PATIENCE
        timeouts["read"] = limited(given, min(end, getattr(given, "end", end)))
        try:
            yield True
        finally:
            timeouts["read"] = given

    def _keep(self, body: list[bytes]) -> None:
        if self.is_released:
            self.response.stream = httpx.ByteStream(b"".join(body))
        else:
            self.response = None  # no part of a body is returned as the whole

    def end(self) -> None:
        super().end()
        if self._extensions is not None:
            self.request.extensions, self._extensions = self._extensions, None


class _AsyncExchange(_Exchange):
    async def release(self) -> None:
        response, body = self.response, []
        with suppress(Exception), self._hurried() as is_worth_it:  # a body that breaks off is lost
            if is_worth_it:
                async for part in response.stream:
                    body.append(part)
                    if sum(map(len, body)) > LONGEST:
                        break
                else:
                    self.is_released = True
            await response.stream.aclose()
        self._keep(body)


class _Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that can be read once; knows whether it has been."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.begun = False

    def __iter__(self) -> Iterator[bytes]:
        self.begun = True
        yield from self._stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.begun = True
        async for part in self._stream:
            yield part

    def close(self) -> None:
        self._stream.close()

    async def aclose(self) -> None:
        await self._stream.aclose()


def _is_repeatable(stream: Any) -> bool:
    """Whether a body gives the same bytes again: plain bytes, or parts with files that seek."""
    if isinstance(stream, httpx.ByteStream):
        return True
    fields = getattr(stream, "fields", None)  # of a multipart body
    files = [getattr(field, "file", b"") for field in fields or ()]
    return fields is not None and all(
        isinstance(file, str | bytes) or getattr(file, "seekable", bool)() for file in files
    )


# --- the deadline at the socket -------------------------------------------------------------------


def _left(timeout: float | None, error: type[Exception]) -> float | None:
    return timeout.left(error) if type(timeout) is Until else timeout


def _bound(transport: httpx.BaseTransport | httpx.AsyncBaseTransport, outgoing: Outgoing) -> None:
    """Has the connections of a transport of httpx's end at the deadline of each request.

    Its pool is the only place where they are made; another transport gets the timeouts alone.
    """
    pool = getattr(transport, "_pool", None)
    backend = getattr(pool, "_network_backend", None)
    if pool is None:
        return
    if isinstance(backend, httpcore.NetworkBackend) and type(backend) is not _Backend:
        pool._network_backend = _Backend(backend)  # noqa: SLF001 -- httpx has no option for it
    if isinstance(backend, httpcore.AsyncNetworkBackend) and type(backend) is not _AsyncBackend:
        pool._network_backend = _AsyncBackend(backend)  # noqa: SLF001 -- as above
    retries = getattr(pool, "_retries", 0)
    outgoing.warn_of_retries("httpx", retries, "leave out HTTPTransport(retries=...)")


def _looked_up(host: str, port: int, timeout: Until) -> list[str]:
    try:
        return addresses(host, port, timeout)
    except TimeoutError as error:
        raise httpcore.ConnectTimeout(str(error)) from error
    except OSError as error:
        raise httpcore.ConnectError(str(error)) from error


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream
        self.close = stream.close  # type: ignore[method-assign]
        self.get_extra_info = stream.get_extra_info  # type: ignore[method-assign]

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if type(timeout) is not Until or len(buffer) <= _PIECE:
            self._stream.write(buffer, _left(timeout, httpcore.WriteTimeout))
            return
        for start in range(0, len(buffer), _PIECE):
            piece = buffer[start : start + _PIECE]
            self._stream.write(piece, timeout.left(httpcore.WriteTimeout))

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left))


class _Backend(httpcore.NetworkBackend):
    def __init__(self, backend: httpcore.NetworkBackend) -> None:
        self._backend = backend
        self.sleep = backend.sleep  # type: ignore[method-assign]

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        connect = self._backend.connect_tcp
        if type(timeout) is not Until:
            return _Stream(connect(host, port, timeout, local_address, socket_options))
        *others, last = _looked_up(host, port, timeout)
        for address in others:
            with suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                left = timeout.left(httpcore.ConnectTimeout)
                return _Stream(connect(address, port, left, local_address, socket_options))
        left = timeout.left(httpcore.ConnectTimeout)
        return _Stream(connect(last, port, left, local_address, socket_options))

    def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._backend.connect_unix_socket(path, left, socket_options))


class _AsyncStream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self.aclose = stream.aclose  # type: ignore[method-assign]
        self.get_extra_info = stream.get_extra_info  # type: ignore[method-assign]

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 -- httpcore's
        return await self._stream.read(max_bytes, _left(timeout, httpcore.ReadTimeout))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 -- httpcore's
        await self._stream.write(buffer, _left(timeout, httpcore.WriteTimeout))

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 -- httpcore's
    ) -> httpcore.AsyncNetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _AsyncStream(await self._stream.start_tls(ssl_context, server_hostname, left))


class _AsyncBackend(httpcore.AsyncNetworkBackend):
    def __init__(self, backend: httpcore.AsyncNetworkBackend) -> None:
        self._backend = backend
        self.sleep = backend.sleep  # type: ignore[method-assign]

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 -- httpcore's
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        connect = self._backend.connect_tcp
        return _AsyncStream(await connect(host, port, left, local_address, socket_options))

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 -- httpcore's
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _AsyncStream(await self._backend.connect_unix_socket(path, left, socket_options))
