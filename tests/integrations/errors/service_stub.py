"""A service on loopback that answers as it is told to, and counts the requests that reach it.

An answer is a status with headers and a body, or one of `RESET` (reads the request, then resets the
connection), `SILENCE` (reads the request, and never answers), `CUT` and `BROKEN` (end or reset the
connection in the middle of the body), `HALF` (sends no more than half of the body), `TRICKLE` (a
byte at a time, for seconds). When the answers are used up, the request is passed on to `upstream`,
or the last one is repeated.
"""

import http.client
import json
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import mainstay
from mainstay.integrations.errors import find
from mainstay.testing import virtual_time
from tests.servers import ports

HAS_REQUESTS = find("requests.exceptions.Timeout") is not None
"""Whether there is a table of requests, whose errors some clients hand on as they are."""
RESET, SILENCE, CUT, BROKEN, TRICKLE = "reset", "silence", "cut", "broken", "trickle"
HALF = "half"
DATE = "Mon, 16 Nov 2026 12:00:00 GMT"
LATER = "Mon, 16 Nov 2026 12:00:07 GMT"
"""Seven seconds after DATE."""


@dataclass(frozen=True)
class Answer:
    """What the service sends back."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)


def in_json(status, content, **headers):
    """An answer whose body is JSON; `retry_after` is the header Retry-After."""
    named = {name.replace("_", "-").title(): value for name, value in headers.items()}
    body = json.dumps(content).encode()
    return Answer(status, body, {"Content-Type": "application/json", **named})


class ServiceStub:
    """Answers in order; `count` is the number of requests that have come."""

    def __init__(self, upstream=None):
        self.upstream = upstream
        self.requests = []
        self._answers = []
        self._over = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.host, self.port = self._server.server_address[:2]
        self.url = f"http://{self.host}:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()

    @property
    def count(self):
        return len(self.requests)

    def answers(self, *answers):
        """From now on these, each once; without `upstream` the last one from then on."""
        self.requests, self._answers = [], list(answers)

    def close(self):
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _next(self):
        last = self.upstream is None and len(self._answers) == 1
        if last:
            return self._answers[0]
        return self._answers.pop(0) if self._answers else None

    def _handler(stub):  # noqa: N805 -- `self` is the handler's
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # headers and body in one piece, or the client waits 40 ms for the rest

            def handle_one_request(self):
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

            def finish(self):
                with suppress(ConnectionError):  # the client has given up
                    super().finish()

            def handle_expect_100(self):
                self.send_response_only(100)
                self.end_headers()
                self.wfile.flush()
                return True

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                stub.requests.append((self.command, self.path, dict(self.headers), body))
                answer = stub._next()
                if answer is None:
                    answer = self.passed_on(body)
                if answer == SILENCE:
                    stub._over.wait(60)
                if answer in (RESET, SILENCE):
                    self.reset()
                elif answer == TRICKLE:
                    self.trickle()
                elif answer in (CUT, BROKEN, HALF):
                    self.send(Answer(200, b"half"), length=1000)
                    if answer == HALF:
                        stub._over.wait(60)
                    self.close_connection = True
                    if answer == BROKEN:
                        self.reset()
                else:
                    self.send(answer, len(answer.body))

            def passed_on(self, body):
                connection = http.client.HTTPConnection(*stub.upstream, timeout=60)
                connection.request(self.command, self.path, body, dict(self.headers))
                got = connection.getresponse()
                headers = {k: v for k, v in got.getheaders() if k.lower() not in HOP}
                answer = Answer(got.status, got.read(), headers)
                connection.close()
                return answer

            def send(self, answer, length):
                self.send_response_only(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if not {"content-length", "Content-Length"} & answer.headers.keys():
                    self.send_header("Content-Length", str(length))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body)
                    self.wfile.flush()

            def trickle(self):
                for byte in b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200:
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    if stub._over.wait(0.02):
                        break
                self.close_connection = True

            def reset(self):
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.rfile.close()
                self.wfile.close()
                self.connection.close()
                self.close_connection = True
                raise ConnectionResetError

            def log_message(self, *_):
                """Nothing is printed."""

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = answer  # noqa: N815 -- the names of http.server

        return Handler


HOP = frozenset({"connection", "transfer-encoding", "keep-alive"})
"""Headers of one connection, which are not passed on."""


def dead_port():
    """A port on which nothing listens."""
    return ports.dead_port()


def seen(call, attempts=3):
    """What a call under `on=mainstay.transient` raises in the end; its waits take no time."""
    retried = mainstay.retry(on=mainstay.transient, attempts=attempts)(call)
    with virtual_time() as clock, pytest.raises(Exception) as caught:
        retried()
    caught.value.waits = clock.sleeps
    return caught.value
