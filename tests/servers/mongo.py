"""A server that speaks enough of MongoDB's wire protocol to fail as MongoDB does, for tests.

It greets every client as the primary of a replica set and answers commands with the documents that
a test gives it. Written from the specification of the wire protocol (MongoDB Manual, Reference,
"MongoDB Wire Protocol": OP_MSG, OP_QUERY and OP_REPLY) and of error documents (`ok`, `code`,
`codeName`, `errmsg`, `errorLabels`, `writeErrors`, `writeConcernError`; MongoDB Manual, "Error
Codes"; MongoDB driver specifications, "Retryable Writes" and "Server Discovery and Monitoring").
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Self

import bson

OP_REPLY, OP_QUERY, OP_MSG = 1, 2004, 2013
CLOSE, SILENCE, ANOTHER = "close", "silence", "another"
"""In place of an answer: a reset connection, nothing, or the answer to another request."""


class MongoStub:
    """`uri`, `port`, how many commands of each name came, and what is answered."""

    def __init__(self, tls: Iterator[ssl.SSLContext] | None = None) -> None:
        """`tls` has the context of each connection, one after the other."""
        self.seen: Counter[str] = Counter()
        self.answers: dict[str, list[object]] = {}
        """Answers by command, one after the other; the last is repeated."""
        stub = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    plain = self.request
                    with next(tls).wrap_socket(plain, server_side=True) if tls else plain as wire:
                        while stub._serve(wire):
                            pass

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def uri(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/?replicaSet=rs"

    def answer(self, command: str, *answers: object) -> None:
        """What a command is answered with from now on; counts from zero."""
        self.answers[command] = list(answers)
        self.seen.clear()

    def _serve(self, wire: socket.socket) -> bool:
        """One message; false if the connection has ended."""
        head = _exactly(wire, 16)
        if head is None:
            return False
        size, request, _, operation = struct.unpack("<iiii", head)
        body = _exactly(wire, size - 16) or b""
        command = _command(operation, body)
        answer = self._answer(command)
        if answer == SILENCE:
            return True
        if answer == CLOSE:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        if answer == ANOTHER:
            request, answer = request + 1, {"ok": 1.0}
        wire.sendall(_message(operation, request, bson.encode(answer)))
        return True

    def _answer(self, command: dict[str, object]) -> object:
        name = next(iter(command))
        self.seen[name] += 1
        waiting = self.answers.get(name)
        if waiting:
            return waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if name in ("hello", "ismaster", "isMaster"):
            return self._hello()
        return {"ok": 1.0, "n": 1}

    def _hello(self) -> dict[str, object]:
        me = f"127.0.0.1:{self.port}"
        return {
            "helloOk": True, "ismaster": True, "isWritablePrimary": True, "setName": "rs",
            "setVersion": 1, "hosts": [me], "primary": me, "me": me, "secondary": False,
            "maxBsonObjectSize": 16_777_216, "maxMessageSizeBytes": 48_000_000,
            "maxWriteBatchSize": 100_000, "minWireVersion": 0, "maxWireVersion": 25,
            "logicalSessionTimeoutMinutes": 30, "ok": 1.0,
        }  # fmt: skip


def _exactly(wire: socket.socket, size: int) -> bytes | None:
    found = b""
    while len(found) < size:
        piece = wire.recv(size - len(found))
        if not piece:
            return None
        found += piece
    return found


def _command(operation: int, body: bytes) -> dict[str, object]:
    """The document: after flags and the kind of its section, or flags, a name and two numbers."""
    start = body.index(b"\0", 4) + 1 + 8 if operation == OP_QUERY else 5
    size = struct.unpack_from("<i", body, start)[0]
    return bson.decode(body[start : start + size])


def _message(operation: int, request: int, document: bytes) -> bytes:
    if operation == OP_QUERY:
        body, code = struct.pack("<iqii", 8, 0, 0, 1) + document, OP_REPLY
    else:
        body, code = struct.pack("<iB", 0, 0) + document, OP_MSG
    return struct.pack("<iiii", 16 + len(body), 1, request, code) + body
