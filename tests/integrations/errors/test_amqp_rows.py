"""pika and aio-pika: rows of their tables that RabbitMQ itself is not made to answer with.

A stub of the protocol closes a connection or a channel with each of AMQP 0-9-1's reply codes, which
are those of the specification's section 1.2.
"""

import asyncio
import contextlib
import socket
import ssl

import aio_pika
import aio_pika.patterns
import aio_pika.pool
import aiormq
import pamqp.frame
import pika
import pika.adapters.select_connection
import pika.adapters.utils.connection_workflow
import pika.adapters.utils.selector_ioloop_adapter
import pika.channel
import pika.data
import pika.exceptions
import pika.frame
import pika.spec
import pytest
from pamqp import commands

from tests.integrations.errors.amqp_stub import MECHANISMS, AmqpStub
from tests.integrations.errors.rows import comes_to, raised_by, row_of
from tests.integrations.errors.service_stub import dead_port
from tools.provoked import handed

CODES = (
    200,
    311,
    312,
    313,
    320,
    402,
    403,
    404,
    405,
    406,
    501,
    502,
    503,
    504,
    505,
    506,
    530,
    540,
    541,
)
CLOSES = {f"reply code {code}": (code, "as asked") for code in CODES}
CLOSES |= {"reply code 530 limit": (530, "connection limit"), "otherwise": (999, "as asked")}


@pytest.fixture(scope="module")
def broker():
    broker = AmqpStub()
    yield broker
    broker.end()


@pytest.fixture(autouse=True)
def _by_default(broker):
    broker.close, broker.of_channel, broker.greeting = (320, "as asked"), False, None
    broker.mechanisms, broker.first = MECHANISMS, None


def by_pika(broker):
    parameters = pika.ConnectionParameters("127.0.0.1", broker.port, heartbeat=0)
    connection = pika.BlockingConnection(parameters)
    try:
        connection.channel().queue_declare("q")
    finally:
        if connection.is_open:
            connection.close()


@pytest.mark.parametrize("case", CLOSES)
def test_pika_by_the_code_with_which_a_broker_closes(broker, case):
    """A connection, and a channel."""
    broker.close = CLOSES[case]
    comes_to(f"pika.exceptions.ConnectionClosedByBroker {case}", lambda: by_pika(broker))
    broker.of_channel = True
    comes_to(f"pika.exceptions.ChannelClosedByBroker {case}", lambda: by_pika(broker))


async def by_aio_pika(broker):
    connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{broker.port}/")
    try:
        channel = await connection.channel()
        await channel.declare_queue("q")
    finally:
        with contextlib.suppress(Exception):
            await connection.close()


@pytest.mark.parametrize("case", CLOSES)
def test_aio_pika_by_the_code_with_which_a_broker_closes(broker, case):
    """Aiormq has classes for some of the codes."""
    broker.close = CLOSES[case]
    for broker.of_channel in (False, True):
        error = raised_by(lambda: by_aio_pika(broker))
        assert row_of(error)[0].startswith("aiormq.exceptions."), error


GREETINGS = {
    "ProtocolSyntaxError": b"AMQP\x00\x00\x09\x01",
    "InvalidFrameError": pamqp.frame.marshal(commands.Connection.OpenOk(), 0),
}


@pytest.mark.parametrize("row", GREETINGS)
def test_aio_pika_greets_something_else(broker, row):
    """A broker of another version, or none."""
    broker.greeting = GREETINGS[row]
    comes_to(f"aiormq.exceptions.{row}", lambda: by_aio_pika(broker))


def test_mechanisms_that_the_client_does_not_have(broker):
    """The broker offers none that it knows."""
    broker.mechanisms = "KERBEROS"
    comes_to("aiormq.exceptions.AuthenticationError", lambda: by_aio_pika(broker))
    comes_to("pika.exceptions.AuthenticationError", lambda: by_pika(broker))


def test_another_version_of_the_protocol(broker):
    """AMQP 0-8."""
    broker.version = 8
    try:
        comes_to("pika.exceptions.ProtocolVersionMismatch", lambda: by_pika(broker))
    finally:
        broker.version = 9


def test_a_broker_without_confirmations(broker):
    """It says so when it greets."""
    kept, broker.capabilities = broker.capabilities, {}
    try:
        comes_to(
            "pika.exceptions.MethodNotImplemented",
            lambda: opened(broker, lambda _, channel: channel.confirm_delivery()),
        )
    finally:
        broker.capabilities = kept


@contextlib.asynccontextmanager
async def channel_of_aiormq(broker):
    """A channel that the stub leaves open."""
    broker.of_channel = True
    connection = await aiormq.connect(f"amqp://guest:guest@127.0.0.1:{broker.port}/")
    try:
        yield await connection.channel()
    finally:
        await connection.close()


async def consumed_twice_by_aiormq(broker):
    async with channel_of_aiormq(broker) as channel:
        for _ in range(2):
            await channel.basic_consume("q", print, consumer_tag="tag")


async def nacked_by_aiormq(broker):
    broker.capabilities = {"publisher_confirms": True}
    async with channel_of_aiormq(broker) as channel:
        await channel.basic_nack(1)


async def executed(_broker):
    """What a master of aio-pika answers a message with that has no arguments by name."""
    await aio_pika.patterns.Master.execute(print, ["no", "names"])


AIORMQ = {
    "aiormq.exceptions.DuplicateConsumerTag": consumed_twice_by_aiormq,
    "aiormq.exceptions.MethodNotImplemented": nacked_by_aiormq,
    "aio_pika.patterns.master.RejectMessage": executed,
}


@pytest.mark.parametrize("row", AIORMQ)
def test_what_aio_pika_decides_by_itself(broker, row):
    """Before anything is sent."""
    kept = broker.capabilities
    try:
        comes_to(row, lambda: AIORMQ[row](broker))
    finally:
        broker.capabilities = kept


@pytest.mark.parser
def test_contents_that_do_not_fit_their_header():
    """What assembles a message of its frames finds it."""
    deliver = pika.spec.Basic.Deliver("t", 1, False, "e", "k")
    header = pika.frame.Header(1, 1, pika.BasicProperties())

    def assemble(*frames):
        made = pika.channel.ContentFrameAssembler()
        made.process(pika.frame.Method(1, deliver))
        for each in frames:
            made.process(each)

    comes_to(
        "pika.exceptions.BodyTooLongError", lambda: assemble(header, pika.frame.Body(1, b"xx"))
    )
    comes_to("pika.exceptions.UnexpectedFrameError", lambda: assemble(pika.frame.Heartbeat()))


def by_callback(port, act=None):
    """What the asynchronous adapters of pika hand to `on_done`."""
    loop = pika.adapters.select_connection.IOLoop()
    found = []

    def done(result):
        found.append(result)
        loop.stop()

    parameters = [pika.ConnectionParameters("127.0.0.1", port, socket_timeout=30)]
    made = pika.SelectConnection.create_connection(parameters, done, custom_ioloop=loop)
    if act is not None:
        loop.add_callback_threadsafe(lambda: act(made))
    loop.start()
    loop.close()
    raise handed(found[0])


def closed_by_client(port, of_channel):
    """What pika hands to the callbacks of a connection and a channel that the caller closes."""
    loop = pika.adapters.select_connection.IOLoop()
    found = []

    def opened(connection):
        connection.channel(on_open_callback=ready)

    def ready(channel):
        channel.add_on_close_callback(lambda _, reason: found.append(reason))
        channel.connection.add_on_close_callback(ended)
        channel.add_on_close_callback(lambda channel, _: channel.connection.close())
        channel.close()

    def ended(_connection, reason):
        found.append(reason)
        loop.stop()

    parameters = pika.ConnectionParameters("127.0.0.1", port, socket_timeout=30, heartbeat=0)
    pika.SelectConnection(parameters, opened, custom_ioloop=loop)
    loop.start()
    loop.close()
    raise handed(found[0 if of_channel else 1])


def test_what_pika_hands_to_a_callback(broker):
    """The failure of connecting, with that of each step inside."""
    comes_to("AMQPConnectionWorkflowFailed wraps", lambda: by_callback(dead_port()))
    broker.greeting = b""
    error = comes_to("AMQPConnectionWorkflowFailed wraps", lambda: by_callback(broker.port))
    assert type(error.exceptions[-1]).__name__ == "AMQPConnectorAMQPHandshakeError"
    broker.greeting = None
    comes_to(
        "AMQPConnectionWorkflowAborted", lambda: by_callback(broker.port, lambda flow: flow.abort())
    )


def unsupported(broker):
    """The first frame of the broker ends the connection."""
    broker.greeting = pamqp.frame.marshal(commands.Connection.Close(501, "as asked", 0, 0), 0)
    by_pika(broker)


def blocked(broker):
    """A broker without memory, for longer than the client waits."""
    broker.first, broker.of_channel = commands.Connection.Blocked("low on memory"), True
    parameters = pika.ConnectionParameters(
        "127.0.0.1", broker.port, heartbeat=0, blocked_connection_timeout=0.01
    )
    connection = pika.BlockingConnection(parameters)
    for _ in range(600):
        connection.process_data_events(0.1)


class Hurried(pika.adapters.select_connection.IOLoop):
    """A loop on which a second takes a millisecond."""

    def call_later(self, delay, callback):
        return super().call_later(delay / 1000, callback)


def by_select(broker, act, loop=None, **settings):
    """What pika hands to the callbacks of a connection; `act` is called with it at once."""
    loop = loop or pika.adapters.select_connection.IOLoop()
    found = []

    def ended(_connection, reason):
        found.append(reason)
        loop.stop()

    parameters = pika.ConnectionParameters(
        "127.0.0.1", broker.port, socket_timeout=60_000, stack_timeout=60_000, **settings
    )
    made = pika.SelectConnection(
        parameters, on_open_error_callback=ended, on_close_callback=ended, custom_ioloop=loop
    )
    act(made)
    loop.start()
    loop.close()
    raise handed(found[0])


def got_twice(broker):
    """A second `basic_get` before the first one was answered."""
    found = []

    def ask(channel):
        channel.basic_get("q", print)
        try:
            channel.basic_get("q", print)
        except pika.exceptions.DuplicateGetOkCallback as error:
            found.append(error)
            channel.connection.close()

    def prepare(made):
        made.add_on_open_callback(lambda _: made.channel(on_open_callback=ask))

    broker.of_channel = True
    with contextlib.suppress(pika.exceptions.ConnectionClosed):
        by_select(broker, prepare, heartbeat=0)
    raise found[0]


def connector(port, act=None, **settings):
    """What pika hands over that connects to one address."""
    loop = pika.adapters.select_connection.IOLoop()
    found = []

    def done(result):
        found.append(result)
        loop.stop()

    workflow = pika.adapters.utils.connection_workflow
    made = workflow.AMQPConnector(
        lambda parameters: pika.SelectConnection(
            parameters, custom_ioloop=loop, internal_connection_workflow=False
        ),
        pika.adapters.utils.selector_ioloop_adapter.SelectorIOServicesAdapter(loop),
    )
    address = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))
    parameters = pika.ConnectionParameters("127.0.0.1", port, socket_timeout=30, **settings)
    made.start(address, parameters, done)
    if act is not None:
        act(made)
    loop.start()
    loop.close()
    raise handed(found[0])


def without_tls(broker):
    options = pika.SSLOptions(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "localhost")
    broker.greeting = b"AMQP\x00\x00\x09\x01"
    connector(broker.port, ssl_options=options)


CONNECTING = {
    "exceptions.IncompatibleProtocolError otherwise": unsupported,
    "exceptions.ConnectionBlockedTimeout": blocked,
    "exceptions.AMQPHeartbeatTimeout": lambda broker: by_select(
        broker, lambda _: None, Hurried(), heartbeat=20
    ),
    "exceptions.ConnectionOpenAborted": lambda broker: by_select(broker, lambda made: made.close()),
    "exceptions.DuplicateGetOkCallback": got_twice,
    "AMQPConnectorAborted": lambda broker: connector(broker.port, lambda made: made.abort()),
    "AMQPConnectorWrongState": lambda _: pika.adapters.utils.connection_workflow.AMQPConnector(
        None, None
    ).abort(),
    "AMQPConnectorTransportSetupError wraps": without_tls,
}


@pytest.mark.parametrize("row", CONNECTING)
def test_how_a_connection_of_pika_ends(broker, row):
    """As the broker has it, or the caller."""
    comes_to(row, lambda: CONNECTING[row](broker))


def test_what_the_caller_closes_himself(broker):
    """Pika hands the reason to the callbacks."""
    broker.of_channel = True
    for row, of_channel in (("ChannelClosedByClient", True), ("ConnectionClosedByClient", False)):
        comes_to(
            f"pika.exceptions.{row}", lambda each=of_channel: closed_by_client(broker.port, each)
        )


def opened(broker, act):
    """A connection of pika and a channel, which the stub leaves open."""
    broker.of_channel = True
    parameters = pika.ConnectionParameters("127.0.0.1", broker.port, heartbeat=0)
    connection = pika.BlockingConnection(parameters)
    try:
        act(connection, connection.channel())
    finally:
        if connection.is_open:
            connection.close()


def many_channels(connection, _channel):
    for _ in range(20):
        connection.channel()


def closed_twice(connection, _channel):
    for _ in range(2):
        connection.close()


def consumed_twice(_connection, channel):
    for _ in range(2):
        channel.basic_consume("q", print, consumer_tag="tag")


def reentered(connection, channel):
    def consume():
        channel.start_consuming()

    connection.call_later(0, consume)
    channel.basic_consume("q", print)
    channel.start_consuming()


PIKA = {
    "NoFreeChannels": many_channels,
    "ConnectionWrongStateError": closed_twice,
    "DuplicateConsumerTag": consumed_twice,
    "ReentrancyError": reentered,
}


@pytest.mark.parametrize("row", PIKA)
def test_wrong_calls_of_pika(broker, row):
    """The broker has allowed ten channels."""
    comes_to(f"pika.exceptions.{row}", lambda: opened(broker, PIKA[row]))


async def used_pool():
    pool = aio_pika.pool.Pool(asyncio.sleep, 0)
    await pool.close()
    async with pool.acquire():
        pass


def decoded(data):
    used, frame = pika.frame.decode_frame(data)
    return used, frame


AT_HOME = {
    "pika.exceptions.InvalidChannelNumber": lambda: pika.channel.Channel(None, "7", print),
    "aio_pika.pool.PoolInvalidStateError": used_pool,
    "pamqp.exceptions.UnmarshalingException": lambda: pamqp.frame.unmarshal(b"\x09nonsense"),
    "pika.exceptions.InvalidFrameError": lambda: decoded(b"\x01\x00\x00\x00\x00\x00\x00\x00"),
    "pika.exceptions.UnsupportedAMQPFieldException": lambda: pika.data.encode_value([], object()),
    "pika.exceptions.InvalidFieldTypeException": lambda: pika.data.decode_value(b"?", 0),
}


@pytest.mark.parametrize("row", AT_HOME)
def test_what_the_libraries_find_by_themselves(row):
    """A wrong call, or bytes that are no frame."""
    comes_to(row, AT_HOME[row])
