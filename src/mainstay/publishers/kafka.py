"""Publishes to Kafka by an idempotent producer: acknowledged is what all replicas in sync have.

librdkafka keeps a queue, connects and repeats by itself, and reports each delivery in a thread
that polls it; the event loop waits for that report. It must not go on for longer than the caller
waits, or a message could arrive long after it was given up: `delivery.timeout.ms` is fixed for a
producer, so there is a producer for each length of time that callers have, in steps of a quarter.
"""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from mainstay.errors import MissingExtraError, UsageError
from mainstay.publishers.base import BrokerPublisher, options_in, time_left
from mainstay.publishers.connections import Link
from mainstay.publishers.content import Template, attributes_of
from mainstay.runtime.background import detached_thread

try:
    from confluent_kafka import KafkaError, KafkaException, Producer
except ImportError:
    raise MissingExtraError("confluent-kafka", "kafka") from None

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka import Message as KafkaRecord

    from mainstay.core.base.types import Seconds
    from mainstay.core.outbox.message import Message

_OPTIONS = {"topic": str, "timeout": float}
_OURS = {
    "enable.idempotence": True,
    "acks": "all",
}
"""Settings that hold whatever a program sets: without them an acknowledgement means less."""
_SETTINGS = {
    "client.id": "mainstay",
    "linger.ms": 1,
    "message.max.bytes": 1_048_588,  # what a broker takes, unless configured
    "partitioner": "murmur2_random",  # the partitions that Java's producers choose
    "reconnect.backoff.max.ms": 2_000,
    "log.connection.close": False,
}
_TIMED = ("delivery.timeout.ms", "message.timeout.ms")
_STEP, _SHORTEST = 1.25, 0.1
_POLL = 0.1
"""Seconds for which the thread waits for a report, at most."""
_LOG = logging.getLogger("mainstay.kafka")


class _Producer:
    """A producer of librdkafka, and the thread that polls its reports."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._under_way: set[asyncio.Future[None]] = set()
        self._producer = Producer({**settings, "error_cb": self._note}, logger=_LOG)
        self._is_open = True
        self._thread = detached_thread(self._poll, "mainstay-kafka")
        self._thread.start()

    def _poll(self) -> None:
        while self._is_open:
            try:
                self._producer.poll(_POLL)
            except KafkaException as error:  # poll raises what is fatal
                self._note(error.args[0])

    def _note(self, error: KafkaError) -> None:
        """In the thread that polls: a producer that has failed for good sends nothing any more.

        What it has queued would wait for its timeout. Other errors are reported for each message.
        """
        if error.fatal() or error.code() == KafkaError._FATAL:  # noqa: SLF001
            self._is_open = False
            self._call(self._fail, KafkaError(error.code(), error.str(), fatal=True))

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(function, *arguments)

    def _fail(self, error: KafkaError) -> None:
        for future in list(self._under_way):
            _settle(future, error)

    async def send(self, **record: Any) -> None:
        """Returns when the message is delivered, and raises KafkaException if it is not."""
        future: asyncio.Future[None] = self._loop.create_future()

        def report(error: KafkaError | None, stored: KafkaRecord) -> None:
            self._call(_settle, future, error or _doubt(stored))

        self._under_way.add(future)
        try:
            while True:
                try:
                    self._producer.produce(**record, on_delivery=report)
                    break
                except BufferError:  # the queue is full; the time limit bounds the wait
                    await asyncio.sleep(_POLL / 10)
            await future
        finally:
            self._under_way.discard(future)
            if future.done() and not future.cancelled():
                future.exception()  # it may have been set before it was awaited

    async def close(self) -> None:
        """Drops what is not delivered: its callers get an error, and may repeat it."""
        self._fail(KafkaError(KafkaError._TRANSPORT, "the producer was closed"))  # noqa: SLF001
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        self._is_open = False
        self._thread.join()
        self._producer.purge()
        self._producer.flush(_POLL)
        del self._producer  # which waits for the threads of librdkafka


def _doubt(stored: KafkaRecord) -> KafkaError | None:
    """Why a record that was acknowledged may not be stored: the broker has given it no offset.

    librdkafka takes the answer "duplicate sequence number" for an acknowledgement. A broker that
    has accepted a later request of the same producer first answers so for one that it has not
    stored. With `acks=all` each record that is stored has an offset; another attempt settles it.
    """
    offset = stored.offset()
    if offset is not None and offset >= 0:
        return None
    return KafkaError(KafkaError.UNKNOWN, "acknowledged without an offset; it may not be stored")


def _settle(future: asyncio.Future[None], error: KafkaError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(KafkaException(error))


class _KafkaLink(Link):
    """The producers of one event loop, by their `delivery.timeout.ms`."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._producers: dict[int, _Producer] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def producer(self, seconds: float) -> _Producer:
        """The one that gives up within these seconds."""
        delivery = _step_below(seconds)
        found = self._producers.get(delivery)
        if found is None:
            limits = dict.fromkeys(("delivery.timeout.ms", "socket.timeout.ms"), delivery)
            limits["topic.metadata.propagation.max.ms"] = delivery // 2
            found = self._producers[delivery] = _Producer({**limits, **self._settings})
        return found

    def replace(self, producer: _Producer) -> None:
        """The next message gets another one; those under way on it get its error."""
        for delivery, found in list(self._producers.items()):
            if found is producer:
                del self._producers[delivery]
                task = asyncio.get_running_loop().create_task(producer.close())
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        producers, self._producers = list(self._producers.values()), {}
        await asyncio.gather(*(each.close() for each in producers), *self._ending)


def _step_below(seconds: float) -> int:
    """The milliseconds of the step that fits into the time.

    >>> _step_below(10.0), _step_below(9.99), _step_below(0.01)
    (8674, 8674, 100)
    """
    steps = math.floor(math.log(max(seconds, _SHORTEST) / _SHORTEST, _STEP) + 1e-9)
    return round(1000 * _SHORTEST * _STEP**steps)


class KafkaPublisher(BrokerPublisher[_KafkaLink]):
    """Publishes messages to Kafka, each acknowledged by all replicas in sync.

    Args:
        url: `kafka://host:9092`, several hosts with commas between, `user:password@` for SASL.
            Options may follow, and settings of librdkafka, whose names have a full stop:
            `?topic=shop.{topic}&security.protocol=SASL_SSL`.
        topic: the topic, with `{topic}`, `{type}`, `{aggregate_type}` or `{aggregate_id}`.
        settings: settings of librdkafka; `enable.idempotence`, `acks` and the time limits are ours.
        timeout: seconds for one message, with connecting; less if a deadline is near.

    Example:
        >>> KafkaPublisher("kafka://me:secret@a:9092,b:9092", topic="shop.{topic}").url
        'kafka://me@a:9092,b:9092'
    """

    drops_silent = False
    """librdkafka replaces its connections by itself."""

    def __init__(
        self,
        url: str,
        *,
        topic: str = "{topic}",
        settings: Mapping[str, str | int | float | bool] | None = None,
        timeout: Seconds = 30.0,
    ) -> None:
        parts = urlsplit(url)
        credentials, _, hosts = parts.netloc.rpartition("@")
        user, _, password = credentials.partition(":")
        shown = f"{parts.scheme}://{user and f'{user}@'}{hosts}"
        if parts.scheme != "kafka" or not hosts or parts.path.strip("/"):
            raise UsageError(f"{shown} names no Kafka broker", hint="kafka://127.0.0.1:9092")
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        found = {**(settings or {}), **{name: text for name, text in pairs if "." in name}}
        own = "&".join(f"{name}={text}" for name, text in pairs if "." not in name)
        options = options_in(own, {"topic": topic, "timeout": timeout}, _OPTIONS)
        super().__init__(shown, options["timeout"])
        self._topic = Template("topic", options["topic"])
        if user:
            found |= {"sasl.username": unquote(user), "sasl.password": unquote(password)}
            found.setdefault("sasl.mechanism", "PLAIN")
            found.setdefault("security.protocol", "SASL_SSL")
        self._settings = {**_SETTINGS, **found, **_OURS, "bootstrap.servers": hosts}
        _check(self._settings, found)

    async def _open(self) -> _KafkaLink:
        return _KafkaLink(self._settings)

    async def _send(self, link: _KafkaLink, message: Message) -> None:
        headers = {f"ce_{name}": text.encode() for name, text in attributes_of(message).items()}
        headers["content-type"] = message.content_type.encode()
        record: dict[str, Any] = {
            "topic": self._topic.of(message),
            "value": message.payload,
            "key": message.aggregate_id.encode() or None,
            "headers": list(headers.items()),
        }
        seconds = time_left(self._timeout)
        producer = link.producer(seconds)
        try:
            await producer.send(**record)
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
            # The failure is of the producer and not of the message: another one sends it again.
            link.replace(producer)
            await link.producer(seconds).send(**record)

    def _late(self, text: str) -> BaseException:
        return KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT, text))  # noqa: SLF001


def _check(settings: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuses settings that are ours, or that librdkafka does not know; connects to nothing."""
    for name in (*_OURS, *_TIMED, "bootstrap.servers"):
        if name in given:
            hint = "timeout=" if name in _TIMED else "it cannot be set"
            raise UsageError(f"{name} is set by the publisher", hint=hint)
    try:
        Producer({**settings, "bootstrap.servers": ""}, logger=_LOG)
    except KafkaException as error:
        reason = error.args[0].str()
        hint = "see CONFIGURATION.md of librdkafka"
        raise UsageError(f"librdkafka refuses a setting: {reason}", hint=hint) from None
