"""confluent-kafka: one record, delivered or given up in time.

librdkafka looks for records that have timed out once a second, so that a delivery ends up to a
second after its `delivery.timeout.ms`. `deliver` waits for the report itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mainstay.deadline as deadline
from mainstay.core.base.validate import Checker
from mainstay.errors import MissingExtraError
from mainstay.runtime.clock import SYSTEM

try:
    from confluent_kafka import KafkaError, KafkaException
except ImportError:
    raise MissingExtraError("confluent-kafka", "kafka") from None

if TYPE_CHECKING:
    from typing import Any

    from confluent_kafka import Message, Producer

    from mainstay.core.base.types import Seconds

__all__ = ["deliver"]

_POLL = 0.5
"""Seconds after which a Ctrl+C is looked for, at most."""


def deliver(
    producer: Producer, topic: str, value: bytes | None = None, *, timeout: Seconds, **record: Any
) -> Message:
    """Produces a record and waits until a broker has acknowledged it; returns it with its offset.

    A record that was given up may still be delivered while librdkafka has it in its queue: give the
    producer the same time as its `delivery.timeout.ms`, and make the consumer idempotent.

    Args:
        producer: yours.
        topic: where the record goes.
        value: its content.
        timeout: seconds to wait; less if a deadline is near.
        record: what else `produce` takes: `key`, `headers`, `partition`, `timestamp`.

    Raises:
        KafkaException: it was not delivered; after the timeout with the code `_MSG_TIMED_OUT`.

    >>> from confluent_kafka import Producer
    >>> producer = Producer({"bootstrap.servers": "127.0.0.1:9", "log_level": 0})
    >>> deliver(producer, "users", b"{}", timeout=0.01)
    Traceback (most recent call last):
    cimpl.KafkaException: KafkaError{code=_MSG_TIMED_OUT,val=-192,str="no acknowledgement ...
    >>> producer.purge()  # what is in its queue, or Python would wait for it at the end
    """
    check = Checker("deliver")
    seconds = check.seconds("timeout", timeout, zero=False)
    check.close()
    left = deadline.remaining()
    seconds = seconds if left is None else min(seconds, left)
    end = SYSTEM.monotonic() + seconds  # librdkafka waits in real time, also in a test without it
    reports: list[tuple[KafkaError | None, Message]] = []
    producer.produce(topic, value, on_delivery=lambda *report: reports.append(report), **record)
    while not reports:
        left = end - SYSTEM.monotonic()
        if left <= 0.0:
            text = f"no acknowledgement within {seconds:g} s"
            raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT, text))  # noqa: SLF001
        producer.poll(min(left, _POLL))
    error, stored = reports[0]
    if error is not None:
        raise KafkaException(error)
    return stored
