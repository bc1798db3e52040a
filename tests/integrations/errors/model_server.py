"""A local HTTP server that answers as it is told: with a status and a body, a reset, or nothing."""

import json
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.servers import ports

RESET = "a reset after the request was read"
SILENCE = "no answer"
CLOSED = "the connection closed before an answer"


def free_port():
    """A port on which nothing listens."""
    return ports.dead_port()


def answer(status, body, **headers):
    """A status, a body (text, or anything that is written as JSON), and headers."""
    text = body if isinstance(body, str) else json.dumps(body)
    return status, text, {name.replace("_", "-"): value for name, value in headers.items()}


class ModelServer:
    """`url`, the requests that came, and `answers`: the last one is given again and again."""

    def __init__(self):
        self.requests = []
        self.answers = []
        self._ended = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def begin(self, *answers):
        """Forgets what was asked, and answers so from now on."""
        self.requests, self.answers = [], list(answers)

    def close(self):
        """Stops."""
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()

    def _handler(server):  # noqa: N805 -- `self` is the handler's
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                server.requests.append((self.command, self.path, dict(self.headers), body))
                self._give(server.answers.pop(0) if server.answers[1:] else server.answers[0])

            def do_GET(self):
                self.do_POST()

            def _give(self, given):
                self.close_connection = True
                if given == RESET:
                    linger = struct.pack("ii", 1, 0)
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    self.connection.close()
                elif given == SILENCE:
                    server._ended.wait(60)
                elif given != CLOSED:
                    self._write(*given)

            def _write(self, status, text, headers):
                self.send_response_only(status)  # without a Date: some answers bring theirs
                sent = text.encode()
                kind = "text/event-stream" if text.startswith("event:") else "application/json"
                given = {"Content-Type": kind, "Content-Length": len(sent), "Connection": "close"}
                for name, value in (given | headers).items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, *_arguments):
                """Nothing is printed."""

        return Handler
