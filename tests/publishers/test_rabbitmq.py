"""RabbitPublisher against a real RabbitMQ, behind a proxy."""

import asyncio
import gc
import logging
import uuid
from concurrent.futures import ThreadPoolExecutor

import aio_pika
import pytest

from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.errors import MainstayError
from mainstay.publishers.rabbitmq import RabbitPublisher
from mainstay.testing import BrokerContract, FaultProxy, Received
from mainstay.testing.publishers import acknowledged, failure_of, message_of
from tests.crash.brokers.trial import run_trial
from tests.publishers.forked import IDS, publish_in_children
from tests.publishers.test_page import run_block
from tests.servers.databases import sqlite_place
from tests.servers.http_faults import dead_port
from tests.servers.rabbitmq import start_rabbitmq

LARGEST = 1_500_000


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One server for the module: it takes seconds to start."""
    server = start_rabbitmq(tmp_path_factory.mktemp("rabbitmq"), max_message_size=LARGEST)
    yield server
    server.kill()


@pytest.fixture
def proxy(server):
    with FaultProxy("127.0.0.1", server.port) as proxy:
        yield proxy


def using(server, act):
    """What something that is done with a channel of its own returns; in a thread and loop."""

    async def run():
        connection = await aio_pika.connect(server.url)
        async with connection:
            return await asyncio.wait_for(act(await connection.channel()), 60)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, run()).result(60)


def queue_of(server, **options):
    name = f"paid-{uuid.uuid4()}"
    using(server, lambda channel: channel.declare_queue(name, durable=True, **options))
    return name


def read(server, queue):
    """The messages of a queue, which stay in it."""

    async def act(channel):
        found = []
        source = await channel.get_queue(queue)
        while (message := await source.get(fail=False)) is not None:
            found.append(message)
        return found

    return using(server, act)


def received(message):
    prefix = "cloudEvents:"
    assert all(name.startswith(prefix) for name in message.headers)
    attributes = {name.removeprefix(prefix): value for name, value in message.headers.items()}
    attributes["datacontenttype"] = message.content_type
    assert message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
    return Received(message.message_id, message.body, attributes)


class TestContract(BrokerContract):
    too_large = LARGEST + 1

    @pytest.fixture(autouse=True)
    def _server(self, server, proxy):
        self.server, self.proxy = server, proxy

    def open(self):
        return RabbitPublisher(self.proxy.url(self.server.url), timeout=30.0)

    def topic(self):
        return queue_of(self.server)

    def missing_topic(self):
        return "no-such-queue"

    def received(self, topic):
        return [received(each) for each in read(self.server, topic)]


def published(publisher, *messages):
    """Publishes them at once; the failures, None for each that was confirmed."""

    async def run():
        try:
            return await asyncio.gather(*map(publisher.publish, messages), return_exceptions=True)
        finally:
            await publisher.close()

    return asyncio.run(run())


def test_a_message_that_is_too_large_fails_alone(server):
    """The broker closes the channel: what was under way on it is no permanent failure."""
    topic = queue_of(server)
    messages = [message_of(topic, b"{}", str(number)) for number in range(40)]
    large = message_of(topic, b"x" * (LARGEST + 1))

    async def run():
        publisher = RabbitPublisher(server.url)
        sending = [acknowledged(publisher, each) for each in messages]
        sending.insert(20, failure_of(publisher.publish(large)))
        outcomes = await asyncio.gather(*sending)
        await publisher.close()
        return outcomes[20]

    assert kind_of(asyncio.run(run())).kind is Kind.PERMANENT
    assert {each.message_id for each in read(server, topic)} == {each.id for each in messages}


def test_the_first_message_of_a_channel_may_be_the_last_that_fails(monkeypatch):
    """It was not alone, although no other is under way by then: it is sent again, alone."""
    alone = []

    async def send_alone(content, routing_key):
        alone.append(routing_key)

    class Link:
        under_way = sent = 0
        is_dropped = False

        def __init__(self):
            self.closed = {"first": asyncio.Event(), "large": asyncio.Event()}

        async def send(self, content, routing_key):
            await self.closed[routing_key].wait()
            raise aio_pika.exceptions.ChannelPreconditionFailed(
                "message size 9 is larger than configured max size 8"
            )

    async def run():
        publisher, link = RabbitPublisher("amqp://127.0.0.1/"), Link()
        monkeypatch.setattr(publisher, "_send_alone", send_alone)
        first, large = (
            asyncio.create_task(publisher._send(link, message_of(name, b"{}")))
            for name in ("first", "large")
        )
        await asyncio.sleep(0)
        link.closed["large"].set()
        await large
        link.closed["first"].set()
        await first

    asyncio.run(run())
    assert alone == ["large", "first"]


def test_a_forked_child_has_a_connection_of_its_own(server, tmp_path):
    """It neither uses nor closes that of its parent: each message arrives once."""
    queue = queue_of(server)
    publish_in_children(tmp_path, server.url, queue)
    assert sorted(each.message_id for each in read(server, queue)) == sorted(IDS)


def test_an_exchange_routes_by_the_routing_key(server):
    """A queue that is bound gets it; a key that nothing is bound to is a permanent failure."""
    queue, exchange = queue_of(server), f"events-{uuid.uuid4()}"

    async def bind(channel):
        await channel.declare_exchange(exchange, "topic", durable=True)
        await (await channel.get_queue(queue)).bind(exchange, "shop.paid.*")

    using(server, bind)
    publisher = RabbitPublisher(f"{server.url}?exchange={exchange}&routing_key=shop.{{topic}}.v1")
    fine, unroutable = published(publisher, message_of("paid", b"{}"), message_of("sold", b"{}"))
    assert fine is None
    assert kind_of(unroutable).kind is Kind.PERMANENT
    assert len(read(server, queue)) == 1


def test_the_code_of_the_page_runs(server):
    """docs/how-to/publishers.md; its exchange and a queue are declared here."""
    queue = queue_of(server)

    async def bind(channel):
        await channel.declare_exchange("events", "topic", durable=True)
        await (await channel.get_queue(queue)).bind("events", "paid")

    using(server, bind)
    run_block("RabbitPublisher", "amqp://me:secret@127.0.0.1/shop", server.url)
    assert len(read(server, queue)) == 1


def test_an_exchange_that_does_not_exist_is_a_permanent_failure(server):
    """It is not created."""
    (error,) = published(RabbitPublisher(server.url, exchange="none"), message_of("t", b"{}"))
    assert kind_of(error).kind is Kind.PERMANENT


def test_a_queue_that_is_full_is_overloaded(server):
    """It refuses what does not fit: the broker answers with a nack."""
    topic = queue_of(server, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})

    async def run():
        publisher = RabbitPublisher(server.url)
        await publisher.publish(message_of(topic, b"{}"))
        error = await failure_of(publisher.publish(message_of(topic, b"{}")))
        await publisher.close()
        return error

    assert kind_of(asyncio.run(run())).kind is Kind.OVERLOAD


def test_a_connection_that_was_not_made_is_closed_all_the_same(monkeypatch, caplog):
    """aio-pika would close it when it is collected, by a coroutine that nothing may ever await."""
    left = []
    monkeypatch.setattr(
        aio_pika.Connection, "__del__", lambda self: left.append(self.is_closed), raising=False
    )
    caplog.set_level(logging.CRITICAL, "aiormq")  # a record holds the error, and so its frames
    (error,) = published(RabbitPublisher(f"amqp://127.0.0.1:{dead_port()}/"), message_of("t", b""))
    assert kind_of(error).kind is Kind.TRANSIENT
    del error
    gc.collect()
    assert left
    assert all(left)


def test_a_wrong_password_is_an_auth_failure_and_is_not_shown(server):
    """Neither in the error, nor in the URL and the repr."""
    publisher = RabbitPublisher(f"amqp://guest:hunter2@127.0.0.1:{server.port}/")
    (error,) = published(publisher, message_of("t", b"{}"))
    assert kind_of(error).kind is Kind.AUTH
    assert "hunter2" not in f"{error} {error!r} {error.__cause__} {publisher.url} {publisher!r}"
    assert publisher.url == f"amqp://guest@127.0.0.1:{server.port}/"


def test_a_routing_key_that_amqp_cannot_write_is_a_permanent_failure(server):
    """It has one byte for the length."""
    (error,) = published(RabbitPublisher(server.url), message_of("t" * 256, b"{}"))
    assert kind_of(error).kind is Kind.PERMANENT


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("amqp://", "names no RabbitMQ"),
        ("amqp://h?queue=a", "queue is no option of this publisher"),
        ("amqp://h?routing_key={nonsense}", "nonsense"),
        ("amqp://h?timeout=0", "timeout"),
    ],
)
def test_a_wrong_url_is_refused_when_it_is_given(url, words):
    with pytest.raises(MainstayError, match=words):
        RabbitPublisher(url)


@pytest.mark.req("EF-08")
def test_nothing_is_lost_or_out_of_order_under_a_relay(server, tmp_path):
    """As tests/publishers/test_relays.py has it for the other brokers."""
    from tests.crash.brokers.places import Rabbit

    broker = Rabbit(tmp_path, server)
    try:
        faults = ["refused", "no acknowledgements"]
        outcome = run_trial(broker, sqlite_place(tmp_path), faults, seed=7)
        assert outcome.problems == []
    finally:
        broker.proxy.close()
