"""aiokafka: every code that a broker may answer with, through its client for administrators.

A stub of Kafka's protocol answers with each of them; librdkafka's mock cluster is for the rest. The
numbers are those of "Error codes" in Kafka's protocol guide, of which aiokafka keeps a list.
"""

import asyncio
import contextlib
import logging

import aiokafka.errors
import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.integrations.errors.kafka_stub import KafkaStub
from tests.integrations.errors.rows import comes_to, raised_by, row_of
from tests.servers.kafka import MockCluster

PART = TopicPartition("news", 0)


@pytest.fixture(scope="module", autouse=True)
def quiet():
    """What goes on in the background is logged as an error; nobody needs it here."""
    logger = logging.getLogger("aiokafka")
    before, logger.disabled = logger.disabled, True
    yield
    logger.disabled = before


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


def large_message(stub):
    """Larger than what is fetched at once, for a broker of before 0.10.1, which cuts it."""
    return consuming(f"127.0.0.1:{stub.port}", lambda made: made.seek(PART, 0))


CALLS = {
    "RecordTooLargeError": large_message,
    "IncompatibleBrokerVersion": unknown_request,
    "IllegalOperation": no_group,
    "IllegalArgumentError": lambda _: NewTopic("t", 1, 1, {0: [0]}),
}


@pytest.mark.parametrize("row", CALLS)
def test_calls(stub, row):
    """What aiokafka finds by itself."""
    comes_to(f"aiokafka.errors.{row}", lambda: CALLS[row](stub))


# --- librdkafka's mock cluster --------------------------------------------------------------------


async def consuming(bootstrap, act=None, **settings):
    """What the next message is, or what `act` comes to with a consumer of the partition."""
    made = AIOKafkaConsumer(bootstrap_servers=bootstrap, **settings)
    try:
        await made.start()
        made.assign([PART])
        found = None if act is None else act(made)
        await (made.getone() if found is None else found)
    finally:
        await made.stop()


async def producing(bootstrap, *acts, **settings):
    made = AIOKafkaProducer(bootstrap_servers=bootstrap, **settings)
    try:
        await made.start()
        for act in acts:
            await act(made)
    finally:
        await made.stop()


@pytest.fixture(scope="module")
def cluster():
    with MockCluster() as cluster:
        cluster.topic("news")
        yield cluster


def compressed(cluster):
    """As librdkafka compresses by itself, and aiokafka does with a library more."""
    settings = {"bootstrap.servers": cluster.bootstrap, "compression.type": "snappy"}
    producer = confluent_kafka.Producer({**settings, "log_level": 0})
    producer.produce("news", b"x" * 1000)
    producer.flush(60)
    return consuming(cluster.bootstrap, auto_offset_reset="earliest")


async def joining(cluster):
    cluster.fail("JoinGroup", *[INVALID_REQUEST] * 9)
    made = AIOKafkaConsumer("news", bootstrap_servers=cluster.bootstrap, group_id="joining")
    try:
        await made.start()
        await made.getone()
    except aiokafka.errors.KafkaError as error:  # that of the task, or what it was raised from
        raise error.__cause__ or error from None
    finally:
        await made.stop()


def starting(cluster):
    cluster.fail("FindCoordinator", *[INVALID_REQUEST] * 9)
    return producing(cluster.bootstrap, transactional_id="starting")


def fenced(cluster):
    cluster.fail("Produce", *[INVALID_PRODUCER_EPOCH] * 9)
    return producing(
        cluster.bootstrap, lambda made: made.send_and_wait("news", b"x"), enable_idempotence=True
    )


def asking(cluster):
    """Where a partition begins, of a broker that sends the client elsewhere for ever."""

    def act(made):
        made._request_timeout_ms = 20
        return made.beginning_offsets([PART])

    cluster.fail("ListOffsets", *[NOT_LEADER] * 500)
    return consuming(cluster.bootstrap, act, retry_backoff_ms=5)


def closed(cluster):
    return producing(
        cluster.bootstrap,
        lambda made: made.send_and_wait("news", b"x"),
        lambda made: made.stop(),
        lambda made: made.send("news", b"x"),
    )


NOT_LEADER, INVALID_REQUEST, INVALID_PRODUCER_EPOCH = 6, 42, 47
FAILING = {
    "UnsupportedCodecError": compressed,
    "NoOffsetForPartitionError": lambda cluster: consuming(
        cluster.bootstrap, group_id="new", auto_offset_reset="none"
    ),
    "KafkaError otherwise": joining,
    "KafkaError wraps": starting,
    "ProducerFenced": fenced,
    "ProducerClosed": closed,
    "KafkaTimeoutError": asking,
}


@pytest.mark.parametrize("row", FAILING)
def test_producers_and_consumers(cluster, row):
    """Of a broker that fails, and of the client itself."""
    try:
        comes_to(f"aiokafka.errors.{row}", lambda: FAILING[row](cluster))
    finally:
        for request in ("JoinGroup", "FindCoordinator", "Produce", "ListOffsets"):
            cluster.fail(request)
