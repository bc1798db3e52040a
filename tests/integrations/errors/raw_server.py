"""Servers that answer whatever comes with bytes, and end the connection."""

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


@contextlib.contextmanager
def scripted(*replies, tls=None):
    """Gives the port of a server that answers each message of a client with the next of these.

    They are bytes, or functions of the message that make some; None is to be silent until the
    client ends the connection.
    """

    def play(wire):
        with contextlib.suppress(OSError), tls.wrap_socket(wire, True) if tls else wire as each:
            for reply in replies:
                if not (received := each.recv(65536)):
                    return
                answer = reply(received) if callable(reply) else reply
                if answer is None:
                    while each.recv(65536):
                        pass
                    return
                each.sendall(answer)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                wire, _ = listener.accept()
                threading.Thread(target=play, args=[wire], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
