"""Brokers that messages of the outbox are published to: one file for each, imported when used.

>>> import asyncio
>>> from mainstay.publishers import Message, open_publisher
>>> publisher = open_publisher(lambda message: print(message.topic, message.payload))
>>> asyncio.run(publisher.publish(Message(id="8d0f", topic="user.created.v1", payload=b"{}")))
user.created.v1 b'{}'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstay.core.outbox.message import Message
    from mainstay.publishers.function import FunctionPublisher
    from mainstay.publishers.http import HttpPublisher
    from mainstay.publishers.kafka import KafkaPublisher
    from mainstay.publishers.nats import NatsPublisher
    from mainstay.publishers.open import open_publisher
    from mainstay.publishers.rabbitmq import RabbitPublisher
    from mainstay.publishers.redis_streams import RedisStreamsPublisher

__all__ = [
    "FunctionPublisher",
    "HttpPublisher",
    "KafkaPublisher",
    "Message",
    "NatsPublisher",
    "RabbitPublisher",
    "RedisStreamsPublisher",
    "open_publisher",
]

_HOMES = {
    "FunctionPublisher": "mainstay.publishers.function",
    "HttpPublisher": "mainstay.publishers.http",
    "KafkaPublisher": "mainstay.publishers.kafka",
    "Message": "mainstay.core.outbox.message",
    "NatsPublisher": "mainstay.publishers.nats",
    "RabbitPublisher": "mainstay.publishers.rabbitmq",
    "RedisStreamsPublisher": "mainstay.publishers.redis_streams",
    "open_publisher": "mainstay.publishers.open",
}


def __getattr__(name: str) -> object:
    """Loads what is asked for: the client of a broker is imported by its own publisher alone."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
