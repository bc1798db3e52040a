"""Brokers that a trial can break: each starts, creates a topic, fails on command, and is read.

Every fault is a context manager: the broker is well again when it is left.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING

import redis
from confluent_kafka import KafkaError

from mainstay.testing import FaultProxy
from tests.publishers import test_http, test_kafka, test_nats, test_rabbitmq, test_redis_streams
from tests.servers.http_faults import HttpFaults, Reset, Status
from tests.servers.kafka import MockCluster
from tests.servers.nats import start_nats
from tests.servers.rabbitmq import start_rabbitmq
from tests.servers.valkey import start_valkey

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mainstay.testing import Received
    from tests.servers.process import ServerProcess

NETWORK = ("refused", "reset", "black hole", "no acknowledgements", "one acknowledgement lost")
"""Faults that the proxy makes."""


_CODES = {
    "few replicas": KafkaError.NOT_ENOUGH_REPLICAS,
    "timed out": KafkaError.REQUEST_TIMED_OUT,
    "another leader": KafkaError.NOT_LEADER_FOR_PARTITION,
    "lost": KafkaError._TRANSPORT,
    "storage": KafkaError.KAFKA_STORAGE_ERROR,
}
"""What the mock answers five requests with."""


_QUEUES = 100


class BrokerPlace:
    """A broker behind a proxy; a subclass knows which."""

    faults: tuple[str, ...] = NETWORK
    server: ServerProcess
    proxy: FaultProxy

    @property
    def url(self) -> str:
        """For the publisher: through the proxy."""
        return self.proxy.url(self.server.url)

    def topic(self) -> str:
        """A new one."""
        raise NotImplementedError

    def received(self, topic: str) -> list[Received]:
        """What a consumer gets, from the first message on."""
        raise NotImplementedError

    @contextlib.contextmanager
    def fault(self, name: str) -> Iterator[None]:
        """Breaks the broker until it is left."""
        if name == "killed":
            self.server.kill()
        elif name == "paused":
            self.server.pause()
        elif name == "refused":
            self.proxy.refuse()
        elif name == "reset":
            self.proxy.reset()
        elif name == "black hole":
            self.proxy.black_hole()
        elif name == "no acknowledgements":
            self.proxy.drop_replies()
        else:
            self.proxy.drop_reply_once(lambda _request: True)
        try:
            yield
        finally:
            if name == "killed":
                self.server.start()
            elif name == "paused":
                self.server.resume()
            self.proxy.heal()

    def close(self) -> None:
        """Ends everything."""
        self.proxy.close()
        self.server.kill()


class Nats(BrokerPlace):
    """JetStream in files."""

    faults = (*NETWORK, "killed", "paused")

    def __init__(self, folder: Path) -> None:
        self.server = start_nats(folder)
        self.proxy = FaultProxy("127.0.0.1", self.server.port).start()

    def topic(self) -> str:
        return test_nats.stream_of(self.server)

    def received(self, topic: str) -> list[Received]:
        return [test_nats.received(each) for each in test_nats.read(self.server, topic)]


class Valkey(BrokerPlace):
    """A server that writes each entry to disk before it answers."""

    faults = (*NETWORK, "killed", "paused")

    def __init__(self, folder: Path) -> None:
        self.server = start_valkey(folder, True, "--appendfsync", "always")
        self.proxy = FaultProxy("127.0.0.1", self.server.port).start()

    def topic(self) -> str:
        name = f"stream-{uuid.uuid4()}"
        with redis.Redis.from_url(self.server.url) as client:
            client.xgroup_create(name, "readers", mkstream=True)
        return name

    def received(self, topic: str) -> list[Received]:
        entries = test_redis_streams.read(self.server.url, topic)
        return [test_redis_streams.received(each) for each in entries]


class Rabbit(BrokerPlace):
    """Durable queues; `killed` takes seconds each time.

    A queue that was declared just before the broker is killed is gone, though it was confirmed:
    its database keeps what it writes for a moment. So queues are declared at the start, and the
    broker is ended in good order once.
    """

    faults = (*NETWORK, "killed", "paused")

    def __init__(self, folder: Path, server: ServerProcess | None = None) -> None:
        self._queues: list[str] = []
        if server is None:
            server = start_rabbitmq(folder)
            self._queues = [test_rabbitmq.queue_of(server) for _ in range(_QUEUES)]
            server.restart()
        self.server = server
        self.proxy = FaultProxy("127.0.0.1", self.server.port).start()

    def topic(self) -> str:
        return self._queues.pop() if self._queues else test_rabbitmq.queue_of(self.server)

    def received(self, topic: str) -> list[Received]:
        return [test_rabbitmq.received(each) for each in test_rabbitmq.read(self.server, topic)]


class Http(BrokerPlace):
    """A receiver that also answers with errors; what it answered 2xx or not, it has."""

    faults = (*NETWORK, "503", "reset after reading")

    def __init__(self, _folder: Path) -> None:
        self.receiver = HttpFaults()
        self.proxy = FaultProxy("127.0.0.1", self.receiver.port).start()
        self.answer: Status | Reset = Status(204)

    @property
    def url(self) -> str:
        return self.proxy.url(f"{self.receiver.url}/{{topic}}") + "#allow_local=true"

    def topic(self) -> str:
        name = f"path-{uuid.uuid4()}"
        self.receiver.on(f"/{name}", lambda _seen: self.answer)
        return name

    def received(self, topic: str) -> list[Received]:
        seen = [each for each in list(self.receiver.seen) if each.path == f"/{topic}"]
        return [test_http.received(each) for each in seen]

    @contextlib.contextmanager
    def fault(self, name: str) -> Iterator[None]:
        if name in NETWORK:
            with super().fault(name):
                yield
            return
        self.answer = Status(503) if name == "503" else Reset()
        try:
            yield
        finally:
            self.answer = Status(204)

    def close(self) -> None:
        self.proxy.close()
        self.receiver.close()


class Kafka(BrokerPlace):
    """The mock cluster of librdkafka; it is read before it is closed."""

    faults = ("down", "slow", "few replicas", "timed out", "another leader", "lost", "storage")

    def __init__(self, _folder: Path) -> None:
        self.cluster = MockCluster()

    @property
    def url(self) -> str:
        return f"kafka://{self.cluster.bootstrap}"

    def topic(self) -> str:
        return test_kafka.topic_of(self.cluster)

    def received(self, topic: str) -> list[Received]:
        return [test_kafka.received(each) for each in test_kafka.read(self.cluster, topic)]

    @contextlib.contextmanager
    def fault(self, name: str) -> Iterator[None]:
        if name == "down":
            self.cluster.down()
        elif name == "slow":
            self.cluster.slow(2.0)
        else:
            self.cluster.fail("Produce", *[_CODES[name]] * 5)
        try:
            yield
        finally:
            if name == "down":
                self.cluster.up()
            elif name == "slow":
                self.cluster.slow(0.0)

    def close(self) -> None:
        self.cluster.__exit__()


PLACES = {"nats": Nats, "valkey": Valkey, "rabbitmq": Rabbit, "http": Http, "kafka": Kafka}
