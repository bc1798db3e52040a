"""KafkaPublisher against the mock cluster of librdkafka, which fails on command."""

import asyncio
import uuid
from contextlib import contextmanager

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from mainstay import deadline
from mainstay.core.known.kind import RETRIED_KINDS, Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.errors import MainstayError
from mainstay.publishers import kafka
from mainstay.publishers.kafka import KafkaPublisher
from mainstay.testing import PublisherContract, Received
from mainstay.testing.publishers import acknowledged, failure_of, message_of
from tests.publishers.forked import IDS, publish_in_children
from tests.servers.kafka import MockCluster


@pytest.fixture
def cluster():
    with MockCluster() as cluster:
        yield cluster


@contextmanager
def reading(cluster, topic):
    settings = {
        "bootstrap.servers": cluster.bootstrap, "group.id": "readers", "log_level": 0,
        "enable.partition.eof": True, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10,
    }  # fmt: skip
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        yield consumer
    finally:
        consumer.close()


def read(cluster, topic):
    """The records of the one partition of a topic."""
    found = []
    with reading(cluster, topic) as consumer:
        while True:
            record = consumer.poll(30)
            assert record is not None, "no answer"
            if record.error() is None:
                found.append(record)
            elif record.error().code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise AssertionError(record.error())


def received(record):
    headers = {name: value.decode() for name, value in record.headers()}
    attributes = {n.removeprefix("ce_"): v for n, v in headers.items() if n.startswith("ce_")}
    attributes["datacontenttype"] = headers["content-type"]
    return Received(attributes["id"], record.value() or b"", attributes)


def topic_of(cluster):
    name = f"paid-{uuid.uuid4()}"
    cluster.topic(name)
    return name


class TestContract(PublisherContract):
    too_large = 1_048_589

    @pytest.fixture(autouse=True)
    def _cluster(self, cluster):
        self.cluster = cluster

    def open(self):
        return KafkaPublisher(
            f"kafka://{self.cluster.bootstrap}?topic.metadata.propagation.max.ms=200", timeout=10.0
        )

    def topic(self):
        return topic_of(self.cluster)

    def missing_topic(self):
        self.cluster.topic_error("no-such-topic", KafkaError.UNKNOWN_TOPIC_OR_PART)
        return "no-such-topic"

    def received(self, topic):
        return [received(each) for each in read(self.cluster, topic)]


def run(cluster, act, **options):
    """Gives a publisher to an async function, and closes it."""

    async def main():
        publisher = KafkaPublisher(f"kafka://{cluster.bootstrap}", **options)
        try:
            return await act(publisher)
        finally:
            await publisher.close()

    return asyncio.run(main())


def ids(cluster, topic):
    return [received(each).id for each in read(cluster, topic)]


def test_a_forked_child_has_a_producer_of_its_own(cluster, tmp_path):
    """It neither uses nor closes that of its parent: each message arrives once."""
    topic = topic_of(cluster)
    publish_in_children(tmp_path, f"kafka://{cluster.bootstrap}", topic)
    assert sorted(ids(cluster, topic)) == sorted(IDS)


def test_the_key_is_the_id_of_the_aggregate(cluster):
    """So that an aggregate stays in one partition; a message without one has no key."""
    topic = topic_of(cluster)
    messages = [message_of(topic, b"1", "o-7"), message_of(topic, b"2", "")]

    async def publish(publisher):
        for message in messages:
            await publisher.publish(message)

    run(cluster, publish)
    assert [each.key() for each in read(cluster, topic)] == [b"o-7", None]


def test_a_broker_that_is_down_is_an_error_until_it_is_back(cluster):
    """One that is worth repeating; the same publisher connects again."""
    topic = topic_of(cluster)
    messages = [message_of(topic, str(number).encode()) for number in range(5)]

    async def publish(publisher):
        await publisher.publish(messages[0])
        cluster.down()
        with deadline.within(0.5):
            error = await failure_of(publisher.publish(messages[1]))
        assert kind_of(error).kind in RETRIED_KINDS
        cluster.up()
        for message in messages[1:]:
            await acknowledged(publisher, message)

    run(cluster, publish)
    assert list(dict.fromkeys(ids(cluster, topic))) == [each.id for each in messages]


def test_acknowledgements_that_come_too_late_are_a_timeout(cluster):
    """The broker has the messages; repeated, they have the same ids."""
    topic = topic_of(cluster)
    messages = [message_of(topic, b"{}", str(number)) for number in range(10)]

    async def publish(publisher):
        await publisher.publish(messages[0])
        cluster.slow(3600.0)
        with deadline.within(0.5):
            sending = map(publisher.publish, messages[1:])
            errors = await asyncio.gather(*sending, return_exceptions=True)
        assert {kind_of(error).kind for error in errors} == {Kind.TIMEOUT}
        cluster.slow(0.0)
        await publisher.close()
        await asyncio.gather(*(acknowledged(publisher, each) for each in messages[1:]))

    run(cluster, publish)
    assert set(ids(cluster, topic)) == {each.id for each in messages}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, Kind.PERMANENT),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Kind.AUTH),
        (KafkaError.INVALID_RECORD, Kind.PERMANENT),
    ],
    ids=["size", "acl", "record"],
)
def test_what_the_broker_refuses_is_known(cluster, code, kind):
    """The next message is delivered; librdkafka remembers for a while that a topic is forbidden."""
    topic, other = topic_of(cluster), topic_of(cluster)
    message = message_of(topic, b"{}")

    async def publish(publisher):
        cluster.fail("Produce", code)
        error = await failure_of(publisher.publish(message_of(other, b"refused")))
        await publisher.publish(message)
        return error

    assert kind_of(run(cluster, publish)).kind is kind
    assert (ids(cluster, topic), ids(cluster, other)) == ([message.id], [])


@pytest.mark.parametrize(
    "codes",
    [
        [KafkaError.NOT_ENOUGH_REPLICAS] * 2,
        [KafkaError.REQUEST_TIMED_OUT],
        [KafkaError.NOT_LEADER_FOR_PARTITION] * 3,
        [KafkaError._TRANSPORT] * 2,
    ],
    ids=["replicas", "timeout", "leader", "transport"],
)
def test_what_passes_is_repeated_by_librdkafka(cluster, codes):
    """Within the time of the message; it is stored once."""
    message = message_of(topic_of(cluster), b"{}")

    async def publish(publisher):
        cluster.fail("Produce", *codes)
        await publisher.publish(message)

    run(cluster, publish, timeout=30)
    assert ids(cluster, message.topic) == [message.id]


def test_a_producer_that_has_failed_for_good_is_replaced(cluster):
    """The message is sent by another one; if that fails too, the failure is the message's."""
    message = message_of(topic_of(cluster), b"{}")

    async def publish(publisher):
        cluster.fail("InitProducerId", KafkaError.CLUSTER_AUTHORIZATION_FAILED)
        await publisher.publish(message)
        await publisher.close()
        cluster.fail("InitProducerId", *[KafkaError.CLUSTER_AUTHORIZATION_FAILED] * 2)
        return await failure_of(publisher.publish(message))

    error = run(cluster, publish)
    assert error.args[0].fatal()
    assert kind_of(error).kind is Kind.PERMANENT
    assert ids(cluster, message.topic) == [message.id]


def test_an_acknowledgement_without_an_offset_is_none(monkeypatch):
    """Librdkafka reports a duplicate as delivered, which the broker may never have stored."""

    class Unsure:
        def __init__(self, *_settings, **_more):
            self.reports = []

        def produce(self, on_delivery, **_record):
            self.reports.append(on_delivery)

        def poll(self, _seconds):
            while self.reports:
                self.reports.pop()(None, self)

        def offset(self):
            return None

        def purge(self): ...

        def flush(self, _seconds): ...

    monkeypatch.setattr(kafka, "Producer", Unsure)

    async def run():
        publisher = KafkaPublisher("kafka://127.0.0.1:9")
        error = await failure_of(publisher.publish(message_of("t", b"{}")))
        await publisher.close()
        return error

    known = kind_of(asyncio.run(run()))
    assert (known.kind, known.is_ambiguous) == (Kind.TRANSIENT, True)


def test_closing_gives_what_is_under_way_an_error_that_is_worth_repeating(cluster):
    """And nothing of it is sent afterwards by the producer that was closed."""
    topic = topic_of(cluster)

    async def publish(publisher):
        cluster.down()
        sending = [asyncio.create_task(publisher.publish(message_of(topic, b"{}"))) for _ in "abc"]
        for _ in range(10):  # each of them is in the queue of librdkafka by then
            await asyncio.sleep(0)
        assert sum(len(each._under_way) for each in _producers(publisher)) == 3
        await publisher.close()
        errors = await asyncio.gather(*sending, return_exceptions=True)
        cluster.up()
        return errors

    assert {kind_of(error).kind for error in run(cluster, publish)} == {Kind.TRANSIENT}
    assert ids(cluster, topic) == []


def _producers(publisher):
    places = list(publisher._links._places.values())
    return [each for place in places if place.link for each in place.link._producers.values()]


def test_a_deadline_bounds_how_long_librdkafka_goes_on(cluster):
    """A producer for each length of time; a caller without a deadline has that of the timeout."""
    topic = topic_of(cluster)
    seen = set()

    async def publish(publisher):
        for seconds in (30.0, 60.0, 60.5, 600.0):
            with deadline.within(seconds):
                await publisher.publish(message_of(topic, b"{}"))
        for place in publisher._links._places.values():
            seen.update(place.link._producers)

    run(cluster, publish, timeout=120)
    assert all(limit <= 120_000 for limit in seen)
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("kafka://", "names no Kafka broker"),
        ("kafka://h:9092/topic", "names no Kafka broker"),
        ("kafka://h:9092?acks.=1&topics=a", "topics is no option of this publisher"),
        ("kafka://h:9092?enable.idempotence=false", "enable.idempotence is set by the publisher"),
        ("kafka://h:9092?delivery.timeout.ms=5", "delivery.timeout.ms is set by the publisher"),
        ("kafka://h:9092?no.such=5", "no.such"),
        ("kafka://h:9092?topic={nonsense}", "nonsense"),
    ],
)
def test_a_wrong_url_is_refused_when_it_is_given(url, words):
    with pytest.raises(MainstayError, match=words):
        KafkaPublisher(url)


def test_settings_of_librdkafka_are_passed_on():
    """In the URL and in code; the password is not shown."""
    publisher = KafkaPublisher(
        "kafka://me:hunter2@h:9092?compression.type=gzip", settings={"linger.ms": 20}
    )
    settings = publisher._settings
    assert (settings["compression.type"], settings["linger.ms"]) == ("gzip", 20)
    assert (settings["sasl.username"], settings["sasl.password"]) == ("me", "hunter2")
    assert (settings["acks"], settings["enable.idempotence"]) == ("all", True)
    assert "hunter2" not in f"{publisher.url} {publisher!r}"
