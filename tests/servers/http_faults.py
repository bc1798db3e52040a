"""An HTTP server on loopback that fails on command and counts what arrives, for tests.

    with HttpFaults() as server:
        server.on("/orders", Reset(), Status(503, {"Retry-After": "2"}), Status(200, body=b"ok"))
        httpx.get(server.url + "/orders")
        assert server.count("/orders") == 1
        assert server.seen[0].method == "GET"

A path has a script: the first request gets the first answer, and so on; the last one repeats. A
path without a script gets 404. An answer is one of `Status`, `Chunks`, `Raw`, `Drip`, `Reset`,
`Close` and `Silence`, or a function from the `Seen` request to one of them. Every answer is given
after the whole request was read. One thread serves a connection, and connections are kept alive.

`dead_port()` is a port where nobody listens; `full_port()` is one that never accepts.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from io import BufferedReader
from typing import Self, TypeAlias

from tests.servers import ports

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Seen:
    """A request that has arrived whole; the names of its headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Status:
    """A proper answer."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def written(self) -> bytes:
        """The answer as bytes, with Content-Length."""
        words = {each.value: each.phrase for each in HTTPStatus}.get(self.status, "Other")
        lines = [f"HTTP/1.1 {self.status} {words}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        lines += [f"Content-Length: {len(self.body)}", "", ""]
        return "\r\n".join(lines).encode("latin-1") + self.body


@dataclass(frozen=True)
class Chunks:
    """A proper answer without a length, in chunks of these bytes; `endless` has no last one."""

    status: int
    bodies: tuple[bytes, ...] = ()
    endless: bool = False

    def written(self) -> Iterator[bytes]:
        """The answer, piece by piece; an endless one repeats its chunks until the client leaves."""
        yield f"HTTP/1.1 {self.status} Other\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        while True:
            for body in self.bodies:
                yield f"{len(body):x}\r\n".encode() + body + b"\r\n"
            if not self.endless:
                break
        yield b"0\r\n\r\n"


@dataclass(frozen=True)
class Raw:
    """These bytes, and then the end of the connection: half an answer, or none of HTTP's."""

    data: bytes


@dataclass(frozen=True)
class Drip:
    """An answer of which a byte is sent every so many seconds, from the byte `after` on."""

    every: float = 0.05
    answer: Status = field(default_factory=lambda: Status(200, body=b"slow" * 250))
    after: int = 0


@dataclass(frozen=True)
class Reset:
    """The connection is reset (RST): no answer."""


@dataclass(frozen=True)
class Close:
    """The connection is closed in order (FIN): no answer."""


@dataclass(frozen=True)
class Silence:
    """No answer, and the connection stays open until the client closes it."""


Answer: TypeAlias = Status | Chunks | Raw | Drip | Reset | Close | Silence
Script: TypeAlias = Answer | Callable[[Seen], Answer]


class HttpFaults:
    """The server; `tls` is the context of a server that speaks HTTPS."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._listener = socket.create_server((HOST, 0))
        self._scripts: dict[str, list[Script]] = {}
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._is_closed = False
        self.connections = 0
        """Connections that were accepted since `clear()`."""
        self.seen: list[Seen] = []
        """Every request since `clear()`, in the order of arrival."""
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://{HOST}:{self.port}"
        threading.Thread(target=self._accept, name="http-faults", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def on(self, path: str, *answers: Script) -> str:
        """Gives a path its script, from the first answer on; the URL of the path."""
        with self._lock:
            self._scripts[path] = list(answers)
        return self.url + path

    def count(self, path: str | None = None, method: str | None = None) -> int:
        """The requests since `clear()`, of a path and a method if they are given."""
        seen = list(self.seen)
        return sum(path in (None, each.path) and method in (None, each.method) for each in seen)

    def clear(self) -> None:
        """Forgets scripts and requests, and ends the connections that are open."""
        with self._lock:
            self._scripts.clear()
            self.seen.clear()
            self.connections = 0
            wires = list(self._open)
        for wire in wires:
            _end(wire)

    def close(self) -> None:
        """Ends the server and every connection; its port is dead afterwards."""
        self._is_closed = True
        _end(self._listener)
        self._listener.close()
        self.clear()

    # --- the server's threads ---------------------------------------------------------------------

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                wire, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
                self._open.add(wire)
            threading.Thread(target=self._serve, args=[wire], daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        wire = plain
        with suppress(OSError, ValueError):  # the client has left
            if self._tls is not None:
                wire = self._tls.wrap_socket(plain, server_side=True)
                with self._lock:
                    self._open.add(wire)
            with wire.makefile("rb") as reader:
                while (request := _read(reader, wire)) is not None:
                    if not _give(self._answer(request), wire, request):
                        break
        with self._lock:
            self._open -= {plain, wire}
        wire.close()

    def _answer(self, request: Seen) -> Answer:
        path = request.path.partition("?")[0]
        with self._lock:
            self.seen.append(Seen(request.method, path, request.headers, request.body))
            script = self._scripts.get(path, [Status(404)])
            answer = script.pop(0) if len(script) > 1 else script[0]
        return answer(request) if callable(answer) else answer


def _read(reader: BufferedReader, wire: socket.socket) -> Seen | None:
    if reader.peek(1)[:1] == b"\x16":  # TLS, to a server that has none: as real ones answer
        wire.sendall(Status(400).written())
        return None
    first = reader.readline().decode("latin-1").split()
    if len(first) != 3:
        return None
    headers = {}
    while (line := _line(reader).decode("latin-1").strip()) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    if "100-continue" in headers.get("expect", ""):
        wire.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    return Seen(first[0], first[1], headers, _read_body(reader, headers))


def _read_body(reader: BufferedReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "") != "chunked":
        return _exactly(reader, int(headers.get("content-length", "0")))
    body = b""
    while size := int(_line(reader).split(b";")[0], 16):
        body += _exactly(reader, size)
        _line(reader)
    _line(reader)
    return body


def _line(reader: BufferedReader) -> bytes:
    line = reader.readline()
    if not line.endswith(b"\n"):
        raise ConnectionError("the client has left in the middle of a request")
    return line


def _exactly(reader: BufferedReader, size: int) -> bytes:
    data = reader.read(size)
    if len(data) < size:
        raise ConnectionError("the client has left in the middle of a request")
    return data


def _give(answer: Answer, wire: socket.socket, request: Seen) -> bool:
    """Whether the connection lives on."""
    if isinstance(answer, Status):
        data = answer.written()
        wire.sendall(data[: len(data) - len(answer.body)] if request.method == "HEAD" else data)
        return request.headers.get("connection", "").lower() != "close"
    if isinstance(answer, Chunks):
        for piece in answer.written():
            wire.sendall(piece)
        return True
    if isinstance(answer, Raw):
        wire.sendall(answer.data)
    elif isinstance(answer, Drip):
        data = answer.answer.written()
        wire.sendall(data[: answer.after])
        for number in range(answer.after, len(data)):
            wire.sendall(data[number : number + 1])
            time.sleep(answer.every)
    elif isinstance(answer, Silence):
        wire.recv(1)
    elif isinstance(answer, Reset):
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False
    if not isinstance(answer, Silence):
        wire.shutdown(socket.SHUT_RDWR)
    return False


def _end(wire: socket.socket) -> None:
    with suppress(OSError):
        wire.shutdown(socket.SHUT_RDWR)


# --- ports ----------------------------------------------------------------------------------------


def dead_port() -> int:
    """A port of loopback where nobody listens."""
    return ports.dead_port()


@contextmanager
def full_port() -> Iterator[int]:
    """A port whose queue is full: connecting to it takes for ever (Linux)."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen(0)
        port = int(listener.getsockname()[1])
        waiting = []
        for _ in range(4):
            wire = socket.socket()
            wire.setblocking(False)
            wire.connect_ex((HOST, port))
            waiting.append(wire)
        try:
            yield port
        finally:
            for wire in waiting:
                wire.close()
