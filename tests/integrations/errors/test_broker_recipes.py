"""The code of the cookbook's pages of caches and brokers runs against a real server."""

import pymongo
import pytest

import mainstay.testing
from tests.integrations.errors.brokers import recipe
from tests.servers.kafka import MockCluster
from tests.servers.mongo import CLOSE, MongoStub
from tests.servers.nats import start_nats
from tests.servers.valkey import start_valkey


def test_the_page_of_redis(tmp_path):
    """The value is there, and redis-py has the policy."""
    server = start_valkey(tmp_path)
    try:
        page = recipe("redis.md", URL=server.url)
        assert page["price"] == 5
        assert page["cache"].get_retry().policy is page["policy"]
        for client in (page["cache"], page["counters"]):
            client.close()
    finally:
        server.kill()


def test_the_page_of_pymongo():
    """The order is stored, also if the first answer is lost."""
    with MongoStub() as stub:
        page = recipe("pymongo.md", URL=stub.uri)
        assert stub.seen["update"] == 1
        stub.answer("update", CLOSE, CLOSE, {"ok": 1.0, "n": 1})
        with pytest.MonkeyPatch.context() as patch, mainstay.testing.virtual_time():
            patch.setattr(pymongo.common, "MIN_HEARTBEAT_INTERVAL", 0.01)
            page["store"]({"_id": "order-2"})
        assert stub.seen["update"] == 3
        page["client"].close()


def test_the_page_of_nats(tmp_path):
    """It runs to its end."""
    server = start_nats(tmp_path)
    try:
        assert recipe("nats.md", URL=server.url)["client"].is_closed
    finally:
        server.kill()


def test_the_page_of_kafka():
    """Both producers have sent their message."""
    with MockCluster() as cluster:
        cluster.topic("orders")
        recipe("kafka.md", SERVERS=cluster.bootstrap)
        assert cluster.requests("Produce") == 2
