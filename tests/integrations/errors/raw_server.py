"""A server that answers whatever comes first with bytes, and ends the connection."""

import contextlib
import socket
import threading


class RawServer:
    """Reads what a client sends first, answers with `reply`, and ends the connection."""

    def __init__(self):
        self.reply = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                wire, _ = self._listener.accept()
                with wire, contextlib.suppress(OSError):
                    wire.recv(4096)
                    wire.sendall(self.reply)
                    wire.shutdown(socket.SHUT_WR)
                    wire.recv(4096)

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
