"""pika on Twisted's reactor, which has errors that its other adapters do not raise."""

import pytest

pytest.importorskip("twisted")

import pika
from pika.adapters.twisted_connection import TwistedProtocolConnection
from twisted.internet.protocol import ClientFactory
from twisted.internet.selectreactor import SelectReactor

from tests.integrations.errors.amqp_stub import AmqpStub
from tests.integrations.errors.rows import comes_to
from tools.provoked import handed


@pytest.fixture
def broker():
    broker = AmqpStub()
    broker.of_channel = True
    yield broker
    broker.end()


def by_twisted(port, act):
    """What pika gives the errback of a connection, or of what is done with it."""
    loop = SelectReactor()  # one that was stopped does not run again
    made = TwistedProtocolConnection(pika.ConnectionParameters(heartbeat=0), custom_reactor=loop)
    found = []

    def ended(failure):
        found.append(failure.value)
        loop.stop()

    made.ready.addCallback(act).addErrback(ended)
    factory = ClientFactory()
    factory.protocol = lambda: made
    loop.connectTCP("127.0.0.1", port, factory)
    loop.run(installSignalHandlers=False)
    raise handed(found[0])


def consumed(connection):
    """The queue of a consumer, for its next message."""
    opened = connection.channel().addCallback(lambda channel: channel.basic_consume("q"))
    return opened.addCallback(lambda consumer: consumer[0].get())


def test_a_broker_that_ends_the_connection_while_it_is_opened(broker):
    """Nothing was sent."""
    broker.greeting = b""
    comes_to(
        "pika.exceptions.AMQPConnectionError otherwise", lambda: by_twisted(broker.port, consumed)
    )


def test_a_broker_that_ends_a_consumer(broker):
    """As RabbitMQ does if its queue is deleted."""
    broker.cancels = True
    comes_to("pika.exceptions.ConsumerCancelled", lambda: by_twisted(broker.port, consumed))
