"""pika and aio-pika against a real RabbitMQ that refuses, ends and comes back, and behind a proxy.

One file for both, because the server takes seconds to start. Raised by the test itself: reply codes
that RabbitMQ gives only to a client that breaks the protocol (501 to 505, 540, 541), 311 and 506.
A broker that is mute under a blocking pika connection is not tested: pika waits for heartbeats,
which takes 12 s at least.
"""

import asyncio
import threading

import aio_pika
import aio_pika.exceptions
import aio_pika.patterns
import aiormq.exceptions
import pamqp.exceptions
import pika
import pika.exceptions
import pytest

from mainstay.integrations.errors.pika import REPLIES
from mainstay.testing import FaultProxy
from tests.integrations.errors.brokers import BY_DEFAULT, dead_port, judged, recipe, seen, tried
from tests.integrations.errors.rows import comes_to
from tests.processes import wait_until
from tests.servers.rabbitmq import start_rabbitmq

LOST, SLOW = "transient ambiguous", "timeout ambiguous"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One server, which is killed and started again at the end."""
    server = start_rabbitmq(tmp_path_factory.mktemp("rabbitmq"))
    yield server
    server.kill()


@pytest.fixture
def proxy(server):
    """A proxy before the server."""
    with FaultProxy("127.0.0.1", server.port) as proxy:
        yield proxy


# --- pika -----------------------------------------------------------------------------------------


def blocking(port, act=None, password="guest", host="/", **settings):
    """A function that connects with pika, opens a channel and does something with it."""
    login = pika.PlainCredentials("guest", password)
    soon = {"socket_timeout": 60, "stack_timeout": 60, **settings}
    parameters = pika.ConnectionParameters("127.0.0.1", port, host, login, **soon)

    def run():
        connection = pika.BlockingConnection(parameters)
        try:
            channel = connection.channel()
            return act(channel) if act is not None else None
        finally:
            if connection.is_open:
                connection.close()

    return run


def connected(connect):
    """The same, again if the reset comes before pika has looked whether it is connected.

    It raises a ValueError then: docs/cookbook/rabbitmq.md.
    """

    def run():
        for _ in range(100):
            try:
                return connect()
            except ValueError as error:
                if "Expected connected socket" not in str(error):
                    raise
        raise AssertionError("pika was reset too early a hundred times")

    return run


def test_pika_finds_nobody_or_is_refused(server, proxy):
    """Connecting: nothing was sent, so nothing is ambiguous; credentials are final."""
    error, count = tried(blocking(dead_port()))
    assert (judged(error), count) == (("transient", "pika"), 3)
    error, count = tried(blocking(server.port, password="wrong"))
    assert (judged(error), count) == (("auth", "pika"), 1)
    error, count = tried(blocking(server.port, host="none"))
    assert (judged(error), count) == (("auth", "pika"), 1)
    proxy.reset()
    error, count = tried(connected(blocking(proxy.port)))
    assert (judged(error), count) == (("transient", "pika"), 3)
    proxy.heal()
    for step in (0, 520):  # before the broker's first frame, and within its second
        proxy.cut_after(step)
        error, count = tried(blocking(proxy.port))
        assert (judged(error), count) == (("transient", "pika"), 3), "a guess of pika's"
        proxy.heal()
    proxy.black_hole()
    error, count = tried(blocking(proxy.port, stack_timeout=0.1), policy=BY_DEFAULT)
    assert (judged(error), count) == (("timeout", "pika"), 3)


def test_pika_loses_the_confirmation_of_a_message(proxy, server):
    """The message is in the queue; a repetition puts it there again."""

    def lose(channel):
        channel.queue_declare("lost", auto_delete=True)
        channel.confirm_delivery()
        proxy.drop_reply_once(b"hello")
        lost = seen(channel.basic_publish, "", "lost", b"hello")
        return lost, seen(channel.basic_publish, "", "lost", b"hello")

    error, after = blocking(proxy.port, lose)()
    assert judged(error) == (LOST, "pika")
    assert judged(after) == ("permanent", "pika"), "the channel is closed"

    def count(channel):
        found = channel.queue_declare("lost", passive=True).method.message_count
        channel.queue_delete("lost")
        return found

    assert blocking(server.port, count)() == 1


REFUSALS = [
    (lambda channel: channel.queue_declare("none", passive=True), "permanent"),
    (lambda channel: channel.queue_declare("plain", durable=True), "permanent"),
    (lambda channel: channel.queue_declare("mine"), "transient"),
    (lambda channel: channel.exchange_declare("amq.new"), "auth"),
    (lambda channel: channel.basic_ack(99) or channel.queue_declare("plain"), "permanent"),
]


def test_pika_is_refused_by_reply_code(server):
    """Not found, other arguments, locked by another connection, a reserved name."""

    def prepare(channel):
        channel.queue_declare("plain")
        channel.queue_declare("mine", exclusive=True)
        for act, kind in REFUSALS:
            error, count = tried(blocking(server.port, act))
            assert judged(error) == (kind, "pika"), error
            assert count == (3 if kind == "transient" else 1)

    blocking(server.port, prepare)()


def test_pika_publishes_what_is_not_taken(server):
    """A full queue is overloaded; a message without a queue is final."""

    def publish(channel):
        channel.confirm_delivery()
        limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
        channel.queue_declare("full", exclusive=True, arguments=limits)
        channel.basic_publish("", "full", b"x")
        full = tried(channel.basic_publish, "", "full", b"x")
        nowhere = tried(lambda: channel.basic_publish("", "nowhere", b"x", mandatory=True))
        return full, nowhere, tried(channel.basic_publish, "x" * 300, "", b"x")

    found = [(judged(error), count) for error, count in blocking(server.port, publish)()]
    assert found == [
        (("overload ambiguous", "pika"), 3),
        (("permanent", "pika"), 1),
        (("permanent", "pika"), 1),
    ]


# --- aio-pika -------------------------------------------------------------------------------------


def talking(url, act=None, **settings):
    """A function that connects with aio-pika, opens a channel and does something with it."""

    async def run():
        connection = await aio_pika.connect(url, **{"timeout": 60, **settings})
        try:
            channel = await connection.channel(on_return_raises=True)
            return await act(channel) if act is not None else None
        finally:
            await connection.close()

    return run


def at(port, password="guest"):
    return f"amqp://guest:{password}@127.0.0.1:{port}/"


def test_aio_pika_finds_nobody_or_is_refused(server, proxy):
    """A timeout is asyncio's own; a virtual host that is not there is an unexpected frame."""
    error, count = tried(talking(at(dead_port())))
    assert (judged(error), count) == (("transient", "aio_pika"), 3)
    error, count = tried(talking(at(server.port, "wrong")))
    assert (judged(error), count) == (("auth", "aio_pika"), 1)
    error, count = tried(talking(at(server.port) + "none"))
    assert (judged(error), count) == (("permanent", "aio_pika"), 1)
    proxy.reset()
    error, count = tried(talking(at(proxy.port)))
    assert judged(error) in {("transient", "aio_pika"), (LOST, "aio_pika")}, "before or after it"
    assert (count, proxy.connections) == (3, 3)
    proxy.heal()
    proxy.black_hole()
    error, count = tried(talking(at(proxy.port), timeout=0.1), policy=BY_DEFAULT)
    assert (judged(error), count) == (("timeout", ""), 3)


def test_aio_pika_loses_the_confirmation_of_a_message(proxy):
    """The connection is reset after the message was sent."""

    async def lose(channel):
        await channel.declare_queue("lost2", exclusive=True)
        proxy.drop_reply_once(b"hello")
        await channel.default_exchange.publish(aio_pika.Message(b"hello"), "lost2")

    assert judged(seen(talking(at(proxy.port), lose))) == (LOST, "aio_pika")


def test_aio_pika_is_refused(server):
    """By class, each of which is one of AMQP's reply codes."""

    async def full(channel):
        limits = {"x-max-length": 0, "x-overflow": "reject-publish"}
        await channel.declare_queue("full2", exclusive=True, arguments=limits)
        await channel.default_exchange.publish(aio_pika.Message(b"x"), "full2")

    async def empty(channel):
        await (await channel.declare_queue("empty", exclusive=True)).get()

    async def closed(channel):
        await channel.close()
        await channel.declare_queue("closed")

    async def no_queue(channel):
        await channel.default_exchange.publish(aio_pika.Message(b"x"), "nowhere")

    async def not_found(channel):
        await channel.declare_queue("none", passive=True)

    async def reserved(channel):
        await channel.declare_exchange("amq.new")

    async def otherwise(channel):
        await channel.declare_queue("same", exclusive=True)
        await channel.declare_queue("same", exclusive=True, arguments={"x-max-length": 1})

    async def locked(channel):
        other = await aio_pika.connect(at(server.port))
        try:
            await (await other.channel()).declare_queue("theirs", exclusive=True)
            await channel.declare_queue("theirs")
        finally:
            await other.close()

    for act, kind in [
        (full, "overload ambiguous"), (empty, "permanent"), (closed, "permanent"),
        (no_queue, "permanent"), (not_found, "permanent"), (reserved, "auth"),
        (otherwise, "permanent"), (locked, "transient"),
    ]:  # fmt: skip
        error, count = tried(talking(at(server.port), act))
        assert judged(error) == (kind, "aio_pika"), (act, error)
        assert count == (3 if kind.startswith(("overload", "transient")) else 1)


class Wording(aio_pika.patterns.RPC):
    """Answers with the text of an exception, which its caller can read without the class."""

    def serialize_exception(self, exception):
        return repr(exception)


def calling(kind, name):
    """Calls one of the functions at the other side of a queue, of which there is `fail` alone."""

    async def fail():
        raise OSError("at the other side")

    async def act(channel):
        rpc = await kind.create(channel)
        try:
            await rpc.register("fail", fail, exclusive=True)
            await rpc.call(name)
        finally:
            await rpc.close()

    return act


async def acknowledged_twice(channel):
    queue = await channel.declare_queue("twice", exclusive=True)
    await channel.default_exchange.publish(aio_pika.Message(b"x"), "twice")
    message = await queue.get()
    for _ in range(2):
        await message.ack()


PATTERNS = {
    "patterns.rpc.RPCException": calling(Wording, "fail"),
    "patterns.rpc.JsonRPCError": calling(aio_pika.patterns.JsonRPC, "fail"),
    "exceptions.MessageProcessError phase returned": calling(Wording, "nothing"),
    "exceptions.MessageProcessError otherwise": acknowledged_twice,
}


@pytest.mark.parametrize("row", PATTERNS)
def test_what_aio_pika_makes_of_messages(server, row):
    """A function behind a queue that fails, one that is not there, and a message that was done."""

    async def run():
        connection = await aio_pika.connect(at(server.port))
        try:
            await PATTERNS[row](await connection.channel())
        finally:
            await connection.close()

    comes_to(f"aio_pika.{row}", run)


# --- both -----------------------------------------------------------------------------------------


def test_reply_codes_that_a_good_client_does_not_get():
    """By the classes that the libraries have for them, and by the code where they have none."""
    closed = pika.exceptions.ConnectionClosedByBroker
    for code, row in REPLIES.items():
        if isinstance(code, int):
            words = f"{row.kind.value} ambiguous" if row.ambiguous else row.kind.value
            assert judged(closed(code, "text")) == (words, "pika")
            assert judged(aiormq.exceptions.ConnectionClosed(code, "text")) == (words, "aio_pika")
    limited = "NOT_ALLOWED - access to vhost refused: connection limit (1) is reached"
    assert judged(closed(530, limited))[0] == "overload"
    assert judged(aiormq.exceptions.ConnectionNotAllowed(limited))[0] == "overload"
    assert judged(aiormq.exceptions.ConnectionNotAllowed("NOT_ALLOWED - vhost"))[0] == "auth"
    assert judged(closed(599, "new")) == (LOST, "pika")
    assert judged(pamqp.exceptions.AMQPNotFound())[0] == "permanent"
    assert judged(pika.exceptions.AMQPConnectionError())[0] == "transient"


def test_the_page_of_the_cookbook_runs(server):
    """Both libraries have put their order into the queue."""
    recipe("rabbitmq.md", URL=server.url)

    def count(channel):
        found = channel.queue_declare("orders", passive=True).method.message_count
        channel.queue_delete("orders")
        return found

    assert blocking(server.port, count)() == 2


def test_a_server_that_is_stopped_and_restarted(server):
    """Consumers get its last message; then nobody is there; then the same call works again."""

    def end(channel):
        wait_until(lambda: channel.consumer_tags, "a consumer")
        server.stop()

    def consume(channel):
        channel.queue_declare("waiting", exclusive=True)
        ending = threading.Thread(target=end, args=[channel])
        ending.start()
        error = seen(lambda: list(channel.consume("waiting")))
        ending.join()
        return error

    assert judged(blocking(server.port, consume)()) == (LOST, "pika")
    assert judged(seen(blocking(server.port))) == ("transient", "pika")
    assert judged(seen(talking(at(server.port)))) == ("transient", "aio_pika")
    server.start()
    blocking(server.port)()
    asyncio.run(talking(at(server.port))())
