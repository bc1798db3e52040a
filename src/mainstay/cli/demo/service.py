"""The service that fails, on a port of 127.0.0.1 in this process; and its client."""

from __future__ import annotations

import asyncio
import http.client
import io
import re
import socket
import struct
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING

from mainstay import deadline
from mainstay.cli.demo.script import DOWN, HEALTHY
from mainstay.cli.errors import CommandError
from mainstay.cli.exits import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from mainstay.cli.demo.script import Fault, Script

HOST = "127.0.0.1"
_CALL = re.compile(rb"(?P<verb>GET|POST) /\S*\?call=(?P<call>\d+) ")


class Service:
    """Answers by the script, or 502 while it is down; counts requests and charges per call."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: dict[int, int] = {}
        self.charges: dict[int, int] = {}
        self.is_down = False
        self.port = 0
        self._busy: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        with _loopback("listen on"):
            self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        try:
            with _loopback("connect to"):
                _, writer = await asyncio.open_connection(HOST, self.port)
        except CommandError:
            self._server.close()
            raise
        writer.close()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in tuple(self._busy):
            task.cancel()
        await asyncio.gather(*self._busy, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._busy.add(task)
        try:
            await self._answer(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # the client has closed the connection, or the service stops
        finally:
            self._busy.discard(task)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = _CALL.match(await reader.readuntil(b"\r\n\r\n"))
        if asked is None:
            return
        call = int(asked["call"])
        number = self.requests[call] = self.requests.get(call, 0) + 1
        faults = (DOWN,) if self.is_down else self.script.faults(call)[number - 1 :]
        fault = faults[0] if faults else HEALTHY
        await asyncio.sleep(fault.delay)
        if fault.is_reset:  # SO_LINGER of 0 s closes with RST, as a crashed peer does
            peer: socket.socket = writer.get_extra_info("socket")
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        writer.write(self._response(fault, call if asked["verb"] == b"POST" else None))
        await writer.drain()
        await reader.read()  # until the client closes, or abort() would cut the response

    def _response(self, fault: Fault, charged: int | None) -> bytes:
        """A charge has a receipt, whose number no other receipt has."""
        body = ""
        if charged is not None and fault.status == HTTPStatus.OK:
            self.charges[charged] = self.charges.get(charged, 0) + 1
            body = f"receipt {sum(self.charges.values())}"
        wait = "" if fault.retry_after is None else f"Retry-After: {fault.retry_after}\r\n"
        head = f"HTTP/1.1 {fault.status} {HTTPStatus(fault.status).phrase}\r\n{wait}"
        return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()


@contextmanager
def _loopback(verb: str) -> Iterator[None]:
    """What fails inside is not the fault of the demo: a sandbox may have no loopback interface."""
    try:
        yield
    except OSError as error:
        raise CommandError(
            f"cannot {verb} {HOST}: {error.strerror or error}",
            hint="the demo needs the loopback interface: check the sandbox or the container",
            exit_code=Exit.NEGATIVE,
        ) from error


class StatusError(Exception):
    """A status other than 200. mainstay reads `status` and the Retry-After of `headers`."""

    def __init__(self, status: int, headers: http.client.HTTPMessage) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.headers = headers


class ServiceDown(StatusError):
    """502: the gateway reaches no server. The circuits count this error alone."""


class Wire:
    """Requests to one port; `open` has one object for each that is under way."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.open: set[object] = set()

    async def get(self, path: str, method: str = "GET") -> str:
        """One request, for asyncio; a timeout comes as a cancellation."""
        this = object()
        self.open.add(this)
        try:
            status, headers, body = await self._request(path, method)
        finally:
            self.open.discard(this)
        if status != HTTPStatus.OK:
            kind = ServiceDown if status == HTTPStatus.BAD_GATEWAY else StatusError
            raise kind(status, headers)
        return body.decode()

    def fetch(self, path: str, method: str = "GET") -> str:
        """One request, for threads; the call's policy bounds the time."""
        return asyncio.run(asyncio.wait_for(self.get(path, method), deadline.remaining()))

    async def _request(self, path: str, method: str) -> tuple[int, http.client.HTTPMessage, bytes]:
        reader, writer = await asyncio.open_connection(HOST, self.port)
        try:
            writer.write(f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            first, _, rest = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
            headers = http.client.parse_headers(io.BytesIO(rest))
            body = await reader.readexactly(int(headers["Content-Length"]))
            return int(first.split()[1]), headers, body
        finally:
            writer.transport.abort()
            with suppress(OSError):  # a reset that was raised already
                await writer.wait_closed()
