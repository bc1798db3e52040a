"""aiokafka: every code that a broker may answer with, through its client for administrators.

A stub speaks three requests of Kafka's protocol: which versions it has, which brokers there are,
and which groups, which it answers with a code. The numbers are those of "Error codes" in Kafka's
protocol guide, of which aiokafka keeps a list.
"""

import asyncio
import contextlib
import logging
import socket
import struct
import threading

import aiokafka.errors
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.integrations.errors.rows import comes_to, raised_by, row_of

METADATA, LIST_GROUPS, VERSIONS = 3, 16, 18


@pytest.fixture(scope="module", autouse=True)
def quiet():
    """What goes on in the background is logged as an error; nobody needs it here."""
    logger = logging.getLogger("aiokafka")
    before, logger.disabled = logger.disabled, True
    yield
    logger.disabled = before


class KafkaStub:
    """`code` is what the groups are answered with."""

    def __init__(self):
        self.code = 0
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
                key, _, number = struct.unpack_from(">hhi", request)
                if key == LIST_GROUPS and self.wrong_number:
                    number += 7
                answer = struct.pack(">i", number) + self._answer(key)
                wire.sendall(struct.pack(">i", len(answer)) + answer)

    def _answer(self, key):
        if key == VERSIONS:
            offered = [(METADATA, 0, 1), (LIST_GROUPS, 0, 0), (VERSIONS, 0, 0)]
            listed = b"".join(struct.pack(">hhh", *each) for each in offered)
            return struct.pack(">hi", 0, len(offered)) + listed
        if key == METADATA:
            host = b"127.0.0.1"
            broker = struct.pack(">ih", 0, len(host)) + host + struct.pack(">ih", self.port, -1)
            return struct.pack(">i", 1) + broker + struct.pack(">ii", 0, 0)
        return struct.pack(">hi", self.code, 0)


@pytest.fixture(scope="module")
def stub():
    stub = KafkaStub()
    yield stub
    stub.close()


@contextlib.asynccontextmanager
async def administrator(stub):
    client = AIOKafkaAdminClient(bootstrap_servers=f"127.0.0.1:{stub.port}")
    await client.start()
    try:
        yield client
    finally:
        await client.close()


def test_every_code_that_a_broker_answers_with(stub):
    """One client asks for each."""
    codes = [code for code in aiokafka.errors.kafka_errors if code]

    async def ask():
        found = []
        async with administrator(stub) as client:
            for stub.code in codes:
                try:
                    await client.list_consumer_groups()
                except aiokafka.errors.KafkaError as error:
                    found.append(error)
        return found

    found = asyncio.run(ask())
    assert [type(each) for each in found] == [aiokafka.errors.kafka_errors[code] for code in codes]
    for each in found:
        name, line = row_of(raised_by(lambda error=each: again(error)))
        assert name == f"aiokafka.errors.{type(each).__name__}"
        assert line.row is not None


def again(error):
    """Raised again as it came, with where it came from."""
    raise error.with_traceback(error.__traceback__)


def test_an_answer_to_another_request(stub):
    """The numbers do not fit."""

    async def ask():
        async with administrator(stub) as client:
            await client.list_consumer_groups()

    stub.wrong_number = True
    try:
        error = raised_by(ask)
    finally:
        stub.wrong_number = False
    assert row_of(error)[0].startswith("aiokafka.errors."), error


def unknown_request(stub):
    async def ask():
        async with administrator(stub) as client:
            await client.create_topics([NewTopic("t", 1, 1)])

    return ask()


def no_group(_stub):
    async def ask():
        consumer = AIOKafkaConsumer(bootstrap_servers="127.0.0.1:1")
        try:
            await consumer.commit()
        finally:
            await consumer.stop()

    return ask()


CALLS = {
    "IncompatibleBrokerVersion": unknown_request,
    "IllegalOperation": no_group,
    "IllegalArgumentError": lambda _: NewTopic("t", 1, 1, {0: [0]}),
}


@pytest.mark.parametrize("row", CALLS)
def test_calls(stub, row):
    """What aiokafka finds by itself."""
    comes_to(f"aiokafka.errors.{row}", lambda: CALLS[row](stub))
