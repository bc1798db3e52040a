"""NatsPublisher against a real NATS server with JetStream, behind a proxy."""

import asyncio
from urllib.parse import unquote

import nats
import pytest
from nats.js.api import DiscardPolicy, StreamConfig

from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.errors import UsageError
from mainstay.publishers.nats import NatsPublisher
from mainstay.testing import BrokerContract, FaultProxy, Received
from mainstay.testing.publishers import acknowledged, failure_of, message_of
from tests.publishers.forked import IDS, publish_in_children, publish_in_children_of_c_code
from tests.servers.nats import start_nats


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One server with JetStream; the payload may be 2 MB."""
    server = start_nats(tmp_path_factory.mktemp("nats"), max_payload=2_000_000)
    yield server
    server.kill()


@pytest.fixture
def proxy(server):
    with FaultProxy("127.0.0.1", server.port) as proxy:
        yield proxy


def using(server, act):
    """What something that is done with a client of nats-py returns."""

    async def run():
        client = await nats.connect(server.url)
        try:
            return await asyncio.wait_for(act(client.jetstream()), 60)
        finally:
            await client.close()

    return asyncio.run(run())


def stream_of(server, **options):
    """A subject with a stream of its own; more options of the stream may be given."""
    number = stream_of.number = getattr(stream_of, "number", 0) + 1
    subject = f"orders.paid.{number}"
    config = StreamConfig(name=f"S{number}", subjects=[subject], **options)
    using(server, lambda streams: streams.add_stream(config))
    return subject


def read(server, subject):
    """The messages that a stream has stored."""

    async def act(streams):
        name = await streams.find_stream_name_by_subject(subject)
        count = (await streams.stream_info(name)).state.messages
        subscription = await streams.subscribe(subject, ordered_consumer=True)
        return [await subscription.next_msg(30) for _ in range(count)]

    return using(server, act)


class TestContract(BrokerContract):
    missing = frozenset({Kind.TRANSIENT})  # a server that starts answers just so
    too_large = 2_000_000

    @pytest.fixture(autouse=True)
    def _server(self, server, proxy):
        self.server, self.proxy = server, proxy

    def open(self):
        return NatsPublisher(self.proxy.url("nats://127.0.0.1:4222"), timeout=30.0)

    def topic(self):
        return _in_thread(stream_of, self.server)

    def missing_topic(self):
        return "no.such.subject"

    def received(self, topic):
        return [received(each) for each in _in_thread(read, self.server, topic)]


def received(message):
    headers = message.headers
    attributes = {n[3:]: unquote(v) for n, v in headers.items() if n.startswith("ce-")}
    assert headers["Content-Type"] == attributes["datacontenttype"]
    return Received(headers["Nats-Msg-Id"], message.data, attributes)


def _in_thread(function, *arguments):
    """In a thread: the caller may be in an event loop."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments).result(60)


def failing(publisher, message):
    async def run():
        try:
            return await failure_of(publisher.publish(message))
        finally:
            await publisher.close()

    return asyncio.run(run())


def test_a_server_that_restarts_has_what_it_acknowledged(tmp_path):
    """Killed under a publisher that goes on: each message is stored once, by its id."""
    server = start_nats(tmp_path)
    topic = stream_of(server)
    messages = [message_of(topic, b"{}", str(number)) for number in range(30)]

    async def run():
        publisher = NatsPublisher(server.url, timeout=2.0)
        for number, message in enumerate(messages):
            if number in (10, 20):
                await asyncio.to_thread(server.kill)
                await failure_of(publisher.publish(message))
                await asyncio.to_thread(server.start)
            await acknowledged(publisher, message)
        await publisher.close()

    try:
        asyncio.run(run())
        assert [each.headers["Nats-Msg-Id"] for each in read(server, topic)] == [
            each.id for each in messages
        ]
    finally:
        server.kill()


def test_a_forked_child_has_a_connection_of_its_own(server, tmp_path):
    """It neither uses nor closes that of its parent: each message arrives once."""
    subject = stream_of(server)
    publish_in_children(tmp_path, server.url, subject)
    assert sorted(each.headers["Nats-Msg-Id"] for each in read(server, subject)) == sorted(IDS)


def test_a_child_that_c_code_has_forked_has_a_connection_of_its_own(server, tmp_path):
    """No hook has run: it is found by the process number, before anything is sent."""
    subject = stream_of(server)
    publish_in_children_of_c_code(tmp_path, server.url, subject)
    assert sorted(each.headers["Nats-Msg-Id"] for each in read(server, subject)) == sorted(IDS)


def test_a_repetition_is_stored_once(server):
    """The stream acknowledges it as a duplicate."""
    message = message_of(stream_of(server), b"{}")

    async def run():
        publisher = NatsPublisher(server.url)
        for _ in range(3):
            await publisher.publish(message)
        await publisher.close()

    asyncio.run(run())
    assert len(read(server, message.topic)) == 1


def test_the_subject_is_a_template(server):
    """With fields of the message."""
    subject = stream_of(server)
    publisher = NatsPublisher(f"{server.url}?subject=orders.{{topic}}&timeout=30")

    async def run():
        await publisher.publish(message_of(subject.removeprefix("orders."), b"{}"))
        await publisher.close()

    asyncio.run(run())
    assert len(read(server, subject)) == 1


def test_a_stream_that_does_not_have_the_subject_is_refused(server):
    """It was to be another: nothing is stored."""
    message = message_of(stream_of(server), b"{}")
    error = failing(NatsPublisher(server.url, stream="OTHER"), message)
    assert kind_of(error).kind is Kind.PERMANENT
    assert read(server, message.topic) == []


def test_a_stream_that_is_full_is_overloaded(server):
    """Its consumers may make room."""
    topic = stream_of(server, max_msgs=1, discard=DiscardPolicy.NEW)

    async def run():
        publisher = NatsPublisher(server.url)
        await publisher.publish(message_of(topic, b"{}"))
        error = await failure_of(publisher.publish(message_of(topic, b"{}")))
        await publisher.close()
        return error

    assert kind_of(asyncio.run(run())).kind is Kind.OVERLOAD


@pytest.mark.parametrize("topic", ["a b", "a.*", "a.>", "", "a..b", "a\r\nPUB b 0"])
def test_a_topic_that_is_no_subject_is_a_permanent_failure(server, topic):
    """Nothing of it reaches the protocol."""
    error = failing(NatsPublisher(server.url), message_of(topic, b"{}"))
    assert kind_of(error).kind is Kind.PERMANENT


def test_a_header_cannot_be_forged(server):
    """Text with line ends in it stays one value."""
    message = message_of(stream_of(server), b"{}", "a\r\nNats-Msg-Id: other")

    async def run():
        publisher = NatsPublisher(server.url)
        await publisher.publish(message)
        await publisher.close()

    asyncio.run(run())
    (stored,) = read(server, message.topic)
    assert stored.headers["Nats-Msg-Id"] == message.id
    assert unquote(stored.headers["ce-subject"]) == message.aggregate_id


def test_a_wrong_password_is_an_auth_failure_and_is_not_shown(tmp_path):
    """Neither in the error, nor in the URL and the repr."""
    server = start_nats(tmp_path, authorization='{user: me, password: "right"}')
    try:
        publisher = NatsPublisher(f"nats://me:hunter2@127.0.0.1:{server.port}")
        error = failing(publisher, message_of("t", b"{}"))
        assert kind_of(error).kind is Kind.AUTH
        shown = f"{error} {error.__cause__} {publisher.url} {publisher!r}"
        assert "hunter2" not in shown
        assert publisher.url == f"nats://me@127.0.0.1:{server.port}"
    finally:
        server.kill()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nats://", "names no NATS server"),
        ("nats://host:0", "names no NATS server"),
        ("nats://host:4222/path", "has a path"),
        ("nats://host?subjects=a", "subjects is no option of this publisher"),
        ("nats://host?timeout=soon", "timeout = 'soon': must be a number"),
        ("nats://host?timeout=0", "timeout"),
        ("nats://host?subject={nonsense}", "nonsense"),
        ("nats://host?subject={topic", "is not known"),
    ],
)
def test_a_wrong_url_is_refused_when_it_is_given(url, words):
    with pytest.raises(Exception, match=words) as caught:
        NatsPublisher(url)
    assert isinstance(caught.value, UsageError | ValueError)
