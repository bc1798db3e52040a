"""The deadline of a command reaches the socket of redis-py, whatever the server does.

The client's own timeouts are longer than a test may take: what ends here is ended by the deadline.
"""

import asyncio
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from importlib.util import find_spec

import pytest
import redis
import redis.asyncio

import mainstay
from mainstay import deadline
from mainstay.integrations.redis import AsyncRetry, Retry
from mainstay.testing import FaultProxy
from tests.integrations.errors.brokers import judged, seen
from tests.processes import wait_until
from tests.servers.certificate import make_certificate
from tests.servers.valkey import start_valkey

PATIENT = {"socket_timeout": 600, "socket_connect_timeout": 600}
THREE = mainstay.RetryPolicy(max_attempts=3)
LIMITED = mainstay.RetryPolicy(max_attempts=3, deadline=0.3)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("valkey")
    server = start_valkey(folder, False, "--unixsocket", str(folder / "s"))
    yield server
    server.kill()


@pytest.fixture
def proxy(server):
    with FaultProxy("127.0.0.1", server.port) as proxy:
        yield proxy


def test_the_parser_is_hiredis_if_it_is_there(server):
    """It reads from the socket in another way: `make test-all` has it, and runs these tests."""
    with redis.Redis(port=server.port) as client:
        client.ping()
        (connection,) = client.connection_pool._available_connections
        name = type(connection._parser).__name__
    assert ("hiredis" in name.lower()) == (find_spec("hiredis") is not None)


@pytest.fixture
def names(monkeypatch):
    """What the resolver answers for a name: addresses, or an event that it waits for."""
    known, plain = {}, socket.getaddrinfo

    def getaddrinfo(host, port, *rest, **more):
        answer = known.get(host.decode() if isinstance(host, bytes) else host, [host])
        if isinstance(answer, threading.Event):
            answer.wait(600)
            answer = ["127.0.0.1"]
        return [each for one in answer for each in plain(one, port, *rest, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield known
    for each in known.values():
        if isinstance(each, threading.Event):
            each.set()


def client(port, policy=THREE, **options):
    given = {"host": "127.0.0.1", "port": port, **PATIENT, **options}
    return redis.Redis(retry=Retry(policy), **given)


def late(call, *args):
    """What a call raises that a deadline of 0.3 s ends."""
    with deadline.within(0.3):
        return seen(call, *args)


FAULTS = {
    "never answers": FaultProxy.black_hole,
    "drops the answers": FaultProxy.drop_replies,
    "a few bytes a second": lambda proxy: proxy.slow(5.0),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("is_open", [True, False], ids=["connected", "connecting"])
def test_a_command_ends_at_the_deadline(proxy, fault, is_open):
    """One attempt: the next one has no time left."""
    with client(proxy.port) as cache:
        if is_open:
            cache.set("k", "x" * 100)
        fault(proxy)
        error = late(cache.get, "k")
        assert isinstance(error, redis.TimeoutError)
        assert judged(error)[0].startswith("timeout")
        assert "gave up on redis after 1 attempt: the deadline" in error.__notes__[0]
        proxy.heal()
        assert cache.ping(), "the connection that was cut is not used again"


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_the_deadline_of_the_policy_is_one_too(proxy, fault):
    """Without a deadline around it."""
    with client(proxy.port, LIMITED) as cache:
        cache.set("k", "x" * 100)
        fault(proxy)
        assert isinstance(seen(cache.get, "k"), redis.TimeoutError)


@pytest.mark.parametrize("policy", [THREE, LIMITED])
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("is_open", [True, False], ids=["connected", "connecting"])
def test_an_asyncio_client_does_the_same(proxy, fault, is_open, policy):
    """A deadline around it ends an attempt; that of the policy always did."""

    async def run():
        options = {"port": proxy.port, "retry": AsyncRetry(policy), **PATIENT}
        async with redis.asyncio.Redis(host="127.0.0.1", **options) as cache:
            if is_open:
                await cache.set("k", "x" * 100)
            fault(proxy)
            with (
                deadline.within(0.3),
                pytest.raises((redis.TimeoutError, mainstay.DeadlineExceeded)) as caught,
            ):
                await cache.get("k")
            proxy.heal()
            assert await cache.ping(), "the connection that was cut is not used again"
            return caught.value

    error = asyncio.run(run())
    if policy is THREE:
        assert judged(error)[0] == ("timeout ambiguous" if is_open else "timeout")


def test_a_command_that_waits_at_the_server_ends_too(server):
    """A list that nothing is put on; through a socket of the file system as well."""
    path = str(server.folder / "s")
    for options in ({}, {"unix_socket_path": path}):
        with client(server.port, **options) as cache:
            assert isinstance(late(cache.blpop, "empty", 0), redis.TimeoutError)
            assert cache.ping()
            with deadline.within(30.0):
                assert cache.ping()


def test_pipelines_and_subscriptions_end_too(proxy):
    """They have connections of the same pool."""
    with client(proxy.port) as cache, cache.pipeline() as pipeline, cache.pubsub() as pubsub:
        pubsub.subscribe("news")
        assert pubsub.parse_response(block=True)
        assert isinstance(late(pubsub.parse_response, True), redis.TimeoutError)
        pipeline.ping()
        pipeline.execute()
        proxy.black_hole()
        pipeline.ping()
        assert isinstance(late(pipeline.execute), redis.TimeoutError)


def test_a_large_value_is_written_up_to_the_deadline(proxy):
    """A server that does not read what is sent."""
    with client(proxy.port) as cache:
        cache.ping()
        proxy.slow(1000.0)
        assert isinstance(late(cache.set, "k", b"x" * 50_000_000), redis.TimeoutError)


def test_nothing_is_sent_after_the_deadline(proxy):
    """No attempt, and not ambiguous."""
    with client(proxy.port) as cache:
        cache.ping()
        before = proxy.bytes_to_server
        with deadline.within(1e-9):
            error = seen(cache.incr, "n")
        assert judged(error)[0] == "timeout"
        assert proxy.bytes_to_server == before

    async def run():
        options = {"port": proxy.port, "retry": AsyncRetry(THREE), **PATIENT}
        async with redis.asyncio.Redis(host="127.0.0.1", **options) as cache:
            with deadline.within(1e-9):
                await cache.incr("n")

    assert judged(seen(run))[0] == "timeout"


def test_a_slow_lookup_ends_at_the_deadline(proxy, names):
    """The system would wait for as long as it likes."""
    names["slow.example"] = threading.Event()
    with client(proxy.port, host="slow.example") as cache:
        assert judged(late(cache.ping))[0] == "timeout"
    assert proxy.connections == 0


def test_each_address_of_a_name_is_tried(server, names):
    """As without a deadline; the name stays that of the connection."""
    names["two.example"] = ["127.0.0.2", "127.0.0.1"]
    with client(server.port, host="two.example") as cache, deadline.within(60.0):
        assert cache.ping()
        (connection,) = cache.connection_pool._available_connections
        assert (connection.host, connection.socket_connect_timeout) == ("two.example", 600)
        assert connection._sock.gettimeout() == 600


@contextmanager
def tls_server(folder):
    """A server that answers in TLS with a byte at a time of a line that does not end."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    over = threading.Event()

    def serve(wire):
        with suppress(OSError), context.wrap_socket(wire, server_side=True) as safe:
            safe.sendall(b"+")
            while not over.wait(0.02):
                safe.sendall(b"x")

    def accept():
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_tls_ends_at_the_deadline(proxy, tmp_path):
    """In the handshake, and in a line that does not end."""
    trusted = {"ssl": True, "ssl_ca_certs": str(make_certificate(tmp_path) / "cert.pem")}
    proxy.black_hole()
    with client(proxy.port, **trusted) as cache:
        assert judged(late(cache.ping))[0] == "timeout"
    with tls_server(tmp_path) as port, client(port, **trusted) as cache:
        assert judged(late(cache.ping))[0] == "timeout ambiguous"
        assert judged(late(cache.set, "k", b"x" * 100_000))[0] == "timeout ambiguous"


def test_a_certificate_is_still_for_the_name(names, tmp_path):
    """The address that was looked up would be in this one."""
    trusted = {"ssl": True, "ssl_ca_certs": str(make_certificate(tmp_path) / "cert.pem")}
    names["cache.example"] = ["127.0.0.1"]
    with tls_server(tmp_path) as port:
        cache = client(port, host="cache.example", **trusted)
        with deadline.within(60.0):
            error = seen(cache.ping)
        assert "certificate is not valid for 'cache.example'" in str(error)


def test_a_connection_of_a_client_stays_what_it_is(server):
    """For whoever asks for its class; another client's is left alone."""
    with client(server.port) as cache, redis.Redis(port=server.port) as plain:
        cache.ping()
        plain.ping()
        (ours,) = cache.connection_pool._available_connections
        (theirs,) = plain.connection_pool._available_connections
    assert isinstance(ours, redis.Connection)
    assert type(ours).__name__ == "Connection"
    assert type(theirs) is redis.Connection


def test_without_a_deadline_redis_pys_own_timeouts_count(proxy):
    """As they always did."""
    with client(proxy.port, mainstay.RetryPolicy(max_attempts=1), socket_timeout=0.1) as cache:
        cache.ping()
        proxy.black_hole()
        assert judged(seen(cache.get, "k"))[0] == "timeout ambiguous"
    wait_until(lambda: proxy.connections == 1, "one attempt")
