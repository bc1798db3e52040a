"""urllib3: managers that retry, and connections that end at the deadline; requests uses those too.

urllib3 has a timeout for each read and none for the whole. If the timeout of a request is a
`Until`, these connections read what is left from it before each read and write, headers and body
alike; any other timeout they leave as it is.
"""

from __future__ import annotations

import http.client
import io
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import urllib3
from urllib3 import HTTPHeaderDict, Retry, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    ResponseError,
)
from urllib3.util.request import set_file_position

import mainstay.runtime.clock as clock
from mainstay import deadline
from mainstay.core.base.deadline import NEVER
from mainstay.errors import UsageError
from mainstay.integrations.http_exchange import (
    LONGEST,
    PATIENCE,
    Body,
    Exchange,
    Until,
    limited,
    one_attempt,
)
from mainstay.integrations.http_headers import Outgoing
from mainstay.integrations.http_lookup import addresses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, MutableMapping
    from typing import Any

    from urllib3 import HTTPResponse

    from mainstay.integrations.http_headers import Calls, Operations


class _Retries:
    """What both managers have."""

    _outgoing: Outgoing

    def _set_up(self, retry: Calls | Operations | None, trust: Iterable[str], name: str) -> None:
        itself: Any = self
        self._outgoing = Outgoing(retry, trust, name)
        given = itself.connection_pool_kw.get("retries")
        if retry is not None:
            refuse_retries("retries", given, self._outgoing.attempts)
        made = {"outgoing": self._outgoing, "send": staticmethod(self._outgoing.retried(_send))}
        itself.pool_classes_by_scheme = {
            "http": type("HTTPConnectionPool", (_RetryingPool,), made),
            "https": type("HTTPSConnectionPool", (_RetryingTlsPool,), made),
        }

    def urlopen(self, method: str, url: str, redirect: bool = True, **options: Any) -> Any:
        """As urllib3's, each request as often as the policy allows."""
        given = options.get("retries")
        if self._outgoing.calls is not None and not getattr(given, "history", ()):
            refuse_retries("retries", given, self._outgoing.attempts)
        manager: Any = super()
        return manager.urlopen(method, url, redirect=redirect, **options)


class PoolManager(_Retries, urllib3.PoolManager):  # type: ignore[misc]  # of urlopen's options
    """A `urllib3.PoolManager` whose requests are repeated by a policy and end at the deadline.

    A failure of urllib3, and a response with an error status, are judged by the policy; the last
    response is returned as urllib3 would return it. urllib3's own retries are off; what it does
    about redirects stays.

    Args:
        retry: a RetryPolicy, an Engine, or an operation of one; None for what urllib3 does.
        trust: the hosts that get our headers, and whose give-up is believed: names, patterns such
            as "*.svc.local", networks, each with or without a port.
        operation: the operation of the engine.
        options: those of `urllib3.PoolManager`; `retries` is refused beside a retry, unless it is
            for redirects alone.

    Example:
        >>> import mainstay
        >>> with PoolManager(mainstay.RetryPolicy(attempts=3), num_pools=4) as http:
        ...     len(http.pools)
        0
    """

    def __init__(
        self,
        retry: Calls | Operations | None = None,
        *,
        trust: Iterable[str] = (),
        operation: str = "urllib3",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._set_up(retry, trust, operation)


class ProxyManager(_Retries, urllib3.ProxyManager):  # type: ignore[misc]  # as above
    """A `urllib3.ProxyManager` of the same kind.

    The arguments are the URL of the proxy and those of PoolManager.

    Example:
        >>> import mainstay
        >>> with ProxyManager("http://127.0.0.1:3128", mainstay.RetryPolicy(attempts=3)) as http:
        ...     http.proxy.port
        3128
    """

    def __init__(
        self,
        proxy_url: str,
        retry: Calls | Operations | None = None,
        *,
        trust: Iterable[str] = (),
        operation: str = "urllib3",
        **options: Any,
    ) -> None:
        super().__init__(proxy_url, **options)
        self._set_up(retry, trust, operation)


class StatusError(ResponseError):
    """A response with an error status, by which a policy judges it.

    The managers return the last response and do not raise this, unless its body is gone: if the
    wait before an attempt has begun, a long body is closed, and then no attempt could be made.
    """

    def __init__(self, text: str, *, request: Request, response: Any) -> None:
        super().__init__(text)
        self.request = request
        self.response = response


class Request:
    """What a failure has of its request."""

    __slots__ = ("headers", "method", "url")

    def __init__(self, method: str, url: str, headers: MutableMapping[str, str]) -> None:
        self.method = method
        self.url = url
        self.headers = headers


def refuse_retries(option: str, given: Any, attempts: int) -> None:
    """Raises a UsageError if urllib3 would repeat what a policy repeats."""
    retries = given if isinstance(given, Retry) else Retry.from_int(given, default=Retry(0))
    total = retries.total
    each = [total if count is None else count for count in _counts(retries)]
    most = max(
        [min(int(count), count if total is None else total) for count in each if count] + [0]
    )
    if most:
        n = int(most) + 1
        raise UsageError(
            f"{option}: urllib3 would repeat a request up to {n} times inside each of {attempts}"
            f" attempts: up to {n} x {attempts} = {n * attempts} requests",
            hint=f"leave out {option}; the policy decides what is repeated",
        )


def _counts(retries: Retry) -> tuple[Any, ...]:
    return retries.connect, retries.read, retries.status, retries.other


def timeouts_of(given: Any) -> tuple[float | None, float | None]:
    """The timeouts for connecting and for a read, in each form that requests and urllib3 take.

    >>> timeouts_of((3.0, None)), timeouts_of(5.0)
    ((3.0, None), (5.0, 5.0))
    """
    if isinstance(given, tuple):
        return given
    if not hasattr(given, "connect_timeout"):
        return given, given
    timeout = given.clone()  # urllib3's Timeout: what is left of its total shows once it runs
    timeout.start_connect()
    connect, read = (
        each if isinstance(each, int | float) else None  # its default is no number
        for each in (timeout.connect_timeout, timeout.read_timeout)
    )
    return connect, read


# --- one request, in one or more attempts ---------------------------------------------------------

_send = one_attempt("urllib3", HTTPError)


class _Exchange(Exchange):
    request: Request
    status_error = StatusError

    def __init__(
        self, pool: Any, request: Request, sends: Callable[..., Any], options: dict[str, Any]
    ) -> None:
        super().__init__(pool.outgoing, request)
        self._pool, self._sends, self._options = pool, sends, options
        self._body: Body | None = None
        body = options.get("body")
        if pool.outgoing.attempts <= 1 or body is None or isinstance(body, _BYTES | list | tuple):
            return
        position = set_file_position(body, options.get("body_pos"))
        if isinstance(position, int):
            options["body_pos"] = position
        else:
            self._body = options["body"] = Body(body)

    @property
    def address(self) -> tuple[str, int | None]:
        return self._pool.host, self._pool.port

    @property
    def is_spent(self) -> bool:
        return self._body is not None and self._body.begun

    def marks_of(self, response: urllib3.HTTPResponse) -> MutableMapping[str, Any]:
        return vars(response)

    def late(self, text: str) -> Exception:
        return ConnectTimeoutError(text)

    def cut(self, text: str) -> Exception:
        return ReadTimeoutError(self._pool, self.request.url, text)

    def status_of(self, response: Any) -> int:
        return int(response.status)

    def send(self, end: float) -> Any:
        request, options = self.request, {**self._options, "headers": self.request.headers}
        if end != NEVER:
            pool, given = self._pool, options.get("timeout", self._pool.timeout)
            connect, read = timeouts_of(pool._get_timeout(given))  # noqa: SLF001 -- knows its default
            options["timeout"] = Timeout(connect=limited(connect, end), read=limited(read, end))
        return self._sends(request.method, request.url, **options)

    def release(self) -> None:
        response = self.response
        is_read = self._options.get("preload_content", True)
        self.is_released = is_read or (self.has_short_body() and drained(response))
        if not self.is_released:
            response.close()
            response.release_conn()  # a pool that blocks has room again
            self.response = None  # no part of a body is returned as the whole


_BYTES = str | bytes | bytearray | memoryview


class _Repeated:
    """What both sorts of retrying pool have."""

    outgoing: Outgoing
    send: Callable[[_Exchange], Any]
    headers: MutableMapping[str, str]
    retries: Any

    def urlopen(self, method: str, url: str, *given: Any, **named: Any) -> Any:
        """Sends the request, as often as the policy allows; returns the last response."""
        options = {**dict(zip(_OPTIONS, given, strict=False)), **named}
        headers = options.pop("headers", None)
        own: Any = self.headers if headers is None else headers
        request = Request(method, url, HTTPHeaderDict(own) if self.outgoing.trust else own)
        retries = options.get("retries")
        if self.outgoing.calls is not None:
            options["retries"] = _OFF
        pool: Any = super()
        exchange = _Exchange(self, request, pool.urlopen, options)
        try:
            response: Any = self.send(exchange)
        except BaseException as error:
            response = exchange.last_response(error)
            if response is None:
                if exchange.response is not None:
                    exchange.response.close()
                raise
        if response.retries is _OFF:  # the manager reads from it how many redirects are left
            response.retries = Retry.from_int(retries, redirect=False, default=self.retries)
        return response


_OFF = Retry(0)
_OPTIONS = ("body", "headers", "retries", "redirect", "assert_same_host", "timeout")


# --- the connections ------------------------------------------------------------------------------


def bound(manager: urllib3.PoolManager) -> None:
    """Has the connections that a manager makes from now on end at the deadline.

    >>> import urllib3
    >>> with urllib3.PoolManager() as manager:
    ...     bound(manager)
    """
    ours = {HTTPConnectionPool: _Pool, HTTPSConnectionPool: _TlsPool}
    manager.pool_classes_by_scheme = {
        scheme: ours.get(pool, pool) for scheme, pool in manager.pool_classes_by_scheme.items()
    }


def drained(response: HTTPResponse) -> bool:
    """Reads a short body and gives the connection back to the pool; False if that is not to be had.

    What was read is the body of the response from then on.

    >>> import io, urllib3
    >>> drained(urllib3.HTTPResponse(io.BytesIO(b"down"), preload_content=False))
    False
    """
    source: Any = response._fp  # noqa: SLF001 -- it has a read that waits for nothing more
    sock = getattr(response.connection, "sock", None)
    if sock is None or not isinstance(source, http.client.HTTPResponse):
        return False
    end, given = clock.current.monotonic() + PATIENCE, sock.gettimeout()
    timeout: Any = getattr(response.connection, "timeout", None)
    if type(timeout) is Until:
        timeout.end = end = min(timeout.end, end)
    try:
        body = _short_body(source, sock, end)
        sock.settimeout(given)
    except (OSError, http.client.HTTPException, ValueError):
        return False
    if body is None:
        return False
    source.close()
    response.release_conn()
    response._fp = io.BytesIO(body)  # type: ignore[assignment]  # noqa: SLF001 -- as above
    return True


def _short_body(source: http.client.HTTPResponse, sock: socket.socket, end: float) -> bytes | None:
    """The whole body; None if it is long, or breaks off."""
    body = bytearray()
    while source.length != 0 and len(body) <= LONGEST:
        sock.settimeout(limited(None, end).left(TimeoutError))
        part = source.read1(LONGEST)
        body += part
        if not part:
            return bytes(body) if source.length is None else None
    return bytes(body) if source.length == 0 else None


class Timed:
    """What both sorts of connection have."""

    sock: Any
    timeout: Any
    port: Any
    _dns_host: str

    def _new_conn(self) -> socket.socket:
        """As urllib3 does it, one address after the other, with what is left for each."""
        timeout, host = self.timeout, self._dns_host
        if type(timeout) is not Until:
            return self._connect()
        *others, last = self._looked_up(host, timeout)
        try:
            for self._dns_host in others:
                with suppress(NewConnectionError, ConnectTimeoutError):
                    self.timeout = timeout.left(ConnectTimeoutError)
                    return self._connect()
            self._dns_host, self.timeout = last, timeout.left(ConnectTimeoutError)
            return self._connect()
        finally:
            self._dns_host, self.timeout = host, timeout

    def _connect(self) -> socket.socket:
        sock: socket.socket = super()._new_conn()  # type: ignore[misc]  # of urllib3's connection
        return sock

    def _looked_up(self, host: str, timeout: Until) -> list[str]:
        itself: Any = self
        try:
            return addresses(host, self.port, timeout)
        except socket.gaierror as error:
            raise NameResolutionError(host, itself, error) from error
        except TimeoutError as error:
            raise ConnectTimeoutError(itself, str(error)) from error

    def send(self, data: Any) -> None:
        if type(self.timeout) is Until and self.sock is not None:
            self.sock.settimeout(self.timeout.left(TimeoutError))
        super().send(data)  # type: ignore[misc]  # of http.client's connection

    def response_class(self, sock: socket.socket, **options: Any) -> http.client.HTTPResponse:
        """What http.client reads an answer with, from here on through `_Source`."""
        timeout = self.timeout
        source: Any = _Source(sock, timeout) if type(timeout) is Until else sock
        return http.client.HTTPResponse(source, **options)


class _Connection(Timed, HTTPConnection):  # type: ignore[misc]  # there it is a class
    pass


class _TlsConnection(Timed, HTTPSConnection):  # type: ignore[misc]  # there it is a class
    pass


class _Bounded:
    """What both sorts of pool have: a pool that blocks has a connection in time, or none."""

    block: bool

    def _get_conn(self, timeout: float | None = None) -> Any:
        end = deadline.moment() if self.block else NEVER
        pool: Any = super()
        return pool._get_conn(timeout if end == NEVER else limited(timeout, end))  # noqa: SLF001 -- its own


class _Pool(_Bounded, HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(_Bounded, HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class _RetryingPool(_Repeated, _Pool):  # type: ignore[misc]  # there it takes every option
    pass


class _RetryingTlsPool(_Repeated, _TlsPool):  # type: ignore[misc]  # as above
    pass


class _Source:
    """Stands for the socket where http.client makes a file of it."""

    __slots__ = ("_sock", "_timeout")

    def __init__(self, sock: socket.socket, timeout: Until) -> None:
        self._sock = sock
        self._timeout = timeout

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reads(self._sock, self._timeout))


class _Reads(io.RawIOBase):
    """The socket's own file, whose reads have what is left of the time."""

    def __init__(self, sock: socket.socket, timeout: Until) -> None:
        super().__init__()
        self._sock = sock
        self._file = sock.makefile("rb", buffering=0)  # keeps the socket open while it is
        self._timeout = timeout

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        self._sock.settimeout(self._timeout.left(TimeoutError))
        return self._file.readinto(buffer)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
