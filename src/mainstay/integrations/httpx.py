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

from typing import TYPE_CHECKING

import httpcore
import httpx

import mainstay.runtime.clock as clock
from mainstay import deadline
from mainstay.core.base.deadline import NEVER
from mainstay.core.known.http import ONCE
from mainstay.core.retry.give_up import ON_RESPONSE
from mainstay.errors import OutcomeUnknown
from mainstay.integrations.http_headers import KEY, Outgoing, put_mark

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Iterable, Iterator
    from typing import Any, Self, TypeVar

    from httpcore import SOCKET_OPTION

    from mainstay.integrations.http_headers import Calls, Operations

    E = TypeVar("E", bound=Exception)

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

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Sends the request, as often as the policy allows; returns the last response."""
        calls, exchange = self._outgoing.calls, _Exchange(self._outgoing, request)
        if calls is None:
            return _send(exchange, self._inner)
        try:
            return calls.call(_send, exchange, self._inner)
        except BaseException as error:
            response = exchange.last_response(error)
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

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sends the request, as often as the policy allows; returns the last response."""
        calls, exchange = self._outgoing.calls, _Exchange(self._outgoing, request)
        if calls is None:
            return await _asend(exchange, self._inner)
        try:
            return await calls.acall(_asend, exchange, self._inner)
        except BaseException as error:
            response = exchange.last_response(error)
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
    held = exchange.take_response()
    if held is not None:
        held.close()
    exchange.begin()
    try:
        response = transport.handle_request(exchange.request)
    except httpx.RequestError as error:
        raise exchange.failed(error)  # noqa: B904 -- the same one, with its request
    finally:
        exchange.end()
    return exchange.answered(response)


async def _asend(exchange: _Exchange, transport: httpx.AsyncBaseTransport) -> httpx.Response:
    """One attempt."""
    held = exchange.take_response()
    if held is not None:
        await held.aclose()
    exchange.begin()
    try:
        response = await transport.handle_async_request(exchange.request)
    except httpx.RequestError as error:
        raise exchange.failed(error)  # noqa: B904 -- the same one, with its request
    finally:
        exchange.end()
    return exchange.answered(response)


_send.__qualname__ = _asend.__qualname__ = "httpx"  # what notes and events call it


class _Exchange:
    """A request, what was put on it for an attempt, and the response that may yet be returned."""

    __slots__ = (
        "_attempt", "_body", "_extensions", "_failure", "_headers", "_outgoing", "request",
        "response",
    )  # fmt: skip

    def __init__(self, outgoing: Outgoing, request: httpx.Request) -> None:
        self._outgoing = outgoing
        self.request = request
        self.response: httpx.Response | None = None
        self._attempt = 0
        self._failure: Exception | None = None
        self._headers: dict[str, str] = {}
        self._extensions = request.extensions
        self._body: _Body | None = None
        if outgoing.attempts > 1 and not _is_repeatable(request.stream):
            self._body = request.stream = _Body(request.stream)

    def take_response(self) -> httpx.Response | None:
        """The response of the attempt before, to be closed: another attempt is made."""
        if self._body is not None and self._body.begun and self._failure is not None:
            raise self._failure  # a rule of the policy's own repeats what cannot be sent again
        response, self.response = self.response, None
        return response

    def begin(self) -> None:
        """Puts on the request what this attempt hands on."""
        self._attempt += 1
        end, request, url = deadline.moment(), self.request, self.request.url
        if end != NEVER:
            if end <= clock.current.monotonic():
                raise httpx.ConnectTimeout("no time is left before the deadline", request=request)
            timeouts = _until(self._extensions.get("timeout") or {}, end)
            request.extensions = {**self._extensions, "timeout": timeouts}
        made = self._outgoing.headers(url.host, url.port, request.method, self._attempt, end)
        self._headers = {name: each for name, each in made.items() if name not in request.headers}
        if self._headers:
            request.headers.update(self._headers)

    def end(self) -> None:
        """Takes off what must not follow a redirect; the key stays, since a repeat needs it."""
        for name in self._headers:
            if name != KEY:
                del self.request.headers[name]
        self._headers = {}
        self.request.extensions = self._extensions

    def failed(self, error: httpx.RequestError) -> httpx.RequestError:
        """The failure, with the request by which it is judged."""
        error.request = self.request
        return self._spent(error)

    def answered(self, response: httpx.Response) -> httpx.Response:
        """The response; one with an error status is raised, if there is a policy to judge it."""
        status, url = response.status_code, self.request.url
        if status < 400:
            return response
        mark = self._outgoing.mark_of(url.host, url.port, response.headers)
        if mark is not None:
            response.extensions[ON_RESPONSE] = mark
        if self._outgoing.calls is None:
            return response
        self.response = response
        text = f"status {status} from {url.host}"
        raise self._spent(httpx.HTTPStatusError(text, request=self.request, response=response))

    def _spent(self, error: E) -> E:
        if self._body is not None and self._body.begun:
            self._failure = error
            setattr(error, ONCE, f"{self.request.method} whose body cannot be read again")
        return error

    def last_response(self, error: BaseException) -> httpx.Response | None:
        """The response that a failure stands for: a client of httpx does not raise for a status."""
        failure = error.__cause__ if isinstance(error, OutcomeUnknown) else error
        if self.response is None or not isinstance(failure, httpx.HTTPStatusError):
            return None
        if failure.response is not self.response:
            return None
        put_mark(error, self.response.extensions)
        self._failure = None
        return self.response


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


class Until(float):
    """A timeout of some seconds that also ends at a moment."""

    __slots__ = ("end",)
    end: float

    def left(self, error: type[Exception]) -> float:
        """The seconds of it that are left now; raises the error if there are none."""
        rest = self.end - clock.current.monotonic()
        if rest <= 0.0:
            raise error("the deadline has passed")
        return min(float(self), rest)


def _until(timeouts: dict[str, float | None], end: float) -> dict[str, float]:
    rest = max(0.0, end - clock.current.monotonic())
    made: dict[str, float] = {}
    for phase in _PHASES:
        given = timeouts.get(phase)
        timeout = Until(rest if given is None else min(given, rest))
        timeout.end, made[phase] = end, timeout
    return made


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
        left = _left(timeout, httpcore.ConnectTimeout)
        connect = self._backend.connect_tcp
        return _Stream(connect(host, port, left, local_address, socket_options))

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
