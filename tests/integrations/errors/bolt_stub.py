"""A server that speaks enough of Bolt 4.4 to fail: sign in, run a statement, commit.

Messages, signatures and PackStream are as "Bolt Protocol" and "PackStream" in Neo4j's documentation
have them. `on` has what happens to a message: an error code, RESET or SILENCE, or the list of
answers to it, of signatures with their fields.
"""

import socket
import socketserver
import struct
import threading

HELLO, GOODBYE, RESTORE, RUN, BEGIN, COMMIT = 0x01, 0x02, 0x0F, 0x10, 0x11, 0x12
PULL, ROUTE = 0x3F, 0x66
SUCCESS, RECORD, IGNORED, FAILURE = 0x70, 0x71, 0x7E, 0x7F
RESET, SILENCE = "reset", "silence"


class BoltStub:
    """`on[RUN] = "Neo.TransientError..."` lets every RUN fail so; `count` is that of RUN."""

    def __init__(self):
        self.on = {}
        self.seen = []
        self._over = threading.Event()
        stub = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                try:
                    stub._serve(self.request)
                except (ConnectionError, EOFError):
                    return

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"bolt://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()

    @property
    def count(self):
        return self.seen.count(RUN)

    def answers(self, on):
        """From now on."""
        self.on, self.seen = on, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, peer):
        _receive(peer, 20)  # the magic number and four versions
        peer.sendall(b"\x00\x00\x04\x04")
        has_failed = False
        while True:
            signature = _message(peer)
            self.seen.append(signature)
            if signature == GOODBYE:
                return
            problem = self.on.get(signature)
            if problem == SILENCE:
                self._over.wait(60)
            if problem in (RESET, SILENCE):
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            if signature == RESTORE:
                has_failed = False
            if has_failed:
                _send(peer, IGNORED, {})
            elif isinstance(problem, list):
                for answer in problem:
                    _send(peer, *answer)
            elif problem is not None:
                has_failed = True
                _send(peer, FAILURE, {"code": problem, "message": "m"})
            else:
                known = {"server": "Neo4j/4.4.0", "connection_id": "1"}
                _send(peer, SUCCESS, known if signature == HELLO else {"fields": "x"})


def _receive(peer, size):
    data = b""
    while len(data) < size:
        piece = peer.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _message(peer):
    """The signature of the next message; its chunks end with an empty one."""
    data = b""
    while True:
        size = int.from_bytes(_receive(peer, 2), "big")
        if size == 0 and data:
            return data[1]
        data += _receive(peer, size)


def packed(value):
    """A value of PackStream; bytes are taken as they are."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return bytes([0xD0, len(value)]) + value.encode()
    if isinstance(value, int):
        return bytes([0xC9]) + struct.pack(">h", value)
    if isinstance(value, list):
        return bytes([0x90 | len(value)]) + b"".join(map(packed, value))
    pairs = (packed(each) for pair in value.items() for each in pair)
    return bytes([0xA0 | len(value)]) + b"".join(pairs)


def _send(peer, signature, fields):
    message = bytes([0xB1, signature]) + packed(fields)
    if signature == IGNORED:
        message = bytes([0xB0, signature])
    peer.sendall(struct.pack(">H", len(message)) + message + b"\x00\x00")
