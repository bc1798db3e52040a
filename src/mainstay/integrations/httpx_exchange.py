"""One request of httpx or of httpx2 in one or more attempts, and the transports that make them.

Both libraries have the same names for everything that is used here: a `Library` has the classes of
one of them, and httpx.py and httpx2.py have the transports for users. The types are written as
those of httpx. The deadline at the sockets is in httpx_streams.py.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Generic, TypeVar

import mainstay.runtime.clock as clock
from mainstay.errors import UsageError
from mainstay.integrations.http_exchange import LONGEST, PATIENCE, Exchange, limited
from mainstay.integrations.http_headers import PORTS
from mainstay.integrations.httpx_streams import Sockets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
    from types import ModuleType
    from typing import Any, Self

    import httpx

    from mainstay.integrations.http_headers import Outgoing

Request = TypeVar("Request")
Response = TypeVar("Response")

_PHASES = ("connect", "read", "write", "pool")
_BOTH = ("httpx", "httpx2")


class Library:
    """One of the two libraries: its classes, and ours that are derived from them.

    Args:
        client: httpx or httpx2.
        core: httpcore or httpcore2.
    """

    __slots__ = ("asend", "body", "bytes", "client", "name", "send", "sockets")

    def __init__(self, client: ModuleType, core: ModuleType) -> None:
        self.client: Any = client
        self.name = client.__name__
        """Also if `httpx2.alias_httpx()` has given it the other's name."""
        self.bytes: type = self.client.ByteStream
        bases = (_Body, self.client.SyncByteStream, self.client.AsyncByteStream)
        self.body: Any = type("Body", bases, {"__module__": __name__})
        self.sockets = Sockets(core)
        self.send = _sender(self)
        self.asend = _async_sender(self)

    def bound(self, transport: Any, ours: str, outgoing: Outgoing) -> Any:
        """The transport that sends, whose connections end at the deadline of each request."""
        if not isinstance(transport, (self.client.BaseTransport, self.client.AsyncBaseTransport)):
            for cls in type(transport).__mro__:
                if stranger := self._stranger(cls):
                    raise self._refusal(f"a transport of {stranger}", stranger, ours)
        remedy = "leave out HTTPTransport(retries=...)"
        outgoing.warn_of_retries(self.name, self.sockets.bind(transport), remedy)
        return transport

    def refuse(self, request: object, ours: str) -> None:
        """Raises if a request is none of the library's; many things of the other one look alike."""
        if isinstance(request, self.client.Request):
            return
        root = type(request).__module__.partition(".")[0]
        raise self._refusal(f"a request of {root}", self._stranger(type(request)), ours)

    def _stranger(self, cls: type) -> str:
        """The other library, if a class is one of its; else nothing."""
        root = cls.__module__.partition(".")[0]
        return root if root in _BOTH and root != self.name else ""

    def _refusal(self, what: str, stranger: str, ours: str) -> UsageError:
        hint = "retry around the calls of that client, with @mainstay.retry"
        if stranger:
            hint = f"use {ours} of mainstay.integrations.{stranger}"
        return UsageError(f"{what}: must be one of {self.name}", hint=hint)


class SyncTransport(Generic[Request, Response]):
    """What both transports for sync clients are."""

    def __init__(self, library: Library, transport: Any, outgoing: Outgoing) -> None:
        self._library = library
        self._outgoing = outgoing
        self._inner = library.bound(transport, "Transport", outgoing)
        self._send = outgoing.retried(library.send)

    def handle_request(self, request: Request) -> Response:
        """Sends the request, as often as the policy allows; returns the last response."""
        exchange = _Exchange(self._library, self._outgoing, request)
        try:
            answer: Response = self._send(exchange, self._inner)
            return answer
        except BaseException as error:
            self._outgoing.warn_of_client(exchange.request.headers)
            response: Response | None = exchange.last_response(error)
            if response is None:
                if exchange.response is not None:
                    exchange.response.close()
                raise
            return response

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *how: object) -> None:
        self._inner.__exit__(*how)

    def close(self) -> None:
        """Closes the transport that sends."""
        self._inner.close()


class AsyncTransport(Generic[Request, Response]):
    """What both transports for async clients are."""

    def __init__(self, library: Library, transport: Any, outgoing: Outgoing) -> None:
        self._library = library
        self._outgoing = outgoing
        self._inner = library.bound(transport, "AsyncTransport", outgoing)
        self._send = outgoing.retried(library.asend)

    async def handle_async_request(self, request: Request) -> Response:
        """Sends the request, as often as the policy allows; returns the last response."""
        exchange = _AsyncExchange(self._library, self._outgoing, request)
        try:
            answer: Response = await self._send(exchange, self._inner)
            return answer
        except BaseException as error:
            self._outgoing.warn_of_client(exchange.request.headers)
            response: Response | None = exchange.last_response(error)
            if response is None:
                if exchange.response is not None:
                    await exchange.response.aclose()
                raise
            return response

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *how: object) -> None:
        await self._inner.__aexit__(*how)

    async def aclose(self) -> None:
        """Closes the transport that sends."""
        await self._inner.aclose()


# --- one attempt ----------------------------------------------------------------------------------


def _sender(library: Library) -> Callable[..., Any]:
    """The function that makes one attempt, for a policy to call."""
    failures: type[Exception] = library.client.RequestError

    def send(exchange: _Exchange, transport: Any) -> Any:
        if exchange.attempt and exchange.check_repeat():
            exchange.release()
        exchange.begin()
        try:
            response = transport.handle_request(exchange.request)
        except failures as error:
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

    send.__qualname__ = library.name  # what notes and events call it
    return send


def _async_sender(library: Library) -> Callable[..., Awaitable[Any]]:
    """The same, for async."""
    failures: type[Exception] = library.client.RequestError

    async def send(exchange: _AsyncExchange, transport: Any) -> Any:
        if exchange.attempt and exchange.check_repeat():
            await exchange.release()
        exchange.begin()
        try:
            response = await transport.handle_async_request(exchange.request)
        except failures as error:
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

    send.__qualname__ = library.name  # what notes and events call it
    return send


class _Exchange(Exchange):
    request: httpx.Request
    transport = "Transport"
    _body: _Body | None = None
    _extensions: dict[str, Any] | None = None
    _timeouts: dict[str, Any] | None = None

    def __init__(self, library: Library, outgoing: Outgoing, request: Any) -> None:
        super().__init__(outgoing, request)
        self.library = library
        is_plain = type(request.stream) is library.bytes
        if not is_plain:
            library.refuse(request, self.transport)
            if outgoing.attempts > 1 and not _is_repeatable(request.stream, library.bytes):
                self._body = request.stream = library.body(request.stream)

    @property
    def status_error(self) -> Any:
        return self.library.client.HTTPStatusError

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
        error: Exception = self.library.client.ConnectTimeout(text, request=self.request)
        return error

    def cut(self, text: str) -> Exception:
        error: Exception = self.library.client.ReadTimeout(text, request=self.request)
        return error

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
            self.response.stream = self.library.bytes(b"".join(body))
        else:
            self.response = None  # no part of a body is returned as the whole

    def end(self) -> None:
        super().end()
        if self._extensions is not None:
            self.request.extensions, self._extensions = self._extensions, None


class _AsyncExchange(_Exchange):
    transport = "AsyncTransport"

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


class _Body:
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


def _is_repeatable(stream: Any, plain: type) -> bool:
    """Whether a body gives the same bytes again: plain bytes, or parts with files that seek."""
    if isinstance(stream, plain):
        return True
    fields = getattr(stream, "fields", None)  # of a multipart body
    files = [getattr(field, "file", b"") for field in fields or ()]
    return fields is not None and all(
        isinstance(file, str | bytes) or getattr(file, "seekable", bool)() for file in files
    )
