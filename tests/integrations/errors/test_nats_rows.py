"""nats-py: rows of the table that the other tests do not come to.

A stub speaks the first lines of the protocol and refuses; JetStream is the real server's.
"""

import asyncio
import contextlib
import gc
import json
import socket
import threading
import urllib.parse
import warnings

import nats
import nats.errors
import pytest
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, KeyValueConfig, ObjectMeta, StreamConfig

from tests.integrations.errors.rows import comes_to, leaving_open
from tests.servers.nats import start_nats
from tools.provoked import handed

INFO = {"server_id": "x", "version": "2.10.0", "max_payload": 1024, "proto": 1, "headers": True}


async def ignored(_error):
    """What happens to a connection in the background."""


FEW = {
    "error_cb": ignored, "connect_timeout": 30, "allow_reconnect": False,
    "max_reconnect_attempts": 0,
}  # fmt: skip


@contextlib.contextmanager
def refusing(line):
    """A server that greets, and answers the first PING with a line."""

    def serve():
        with contextlib.suppress(OSError):
            wire, _ = listener.accept()
            with wire, wire.makefile("rb") as reader:
                wire.sendall(b"INFO " + json.dumps(INFO).encode() + b"\r\n")
                while reader.readline().split() not in ([b"PING"], []):
                    pass
                wire.sendall(line + b"\r\n")
                reader.read()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"nats://127.0.0.1:{listener.getsockname()[1]}"
        with warnings.catch_warnings():  # nats-py leaves a connection that was refused open
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        thread.join()


REFUSED = {
    "nats.errors.Error words full": b"-ERR 'maximum connections exceeded'",
    "nats.errors.Error words throttled": b"-ERR 'Connection throttling is active'",
    "nats.errors.Error words auth": b"-ERR 'Authorization Violation'",
    "nats.errors.Error otherwise": b"-ERR 'Something New'",
}


@pytest.mark.parametrize("row", REFUSED)
def test_a_server_that_refuses_the_connection(row):
    """In its own words."""

    async def connect():
        await nats.connect(url, **FEW)

    with refusing(REFUSED[row]) as url:
        comes_to(row, connect)


LATER = {
    "nats.errors.StaleConnectionError": b"PONG\r\n-ERR 'Stale Connection'",
    "nats.errors.AuthorizationError": b"PONG\r\n-ERR 'Authorization Violation'",
    "nats.errors.ProtocolError": b"PONG\r\nMSG one\r\n",
}


@pytest.mark.parametrize("row", LATER)
def test_a_server_that_ends_a_connection(row):
    """nats-py keeps the error as the last one, and closes."""

    async def lose():
        closed = asyncio.Event()

        async def ended():
            closed.set()

        client = await nats.connect(url, closed_cb=ended, **FEW)
        await asyncio.wait_for(closed.wait(), 60)
        raise handed(client.last_error)

    with refusing(LATER[row]) as url:
        comes_to(row, lose)


def test_a_server_that_ends_a_connection_before_it_greets():
    """Nothing was sent."""

    def end():
        listener.accept()[0].close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        closing = threading.Thread(target=end, daemon=True)
        closing.start()
        url = f"nats://127.0.0.1:{listener.getsockname()[1]}"

        async def connect():
            await nats.connect(url, **FEW)

        with leaving_open():
            comes_to("nats.errors.Error words lost", connect)
        closing.join()


# --- calls of a client ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = start_nats(tmp_path_factory.mktemp("nats"))
    yield server
    server.kill()


async def unsubscribed_twice(client, _js):
    subscription = await client.subscribe("a")
    for _ in range(2):
        await subscription.unsubscribe()


async def slow(client, _js):
    seen = asyncio.get_running_loop().create_future()

    async def note(error):
        if not seen.done():
            seen.set_result(error)

    client._error_cb = note
    await client.subscribe("a", pending_msgs_limit=1)
    for _ in range(9):
        await client.publish("a", b"x")
    await client.flush(60)
    raise handed(await asyncio.wait_for(seen, 60))


async def acknowledged_twice(_client, js):
    await js.add_stream(StreamConfig(name="twice", subjects=["twice"]))
    await js.publish("twice", b"x")
    subscription = await js.subscribe("twice", manual_ack=True)
    message = await subscription.next_msg(60)
    for _ in range(2):
        await message.ack()


async def plain_acknowledged(client, _js):
    await Msg(client).ack()


async def no_bucket(_client, js):
    await js.add_stream(StreamConfig(name="KV_plain", subjects=["plain"]))
    await js.key_value("plain")


async def no_keys(_client, js):
    bucket = await js.create_key_value(KeyValueConfig(bucket="none"))
    await bucket.keys()


async def deleted_object(_client, js):
    store = await js.create_object_store("deleted")
    await store.put("o", b"x")
    await store.delete("o")
    await store.update_meta("o", ObjectMeta(name="p"))


async def renamed_object(_client, js):
    store = await js.create_object_store("renamed")
    await store.put("o", b"x")
    await store.put("p", b"x")
    await store.update_meta("o", ObjectMeta(name="p"))


async def damaged_object(_client, js):
    store = await js.create_object_store("damaged")
    made = await store.put("o", b"x")
    await js.publish(f"$O.damaged.C.{made.nuid}", b"more")
    await js.purge_stream("OBJ_damaged", subject=f"$O.damaged.C.{made.nuid}", keep=1)
    await store.get("o")


async def damaged_description(_client, js):
    store = await js.create_object_store("described")
    await store.put("o", b"x")
    await js.publish("$O.described.M.bw==", b"{no json")
    await store.get_info("o")


async def linked_bucket(_client, js):
    store = await js.create_object_store("linked")
    link = {"name": "o", "bucket": "linked", "nuid": "n", "options": {"link": {"bucket": "other"}}}
    await js.publish("$O.linked.M.bw==", json.dumps(link).encode())
    await store.get("o")


@contextlib.asynccontextmanager
async def returning(client, **settings):
    """Another client, which is made to connect again, and has done so before it is closed."""
    back = asyncio.Event()

    async def connected():
        back.set()

    again = {"allow_reconnect": True, "reconnect_time_wait": 0.01, "reconnected_cb": connected}
    made = await nats.connect(client.connected_url.geturl(), **{**FEW, **again, **settings})
    try:
        yield made
    finally:
        await asyncio.wait_for(back.wait(), 30)
        await made.close()


async def reconnecting(client, _js):
    async with returning(client) as made:
        await made.force_reconnect()
        await made.drain()


async def noted(client, begin):
    """What a client hands to its callback for errors, after something was begun."""
    seen = asyncio.get_running_loop().create_future()

    async def note(error):
        if not seen.done():
            seen.set_result(error)

    client._error_cb = note
    ending = asyncio.ensure_future(begin())
    error = await asyncio.wait_for(seen, 60)
    await asyncio.wait([ending], timeout=1)
    ending.cancel()  # nats-py may lose the end of what was cut in the middle of a flush
    await asyncio.gather(ending, return_exceptions=True)
    raise handed(error)


@contextlib.asynccontextmanager
async def busy(client):
    """A subscription whose handler does not end; it gets one message."""
    begun, end = asyncio.Event(), asyncio.Event()

    async def handle(_message):
        begun.set()
        await end.wait()

    await client.subscribe("busy", cb=handle)
    await client.publish("busy", b"x")
    await begun.wait()
    try:
        yield
    finally:
        end.set()


async def drained_late(client, _js):
    client.options["drain_timeout"] = 0.1
    async with busy(client):
        await noted(client, client.drain)


async def draining(client, _js):
    async with busy(client):
        ending = asyncio.ensure_future(client.drain())
        try:
            while not client.is_draining:  # noqa: ASYNC110 -- there is no event for it
                await asyncio.sleep(0)
            await client.subscribe("late")
        finally:
            ending.cancel()


async def elsewhere(client, _js):
    """A handler that names a server which the client does not know."""
    other = nats.aio.client.Server(urllib.parse.urlparse("nats://127.0.0.1:1"))
    choice = {"reconnect_to_server_handler": lambda _servers, _info: (other, 0)}
    async with returning(client, **choice) as made:
        await noted(made, made.force_reconnect)


async def stalled(client, _js):
    """A message that nobody acknowledges, and then another."""
    await client.subscribe("quiet")
    js = client.jetstream(publish_async_max_pending=1)
    for _ in range(2):
        await js.publish_async("quiet", b"x", wait_stall=0.01)


async def nothing_to_fetch(_client, js):
    """The server beats while it waits; on a slow machine it is waited for longer."""
    await js.add_stream(StreamConfig(name="empty", subjects=["empty"]))
    subscription = await js.pull_subscribe("empty", durable="puller")
    for timeout in (0.05, 0.5, 5, 30):
        try:
            await subscription.fetch(1, timeout=timeout, heartbeat=timeout / 5)
        except nats.js.errors.FetchTimeoutError:
            raise
        except nats.errors.TimeoutError:
            continue


async def missed(client, js):
    """The heartbeat of a consumer that has sent more than came."""
    await js.add_stream(StreamConfig(name="missed", subjects=["missed"]))
    await js.publish("missed", b"x")
    subscription = await js.subscribe("missed", config=ConsumerConfig(idle_heartbeat=60))
    await subscription.next_msg(60)
    head = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 9\r\n\r\n"
    beat = b"HPUB %s %d %d\r\n%s\r\n" % (
        subscription.subject.encode(), len(head), len(head), head
    )  # fmt: skip

    reader, writer = await asyncio.open_connection("127.0.0.1", client.connected_url.port)

    async def send():
        writer.write(b'CONNECT {"headers": true, "verbose": false}\r\n' + beat + b"PING\r\n")
        await reader.readuntil(b"PONG\r\n")

    try:
        await noted(client, send)
    finally:
        writer.close()
        await writer.wait_closed()


CALLS = {
    "LinkIsABucketError": linked_bucket,
    "ConnectionReconnectingError": reconnecting,
    "DrainTimeoutError": drained_late,
    "ConnectionDrainingError": draining,
    "ServerNotInPoolError": elsewhere,
    "TooManyStalledMsgsError": stalled,
    "FetchTimeoutError": nothing_to_fetch,
    "ConsumerSequenceMismatchError": missed,
    "BadSubscriptionError": unsubscribed_twice,
    "SlowConsumerError": slow,
    "MsgAlreadyAckdError": acknowledged_twice,
    "NotJSMessageError": plain_acknowledged,
    "BadBucketError": no_bucket,
    "NoKeysError": no_keys,
    "ObjectDeletedError": deleted_object,
    "ObjectAlreadyExists": renamed_object,
    "DigestMismatchError": damaged_object,
    "BadObjectMetaError": damaged_description,
}


@pytest.mark.parametrize("row", CALLS)
def test_calls_of_a_client(server, row):
    """The real server answers."""

    async def call():
        client = await nats.connect(f"nats://127.0.0.1:{server.port}", **FEW)
        try:
            await asyncio.wait_for(CALLS[row](client, client.jetstream()), 60)
        finally:
            with contextlib.suppress(nats.errors.Error, OSError):
                await asyncio.wait_for(client.close(), 5)

    with leaving_open():
        comes_to(row, call)


async def callback():
    await nats.connect("nats://127.0.0.1:1", error_cb=print)


SETTINGS = {
    "InvalidCallbackTypeError": callback,
    "nats.errors.Error words mistake": lambda: nats.connect(["ws://a:1", "nats://b:1"], **FEW),
}


@pytest.mark.parametrize("row", SETTINGS)
def test_wrong_settings(row):
    """Nothing is sent."""
    comes_to(row, SETTINGS[row])
