"""A broker on loopback that speaks some requests of Kafka's protocol.

They are: which versions it has, which brokers and topics there are (itself, and `news`), which
groups, to join one, messages that are fetched, and messages that are sent.
"""

import contextlib
import socket
import struct
import threading

PRODUCE, FETCH, METADATA, COORDINATOR, JOIN, LIST_GROUPS, VERSIONS = 0, 1, 3, 10, 11, 16, 18
COMMIT, COMMITTED, HEARTBEAT, LEAVE, SYNC = 8, 9, 12, 13, 14
OFFERED = (
    (PRODUCE, 0, 8), (FETCH, 4, 4), (METADATA, 0, 1), (LIST_GROUPS, 0, 0), (VERSIONS, 0, 0),
    (COORDINATOR, 0, 0), (JOIN, 0, 0),
    (COMMIT, 1, 2), (COMMITTED, 1, 1), (HEARTBEAT, 0, 0), (LEAVE, 0, 0), (SYNC, 0, 0),
)  # fmt: skip
"""The requests, with their lowest and highest version; those of the last line are for groups, of
which librdkafka wants to see all before it joins one."""
UNSUPPORTED_VERSION, INVALID_RECORD = 35, 87


class KafkaStub:
    """`code` is what the groups are answered with, and `messages` what a fetch is.

    The first two messages of a batch that is sent to it are refused.
    """

    def __init__(self):
        self.code = 0
        self.messages = bytes(9)  # the beginning of one
        self.wrong_number = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                wire, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=[wire], daemon=True).start()

    def _serve(self, wire):
        with contextlib.suppress(OSError), wire, wire.makefile("rb") as reader:
            while head := reader.read(4):
                request = reader.read(int.from_bytes(head, "big"))
                key, version, number = struct.unpack_from(">hhi", request)
                if key == LIST_GROUPS and self.wrong_number:
                    number += 7
                answer = struct.pack(">i", number) + self._answer(key, version)
                wire.sendall(struct.pack(">i", len(answer)) + answer)

    def _answer(self, key, version):
        if key == VERSIONS:
            listed = b"".join(struct.pack(">hhh", *each) for each in OFFERED)
            refused = UNSUPPORTED_VERSION if version else 0
            return struct.pack(">hi", refused, len(OFFERED)) + listed
        answers = {
            METADATA: self._metadata, FETCH: self._fetched, PRODUCE: self._refused,
            COORDINATOR: self._coordinator, JOIN: self._joined,
        }  # fmt: skip
        return answers[key]() if key in answers else struct.pack(">hi", self.code, 0)

    def _metadata(self):
        host = b"127.0.0.1"
        broker = struct.pack(">ih", 0, len(host)) + host + struct.pack(">ih", self.port, -1)
        topic = struct.pack(">hh4sbi", 0, 4, b"news", 0, 1)
        part = struct.pack(">hiiiiii", 0, 0, 0, 1, 0, 1, 0)
        return struct.pack(">i", 1) + broker + struct.pack(">ii", 0, 1) + topic + part

    def _fetched(self):
        head = struct.pack(">iih4siih", 0, 1, 4, b"news", 1, 0, 0)
        return head + struct.pack(">qqii", 9, 9, 0, len(self.messages)) + self.messages

    def _refused(self):
        head = struct.pack(">ih4siih", 1, 4, b"news", 1, 0, INVALID_RECORD)
        errors = struct.pack(">iihihh", 2, 0, -1, 1, -1, -1)  # of the first two, without text
        return head + struct.pack(">qqq", -1, -1, -1) + errors + struct.pack(">i", 0)

    def _coordinator(self):
        return struct.pack(">hih9si", 0, 0, 9, b"127.0.0.1", self.port)

    def _joined(self):
        """With a way to share the partitions that nobody has offered."""
        return struct.pack(">hih3sh1sh1si", 0, 1, 3, b"odd", 1, b"l", 1, b"m", 0)


def batch(attributes, body):
    """One message, as the attributes say that it is compressed (magic 2)."""
    rest = struct.pack(">hiqqqhii", attributes, 0, 0, 0, -1, -1, -1, 1) + body
    return struct.pack(">qiibI", 0, len(rest) + 9, 0, 2, 0) + rest
