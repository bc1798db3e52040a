"""The code of docs/how-to/publishers.md that needs a server, against real ones."""

import ast
import asyncio
import inspect
from pathlib import Path

import pytest
import redis

from mainstay.core.outbox.message import Message
from tests.servers.http_faults import HttpFaults, Status
from tests.servers.kafka import MockCluster
from tools.pages import read_blocks

PAGE = Path(__file__).parents[2] / "docs/how-to/publishers.md"
BLOCKS = {
    block.text.partition("import ")[2].split()[0]: block.text
    for block in read_blocks(PAGE.read_text(encoding="utf-8"))
    if block.rest
}


def run_block(name, old, new):
    """Runs the block that imports a class, with another address."""
    program = BLOCKS[name]
    assert old in program
    code = compile(program.replace(old, new), str(PAGE), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    message = Message(id="8d0f", topic="paid", payload=b"{}", aggregate_id="o-1")
    result = eval(code, {"message": message})  # a page of our own
    assert inspect.iscoroutine(result)

    async def finished():
        await asyncio.wait_for(result, 60)

    asyncio.run(finished())


def test_every_block_is_run_here():
    """That of RabbitMQ by the tests of its publisher, which have a server."""
    assert BLOCKS.keys() == {
        "NatsPublisher", "KafkaPublisher", "RabbitPublisher", "RedisStreamsPublisher",
        "HttpPublisher",
    }  # fmt: skip


def test_nats(nats_url):
    """What the block publishes is in the stream of its subject."""
    import nats

    async def with_stream(ask):
        client = await nats.connect(nats_url)
        try:
            return await ask(client.jetstream())
        finally:
            await client.close()

    asyncio.run(with_stream(lambda js: js.add_stream(name="PAGE", subjects=["events.>"])))
    run_block("NatsPublisher", "nats://me:secret@127.0.0.1:4222", nats_url)
    stored = asyncio.run(with_stream(lambda js: js.get_last_msg("PAGE", "events.paid")))
    assert (stored.data, stored.headers["Nats-Msg-Id"]) == (b"{}", "8d0f")


def test_kafka():
    """The broker has received a record for the topic."""
    with MockCluster() as cluster:
        cluster.topic("shop.paid")
        run_block("KafkaPublisher", "127.0.0.1:9092", cluster.bootstrap)
        assert cluster.requests("Produce") == 1


def test_redis(valkey_url):
    """The stream has an entry with the id of the message."""
    run_block("RedisStreamsPublisher", "redis://127.0.0.1:6379/0", valkey_url)
    with redis.Redis.from_url(valkey_url, decode_responses=True) as client:
        ((_, fields),) = client.xrange("events:paid")
    assert (fields["id"], fields["data"]) == ("8d0f", "{}")


def test_http():
    """One POST to the path of the topic, once a local target is allowed."""
    with HttpFaults() as server:
        server.on("/hooks/paid", Status(204))
        with pytest.raises(Exception, match="allow_local=True"):
            run_block("HttpPublisher", "https://example.org", server.url)
        url = f'{server.url}/hooks/{{topic}}", allow_local=True'
        run_block("HttpPublisher", 'https://example.org/hooks/{topic}"', url)
        assert server.count("/hooks/paid") == 1
