"""nats-py against a real NATS server that ends, hangs and refuses, and behind a proxy.

Another client gives the answers of a cluster (10005 to 10009, 10040, 10118, 10119), of accounts
with limits (10002, 10023, 10028, 10047), and 10167, in the place of JetStream. Raised by the test
itself: the deprecated names.
"""

import asyncio
import contextlib
import json

import nats
import nats.aio.errors
import nats.errors
import nats.js.errors
import nats.micro
import nats.micro.request
import pytest
from nats.js.api import DiscardPolicy, KeyValueConfig

from mainstay.testing import FaultProxy
from tests.integrations.errors.brokers import BY_DEFAULT, dead_port, judged, seen, tried
from tests.servers.nats import start_nats

LOST, SLOW = "transient ambiguous", "timeout ambiguous"


async def ignored(_error):
    """What happens to a connection in the background."""


FEW = {
    "error_cb": ignored, "connect_timeout": 60, "reconnect_time_wait": 0.01,
    "max_reconnect_attempts": 2,
}  # fmt: skip
ONCE = {**FEW, "allow_reconnect": False}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One server with JetStream."""
    server = start_nats(tmp_path_factory.mktemp("nats"), max_payload=1024)
    yield server
    server.kill()


@pytest.fixture
def proxy(server):
    """A proxy before the server."""
    with FaultProxy("127.0.0.1", server.port) as proxy:
        yield proxy


@contextlib.asynccontextmanager
async def connected(port, **settings):
    """A client; its end is not what is tested."""
    client = await nats.connect(f"nats://127.0.0.1:{port}", **{**FEW, **settings})
    try:
        yield client
    finally:
        with contextlib.suppress(OSError, nats.errors.Error):
            await client.close()


def using(port, act, **settings):
    """What something that is done with a client returns."""

    async def run():
        async with connected(port, **settings) as client:
            return await asyncio.wait_for(act(client), 120.0)

    return asyncio.run(run())


async def failed(awaitable):
    """The failure of something that is awaited; None if there is none."""
    try:
        await awaitable
    except Exception as error:
        return error
    return None


async def until(holds):
    """Waits for a state of a client, which has no event for it."""
    while not holds():  # noqa: ASYNC110 -- as said
        await asyncio.sleep(0.005)


def connecting(port, **settings):
    """A function that connects; a client that could not is closed as well."""

    async def connect():
        client = nats.NATS()
        try:
            await client.connect(f"nats://127.0.0.1:{port}", **settings)
        finally:
            await client.close()

    return connect


# --- the network ----------------------------------------------------------------------------------


def test_a_dead_port_is_retried_and_nothing_was_sent():
    """Nobody listens: no servers available."""
    error, count = tried(connecting(dead_port(), **FEW))
    assert (judged(error), count) == (("transient", "nats"), 3)


def test_a_reset_while_connecting(proxy):
    """Each attempt may be several connections: `max_reconnect_attempts` holds here as well."""
    proxy.reset()
    error, count = tried(connecting(proxy.port, **ONCE))
    assert judged(error)[0] == "transient"
    assert count == 3
    assert 3 <= proxy.connections <= 9


def test_a_black_hole_is_a_timeout(proxy):
    """Without reconnects nats-py raises the timeout of asyncio; with them, no servers."""
    proxy.black_hole()
    error, count = tried(connecting(proxy.port, **{**ONCE, "connect_timeout": 0.05}))
    assert (judged(error), count) == (("timeout", ""), 3)
    soon = {**FEW, "connect_timeout": 0.05, "max_reconnect_attempts": 1}
    assert judged(seen(connecting(proxy.port, **soon))) == ("transient", "nats")


def test_a_request_whose_answer_is_lost_may_have_been_carried_out(server, proxy):
    """The responder has got it three times: a timeout after sending."""
    got = []

    async def lose(client):
        async with connected(server.port) as service:

            async def answer(message):
                got.append(message.data)

            await service.subscribe("work", cb=answer)
            await service.flush()
            error = await failed(BY_DEFAULT(client.request)("work", b"do it", timeout=0.05))
            await until(lambda: len(got) == 3)
            return error

    assert judged(using(proxy.port, lose)) == (SLOW, "nats")
    assert got == [b"do it"] * 3


def test_a_connection_that_is_reset_under_a_request(proxy):
    """The client connects again, and the request is not repeated: a timeout after sending."""

    async def lose(client):
        await client.subscribe("work")
        proxy.drop_reply_once(b"do it")
        return await failed(client.request("work", b"do it", timeout=0.2))

    assert judged(using(proxy.port, lose)) == (SLOW, "nats")


def test_a_jetstream_whose_acknowledgement_is_lost_has_stored_the_message(server, proxy):
    """A publish without an answer is ambiguous; a message id makes its repetition safe."""

    async def lose(client):
        async with connected(server.port) as other:
            admin = other.jetstream(timeout=60)
            await admin.add_stream(name="acks", subjects=["acks"])
            stream = client.jetstream(timeout=0.1)
            proxy.drop_replies()
            error = await failed(stream.publish("acks", b"x", headers={"Nats-Msg-Id": "1"}))
            while not (stored := (await admin.stream_info("acks")).state.messages):  # noqa: ASYNC110 -- as said
                await asyncio.sleep(0.005)
            await admin.publish("acks", b"x", headers={"Nats-Msg-Id": "1"})
            again = (await admin.stream_info("acks")).state.messages
            await admin.delete_stream("acks")
            assert (stored, again) == (1, 1)
            return error

    assert judged(using(proxy.port, lose)) == (SLOW, "nats")


# --- a server that ends, hangs, and comes back ----------------------------------------------------


@pytest.fixture(scope="module")
def mortal(tmp_path_factory):
    """A server that is stopped, killed and paused."""
    server = start_nats(tmp_path_factory.mktemp("mortal"))
    yield server
    server.kill()


def test_a_server_that_is_killed_and_restarted(mortal):
    """While it is away the client keeps what is published, up to a limit; then all goes on."""

    async def outlive(client):
        for end in (mortal.kill, mortal.stop):
            end()
            await until(lambda: not client.is_connected)
            overflow = await failed(client.publish("work", b"x" * 200))
            assert judged(overflow) == ("overload", "nats")
            await asyncio.to_thread(mortal.start)
            await until(lambda: client.is_connected)
            await client.flush(60)
        return "it is back"

    settings = {"max_reconnect_attempts": -1, "pending_size": 100}
    assert using(mortal.port, outlive, **settings) == "it is back"


def test_a_server_that_hangs(mortal):
    """SIGSTOP: connections stay open, and nothing comes."""

    async def hang(client):
        mortal.pause()
        try:
            lost = await failed(client.flush(0.05))
            return lost, await failed(client.request("work", b"x", timeout=0.05))
        finally:
            mortal.resume()

    assert [judged(error) for error in using(mortal.port, hang)] == [(SLOW, "nats")] * 2


def test_a_client_that_has_given_up_is_closed_for_good(proxy):
    """After its last attempt to connect nothing it is asked for can succeed."""

    async def give_up(client):
        proxy.refuse()
        await until(lambda: client.is_closed)
        return await failed(BY_DEFAULT(client.request)("work", b"x"))

    assert judged(using(proxy.port, give_up)) == ("permanent", "nats")


# --- what the server answers ----------------------------------------------------------------------


def test_wrong_credentials(tmp_path):
    """Without reconnects they are known; with them, nats-py raises `no servers`."""
    guarded = start_nats(tmp_path, authorization='{user: me, password: "secret"}')
    try:
        for wrong in ({}, {"user": "me", "password": "wrong"}):
            error, count = tried(connecting(guarded.port, **ONCE, **wrong))
            assert (judged(error), count) == (("auth", "nats"), 1)
        background = []

        async def note(error):
            background.append(judged(error))

        hidden = seen(connecting(guarded.port, **{**FEW, "error_cb": note}))
        assert judged(hidden) == ("transient", "nats")
        assert ("auth", "nats") in background
    finally:
        guarded.kill()


def test_nobody_listens_and_mistakes(server):
    """No responders is worth another attempt: the service may be starting."""

    async def all_of_them(client):
        count = 0

        @BY_DEFAULT
        async def ask():
            nonlocal count
            count += 1
            await client.request("nobody", b"x", timeout=60)

        assert judged(await failed(ask())) == ("transient", "nats")
        assert count == 3
        mistakes = [
            client.publish("work", b"x" * 2000),
            client.publish("", b"x"),
            client.publish("work", b"x", headers={"a:b": "c"}),
            client.subscribe("with space"),
            client.flush(0),
        ]
        for mistake in mistakes:
            error = await failed(mistake)
            assert judged(error) == ("permanent", "nats"), error
        await client.drain()
        assert judged(await failed(client.publish("work", b"x"))) == ("permanent", "nats")

    using(server.port, all_of_them)


def test_jetstream_refuses(server):
    """The `err_code` decides: a full stream is overloaded, a missing one is final."""

    async def all_of_them(client):
        stream = client.jetstream(timeout=60)
        assert judged(await failed(stream.publish("nowhere", b"x"))) == ("transient", "nats")
        assert judged(await failed(stream.stream_info("none"))) == ("permanent", "nats")
        assert judged(await failed(stream.consumer_info("none", "c"))) == ("permanent", "nats")
        await stream.add_stream(
            name="small", subjects=["small"], max_msgs=1, discard=DiscardPolicy.NEW
        )
        await stream.publish("small", b"x")
        assert judged(await failed(stream.publish("small", b"x"))) == ("overload", "nats")
        wrong = {"Nats-Expected-Last-Sequence": "9"}
        assert judged(await failed(stream.publish("small", b"x", headers=wrong)))[0] == "permanent"
        wrong = {"Nats-Expected-Last-Msg-Id": "9"}
        assert judged(await failed(stream.publish("small", b"x", headers=wrong)))[0] == "permanent"
        three = stream.add_stream(name="three", subjects=["three"], num_replicas=3)
        assert judged(await failed(three)) == ("permanent", "nats")
        same = stream.add_stream(name="small", subjects=["other"])
        assert judged(await failed(same)) == ("permanent", "nats")
        pull = await stream.pull_subscribe("small", "durable")
        await pull.fetch(1, timeout=60)
        assert judged(await failed(pull.fetch(1, timeout=0.05)))[0].startswith("timeout")
        assert judged(await failed(pull.fetch(2, timeout=0.05)))[0].startswith("timeout")
        await stream.delete_stream("small")

    using(server.port, all_of_them)


def test_keys_and_objects(server):
    """A key that another has written, one that is not there, and names that are wrong."""

    async def all_of_them(client):
        stream = client.jetstream(timeout=60)
        bucket = await stream.create_key_value(KeyValueConfig(bucket="kv"))
        await bucket.put("a", b"1")
        await bucket.delete("a")
        await bucket.put("b", b"1")
        objects = await stream.create_object_store("objects")
        finals = [
            bucket.get("none"),
            bucket.get("a"),
            bucket.get("with space"),
            bucket.update("b", b"2", last=99),
            bucket.create("b", b"2"),
            stream.key_value("none"),
            stream.key_value("with.dot"),
            stream.create_key_value(KeyValueConfig(bucket="kv2", history=65)),
            objects.get("none"),
            stream.object_store("none"),
        ]
        for final in finals:
            error = await failed(final)
            assert judged(error) == ("permanent", "nats"), error
        await stream.delete_key_value("kv")
        await stream.delete_object_store("objects")

    using(server.port, all_of_them)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A server without JetStream."""
    server = start_nats(tmp_path_factory.mktemp("plain"), jetstream=False)
    yield server
    server.kill()


def test_a_server_without_jetstream(plain):
    """Nobody answers, which is what a cluster without a leader looks like: overload."""

    async def ask(client):
        return await failed(client.jetstream(timeout=60).account_info())

    assert judged(using(plain.port, ask)) == ("overload", "nats")


# --- what one server does not answer --------------------------------------------------------------

ANSWERS = [
    ((503, 10008, "JetStream system temporarily unavailable"), "overload"),
    ((500, 10009, "JetStream cluster can not handle request"), "transient"),
    ((400, 10005, "no suitable peers for placement"), "overload"),
    ((503, 10006, "incomplete results"), "transient"),
    ((503, 10011, "JetStream clustering support required"), "permanent"),
    ((400, 10002, "resource limits exceeded for account"), "overload"),
    ((503, 10023, "insufficient resources"), "overload"),
    ((500, 10028, "insufficient memory resources available"), "overload"),
    ((500, 10047, "insufficient storage resources available"), "overload"),
    ((503, 10039, "JetStream not enabled for account"), "permanent"),
    ((503, 10076, "JetStream not enabled"), "permanent"),
    ((503, 10040, "peer remap failed"), "transient"),
    ((500, 10041, "general RAFT error"), LOST),
    ((500, 10118, "stream is offline"), "overload"),
    ((500, 10119, "consumer is offline"), "overload"),
    ((429, 10167, "too many requests"), "throttled"),
    ((400, 10164, "wrong last sequence"), "permanent"),
    ((500, None, None), LOST),
    ((503, None, None), "overload"),
    ((404, None, None), "permanent"),
    ((400, None, None), "permanent"),
    ((408, None, "Request Timeout"), "timeout"),
    ((409, None, "Leadership Change"), "transient"),
    ((409, None, "Server Shutdown"), "transient"),
    ((409, None, "Exceeded MaxWaiting"), "overload"),
    ((409, None, "Consumer Deleted"), "permanent"),
    ((429, None, "too many requests"), "throttled"),
    ((401, None, "unauthorized"), "auth"),
    ((403, None, "forbidden"), "auth"),
]


def answered(server, document, act):
    """What a client does if another one answers for JetStream, with a document."""

    async def run(client):
        async def answer(message):
            await message.respond(json.dumps(document).encode())

        await client.subscribe("$JS.API.INFO", cb=answer)
        async with connected(server.port) as asking:
            await client.flush(60)
            return await failed(act(asking.jetstream(timeout=60)))

    return using(server.port, run)


@pytest.mark.parametrize(("answer", "kind"), ANSWERS)
def test_answers_are_judged_by_their_code_and_then_by_their_status(plain, answer, kind):
    """In the place of the server."""
    status, code, text = answer
    document = {"error": {"code": status, "err_code": code, "description": text}}
    error = answered(plain, document, lambda js: js.account_info())
    assert judged(error) == (kind, "nats")


def test_a_server_that_is_too_old(plain):
    """Its level of the interface is below the one that the client needs."""
    document = {"memory": 0, "storage": 0, "streams": 0, "consumers": 0, "limits": LIMITS,
                "api": {"total": 0, "errors": 0}}  # fmt: skip
    config = nats.js.api.KeyValueConfig(bucket="b", limit_marker_ttl=1)
    error = answered(plain, document, lambda js: js.create_key_value(config))
    assert type(error).__name__ == "KeyValueLimitMarkerTTLNotSupportedError"
    assert judged(error) == ("permanent", "nats")


LIMITS = {
    "max_memory": 1, "max_storage": 1, "max_streams": 1, "max_consumers": 1, "max_ack_pending": 1,
    "memory_max_stream_bytes": 1, "storage_max_stream_bytes": 1, "max_bytes_required": False,
}  # fmt: skip


def test_errors_of_services_and_of_older_versions():
    """A service's code is read as a status; a name of version 1 is that of its successor."""
    service = nats.micro.request.ServiceError
    assert judged(service("503", "busy")) == ("overload", "nats")
    assert judged(service("404", "none")) == ("permanent", "nats")
    assert judged(service("made up", "?")) == ("unknown", "nats")
    assert judged(nats.aio.errors.ErrTimeout()) == (SLOW, "nats")
    assert judged(nats.errors.Error("nats: 'maximum connections exceeded'")) == ("overload", "nats")
    assert judged(nats.errors.Error("nats: 'something new'")) == ("unknown", "nats")
