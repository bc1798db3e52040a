"""Publishes the lines of its input: KAFKA_SERVERS=host:port publish_kafka.py TOPIC."""

import os
import sys

from confluent_kafka import KafkaException, Producer

import mainstay

producer = Producer(
    {
        "bootstrap.servers": os.environ["KAFKA_SERVERS"],
        "enable.idempotence": True,
        "delivery.timeout.ms": int(os.environ.get("KAFKA_TIMEOUT_MS", "10000")),
    }
)


@mainstay.retry(on=mainstay.transient, attempts=3)
def publish(topic, line):
    reports = []
    producer.produce(topic, line, on_delivery=lambda error, _: reports.append(error))
    producer.flush()
    if reports[0] is not None:
        raise KafkaException(reports[0])


for line in sys.stdin:
    publish(sys.argv[1], line.strip())
    print("published", line.strip())
