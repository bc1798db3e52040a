"""Publishes to RabbitMQ with publisher confirms: acknowledged is what every queue has accepted.

Messages are persistent and mandatory. One that no queue takes comes back as an error, which is
permanent: a binding is missing, and a person must create it; until then each repetition would come
back too, and hold what follows. After that a replay publishes it.

A channel has one failure for all: if the broker closes it for one message, such as one that is too
large, those that are under way on it get the same error, and what is sent on it meanwhile closes
the connection. So each of them is sent again over a second connection, one at a time: there its
failure is its own.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import mainstay.integrations.errors  # noqa: F401 -- the tables of known errors
from mainstay.core.known.kind import RETRIED_KINDS
from mainstay.core.retry.kinds import kind_of
from mainstay.errors import MissingExtraError, UsageError
from mainstay.publishers.base import BrokerPublisher, options_in
from mainstay.publishers.connections import Link, LoopConnections
from mainstay.publishers.content import Template, attributes_of

try:
    import aio_pika
    from aio_pika.connection import make_url
    from aio_pika.exceptions import AMQPChannelError, AMQPConnectionError, ChannelInvalidStateError
except ImportError:
    raise MissingExtraError("aio-pika", "rabbitmq") from None

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange

    from mainstay.core.base.types import Seconds
    from mainstay.core.outbox.message import Message

_OPTIONS = {"exchange": str, "routing_key": str, "timeout": float}
_PREFIX = "cloudEvents:"
"""Of the headers; an AMQP 1.0 consumer sees them as application properties of that name."""
_LONGEST = 255
"""Bytes of a routing key and of an id: AMQP writes their length in one."""


class _RabbitLink(Link):
    """A connection with one channel that confirms; messages under way share it."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self._channel: AbstractChannel | None = None
        self._exchange: AbstractExchange | None = None
        self.under_way = self.sent = 0
        self.turn = asyncio.Lock()
        """Held while a message is sent alone."""

    @property
    def is_lost(self) -> bool:
        is_closed = self._channel is not None and self._channel.is_closed
        return self.is_dropped or is_closed or self._connection.is_closed

    async def prepare(self, exchange: str) -> None:
        """Connects and opens the channel; raises if there is no such exchange."""
        await self._connection.connect()
        channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
        self._channel, self._exchange = channel, channel.default_exchange
        if exchange:
            self._exchange = await channel.get_exchange(exchange, ensure=True)

    async def send(self, message: aio_pika.Message, routing_key: str) -> None:
        """Returns when the broker has confirmed the message."""
        assert self._exchange is not None
        try:
            await self._exchange.publish(message, routing_key, mandatory=True)
        except (ChannelInvalidStateError, RuntimeError) as error:  # closed, by no message of ours
            raise AMQPConnectionError(f"closed before it was sent: {error}") from error

    async def close(self) -> None:
        try:
            await self._connection.close()
        finally:  # what has failed half-way is closed by the second call
            await self._connection.close()


class RabbitPublisher(BrokerPublisher[_RabbitLink]):
    """Publishes messages to RabbitMQ, each confirmed by the broker.

    Neither exchanges nor queues are declared: that is for the programs that own them.

    Args:
        url: `amqp://user:password@host:5672/vhost`, `amqps://` for TLS. Options may follow:
            `?exchange=events`.
        exchange: the exchange; without one the routing key is the name of a queue.
        routing_key: with `{topic}`, `{type}`, `{aggregate_type}` or `{aggregate_id}`.
        timeout: seconds for connecting and confirmation; less if a deadline is near.

    Example:
        >>> RabbitPublisher("amqp://me:secret@127.0.0.1/shop", exchange="events").url
        'amqp://me@127.0.0.1/shop'
    """

    def __init__(
        self,
        url: str,
        *,
        exchange: str = "",
        routing_key: str = "{topic}",
        timeout: Seconds = 10.0,
    ) -> None:
        parts = urlsplit(url)
        given = {"exchange": exchange, "routing_key": routing_key, "timeout": timeout}
        options = options_in(parts.query, given, _OPTIONS)
        user, port = parts.username and f"{parts.username}@", parts.port and f":{parts.port}"
        shown = f"{parts.scheme}://{user or ''}{parts.hostname}{port or ''}{parts.path}"
        if parts.scheme not in ("amqp", "amqps") or not parts.hostname:
            raise UsageError(f"{shown} names no RabbitMQ", hint="amqp://guest:guest@127.0.0.1/")
        super().__init__(shown, options["timeout"])
        self._exchange: str = options["exchange"]
        self._routing_key = Template("routing_key", options["routing_key"])
        self._address = parts._replace(query="").geturl()
        self._lone: LoopConnections[_RabbitLink] = LoopConnections(self._open)

    async def close(self) -> None:
        """Closes the connections of this event loop; `publish` opens others."""
        await asyncio.gather(self._links.close(), self._lone.close())

    async def _open(self) -> _RabbitLink:
        link = _RabbitLink(aio_pika.Connection(make_url(self._address)))
        try:
            await link.prepare(self._exchange)
        except BaseException:
            await link.close()
            raise
        return link

    async def _send(self, link: _RabbitLink, message: Message) -> None:
        routing_key = self._routing_key.of(message)
        for what, text in (("routing key", routing_key), ("id", message.id)):
            if len(text.encode()) > _LONGEST:
                raise ValueError(f"the {what} {text[:40]!r}… has more than {_LONGEST} bytes")
        content = _content_of(message)
        link.under_way += 1
        link.sent += 1
        is_shared, number = link.under_way > 1, link.sent
        try:
            await link.send(content, routing_key)
        except (AMQPChannelError, AMQPConnectionError) as error:
            is_shared = is_shared or link.sent > number  # they may have failed before this one
            if not is_shared or kind_of(error).kind in RETRIED_KINDS:
                raise
            link.is_dropped = True
        else:
            return
        finally:
            link.under_way -= 1
        await self._send_alone(content, routing_key)

    async def _send_alone(self, content: aio_pika.Message, routing_key: str) -> None:
        while True:
            link = await self._lone.get()
            async with link.turn:
                if not link.is_lost:
                    return await link.send(content, routing_key)


def _content_of(message: Message) -> aio_pika.Message:
    headers = {f"{_PREFIX}{name}": value for name, value in attributes_of(message).items()}
    return aio_pika.Message(
        message.payload,
        headers=dict(headers),
        content_type=message.content_type,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        message_id=message.id,
        type=message.type or message.topic,
    )
