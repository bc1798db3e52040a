"""confluent-kafka against librdkafka's mock cluster, which fails on command.

Raised by the test itself: librdkafka's own codes for states that a cluster on one machine does not
come into, the serializers, and the errors of the schema registry, whose client needs more packages.
"""

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.error import ConsumeError, KeySerializationError, ValueDeserializationError

from mainstay.core.known.kind import Kind
from mainstay.integrations.errors.confluent_kafka import CODES
from mainstay.testing import FaultProxy
from tests.integrations.errors.brokers import BY_DEFAULT, dead_port, judged, seen, tried
from tests.servers.kafka import MockCluster
from tools.provoked import handed

LOST, SLOW = "transient ambiguous", "timeout ambiguous"
SOON = {
    "log_level": 0, "retry.backoff.ms": 1, "retry.backoff.max.ms": 2, "retries": 0,
    "message.timeout.ms": 60_000, "socket.timeout.ms": 60_000, "linger.ms": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster():
    """One broker with one topic."""
    with MockCluster() as cluster:
        cluster.topic("news")
        yield cluster


@pytest.fixture
def consumer(cluster):
    """A consumer that commits."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "log_level": 0,
         "retry.backoff.ms": 1}
    )  # fmt: skip
    yield consumer
    consumer.close()


def produced(bootstrap, topic="news", **settings):
    """Sends one message with a producer of its own and waits; raises what its report has."""
    producer = Producer({"bootstrap.servers": bootstrap, **SOON, **settings})
    reports = []
    producer.produce(topic, b"x", on_delivery=lambda error, _message: reports.append(error))
    producer.flush(120)
    if reports[0] is not None:
        raise handed(KafkaException(reports[0]))


# --- the network ----------------------------------------------------------------------------------


def test_a_dead_port_is_a_timeout_that_may_have_been_sent():
    """A message waits in the client until its own time is over, and is reported so."""
    soon = {"message.timeout.ms": 10}
    error = seen(lambda: produced(f"127.0.0.1:{dead_port()}", **soon))
    assert judged(error) == (SLOW, "confluent_kafka")


def test_no_metadata_of_a_dead_port_is_retried():
    """What asks a broker directly fails as a transport failure."""
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{dead_port()}", "log_level": 0})
    error, count = tried(lambda: producer.list_topics(timeout=0.05))
    assert (judged(error), count) == ((LOST, "confluent_kafka"), 3)


def test_a_black_hole_is_not_reached(cluster):
    """It accepts, and never answers: the time of the request is over."""
    with FaultProxy("127.0.0.1", cluster.port) as proxy:
        proxy.black_hole()
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{proxy.port}", "log_level": 0})
        error, count = tried(lambda: producer.list_topics(timeout=0.1), policy=BY_DEFAULT)
        assert (judged(error), count) == ((LOST, "confluent_kafka"), 3)


def test_a_broker_that_goes_away_and_comes_back(cluster):
    """Down, a message times out; up again, the same call works."""
    cluster.down()
    try:
        error = seen(lambda: produced(cluster.bootstrap, **{"message.timeout.ms": 10}))
        assert judged(error) == (SLOW, "confluent_kafka")
    finally:
        cluster.up()
    produced(cluster.bootstrap)


def test_an_answer_that_comes_too_late(cluster):
    """The broker has had the message; the report is a timeout."""
    cluster.forget()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **SOON, "message.timeout.ms": 300})
    producer.list_topics(timeout=60)
    cluster.slow(30.0)
    reports = []
    try:
        producer.produce("news", b"x", on_delivery=lambda error, _: reports.append(error))
        producer.flush(120)
    finally:
        cluster.slow(0)
    assert judged(KafkaException(reports[0])) == (SLOW, "confluent_kafka")


def test_the_retries_of_librdkafka_stay_and_multiply(cluster):
    """Three attempts of ours with three more each of librdkafka are twelve on the wire."""
    cluster.forget()
    cluster.fail("Produce", *[KafkaError.REQUEST_TIMED_OUT] * 12)
    error, count = tried(lambda: produced(cluster.bootstrap, retries=3))
    assert (judged(error), count) == ((SLOW, "confluent_kafka"), 3)
    assert cluster.requests("Produce") == 12


def test_some_errors_are_repeated_by_librdkafka_whatever_its_settings(cluster):
    """A new leader is looked for even with retries=0, until the time of the message is over."""
    cluster.forget()
    cluster.fail("Produce", *[KafkaError.NOT_LEADER_FOR_PARTITION] * 5)
    produced(cluster.bootstrap)
    assert cluster.requests("Produce") == 6


# --- what a broker answers ------------------------------------------------------------------------

NAMES = {
    getattr(KafkaError, name): name
    for name in dir(KafkaError)
    if isinstance(getattr(KafkaError, name), int) and name.lstrip("_").isupper()
}
DEADLY = KafkaError.FENCED_INSTANCE_ID
"""After which closing the consumer never ends, in librdkafka 2.16."""


def test_every_code_of_the_library_is_judged():
    """A code that nobody has looked at is found when the library adds it."""
    assert sorted(set(NAMES.values()) - set(CODES)) == []
    assert sorted(set(CODES) - set(NAMES.values())) == []
    for code, name in NAMES.items():
        assert KafkaError(code).name() == name


def test_every_code_of_a_broker_is_judged_as_the_table_has_it(cluster, consumer):
    """Each is the broker's answer to a commit, through the real library."""
    topic = [TopicPartition("news", 0, 1)]
    consumer.commit(offsets=topic, asynchronous=False)
    codes = [code for code in NAMES if code >= -1 and code not in (0, DEADLY)]
    try:
        for code in codes:
            row = CODES[NAMES[code]]
            cluster.fail("OffsetCommit", *[code] * 20)
            error = seen(lambda: consumer.commit(offsets=topic, asynchronous=False))
            assert error.args[0].name() == NAMES[code]
            words = f"{row.kind.value} ambiguous" if row.ambiguous else row.kind.value
            assert judged(error) == (words, "confluent_kafka"), NAMES[code]
    finally:
        cluster.fail("OffsetCommit")


PRODUCE = [
    ("REQUEST_TIMED_OUT", SLOW, 3),
    ("NOT_ENOUGH_REPLICAS", "overload", 3),
    ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", "overload ambiguous", 3),
    ("THROTTLING_QUOTA_EXCEEDED", "throttled", 3),
    ("UNKNOWN", LOST, 3),
    ("TOPIC_AUTHORIZATION_FAILED", "auth", 1),
    ("CLUSTER_AUTHORIZATION_FAILED", "auth", 1),
    ("MSG_SIZE_TOO_LARGE", "permanent", 1),
    ("INVALID_RECORD", "permanent", 1),
]


@pytest.mark.parametrize(("name", "kind", "requests"), PRODUCE)
def test_messages_that_a_broker_refuses(name, kind, requests, cluster):
    """What is worth repeating reaches the broker three times, the rest once."""
    cluster.forget()
    cluster.fail("Produce", *[getattr(KafkaError, name)] * 3)
    error, count = tried(lambda: produced(cluster.bootstrap))
    cluster.fail("Produce")
    assert judged(error) == (kind, "confluent_kafka")
    assert (count, cluster.requests("Produce")) == (requests, requests)


def test_a_topic_that_is_not_there(cluster):
    """After librdkafka's own waiting for it: final."""
    cluster.topic_error("nowhere", KafkaError.UNKNOWN_TOPIC_OR_PART)
    soon = {"topic.metadata.propagation.max.ms": 1}
    error, count = tried(lambda: produced(cluster.bootstrap, "nowhere", **soon))
    assert (judged(error), count) == (("permanent", "confluent_kafka"), 1)


def test_a_producer_that_is_fenced_is_fatal(cluster):
    """Another instance has the transactional id: nothing it is asked for can succeed."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "transactional.id": "one",
         "message.timeout.ms": 60_000, "transaction.timeout.ms": 60_000}
    )  # fmt: skip
    producer.init_transactions(60)
    producer.begin_transaction()
    cluster.fail("Produce", *[KafkaError.INVALID_PRODUCER_EPOCH] * 2)
    producer.produce("news", b"x")
    error = seen(lambda: producer.commit_transaction(60))
    cluster.fail("Produce")
    assert error.args[0].fatal()
    assert judged(error) == ("permanent ambiguous", "confluent_kafka")


@pytest.mark.parametrize(
    ("name", "kind"),
    [("UNKNOWN_PRODUCER_ID", "transient"), ("MSG_SIZE_TOO_LARGE", "permanent")],
)
def test_a_transaction_that_must_be_aborted_can_be_repeated_whole(name, kind, cluster):
    """Unless the broker would refuse the message again."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "transactional.id": name,
         "message.timeout.ms": 60_000, "transaction.timeout.ms": 60_000}
    )  # fmt: skip
    producer.init_transactions(60)
    producer.begin_transaction()
    cluster.fail("Produce", *[getattr(KafkaError, name)] * 3)
    producer.produce("news", b"x")
    error = seen(lambda: producer.commit_transaction(60))
    cluster.fail("Produce")
    assert error.args[0].txn_requires_abort()
    assert judged(error) == (kind, "confluent_kafka")


# --- what the library decides by itself -----------------------------------------------------------


def test_mistakes_are_final(cluster, consumer):
    """Configuration, a consumer that is closed, a subscription that is missing."""
    assert judged(seen(lambda: Producer({"no.such": "setting"})))[0] == "permanent"
    assert judged(seen(lambda: consumer.seek(TopicPartition("news", 0, 0))))[0] == "permanent"
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **SOON})
    assert judged(seen(producer.begin_transaction))[0] == "permanent"
    large = seen(lambda: producer.produce("news", b"x" * 2_000_000))
    assert judged(large) == ("permanent", "confluent_kafka")


def test_an_administration_that_finds_no_controller(cluster):
    """A timeout of librdkafka's own."""
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{dead_port()}", "log_level": 0})
    (created,) = admin.create_topics([NewTopic("n", 1, 1)], request_timeout=0.05).values()
    assert judged(seen(created.result)) == (SLOW, "confluent_kafka")
    assert cluster.bootstrap


def test_a_full_queue_is_a_built_in_error(cluster):
    """`BufferError` is no class of Kafka's: poll, and try again."""
    settings = {"queue.buffering.max.messages": 1, "linger.ms": 1000}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **SOON, **settings})
    producer.produce("news", b"x")
    assert isinstance(seen(lambda: producer.produce("news", b"x")), BufferError)
    producer.purge()


@pytest.mark.parametrize("code", sorted(code for code in NAMES if code < -1 or code == DEADLY))
def test_codes_of_librdkafka_itself(code):
    """An exception with each of them, and with the one that is not provoked, by its name."""
    row = CODES[NAMES[code]]
    kind, table = judged(KafkaException(KafkaError(code)))
    assert kind.partition(" ")[0] == row.kind.value
    assert table == "confluent_kafka"


def test_exceptions_with_a_code_inside_and_without_one():
    """The wrappers are judged by what they carry."""
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert judged(ConsumeError(error)) == ("auth", "confluent_kafka")
    assert judged(ValueDeserializationError(ValueError("no JSON")))[0] == "permanent"
    assert judged(KeySerializationError(ConnectionResetError()))[0] == "transient"
    assert judged(KeySerializationError(ValueError()))[0] == "permanent"
    assert (
        judged(KafkaException(KafkaError(KafkaError._FAIL, "why", retriable=True)))[0] == "unknown"
    )
    assert judged(KafkaException("no code")) == (Kind.UNKNOWN.value, "confluent_kafka")
