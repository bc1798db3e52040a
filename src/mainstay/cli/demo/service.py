"""The service that fails: HTTP on 127.0.0.1, on a port the system chooses, in this very process."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from http import HTTPStatus
from typing import TYPE_CHECKING

from mainstay.cli.demo.script import DOWN
from mainstay.cli.errors import CommandError
from mainstay.cli.exits import Exit

if TYPE_CHECKING:
    from typing import Self

    from mainstay.cli.demo.script import Fault, Script

_CALL = re.compile(rb"(?P<verb>GET|POST) /\S*\?call=(?P<call>\d+) ")


class Service:
    """Answers as the script says; counts the requests it gets, per call, and the charges it makes.

    While it is down it answers 502, whatever the script says.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: dict[int, int] = {}
        self.is_down = False
        self.charges: dict[int, int] = {}
        self._server: asyncio.Server | None = None
        self._busy: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        except OSError as error:
            hint = "the demo needs the loopback interface: check the sandbox or the container"
            message = f"cannot listen on 127.0.0.1: {error.strerror or error}"
            raise CommandError(message, hint=hint, exit_code=Exit.NEGATIVE) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
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
            pass  # the client has gone, or the service stops: either way this connection is over
        finally:
            self._busy.discard(task)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = _CALL.match(await reader.readuntil(b"\r\n\r\n"))
        if asked is None:
            return
        call = int(asked["call"])
        fault = self._next_fault(call)
        await asyncio.sleep(fault.delay)
        if fault.is_reset:
            _reset(writer)
            return
        writer.write(_response(fault, self._body(call, asked["verb"], fault)))
        await writer.drain()
        await reader.read()  # until the client closes, or abort() would cut the response

    def _next_fault(self, call: int) -> Fault:
        attempt = self.requests[call] = self.requests.get(call, 0) + 1
        return DOWN if self.is_down else self.script.answer(call, attempt)

    def _body(self, call: int, verb: bytes, fault: Fault) -> bytes:
        """A POST is a charge, and makes a receipt: one with a number that no other has."""
        if fault.status != HTTPStatus.OK:
            return b""
        if verb == b"GET":
            return b'{"ok": true}'
        self.charges[call] = self.charges.get(call, 0) + 1
        return b"receipt %d" % sum(self.charges.values())


def _reset(writer: asyncio.StreamWriter) -> None:
    """Closes with RST, as a crashed peer does: SO_LINGER on, for 0 seconds."""
    peer: socket.socket = writer.get_extra_info("socket")
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _response(fault: Fault, body: bytes) -> bytes:
    lines = [f"HTTP/1.1 {fault.status} {HTTPStatus(fault.status).phrase}"]
    if fault.retry_after is not None:
        lines.append(f"Retry-After: {fault.retry_after}")
    lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + body
