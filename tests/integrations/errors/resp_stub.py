"""A server of RESP that answers as it is told to: a node of Valkey, of a cluster or a sentinel."""

import contextlib
import socket
import threading

OK = b"+OK\r\n"
COMMANDS = b"*1\r\n*6\r\n$6\r\nincrby\r\n:3\r\n*1\r\n+write\r\n:1\r\n:1\r\n:1\r\n"
"""What a node answers to COMMAND."""
ENABLED = b"$17\r\ncluster_enabled:1\r\n"


class RespStub:
    """Answers `INCR` with `answer`, CLUSTER SLOTS with `slots`, and everything else with OK.

    `answers` has what it answers to other words, where None ends the connection; `greeting` is
    sent before a word was read.
    """

    def __init__(self):
        self.answers, self.greeting = {}, b""
        self.answer, self.slots, self.held = OK, b"*0\r\n", False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                wire, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=[wire], daemon=True).start()

    def _serve(self, wire):
        with contextlib.suppress(OSError), wire, wire.makefile("rb") as reader:
            wire.sendall(self.greeting)
            while first := reader.readline():
                words = []
                for _ in range(int(first[1:])):
                    size = int(reader.readline()[1:])
                    words.append(reader.read(size + 2)[:-2].upper())
                answer = self.answers.get(words[0], self._reply(words))
                if answer is None:
                    break
                wire.sendall(answer)

    def _reply(self, words):
        if words[0] in (b"INCRBY", b"EVALSHA", b"EVAL"):
            return self.answer
        if words[0] == b"SET" and self.held:
            return b"$-1\r\n"
        if words[0] == b"CLUSTER":
            return self.slots
        return {b"EXEC": b"*-1\r\n", b"INFO": ENABLED, b"COMMAND": COMMANDS}.get(words[0], OK)

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def client(library, port, **settings):
    none = library.retry.Retry(library.backoff.NoBackoff(), 0)
    return library.Redis(
        port=port, **{"retry": none, "protocol": 2, "socket_timeout": 30} | settings
    )


def slots(port, last):
    """One node that has the slots up to this one."""
    host = b"$9\r\n127.0.0.1\r\n"
    node = b"*3\r\n" + host + f":{port}\r\n".encode() + b"$1\r\nn\r\n"
    return b"*1\r\n*3\r\n:0\r\n" + f":{last}\r\n".encode() + node
