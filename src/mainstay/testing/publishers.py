"""What every publisher must do, as tests: run it against a publisher of your own.

    from mainstay.testing import PublisherContract, Received

    class TestMyPublisher(PublisherContract):
        def open(self):
            return MyPublisher("my://broker")
        def topic(self):
            return create_topic_with_a_new_name()
        def received(self, topic):
            return [Received(m.id, m.body, m.attributes) for m in read_all(topic)]

`BrokerContract` adds what a publisher must do while its broker is stopped, restarted and
unreachable, and if an acknowledgement is lost: `self.proxy` stands between the two then. Nothing
here depends on how long something takes.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from typing import TYPE_CHECKING, NamedTuple

import mainstay.integrations.errors  # noqa: F401 -- the tables of known errors
from mainstay.core.known.kind import RETRIED_KINDS, Kind
from mainstay.core.outbox.message import Message
from mainstay.core.retry.kinds import kind_of
from mainstay.deadline import within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from mainstay.ports import Publisher
    from mainstay.testing.proxy import FaultProxy

_TRIES, _PAUSE = 400, 0.05
"""How often a message is repeated until a broker is there again, and the seconds between."""
_LONG = 60.0


class Received(NamedTuple):
    """A message as a consumer of the broker sees it.

    >>> Received("8d0f", b"{}", {"id": "8d0f", "type": "user.created.v1"}).attributes["type"]
    'user.created.v1'
    """

    id: str
    payload: bytes
    attributes: dict[str, str]
    """The attributes of CloudEvents, as the headers have them, decoded."""


class PublisherContract:
    """The tests of a publisher; a subclass opens it, and reads what its broker has.

    >>> class TestList(PublisherContract):
    ...     def open(self):
    ...         from mainstay.publishers.function import FunctionPublisher
    ...         return FunctionPublisher(SENT.append)
    ...     def topic(self):
    ...         return f"topic-{uuid.uuid4()}"
    ...     def received(self, topic):
    ...         return [Received(m.id, m.payload, m.attributes) for m in SENT if m.topic == topic]
    >>> SENT = []
    >>> TestList().test_what_is_acknowledged_is_received()
    """

    missing = frozenset({Kind.PERMANENT})
    """The kinds of failure that a topic which does not exist may be."""
    too_large = 0
    """Bytes of a payload that the broker refuses; 0 if it has no limit that can be tested."""

    def open(self) -> Publisher:
        """Opens the publisher."""
        raise NotImplementedError("a subclass opens its publisher")

    def topic(self) -> str:
        """A topic that exists, with a new name."""
        raise NotImplementedError("a subclass creates a topic")

    def missing_topic(self) -> str | None:
        """A topic that does not exist; None if every name is a topic."""
        return None

    def received(self, topic: str) -> list[Received]:
        """What a consumer of the topic receives, from its first message on."""
        raise NotImplementedError("a subclass reads its broker")

    # --- what arrives ----------------------------------------------------------------------------

    def test_what_is_acknowledged_is_received(self) -> None:
        """`publish` has returned: a consumer finds the message, with its payload and its id."""
        message = message_of(self.topic(), b'{"amount": 5}')
        self._run(lambda publisher: publisher.publish(message))
        (found,) = self.received(message.topic)
        assert (found.id, found.payload) == (message.id, message.payload)

    def test_a_consumer_sees_the_attributes_of_cloudevents(self) -> None:
        """All of them, those of the message's own and text that is no ASCII too."""
        message = Message(
            id=str(uuid.uuid4()), topic=self.topic(), payload=b"<paid/>",
            content_type="application/xml", aggregate_type="Order", aggregate_id="o-7",
            source="/shop", type="shop.paid", subject="Zo\u00eb 100%",
            time="2026-01-02T03:04:05Z", dataschema="https://example.org/paid.json",
            extensions={"tenant": "a\u00e9"},
        )  # fmt: skip
        self._run(lambda publisher: publisher.publish(message))
        (found,) = self.received(message.topic)
        assert found.attributes == message.attributes

    def test_a_payload_is_passed_on_as_it_is(self) -> None:
        """Empty, binary, and of a megabyte."""
        topic = self.topic()
        payloads = [b"", bytes(range(256)), b"x" * 1_000_000]

        async def publish(publisher: Publisher) -> None:
            for payload in payloads:
                await publisher.publish(message_of(topic, payload))

        self._run(publish)
        assert [each.payload for each in self.received(topic)] == payloads

    def test_messages_that_are_awaited_one_by_one_stay_in_order(self) -> None:
        """The order of an aggregate, as the relay publishes it."""
        topic = self.topic()
        messages = [message_of(topic, str(number).encode()) for number in range(30)]

        async def publish(publisher: Publisher) -> None:
            for message in messages:
                await publisher.publish(message)

        self._run(publish)
        assert [each.id for each in self.received(topic)] == [each.id for each in messages]

    def test_a_hundred_at_once_arrive(self) -> None:
        """Each once, over the connection that the first of them opens."""
        topic = self.topic()
        messages = [message_of(topic, b"{}", str(number)) for number in range(100)]

        async def publish(publisher: Publisher) -> None:
            await asyncio.gather(*map(publisher.publish, messages))

        self._run(publish)
        assert sorted(each.id for each in self.received(topic)) == sorted(m.id for m in messages)

    # --- what is refused --------------------------------------------------------------------------

    def test_a_topic_that_does_not_exist_is_an_error(self) -> None:
        """Of a kind that is known; the next message goes to its topic."""
        missing, topic = self.missing_topic(), self.topic()
        if missing is None:
            return

        async def publish(publisher: Publisher) -> None:
            error = await failure_of(publisher.publish(message_of(missing, b"{}")))
            assert kind_of(error).kind in self.missing, error
            await publisher.publish(message_of(topic, b"{}"))

        self._run(publish)
        assert len(self.received(topic)) == 1

    def test_a_payload_that_is_too_large_is_a_permanent_failure(self) -> None:
        """It is not repeated, and the next message is sent."""
        topic = self.topic()
        if not self.too_large:
            return

        async def publish(publisher: Publisher) -> None:
            large = message_of(topic, b"x" * self.too_large)
            error = await failure_of(publisher.publish(large))
            assert kind_of(error).kind is Kind.PERMANENT, error
            await acknowledged(publisher, message_of(topic, b"{}"))

        self._run(publish)
        assert [each.payload for each in self.received(topic)] == [b"{}"]

    def test_a_deadline_that_has_passed_is_held(self) -> None:
        """The call fails with a timeout, and the next one without a deadline succeeds."""
        topic = self.topic()

        async def publish(publisher: Publisher) -> None:
            with within(1e-9):
                error = await failure_of(publisher.publish(message_of(topic, b"late")))
            assert kind_of(error).kind is Kind.TIMEOUT, error
            await publisher.publish(message_of(topic, b"in time"))

        self._run(publish)
        assert b"in time" in [each.payload for each in self.received(topic)]

    # --- connections ------------------------------------------------------------------------------

    def test_it_can_be_closed_and_used_again(self) -> None:
        """Twice, and before its first message."""
        topic = self.topic()

        async def publish(publisher: Publisher) -> None:
            await publisher.close()
            for _ in range(2):
                await publisher.publish(message_of(topic, b"{}"))
                await publisher.close()
                await publisher.close()

        self._run(publish)
        assert len(self.received(topic)) == 2

    def test_another_event_loop_may_use_it(self) -> None:
        """One after the other without closing it, and two at once in threads."""
        publisher, topic = self.open(), self.topic()

        async def publish() -> None:
            for _ in range(3):
                await publisher.publish(message_of(topic, b"{}"))

        for _ in range(2):
            asyncio.run(publish())
        threads = [threading.Thread(target=asyncio.run, args=[publish()]) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_LONG)
        assert len(self.received(topic)) == 12

    def test_its_url_names_it(self) -> None:
        """The relay has a circuit of that name."""
        publisher = self.open()
        assert isinstance(publisher.url, str)
        assert publisher.url == self.open().url

    def _run(self, act: Callable[[Publisher], Awaitable[object]]) -> None:
        asyncio.run(self._with_publisher(act))

    async def _with_publisher(self, act: Callable[[Publisher], Awaitable[object]]) -> None:
        publisher = self.open()
        try:
            async with asyncio.timeout(_LONG):
                await act(publisher)
        finally:
            await publisher.close()


class BrokerContract(PublisherContract):
    """The tests of a publisher whose broker fails; a subclass has a proxy before the broker.

    >>> issubclass(BrokerContract, PublisherContract)
    True
    """

    proxy: FaultProxy
    """Stands between the publisher that `open()` returns and its broker."""

    def stop(self) -> None:
        """Stops the broker, or what leads to it."""
        self.proxy.refuse()

    def start(self) -> None:
        """Starts it again."""
        self.proxy.heal()

    def test_a_broker_that_is_stopped_is_an_error_until_it_is_back(self) -> None:
        """One that is worth repeating; the same publisher connects again."""
        first, second = (message_of(self.topic(), b"{}") for _ in range(2))

        async def publish(publisher: Publisher) -> None:
            await publisher.publish(first)
            await asyncio.to_thread(self.stop)
            try:
                with within(2.0):
                    error = await failure_of(publisher.publish(second))
                assert kind_of(error).kind in RETRIED_KINDS, error
            finally:
                await asyncio.to_thread(self.start)
            await acknowledged(publisher, second)

        self._run(publish)
        assert {each.id for each in self.received(first.topic)} == {first.id}
        assert {each.id for each in self.received(second.topic)} == {second.id}

    def test_an_acknowledgement_that_is_lost_is_an_error(self) -> None:
        """The broker has the message; it gets the repetition with the same id."""
        topic = self.topic()
        warm, message = message_of(topic, b"warm"), message_of(topic, b"{}")

        async def publish(publisher: Publisher) -> None:
            await publisher.publish(warm)
            self.proxy.drop_reply_once(message.id.encode())
            error = await failure_of(publisher.publish(message))
            assert kind_of(error).kind in RETRIED_KINDS, error
            assert message.id in [each.id for each in self.received(topic)]
            await acknowledged(publisher, message)

        self._run(publish)
        found = [each.id for each in self.received(topic)]
        assert found.count(warm.id) == 1
        assert set(found) == {warm.id, message.id}

    def test_nothing_is_lost_if_no_acknowledgement_of_many_arrives(self) -> None:
        """Each fails in time; repeated, each is received, and none under another id."""
        topic = self.topic()
        messages = [message_of(topic, b"{}", str(number)) for number in range(20)]

        async def publish(publisher: Publisher) -> None:
            await publisher.publish(messages[0])
            self.proxy.drop_replies()
            with within(0.5):
                errors = await asyncio.gather(
                    *map(publisher.publish, messages[1:]), return_exceptions=True
                )
            kinds = {kind_of(error).kind for error in errors if isinstance(error, Exception)}
            assert None not in errors
            assert kinds <= RETRIED_KINDS
            self.proxy.heal()
            await asyncio.gather(*(acknowledged(publisher, each) for each in messages[1:]))

        self._run(publish)
        assert {each.id for each in self.received(topic)} == {each.id for each in messages}

    def test_a_black_hole_is_a_timeout(self) -> None:
        """The deadline holds, and the connection that was silent is replaced."""
        topic = self.topic()
        messages = [message_of(topic, str(number).encode()) for number in range(3)]

        async def publish(publisher: Publisher) -> None:
            await publisher.publish(messages[0])
            for message in messages[1:]:
                self.proxy.black_hole()
                connections = self.proxy.connections
                for _ in range(2):
                    with within(0.3):
                        error = await failure_of(publisher.publish(message))
                    assert kind_of(error).kind in RETRIED_KINDS, error
                assert self.proxy.connections > connections, "the silent connection was kept"
                self.proxy.heal()
                await acknowledged(publisher, message)

        self._run(publish)
        assert {each.id for each in self.received(topic)} == {each.id for each in messages}

    def test_a_connection_that_is_reset_is_replaced(self) -> None:
        """In the middle of a hundred messages: those that failed are repeated."""
        topic = self.topic()
        messages = [message_of(topic, b"{}", str(number)) for number in range(100)]

        async def publish(publisher: Publisher) -> None:
            await publisher.publish(messages[0])
            tasks = [asyncio.create_task(acknowledged(publisher, each)) for each in messages[1:]]
            await asyncio.sleep(0)
            await asyncio.to_thread(self.proxy.reset)
            await asyncio.to_thread(self.proxy.heal)
            await asyncio.gather(*tasks)

        self._run(publish)
        assert {each.id for each in self.received(topic)} == {each.id for each in messages}


def message_of(topic: str, payload: bytes, aggregate: str = "a") -> Message:
    """A message with a new id.

    >>> message_of("paid", b"{}").aggregate_id
    'a'
    """
    return Message(
        id=str(uuid.uuid4()), topic=topic, payload=payload, aggregate_type="T",
        aggregate_id=aggregate,
    )  # fmt: skip


async def failure_of(publishing: Awaitable[Any]) -> Exception:
    """The failure of a publish; it is an error if there is none."""
    try:
        await publishing
    except Exception as error:
        return error
    raise AssertionError("the message was acknowledged")


async def acknowledged(publisher: Publisher, message: Message) -> None:
    """Repeats a message until it is acknowledged, as a relay does; raises a permanent failure."""
    for _ in range(_TRIES):
        try:
            await publisher.publish(message)
        except Exception as error:
            if kind_of(error).kind not in RETRIED_KINDS:
                raise
            await asyncio.sleep(_PAUSE)
        else:
            return
    raise AssertionError(f"{message.id} was not acknowledged by {publisher.url}")
