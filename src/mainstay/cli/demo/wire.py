"""Two small HTTP clients, async and sync; they raise what went wrong, and retry nothing."""

from __future__ import annotations

import asyncio
import http.client
import io
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from mainstay import deadline

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPMessage

HOST = "127.0.0.1"


class StatusError(Exception):
    """An answer that is not 200. mainstay reads `status` and the headers' Retry-After."""

    def __init__(self, status: int, headers: HTTPMessage) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.headers = headers


class ServiceDown(StatusError):
    """502: there is nobody behind the gateway. What the circuits count."""


class Wire:
    """Requests to one port, and how many of them are under way."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.in_flight = 0
        self._lock = threading.Lock()

    async def get(self, path: str) -> bytes:
        """GET, for asyncio; a timeout comes as a cancellation."""
        with self._counted():
            reader, writer = await asyncio.open_connection(HOST, self.port)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
                status, headers = _parse(await reader.readuntil(b"\r\n\r\n"))
                body = await reader.readexactly(int(headers["Content-Length"]))
            finally:
                writer.transport.abort()
                with suppress(OSError):  # a reset that was raised already
                    await writer.wait_closed()
        return _accepted(status, headers, body)

    def fetch(self, path: str, method: str = "GET") -> bytes:
        """GET or POST, for threads; as long as the call's policy leaves time for."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=deadline.remaining())
        with self._counted():
            try:
                connection.request(method, path)
                response = connection.getresponse()
                body = response.read()
            finally:
                connection.close()
        return _accepted(response.status, response.headers, body)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self.in_flight += 1
        try:
            yield
        finally:
            with self._lock:
                self.in_flight -= 1


def _parse(head: bytes) -> tuple[int, HTTPMessage]:
    first, _, rest = head.partition(b"\r\n")
    return int(first.split()[1]), http.client.parse_headers(io.BytesIO(rest))


def _accepted(status: int, headers: HTTPMessage, body: bytes) -> bytes:
    if status == http.client.BAD_GATEWAY:
        raise ServiceDown(status, headers)
    if status != http.client.OK:
        raise StatusError(status, headers)
    return body
