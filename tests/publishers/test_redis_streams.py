"""RedisStreamsPublisher against a real Valkey server, behind a proxy."""

import asyncio
import time
import uuid

import pytest
import redis

from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.errors import MainstayError
from mainstay.publishers.redis_streams import RedisStreamsPublisher
from mainstay.testing import BrokerContract, FaultProxy, Received
from mainstay.testing.publishers import acknowledged, failure_of, message_of
from tests.publishers.forked import IDS, publish_in_children, publish_in_children_of_c_code
from tests.servers.valkey import start_valkey


@pytest.fixture
def proxy(valkey_url):
    with FaultProxy("127.0.0.1", int(valkey_url.rpartition(":")[2].partition("/")[0])) as proxy:
        yield proxy


def read(url, stream):
    """The entries of a stream: their fields, as bytes."""
    with redis.Redis.from_url(url) as client:
        return [fields for _, fields in client.xrange(stream)]


def received(fields):
    data = fields.pop(b"data")
    attributes = {name.decode(): value.decode() for name, value in fields.items()}
    return Received(attributes["id"], data, attributes)


class TestContract(BrokerContract):
    @pytest.fixture(autouse=True)
    def _server(self, valkey_url, proxy):
        self.url, self.proxy = valkey_url, proxy

    def open(self):
        return RedisStreamsPublisher(self.proxy.url(self.url), create=False, timeout=30.0)

    def topic(self):
        name = f"paid-{uuid.uuid4()}"
        with redis.Redis.from_url(self.url) as client:
            client.xgroup_create(name, "readers", mkstream=True)
        return name

    def missing_topic(self):
        return "no-such-stream"

    def received(self, topic):
        return [received(each) for each in read(self.url, topic)]


class TestTwiceAdded(TestContract):
    """With `dedupe`, a repetition is acknowledged and not added."""

    def open(self):
        url = self.proxy.url(self.url).replace("redis://", "valkey://")
        return RedisStreamsPublisher(f"{url}?create=false&dedupe=600&timeout=30")

    def test_a_repetition_is_added_once(self):
        """Three times the same id; another id is another message."""
        topic = self.topic()
        first, second = message_of(topic, b"1"), message_of(topic, b"2")

        async def publish(publisher):
            for message in (first, first, second, first):
                await publisher.publish(message)

        self._run(publish)
        assert [each.id for each in self.received(topic)] == [first.id, second.id]

    def test_a_lost_acknowledgement_adds_nothing_twice(self):
        """The reply is dropped, the message is repeated: one entry."""
        message = message_of(self.topic(), b"{}")

        async def publish(publisher):
            await publisher.publish(message_of(message.topic, b"warm"))
            self.proxy.drop_reply_once(message.id.encode())
            await failure_of(publisher.publish(message))
            await acknowledged(publisher, message)

        self._run(publish)
        assert [each.id for each in self.received(message.topic)].count(message.id) == 1


def publish_all(publisher, messages):
    """Publishes one after the other; the failures, None for each that was acknowledged."""

    async def run():
        outcomes = []
        for message in messages:
            try:
                outcomes.append(await publisher.publish(message))
            except Exception as error:
                outcomes.append(error)
        await publisher.close()
        return outcomes

    return asyncio.run(run())


def test_a_stream_is_created_and_kept_short(valkey_url):
    """`maxlen` is about how many entries stay."""
    stream = f"short-{uuid.uuid4()}"
    publisher = RedisStreamsPublisher(valkey_url, stream="{topic}:a", maxlen=10)
    publish_all(publisher, [message_of(stream, b"{}") for _ in range(300)])
    assert 10 <= len(read(valkey_url, f"{stream}:a")) < 300


def test_a_server_that_restarts_has_what_it_acknowledged(tmp_path):
    """It writes each entry to disk, is killed, and the publisher connects again."""
    server = start_valkey(tmp_path, True, "--appendfsync", "always")
    messages = [message_of("orders", b"{}", str(number)) for number in range(30)]

    async def run():
        publisher = RedisStreamsPublisher(server.url)
        for number, message in enumerate(messages):
            if number in (10, 20):
                await asyncio.to_thread(server.kill)
                assert kind_of(await failure_of(publisher.publish(message))).kind is Kind.TRANSIENT
                await asyncio.to_thread(server.start)
            await acknowledged(publisher, message)
        await publisher.close()

    try:
        asyncio.run(run())
        found = [received(each).id for each in read(server.url, "orders")]
        assert found == [each.id for each in messages]
    finally:
        server.kill()


def test_a_forked_child_has_a_connection_of_its_own(valkey_url, tmp_path):
    """It neither uses nor closes that of its parent: each message arrives once."""
    stream = f"forked-{uuid.uuid4()}"
    publish_in_children(tmp_path, valkey_url, stream)
    assert sorted(received(each).id for each in read(valkey_url, stream)) == sorted(IDS)


def test_a_child_that_c_code_has_forked_has_a_connection_of_its_own(valkey_url, tmp_path):
    """No hook has run: it is found by the process number, before anything is sent."""
    stream = f"forked-{uuid.uuid4()}"
    publish_in_children_of_c_code(tmp_path, valkey_url, stream)
    assert sorted(received(each).id for each in read(valkey_url, stream)) == sorted(IDS)


def test_replicas_that_are_missing_are_an_overload(valkey_url):
    """The server has the message, and no replica: the relay repeats it."""
    publisher = RedisStreamsPublisher(valkey_url, replicas=1, timeout=0.5)
    (error,) = publish_all(publisher, [message_of(f"r-{uuid.uuid4()}", b"{}")])
    assert kind_of(error).kind is Kind.OVERLOAD
    assert "0 of 1 replicas" in str(error)


def test_a_replica_that_has_it_is_waited_for(tmp_path):
    """It has the entry when `publish` returns."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first = start_valkey(tmp_path / "first", False, "--repl-diskless-sync-delay", "0")
    second = start_valkey(tmp_path / "second", False, "--replicaof", f"127.0.0.1 {first.port}")
    message = message_of("replicated", b"{}")
    with redis.Redis.from_url(second.url) as client:
        for _ in range(600):
            if client.info("replication")["master_link_status"] == "up":
                break
            time.sleep(0.05)

    async def run():
        publisher = RedisStreamsPublisher(first.url, replicas=1, timeout=1)
        await acknowledged(publisher, message)
        await publisher.close()

    try:
        asyncio.run(run())
        assert message.id in [received(each).id for each in read(second.url, "replicated")]
    finally:
        first.kill()
        second.kill()


def test_a_key_that_is_no_stream_is_a_permanent_failure(valkey_url):
    """WRONGTYPE: the same answer every time; the connection stays, and so do later messages."""
    key, stream = f"text-{uuid.uuid4()}", f"stream-{uuid.uuid4()}"
    with redis.Redis.from_url(valkey_url) as client:
        client.set(key, "text")
    publisher = RedisStreamsPublisher(valkey_url)
    wrong, right = publish_all(publisher, [message_of(key, b"{}"), message_of(stream, b"{}")])
    assert kind_of(wrong).kind is Kind.PERMANENT
    assert right is None
    assert len(read(valkey_url, stream)) == 1


def test_a_wrong_password_is_an_auth_failure_and_is_not_shown(tmp_path):
    """Neither in the error, nor in the URL and the repr."""
    server = start_valkey(tmp_path, False, "--requirepass", "right")
    try:
        publisher = RedisStreamsPublisher(f"redis://default:hunter2@127.0.0.1:{server.port}/0")
        (error,) = publish_all(publisher, [message_of("t", b"{}")])
        assert kind_of(error).kind is Kind.AUTH
        assert "hunter2" not in f"{error} {error.__cause__} {publisher.url} {publisher!r}"
        assert publisher.url == f"redis://default@127.0.0.1:{server.port}/0"
    finally:
        server.kill()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://", "names no Redis server"),
        ("redis://h?strem=a", "strem is no option of this publisher"),
        ("redis://h?maxlen=x", "must be a whole number"),
        ("redis://h?maxlen=0", "maxlen"),
        ("redis://h?create=perhaps", "must be true or false"),
        ("redis://h?replicas=-1", "replicas"),
        ("redis://h?stream={nonsense}", "nonsense"),
    ],
)
def test_a_wrong_url_is_refused_when_it_is_given(url, words):
    with pytest.raises(MainstayError, match=words):
        RedisStreamsPublisher(url)
