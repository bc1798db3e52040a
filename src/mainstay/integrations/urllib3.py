"""urllib3: connections that end at the deadline of each request; requests uses them too.

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

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from mainstay.integrations.http_exchange import Until
from mainstay.integrations.http_lookup import addresses

if TYPE_CHECKING:
    from typing import Any

    from urllib3 import PoolManager


def bound(manager: PoolManager) -> None:
    """Has the connections that a manager makes from now on end at the deadline.

    >>> import urllib3
    >>> with urllib3.PoolManager() as manager:
    ...     bound(manager)
    """
    ours = {HTTPConnectionPool: _Pool, HTTPSConnectionPool: _TlsPool}
    manager.pool_classes_by_scheme = {
        scheme: ours.get(pool, pool) for scheme, pool in manager.pool_classes_by_scheme.items()
    }


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


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


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
