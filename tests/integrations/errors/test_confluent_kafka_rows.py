"""confluent-kafka: librdkafka's own codes, and what the serializers raise."""

import gc
import threading
import time

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    DeserializingConsumer,
    KafkaError,
    KafkaException,
    Producer,
    SerializingProducer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.serialization import IntegerDeserializer, IntegerSerializer, StringSerializer

from tests.integrations.errors.kafka_stub import KafkaStub, batch
from tests.integrations.errors.raw_server import scripted
from tests.integrations.errors.rows import comes_to
from tests.integrations.errors.service_stub import dead_port
from tests.servers.kafka import MockCluster
from tools.provoked import handed

QUIET = {"log_level": 0}


@pytest.fixture(scope="module")
def cluster():
    with MockCluster() as cluster:
        cluster.topic("news")
        cluster.join_at_once()
        yield cluster


@pytest.fixture(scope="module")
def stub():
    stub = KafkaStub()
    yield stub
    stub.close()


def of_background(code, settings):
    """An error that no call waits for: librdkafka hands it to a callback."""
    found = []
    producer = Producer({**QUIET, **settings, "error_cb": found.append})
    for _ in range(600):
        producer.poll(0.1)
        for each in found:
            if each.code() == code:
                raise handed(KafkaException(each))


def reported(cluster, act, **settings):
    """What the report of a message has."""
    reports = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **QUIET, **settings})
    producer.produce("news", b"x", on_delivery=lambda error, _message: reports.append(error))
    act(producer)
    producer.flush(30)
    raise handed(KafkaException(reports[0]))


def consumer(cluster, kind=Consumer, **settings):
    return kind({"bootstrap.servers": cluster.bootstrap, "group.id": "g", **QUIET, **settings})


def at_the_end(cluster):
    made = consumer(cluster, **{"enable.partition.eof": True})
    try:
        made.assign([TopicPartition("news", 0, 0)])
        for _ in range(600):
            message = made.poll(0.1)
            if message is not None and message.error():
                raise handed(KafkaException(message.error()))
    finally:
        made.close()


def out_of_range(cluster):
    made = consumer(cluster, **{"auto.offset.reset": "error"})
    try:
        made.assign([TopicPartition("news", 0, 999)])
        for _ in range(600):
            message = made.poll(0.1)
            if message is not None and message.error():
                raise handed(KafkaException(message.error()))
    finally:
        made.close()


def nothing_to_commit(cluster):
    made = consumer(cluster)
    try:
        made.commit(asynchronous=False)
    finally:
        made.close()


def serialized(cluster, **serializers):
    producer = SerializingProducer(
        {"bootstrap.servers": cluster.bootstrap, **QUIET,
         **{name.replace("_", "."): each for name, each in serializers.items()}}
    )  # fmt: skip
    producer.produce("news", key="no number", value="no number")


def begun_twice(cluster):
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "t", **QUIET})
    producer.begin_transaction()


def until(poll, holds):
    """Polls until something holds, for a minute at most."""
    for _ in range(600):
        poll(0.1)
        if holds():
            return
    raise AssertionError("it never held")


def damaged(*answers, **settings):
    """Of a broker that answers the first message so."""
    (code,) = settings.pop("code")
    with scripted(*answers) as port:
        return of_background(code, {"bootstrap.servers": f"127.0.0.1:{port}", **settings})


def refused_handshake(_hello):
    """An alert that does not come at once: librdkafka calls that a transport failure."""
    time.sleep(0.05)
    return b"\x15\x03\x03\x00\x02\x02\x28"


def refused_login(cluster):
    cluster.fail("SaslHandshake", *[KafkaError.UNSUPPORTED_SASL_MECHANISM] * 20)
    try:
        return of_background(KafkaError._AUTHENTICATION, {
            "bootstrap.servers": cluster.bootstrap, "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": "secret",
        })  # fmt: skip
    finally:
        cluster.fail("SaslHandshake")


def administrator(bootstrap):
    return AdminClient({"bootstrap.servers": bootstrap, **QUIET})


def fenced_instance(cluster):
    """Offsets of a group, which an administrator sets."""
    cluster.fail("OffsetCommit", *[KafkaError.FENCED_INSTANCE_ID] * 9)
    try:
        parts = ConsumerGroupTopicPartitions("set", [TopicPartition("news", 0, 1)])
        admin = administrator(cluster.bootstrap)
        (answer,) = admin.alter_consumer_group_offsets([parts]).values()
        raise handed(KafkaException(answer.result(60).topic_partitions[0].error))
    finally:
        cluster.fail("OffsetCommit")


def deleted_records(cluster):
    admin = administrator(cluster.bootstrap)
    (answer,) = admin.delete_records([TopicPartition("nowhere", 0, 1)]).values()
    answer.result(60)


def destroyed(_cluster):
    """An administrator that is gone before the broker answers."""
    with scripted(None) as port:
        admin = administrator(f"127.0.0.1:{port}")
        (answer,) = admin.create_topics([NewTopic("new", 1, 1)]).values()
        del admin
        gc.collect()
        answer.result(60)


def purged_on_its_way(cluster):
    """A message that was sent, and not answered."""
    reports = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, **QUIET})
    producer.produce("news", b"x")
    producer.flush(60)
    cluster.forget()
    cluster.slow(2.0)
    try:
        producer.produce("news", b"x", on_delivery=lambda error, _: reports.append(error))
        until(lambda _: producer.poll(0.005), lambda: cluster.requests("Produce"))
        producer.purge(in_queue=True, in_flight=True)
        until(producer.poll, lambda: reports)
    finally:
        cluster.slow(0)
    raise handed(KafkaException(reports[0]))


def fatal(cluster):
    """After a fatal error nothing more is taken."""
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": "fatal"}
    producer = Producer({**settings, **QUIET})
    producer.init_transactions(60)
    producer.begin_transaction()
    cluster.fail("Produce", *[KafkaError.INVALID_PRODUCER_EPOCH] * 9)
    try:
        producer.produce("news", b"x")
        error = comes_to("cimpl.KafkaException code fatal", lambda: producer.commit_transaction(60))
        assert error.args[0].name() == "_FENCED"
    finally:
        cluster.fail("Produce")
    producer.produce("news", b"x")


def unknown_topic(cluster):
    """What was found out for an earlier message."""
    cluster.topic_error("gone", KafkaError.UNKNOWN_TOPIC_OR_PART)
    producer = Producer({
        "bootstrap.servers": cluster.bootstrap, "topic.metadata.propagation.max.ms": 1, **QUIET
    })  # fmt: skip
    for _ in range(2):
        producer.produce("gone", b"x")
        producer.flush(60)


def assigned_twice(cluster):
    made = consumer(cluster)
    try:
        for _ in range(2):
            made.incremental_assign([TopicPartition("news", 0, 0)])
    finally:
        made.close()


def lost(cluster):
    """A commit of what another member of the group may have by now."""
    found, assigned = [], []

    def commit(made, _partitions):
        try:
            made.commit(asynchronous=False)
        except KafkaException as error:
            found.append(error)

    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "lost", **QUIET}
    made = Consumer({**settings, "heartbeat.interval.ms": 10})
    try:
        made.subscribe(["news"], on_assign=lambda *_: assigned.append(1), on_lost=commit)
        until(made.poll, lambda: assigned)
        cluster.fail("Heartbeat", *[KafkaError.UNKNOWN_MEMBER_ID] * 3)
        until(made.poll, lambda: found)
    finally:
        cluster.fail("Heartbeat")
        made.close()
    raise found[0]


def late(cluster):
    """A consumer that polls too seldom; librdkafka looks twice a second."""
    made = consumer(cluster, **{
        "max.poll.interval.ms": 10, "session.timeout.ms": 10, "heartbeat.interval.ms": 5
    })  # fmt: skip
    try:
        made.subscribe(["news"])
        for _ in range(600):
            time.sleep(0.05)
            message = made.poll(0)
            if message is not None and message.error():
                raise handed(KafkaException(message.error()))
    finally:
        made.close()


def sharing(cluster):
    return ShareConsumer({"bootstrap.servers": cluster.bootstrap, "group.id": "s", **QUIET})


def closed_share(cluster):
    made = sharing(cluster)
    made.close()
    made.poll(0.1)


def shared_by_threads(cluster):
    """One of two threads that poll gets it."""
    found = []
    made = sharing(cluster)
    made.subscribe(["news"])

    def poll():
        for _ in range(2000):
            if found:
                return
            try:
                made.poll(0.01)
            except Exception as error:
                found.append(error)

    threads = [threading.Thread(target=poll) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    # After such polls librdkafka's close waits without an end, in one run of very many; no signal
    # interrupts it.
    closing = threading.Thread(target=made.close, daemon=True)
    closing.start()
    closing.join(10.0)
    raise found[0]


ITS_OWN = {
    "_RESOLVE": lambda _: of_background(
        KafkaError._RESOLVE,
        {"bootstrap.servers": "127.0.0.1:1", "broker.address.family": "v6"},
    ),
    "_BAD_MSG": lambda _: damaged(b"HTTP/1.1 400 Bad\r\n\r\n", None, code=[KafkaError._BAD_MSG]),
    "_SSL": lambda _: damaged(
        refused_handshake, None, code=[KafkaError._SSL],
        **{"security.protocol": "ssl"},
    ),
    "_AUTHENTICATION": refused_login,
    "FENCED_INSTANCE_ID": fenced_instance,
    "_NOENT": deleted_records,
    "_DESTROY": destroyed,
    "_PURGE_INFLIGHT": purged_on_its_way,
    "_FATAL": fatal,
    "_UNKNOWN_TOPIC": unknown_topic,
    "_CONFLICT": assigned_twice,
    "_ASSIGNMENT_LOST": lost,
    "_MAX_POLL_EXCEEDED": late,
}  # fmt: skip


@pytest.mark.parametrize("code", ITS_OWN)
def test_codes_of_librdkafka(cluster, code):
    """As it uses them itself, of what goes on in the background, in a report, or in a call."""
    comes_to(f"cimpl.KafkaException code {code}", lambda: ITS_OWN[code](cluster))


SHARES = {
    "IllegalStateException": closed_share,
    "ConcurrentModificationException": shared_by_threads,
}


@pytest.mark.parametrize("row", SHARES)
def test_share_consumers(cluster, row):
    """Wrong calls of one."""
    comes_to(f"cimpl.{row}", lambda: SHARES[row](cluster))


def fetched(stub, messages):
    """The error that takes the place of a message."""
    stub.messages = messages
    settings = {"bootstrap.servers": f"127.0.0.1:{stub.port}", "group.id": "g", **QUIET}
    made = Consumer(settings)
    found = []

    def poll(timeout):
        message = made.poll(timeout)
        if message is not None:
            found.append(message.error())

    try:
        made.assign([TopicPartition("news", 0, 0)])
        until(poll, lambda: found)
    finally:
        made.close()
    raise handed(KafkaException(found[0]))


def sent_together(stub):
    """The third of three messages, of which the first two are refused."""
    reports = []
    settings = {"bootstrap.servers": f"127.0.0.1:{stub.port}", "linger.ms": 100, **QUIET}
    producer = Producer(settings)
    for _ in range(3):
        producer.produce(
            "news", b"x", partition=0, on_delivery=lambda error, _: reports.append(error)
        )
    until(producer.poll, lambda: len(reports) == 3)
    raise handed(KafkaException(reports[2]))


def unsupported(stub):
    admin = administrator(f"127.0.0.1:{stub.port}")
    (answer,) = admin.create_topics([NewTopic("new", 1, 1)]).values()
    answer.result(60)


def joined_oddly(stub):
    """A group that shares its partitions in a way that this member did not offer."""
    settings = {"bootstrap.servers": f"127.0.0.1:{stub.port}", "group.id": "odd", **QUIET}
    made = Consumer(settings)
    try:
        made.subscribe(["news"])
        for _ in range(600):
            message = made.poll(0.1)
            if message is not None and message.error():
                raise handed(KafkaException(message.error()))
    finally:
        made.close()


STUBBED = {
    "_BAD_COMPRESSION": lambda stub: fetched(stub, batch(1, b"no gzip")),
    "_NOT_IMPLEMENTED": lambda stub: fetched(stub, batch(7, b"of the future")),
    "_INVALID_DIFFERENT_RECORD": sent_together,
    "_UNSUPPORTED_FEATURE": unsupported,
    "_UNKNOWN_PROTOCOL": joined_oddly,
}


@pytest.mark.parametrize("code", STUBBED)
def test_what_the_mock_cluster_does_not_answer(stub, code):
    """Messages that are damaged, or refused for another one; a broker that is too old."""
    comes_to(f"cimpl.KafkaException code {code}", lambda: STUBBED[code](stub))


ROWS = {
    "cimpl.KafkaException code _ALL_BROKERS_DOWN": lambda _: of_background(
        KafkaError._ALL_BROKERS_DOWN, {"bootstrap.servers": f"127.0.0.1:{dead_port()}"}
    ),
    "cimpl.KafkaException code _AUTO_OFFSET_RESET": out_of_range,
    "cimpl.KafkaException code _PURGE_QUEUE": lambda cluster: reported(
        cluster, lambda producer: producer.purge(), **{"linger.ms": 60000}
    ),
    "cimpl.KafkaException code _PARTITION_EOF": at_the_end,
    "cimpl.KafkaException code _NO_OFFSET": nothing_to_commit,
    "cimpl.KafkaException code _STATE": begun_twice,
    "confluent_kafka.error.KeySerializationError wraps": lambda cluster: serialized(
        cluster, key_serializer=IntegerSerializer()
    ),
    "confluent_kafka.error.ValueSerializationError wraps": lambda cluster: serialized(
        cluster, value_serializer=IntegerSerializer()
    ),
    "confluent_kafka.serialization.SerializationError": lambda _: IntegerDeserializer()(b"x"),
}


@pytest.mark.parametrize("row", ROWS)
def test_rows(cluster, row):
    """Librdkafka and the classes around it raise it, or hand it over."""
    comes_to(row, lambda: ROWS[row](cluster))


def deserialized(cluster, **deserializers):
    made = consumer(cluster, DeserializingConsumer, **{
        name.replace("_", "."): each for name, each in deserializers.items()
    })  # fmt: skip
    try:
        made.assign([TopicPartition("letters", 0, 0)])
        for _ in range(600):
            made.poll(0.1)
    finally:
        made.close()


def test_messages_that_cannot_be_read(cluster):
    """A message of letters, read as numbers."""
    cluster.topic("letters")
    producer = SerializingProducer(
        {"bootstrap.servers": cluster.bootstrap, "key.serializer": StringSerializer(),
         "value.serializer": StringSerializer(), **QUIET}
    )  # fmt: skip
    producer.produce("letters", key="abc", value="abc")
    producer.flush(30)
    comes_to(
        "confluent_kafka.error.KeyDeserializationError",
        lambda: deserialized(cluster, key_deserializer=IntegerDeserializer()),
    )
    comes_to(
        "confluent_kafka.error.ValueDeserializationError",
        lambda: deserialized(cluster, value_deserializer=IntegerDeserializer()),
    )
