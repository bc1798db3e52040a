"""aiokafka against the mock cluster of librdkafka, which speaks Kafka's protocol.

Raised by the library's own list of codes, and not by the cluster: what no answer to a commit can
be. aiokafka has no code to raise some of its classes: they are in the table with that reason.
"""

import asyncio
import logging
import threading

import aiokafka.errors
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from mainstay.core.known.kind import Kind
from mainstay.integrations.errors.aiokafka import TABLE
from mainstay.testing import FaultProxy
from tests.integrations.errors.brokers import BY_DEFAULT, dead_port, judged, seen, tried
from tests.processes import wait_until
from tests.servers.kafka import MockCluster

LOST, SLOW = "transient ambiguous", "timeout ambiguous"
SOON = {"request_timeout_ms": 60_000, "retry_backoff_ms": 5, "metadata_max_age_ms": 100}


@pytest.fixture(scope="module", autouse=True)
def quiet():
    """What goes on in the background is logged as an error; nobody needs it here."""
    logger = logging.getLogger("aiokafka")
    before, logger.disabled = logger.disabled, True
    yield
    logger.disabled = before


@pytest.fixture(scope="module")
def cluster():
    """One broker with one topic."""
    with MockCluster() as cluster:
        cluster.topic("news")
        yield cluster


@pytest.fixture
def expiring(monkeypatch):
    """Sets when aiokafka repeats a message no longer; it does so until its time is over."""
    name = "aiokafka.producer.message_accumulator.MessageBatch.expired"
    return lambda is_over: monkeypatch.setattr(name, lambda _: is_over())


def sending(bootstrap, topic="news", started=None, ready=None, **settings):
    """A function that sends one message with a producer of its own.

    `started` gets the producer when it has started; `ready` does when it knows the topic.
    """

    async def send():
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **{**SOON, **settings})
        try:
            await producer.start()
            if started is not None:
                started(producer)
            if ready is not None:
                await producer.partitions_for(topic)
                ready(producer)
            await producer.send_and_wait(topic, b"x")
        finally:
            await producer.stop()

    return send


# --- the network ----------------------------------------------------------------------------------


def test_a_dead_port_is_retried_and_nothing_was_sent():
    """No broker is found."""
    error, count = tried(sending(f"127.0.0.1:{dead_port()}"))
    assert (judged(error), count) == (("transient", "aiokafka"), 3)


def test_a_black_hole_is_not_reached(cluster):
    """It accepts, and never answers: no broker is found in time."""
    with FaultProxy("127.0.0.1", cluster.port) as proxy:
        proxy.black_hole()
        run = sending(f"127.0.0.1:{proxy.port}", request_timeout_ms=50)
        error, count = tried(run, policy=BY_DEFAULT)
        assert (judged(error), count) == (("transient", "aiokafka"), 3)
        wait_until(lambda: proxy.connections == 3, "the connections at the proxy")


def test_a_broker_that_goes_away_under_a_producer(cluster, expiring):
    """The last failure of many is raised; when the broker is back, the same call works."""
    repeated = []
    expiring(lambda: repeated.append(1) or len(repeated) > 5)
    try:
        error = seen(sending(cluster.bootstrap, ready=lambda _: cluster.down()))
        assert judged(error) == (LOST, "aiokafka")
    finally:
        cluster.up()
    asyncio.run(sending(cluster.bootstrap)())


def test_a_connection_that_is_lost_after_sending(cluster, expiring):
    """The broker has had the message when the connection ends."""
    cluster.forget()
    expiring(lambda: True)

    def lose(_):
        cluster.slow(60.0)
        threading.Thread(target=end).start()

    def end():
        wait_until(lambda: cluster.requests("Produce") == 1, "the message at the broker")
        cluster.down()

    try:
        error = seen(sending(cluster.bootstrap, ready=lose))
        assert judged(error) == (LOST, "aiokafka")
        assert cluster.requests("Produce") == 1
    finally:
        cluster.slow(0)
        cluster.up()


def test_an_answer_that_comes_too_late(cluster, expiring):
    """The broker has had the message: a timeout after sending."""
    cluster.forget()
    expiring(lambda: True)

    def hurry(producer):
        cluster.slow(30.0)
        for connection in producer.client._conns.values():
            connection._request_timeout = 0.3

    try:
        error = seen(sending(cluster.bootstrap, ready=hurry))
        wait_until(lambda: cluster.requests("Produce") >= 1, "the message at the broker")
    finally:
        cluster.slow(0)
    assert judged(error) == (SLOW, "aiokafka")


# --- what a broker answers ------------------------------------------------------------------------

PRODUCE = [
    (29, "auth", 1),
    (31, "auth", 1),
    (10, "permanent", 1),
    (87, LOST, 3),  # INVALID_RECORD has no class: an UnknownError, as if the broker had failed
    (-1, LOST, 3),
]


@pytest.mark.parametrize(("code", "kind", "requests"), PRODUCE)
def test_messages_that_a_broker_refuses(code, kind, requests, cluster):
    """What is worth repeating reaches the broker three times, the rest once."""
    cluster.forget()
    cluster.fail("Produce", *[code] * 3)
    error, count = tried(sending(cluster.bootstrap))
    cluster.fail("Produce")
    assert judged(error) == (kind, "aiokafka")
    assert (count, cluster.requests("Produce")) == (requests, requests)


@pytest.mark.parametrize(
    ("code", "kind"), [(7, SLOW), (19, "overload"), (20, "overload ambiguous"), (6, "transient")]
)
def test_what_the_library_repeats_by_itself_until_its_time_is_over(code, kind, cluster, expiring):
    """Many requests for one attempt of ours."""
    cluster.forget()
    cluster.fail("Produce", *[code] * 500)
    expiring(lambda: cluster.requests("Produce") > 1)
    error = seen(sending(cluster.bootstrap))
    cluster.fail("Produce")
    assert judged(error) == (kind, "aiokafka")
    assert cluster.requests("Produce") > 1


def test_topics_that_are_not_there_or_not_allowed(cluster):
    """After aiokafka's own waiting: final."""

    def hurry(producer):
        producer.client._request_timeout_ms = 50

    for code, kind in ((3, "permanent"), (29, "auth")):
        cluster.topic_error("closed", code)
        error, count = tried(sending(cluster.bootstrap, "closed", started=hurry))
        assert (judged(error), count) == ((kind, "aiokafka"), 1)


COMMIT = [(27, "permanent"), (22, "permanent"), (25, "permanent"), (30, "auth"), (12, "permanent")]


def test_consumers(cluster):
    """Commits that a broker refuses, a consumer that is stopped, and mistakes."""

    async def story():
        consumer = AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap, group_id="g", request_timeout_ms=60_000
        )
        part = TopicPartition("news", 0)
        failures = []
        await consumer.start()
        consumer.assign([part])
        for code, kind in COMMIT:
            cluster.fail("OffsetCommit", code)
            failures.append((kind, await failed(consumer.commit({part: 1}))))
        failures.append(("permanent", await failed(consumer.commit({TopicPartition("x", 0): 1}))))
        await consumer.stop()
        failures.append(("permanent", await failed(consumer.getone())))
        without = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap)
        failures.append(("permanent", await failed(without.commit())))
        await without.stop()
        raise Failures(failures)

    for kind, error in seen(story).args[0]:
        assert judged(error) == (kind, "aiokafka"), error


class Failures(Exception):
    """What a story has found."""


async def failed(awaitable):
    """The failure of something that is awaited."""
    try:
        await awaitable
    except Exception as error:
        return error
    return None


def test_a_message_that_is_too_large_is_not_sent(cluster):
    """The client knows its own limit."""
    cluster.forget()
    error, count = tried(sending(cluster.bootstrap, max_request_size=10))
    assert (judged(error), count) == (("permanent", "aiokafka"), 1)
    assert cluster.requests("Produce") == 0


def test_every_code_that_the_library_knows():
    """Its own list gives the class; each has a kind, and none is unknown but `no error`."""
    for code, cls in aiokafka.errors.kafka_errors.items():
        kind, table = judged(cls())
        assert table == "aiokafka"
        assert (kind == Kind.UNKNOWN.value) == (code == 0), cls


def test_failures_that_are_wrapped():
    """A batch that failed unexpectedly is judged by what happened."""
    error = aiokafka.errors.KafkaError("Unexpected error during batch delivery")
    error.__cause__ = ConnectionResetError()
    assert judged(error)[0] == "transient"
    assert judged(aiokafka.errors.KafkaError("?")) == ("unknown", "aiokafka")
    assert TABLE.retries
