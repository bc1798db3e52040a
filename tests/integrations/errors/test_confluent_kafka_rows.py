"""confluent-kafka: librdkafka's own codes, and what the serializers raise."""

import pytest
from confluent_kafka import (
    Consumer,
    DeserializingConsumer,
    KafkaError,
    KafkaException,
    Producer,
    SerializingProducer,
    TopicPartition,
)
from confluent_kafka.serialization import IntegerDeserializer, IntegerSerializer, StringSerializer

from tests.integrations.errors.rows import comes_to
from tests.integrations.errors.service_stub import dead_port
from tests.servers.kafka import MockCluster
from tools.provoked import handed

QUIET = {"log_level": 0}


@pytest.fixture(scope="module")
def cluster():
    with MockCluster() as cluster:
        cluster.topic("news")
        yield cluster


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
