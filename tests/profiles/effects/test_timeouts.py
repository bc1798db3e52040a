"""The timeouts of the five kinds at real clients, whose server accepts connections and is silent.

All calls are stalled at once. How exactly the time to failure is the setting is measured in
`python -m bench effect_timeouts`; here the client has the value, and the stalled call ends.
"""

import asyncio
import threading

import asyncpg
import consul
import httpx
import hvac
import psycopg
import pytest
import requests
from confluent_kafka import KafkaException, Producer

from mainstay.integrations.confluent_kafka import deliver
from mainstay.integrations.psycopg import limited
from mainstay.profiles.effects import (
    ConsulRetryConfig,
    DatabaseRetryConfig,
    HttpRetryConfig,
    KafkaRetryConfig,
    VaultRetryConfig,
    effect,
)
from mainstay.testing import FaultProxy
from tests.integrations.errors.service_stub import ServiceStub, in_json
from tests.servers.kafka import MockCluster

DATABASE = DatabaseRetryConfig(connection_timeout_seconds=1.2, query_timeout_seconds=1.0)
PATIENT = DatabaseRetryConfig(connection_timeout_seconds=59.5, query_timeout_seconds=90.5)
"""For calls that are to succeed, on a slow machine too."""
KAFKA = KafkaRetryConfig.model_construct(producer_timeout_ms=1000, delivery_timeout_ms=1000)
"""Below the bounds of the model, which are 10 s for a delivery: too long for a test."""
HTTP = HttpRetryConfig(connect_timeout_seconds=2.0, read_timeout_seconds=1.0)
VAULT = VaultRetryConfig(attempt_timeout_seconds=0.5)
CONSUL = ConsulRetryConfig(attempt_timeout_seconds=0.5)
LIMITS = {"connect": 1.2, "query": 1.0}
Connection = limited(psycopg.Connection, **LIMITS)
AsyncConnection = limited(psycopg.AsyncConnection, **LIMITS)


class Stall:
    """Proxies for a database that answers until it is asked, and for servers that never answer."""

    def __init__(self, url, cluster, service):
        port = int(url.rpartition(":")[2].partition("/")[0])
        self.database = url
        self.proxies = {
            name: FaultProxy("127.0.0.1", there).start()
            for name, there in [
                ("query", port), ("query async", port), ("asyncpg", port), ("connect", port),
                ("kafka", cluster.port), ("service", service.port),
            ]
        }  # fmt: skip
        for name in ("connect", "kafka", "service"):
            self.proxies[name].black_hole()
        self.http = f"http://127.0.0.1:{self.proxies['service'].port}"

    def url(self, name):
        return self.proxies[name].url(self.database)

    def close(self):
        for proxy in self.proxies.values():
            proxy.close()


@effect(kind="database")
def query(stall):
    with Connection.connect(stall.url("query"), **DATABASE.client_options("psycopg")) as connection:
        stall.proxies["query"].black_hole()
        connection.execute("SELECT 1")


@effect(kind="database")
async def query_async(stall):
    options = DATABASE.client_options("psycopg")
    connection = await AsyncConnection.connect(stall.url("query async"), **options)
    stall.proxies["query async"].black_hole()
    await connection.execute("SELECT 1")


@effect(kind="database")
async def query_asyncpg(stall):
    connection = await asyncpg.connect(stall.url("asyncpg"), **DATABASE.client_options("asyncpg"))
    stall.proxies["asyncpg"].black_hole()
    try:
        await connection.fetch("SELECT 1")
    finally:
        connection.terminate()


@effect(kind="database")
def connect(stall):
    Connection.connect(stall.url("connect"), **DATABASE.client_options("psycopg"))


@effect(kind="kafka")
def publish(stall):
    options = KAFKA.client_options("confluent_kafka")
    address = f"127.0.0.1:{stall.proxies['kafka'].port}"
    producer = Producer({"bootstrap.servers": address, **options}, logger=QUIET)
    deliver(producer, "users", b"{}", timeout=KAFKA.delivery_timeout_ms / 1000.0)


@effect(kind="http")
def get_requests(stall):
    requests.get(stall.http, **HTTP.client_options("requests"))


@effect(kind="http")
def get_httpx(stall):
    with httpx.Client(**HTTP.client_options("httpx")) as client:
        client.get(stall.http)


@effect(kind="vault")
def read_secret(stall):
    client = hvac.Client(url=stall.http, token="t", **VAULT.client_options("hvac"))
    client.secrets.kv.v2.read_secret_version(path="shop", raise_on_deleted_version=True)


@effect(kind="consul")
def read_key(stall):
    port = stall.proxies["service"].port
    consul.Consul(host="127.0.0.1", port=port, **CONSUL.client_options("consul")).kv.get("shop")


class _Quiet:
    """A logger for librdkafka, which reports that the broker is silent."""

    def log(self, *_, **__):
        """Nothing is printed."""


QUIET = _Quiet()
STALLED = {
    "query": query, "query async": query_async, "asyncpg": query_asyncpg, "connect": connect,
    "kafka": publish, "requests": get_requests, "httpx": get_httpx, "vault": read_secret,
    "consul": read_key,
}  # fmt: skip


@pytest.fixture(scope="module")
def stalled(postgres_url):
    """The results of all effects, each called once while its server is silent."""
    found = {}
    with MockCluster() as cluster, ServiceStub() as service:
        service.answers(in_json(200, {}))
        stall = Stall(postgres_url, cluster, service)

        def call(name):
            result = STALLED[name](stall)
            found[name] = asyncio.run(result) if asyncio.iscoroutine(result) else result

        threads = [threading.Thread(target=call, args=[name]) for name in STALLED]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stall.close()
    return found


@pytest.mark.req("EF-07.database", "EF-07.kafka", "EF-07.http", "EF-07.vault", "EF-07.consul")
@pytest.mark.parametrize("name", STALLED)
def test_a_stalled_call_ends_as_a_timeout(stalled, name):
    """Psycopg and consul alone would wait for ever, librdkafka for five minutes."""
    result = stalled[name]
    assert (result.success, result.error_type) == (False, "InfraTimeoutError"), result.exception
    assert result.duration_ms >= 450.0


@pytest.mark.req("EF-07.database")
def test_the_database_and_its_client_have_the_limits(postgres_url):
    """The server gives up a statement by itself; libpq has whole seconds, and at least two."""
    options = PATIENT.client_options("psycopg")
    with psycopg.connect(postgres_url, **options) as connection:
        (shown,) = connection.execute("SHOW statement_timeout").fetchone()
        assert (shown, connection.info.get_parameters()["connect_timeout"]) == ("90500ms", "60")
    assert (Connection.connect_limit, Connection.query_limit) == (1.2, 1.0)


@pytest.mark.req("EF-07.database")
def test_asyncpg_has_the_limits(postgres_url):
    """As the library keeps them."""

    async def main():
        connection = await asyncpg.connect(postgres_url, **PATIENT.client_options("asyncpg"))
        limit = connection._config.command_timeout
        await connection.close()
        return limit

    assert asyncio.run(main()) == 90.5


@pytest.mark.req("EF-07.http")
def test_http_clients_have_the_limits():
    """Httpx in its client, requests in each request."""
    with httpx.Client(**HTTP.client_options("httpx")) as client:
        assert client.timeout == httpx.Timeout(connect=2.0, read=1.0, write=1.0, pool=2.0)
    given = []

    class Adapter(requests.adapters.HTTPAdapter):
        def send(self, request, **options):
            given.append(options["timeout"])
            raise requests.ConnectionError

    with requests.Session() as session, pytest.raises(requests.ConnectionError):
        session.mount("http://", Adapter())
        session.get("http://127.0.0.1/", **HTTP.client_options("requests"))
    assert given == [(2.0, 1.0)]


@pytest.mark.req("EF-07.vault", "EF-07.consul")
def test_vault_and_consul_have_the_attempt_timeout():
    """As their clients keep it."""
    assert hvac.Client(**VAULT.client_options("hvac")).adapter._kwargs["timeout"] == 0.5
    assert consul.Consul(**CONSUL.client_options("consul")).http.connections_timeout == 0.5


@pytest.mark.req("EF-07.kafka")
def test_librdkafka_has_the_limits():
    """A name or a value that it does not take is refused when the producer is made."""
    options = KafkaRetryConfig().client_options("confluent_kafka")
    assert options == {
        "request.timeout.ms": 30_000, "socket.timeout.ms": 30_000, "delivery.timeout.ms": 120_000,
    }  # fmt: skip
    Producer({"bootstrap.servers": "", **options}, logger=QUIET)
    with pytest.raises(KafkaException):
        Producer({"bootstrap.servers": "", **options, "delivery.timeout.ms": -1}, logger=QUIET)


@pytest.mark.req("EF-07.settings")
def test_limits_that_are_none_are_refused():
    """All at once."""
    with pytest.raises(ValueError, match=r"(?s)connect = 0.*query = 'long'"):
        limited(psycopg.Connection, connect=0, query="long")
