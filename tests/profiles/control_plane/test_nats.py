"""The categories on the real nats-py, against a real server that is killed, paused or cut off.

    NatsClient --> FaultProxy --> nats-server <-- an observer, which counts what arrives there

What a category repeats is counted at the server or the proxy. Delays are shortened where a server
has to answer, and virtual where none does.
"""

import asyncio
import dataclasses
import os
import re
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import nats
import pytest

from mainstay import PolicyError, UsageError
from mainstay.profiles.control_plane import (
    POLICIES,
    NatsClient,
    RetryCategory,
    RetryError,
    RetryManager,
)
from mainstay.testing import FaultProxy, virtual_time
from tests.processes import wait_until
from tests.servers.nats import start_nats

SHORT = {
    category: dataclasses.replace(policy, base_delay=0.01, max_delay=0.05)
    for category, policy in POLICIES.items()
}
"""The matrix with its attempts, and delays that a test can wait for."""
OPTIONS = {"reconnect_time_wait": 0.05}
WHO = {"tenant_id": "t", "correlation_id": "c", "trace_id": "x"}


@pytest.fixture
def server(tmp_path):
    made = start_nats(tmp_path)
    yield made
    made.kill()


@pytest.fixture
def proxy(server):
    with FaultProxy("127.0.0.1", server.port) as made:
        yield made


class Watched:
    """A client, and the events of its manager."""

    def __init__(self, policies=SHORT, timeout=60.0):
        self.events = []
        self.manager = RetryManager(sinks=[self.events.append], policies=policies)
        self.client = NatsClient(self.manager, timeout=timeout)

    def delays(self):
        return [e.delay_seconds for e in self.events if e.event_type == "retry_attempt"]


@asynccontextmanager
async def connected(proxy, **options):
    """A client that is connected through the proxy."""
    watched = Watched(**options)
    url = f"nats://{proxy.host}:{proxy.port}"
    await watched.client.connect(url, nats_options=OPTIONS)
    watched.events.clear()
    try:
        yield watched
    finally:
        await watched.client.close()


@asynccontextmanager
async def observer(server, subject):
    """What arrives at the server under a subject, on a connection of its own."""
    client = await nats.connect(server.url)
    seen = []

    async def note(message):
        seen.append(message.headers or {})

    subscription = await client.subscribe(subject, cb=note)
    await client.flush()
    await client.flush()  # the PING of the first one is written before the subscription

    async def count():
        await client.flush()  # what the server had before is here now
        while len(seen) < subscription.delivered:  # noqa: ASYNC110 -- another task hands it over
            await asyncio.sleep(0)
        return len(seen)

    count.seen = seen
    try:
        yield count
    finally:
        await client.close()


# --- connect --------------------------------------------------------------------------------------


@pytest.mark.req("CP-02", "CP-11")
def test_a_server_that_was_killed_gets_five_connections(server, proxy):
    """The category's attempts, seen by what stands in the server's place, and its delays."""
    server.kill()
    watched = Watched(policies=None)

    async def main():
        await watched.client.connect(f"nats://{proxy.host}:{proxy.port}", **WHO)

    with virtual_time(), pytest.raises(RetryError) as caught:
        asyncio.run(main())
    assert (caught.value.category, caught.value.attempts) == (RetryCategory.NATS_CONNECT, 5)
    wait_until(lambda: proxy.connections == 5, "five connections")
    for delay, base in zip(watched.delays(), (1.0, 2.0, 4.0, 8.0), strict=True):
        assert 0.9 * base <= delay <= 1.1 * base
    assert {event.tenant_id for event in watched.events} == {"t"}


def test_a_server_that_comes_back_is_found(server, proxy):
    """Killed before the first attempt, started before the third: three connections."""
    server.kill()
    watched = Watched()

    def start(event):
        if event.event_type == "retry_attempt" and event.attempt_number == 2:
            server.start()

    watched.manager = RetryManager(sinks=[start], policies=SHORT)
    client = NatsClient(watched.manager, timeout=60.0)

    async def main():
        await client.connect(f"nats://{proxy.host}:{proxy.port}")
        await client.close()

    asyncio.run(main())
    assert proxy.connections == 3


# --- publish --------------------------------------------------------------------------------------


@pytest.mark.req("CP-02")
def test_a_publish_whose_reply_is_lost_is_sent_three_times_and_stored_once(server, proxy):
    """Every attempt arrives at the server with the same id; the stream holds one message."""

    async def main():
        async with connected(proxy) as watched, observer(server, "audit.>") as arrived:
            client = watched.client
            await client.create_stream("AUDIT", ["audit.>"])
            client.timeout = 0.3
            proxy.drop_replies()
            with pytest.raises(RetryError) as caught:
                await client.publish("audit.append", b"{}")
            assert caught.value.attempts == await arrived() == 3
            assert len({headers["Nats-Msg-Id"] for headers in arrived.seen}) == 1
            assert await stored(server, "AUDIT") == 1

    asyncio.run(main())


def test_a_publish_survives_a_server_that_is_killed_and_started(server, proxy):
    """With one key: given up while the server is gone, stored once when it is back."""

    async def main():
        async with connected(proxy) as watched:
            client = watched.client
            await client.create_stream("AUDIT", ["audit.>"])
            server.kill()
            client.timeout = 0.3
            with pytest.raises(RetryError) as caught:
                await client.publish("audit.append", b"{}", idempotency_key="k")
            assert (caught.value.attempts, len(watched.delays())) == (3, 2)
            server.start()
            client.timeout = 30.0
            await client.connect(f"nats://{proxy.host}:{proxy.port}", nats_options=OPTIONS)
            assert await client.publish("audit.append", b"{}", idempotency_key="k") == 1
            assert await client.publish("audit.append", b"{}", idempotency_key="k") == 1
            assert await stored(server, "AUDIT") == 1

    asyncio.run(main())


async def stored(server, stream):
    """The messages in a stream, asked for on a connection of its own."""
    client = await nats.connect(server.url)
    info = await client.jetstream(timeout=30).stream_info(stream)
    await client.close()
    return info.state.messages


@asynccontextmanager
async def recorder():
    """A server that answers each PING at once: its address, and the commands in their order."""
    commands = []

    async def answer(reader, writer):
        writer.write(b'INFO {"server_id":"x","version":"2.10.0","headers":true}\r\n')
        while line := await reader.readline():
            commands.append(line.split(maxsplit=1)[0].decode() if line.strip() else "")
            if commands[-1] == "PING":
                writer.write(b"PONG\r\n")
        writer.close()

    made = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"nats://127.0.0.1:{made.sockets[0].getsockname()[1]}", commands
    finally:
        made.close()


@pytest.mark.parametrize("command", ["HPUB", "SUB"])
def test_what_is_flushed_is_at_the_server_before_the_answer_that_shows_it(command):
    """nats-py writes a PING before what waits to be written, so one answer shows nothing."""

    async def main():
        async with recorder() as (url, commands):
            client = Watched().client
            await client.connect(url, nats_options=OPTIONS)
            if command == "SUB":
                await client.subscribe("news")
            else:
                await client.publish("news", b"hi", acknowledged=False)
            seen = list(commands)
            await client.close()
        assert command in seen
        assert "PING" in seen[seen.index(command) :]

    asyncio.run(main())


def test_a_message_for_nobodys_stream_is_received_by_the_server(server, proxy):
    """Without an acknowledgement it is flushed."""

    async def main():
        async with connected(proxy) as watched, observer(server, "news") as arrived:
            sent = await watched.client.publish("news", b"hi", acknowledged=False)
            assert (sent, await arrived()) == (None, 1)

    asyncio.run(main())


# --- the waits of a category, seen by the server --------------------------------------------------


class Waits:
    """When each attempt came to the server; each fails only by the server's own answer to it.

    So the time between two of them is at least the wait of the policy, however slow the machine is.
    """

    def __init__(self):
        self.times = []

    def come(self):
        self.times.append(time.monotonic())

    def are_those_of(self, policy):
        """At least what the policy asks for, which doubles; and not without end."""
        gaps = [later - earlier for earlier, later in pairwise(self.times)]
        least = [policy.base_delay * 0.9 * 2.0**n for n in range(policy.max_attempts - 1)]
        assert len(gaps) == len(least)
        for gap, wait in zip(gaps, least, strict=True):
            assert wait <= gap < 60.0, (gaps, least)


@pytest.mark.req("CP-02", "CP-11")
def test_a_server_that_was_killed_is_asked_to_connect_at_the_times_of_the_category(server):
    """What listens in its place takes each connection, notes it, and closes it."""
    server.kill()
    policy = dataclasses.replace(POLICIES[RetryCategory.NATS_CONNECT], base_delay=0.05)
    waits = Waits()

    async def close(_reader, writer):
        waits.come()
        writer.close()

    async def main():
        stand_in = await asyncio.start_server(close, "127.0.0.1", server.port)
        watched = Watched(policies={RetryCategory.NATS_CONNECT: policy})
        async with stand_in:
            with pytest.raises(RetryError) as caught:
                await watched.client.connect(server.url)
        assert caught.value.attempts == len(waits.times) == 5

    asyncio.run(main())
    waits.are_those_of(policy)


@pytest.mark.req("CP-01", "CP-02")
@pytest.mark.parametrize("category", [RetryCategory.NATS_PUBLISH, RetryCategory.KV_GET])
def test_a_server_that_was_killed_is_asked_at_the_times_of_the_category(server, proxy, category):
    """It comes back without JetStream, and refuses each attempt; its own log counts them."""
    is_get = category is RetryCategory.KV_GET
    subject = b"$JS.API.DIRECT.GET.KV_switches" if is_get else b"audit.append"
    policy = dataclasses.replace(POLICIES[category], base_delay=0.1)
    waits = Waits()

    def pass_on(request):
        if b"PUB " + subject in request:
            waits.come()

    async def main():
        async with connected(proxy, policies=SHORT | {category: policy}) as watched:
            client = watched.client
            await client.create_stream("AUDIT", ["audit.>"])
            await client.kv_create("switches", settings={"direct": True})
            assert await client.kv_get("switches", "all") is None
            server.kill()
            await until(lambda: not client.client.is_connected)
            server.configure(jetstream=False, trace="true")
            server.start()
            await until(lambda: client.client.is_connected)
            proxy.drop_reply_once(pass_on)  # it never does: it looks at what is passed on
            with pytest.raises(RetryError) as caught:
                await (client.kv_get("switches", "all") if is_get else client.publish(AUDIT))
            return caught.value

    error = asyncio.run(main())
    waits.are_those_of(policy)
    asked = re.findall(rf"PUB {re.escape(subject.decode())}\b".encode(), server.log())
    assert (error.category, error.attempts, len(asked)) == (category, 3, 3)


AUDIT = "audit.append"


async def until(condition):
    """nats-py notices by itself, in this loop."""
    async with asyncio.timeout(60.0):
        while not condition():  # noqa: ASYNC110 -- nothing notifies
            await asyncio.sleep(0.01)


# --- key-value buckets ----------------------------------------------------------------------------


@pytest.mark.req("CP-02")
def test_a_get_is_asked_for_three_times(server, proxy):
    """Each attempt is a request at the server; the reply is lost each time."""

    async def main():
        asked = "$JS.API.DIRECT.GET.KV_switches.>"
        async with connected(proxy) as watched, observer(server, asked) as arrived:
            client = watched.client
            await client.kv_create("switches", settings={"direct": True})
            assert await client.kv_put("switches", "all", b"on") == 1
            assert await client.kv_get("switches", "all") == b"on"
            before = await arrived()
            (await client._bucket("switches"))._js._timeout = 0.3
            proxy.drop_replies()
            with pytest.raises(RetryError) as caught:
                await client.kv_get("switches", "all")
            assert caught.value.category is RetryCategory.KV_GET
            assert await arrived() - before == 3

    asyncio.run(main())


def test_a_get_survives_a_server_that_is_killed_and_started(server, proxy):
    """Given up after three attempts; answered when the server is back with its files."""

    async def main():
        async with connected(proxy) as watched:
            client = watched.client
            await client.kv_create("switches")
            await client.kv_put("switches", "all", b"on")
            server.kill()
            client.timeout = 0.3
            client._buckets.clear()  # they keep the time that they were opened with
            with pytest.raises(RetryError) as caught:
                await client.kv_get("switches", "all", **WHO)
            assert (caught.value.attempts, len(watched.delays())) == (3, 2)
            last = watched.events[-1]
            assert (last.event_type, last.operation) == ("retry_exhausted", "Get switches/all")
            server.start()
            client.timeout = 30.0
            await client.connect(f"nats://{proxy.host}:{proxy.port}", nats_options=OPTIONS)
            assert await client.kv_get("switches", "all") == b"on"

    asyncio.run(main())


@pytest.mark.req("CP-01", "CP-02")
@pytest.mark.parametrize("category", [RetryCategory.NATS_PUBLISH, RetryCategory.KV_GET])
def test_a_server_that_is_killed_while_it_is_asked(server, proxy, category):
    """The first attempt has arrived when it dies; the category's other attempts find nothing."""
    is_get = category is RetryCategory.KV_GET
    subject = "$JS.API.DIRECT.GET.KV_switches.>" if is_get else "audit.>"

    async def main():
        async with connected(proxy) as watched, observer(server, subject) as arrived:
            client = watched.client
            if is_get:
                await client.kv_create("switches", settings={"direct": True})
                (await client._bucket("switches"))._js._timeout = 1.0
                asking = client.kv_get("switches", "all")
            else:
                await client.create_stream("AUDIT", ["audit.>"])
                asking = client.publish("audit.append", b"{}")
            client.timeout = 1.0
            proxy.drop_replies()
            task = asyncio.ensure_future(asking)
            while await arrived() == 0:
                assert not task.done()
                await asyncio.sleep(0.005)
            server.kill()
            with pytest.raises(RetryError) as caught:
                await task
            assert (caught.value.category, len(arrived.seen)) == (category, 1)
            assert caught.value.attempts == POLICIES[category].max_attempts
            assert len(watched.delays()) == POLICIES[category].max_attempts - 1

    asyncio.run(main())


def test_keys_are_put_watched_and_deleted(server, proxy):
    """A key that is not there is None, and no failure."""

    async def main():
        async with connected(proxy) as watched:
            client = watched.client
            await client.kv_create("flags")
            assert await client.kv_get("flags", "tea") is None
            await client.kv_put("flags", "tea", b"1")
            watcher = await client.kv_watch("flags")
            first = await watcher.updates(timeout=30)
            assert (first.key, first.value) == ("tea", b"1")
            await watcher.stop()
            await client.kv_delete("flags", "tea")
            assert await client.kv_get("flags", "tea") is None
            assert watched.delays() == []

    asyncio.run(main())


# --- subscriptions and requests -------------------------------------------------------------------


@pytest.mark.req("CP-10")
def test_an_execution_is_a_request_to_a_service(server, proxy):
    """Nobody listens at first; the second attempt is answered, with the key as its id."""

    async def main():
        async with connected(proxy) as watched, connected(proxy) as service:
            seen = []

            async def contain(message):
                seen.append(message.headers["Nats-Msg-Id"])
                await message.respond(b"contained")

            call = asyncio.create_task(
                watched.client.request(
                    RetryCategory.EXECUTION_CONTAINMENT, "execution.contain", b"host-7",
                    idempotency_key="k", policy=dataclasses.replace(
                        SHORT[RetryCategory.EXECUTION_CONTAINMENT], base_delay=1.0, max_delay=1.0
                    ),
                )
            )  # fmt: skip
            while not watched.delays():  # noqa: ASYNC110 -- nothing is notified of it
                await asyncio.sleep(0.01)
            await service.client.subscribe("execution.contain", contain)
            assert await call == b"contained"
            assert seen == ["k"]
            (failed,) = [e for e in watched.events if e.event_type == "retry_attempt"]
            assert failed.retry_category == "RETRY_EXECUTION_CONTAINMENT"
            assert failed.exception_type == "nats.errors.NoRespondersError"

    asyncio.run(main())


OPERATIONS = {
    RetryCategory.NATS_PUBLISH: lambda client: client.publish("audit.append"),
    RetryCategory.NATS_SUBSCRIBE: lambda client: client.subscribe("news"),
    RetryCategory.NATS_STREAM_CREATE: lambda client: client.create_stream("S", ["s"]),
    RetryCategory.KV_CREATE: lambda client: client.kv_create("b"),
    RetryCategory.KV_GET: lambda client: client.kv_get("b", "k"),
    RetryCategory.KV_PUT: lambda client: client.kv_put("b", "k", b""),
    RetryCategory.KV_DELETE: lambda client: client.kv_delete("b", "k"),
}


@pytest.fixture(scope="module")
def silent(tmp_path_factory):
    """A server whose connections are cut off once they are made."""
    made = start_nats(tmp_path_factory.mktemp("silent"))
    yield made
    made.kill()


@pytest.fixture
def _nobody_answers(monkeypatch):
    """No answer is on its way for which time would have to stand still."""
    monkeypatch.setattr("mainstay.testing.time._ANSWERS_WITHIN", 0.01)


@pytest.mark.req("CP-01", "CP-02")
@pytest.mark.usefixtures("_nobody_answers")
@pytest.mark.parametrize("category", [c for c in RetryCategory if c.name != "NATS_CONNECT"])
def test_every_category_has_its_attempts_and_delays_on_a_server_that_is_silent(silent, category):
    """Sixteen rows of the matrix, on a connection into which everything disappears."""
    policy = POLICIES[category]

    def request(client):
        return client.request(category, "service")

    async def main(proxy):
        async with connected(proxy, policies=None, timeout=30.0) as watched:
            proxy.black_hole()
            with virtual_time(), pytest.raises(RetryError) as caught:
                await OPERATIONS.get(category, request)(watched.client)
            return caught.value, watched.delays()

    with FaultProxy("127.0.0.1", silent.port) as proxy:
        error, delays = asyncio.run(main(proxy))
    assert (error.category, error.attempts) == (category, policy.max_attempts)
    for n, delay in enumerate(delays):
        base = min(policy.base_delay * 2.0**n, policy.max_delay)
        assert 0.9 * base <= delay <= 1.1 * base


# --- misuse ---------------------------------------------------------------------------------------


def test_what_is_wrong_is_reported_with_what_to_do():
    """All arguments at once; a client that is not connected; a category that has a method."""
    with pytest.raises(PolicyError) as caught:
        NatsClient("nats://localhost", timeout=0)
    assert [problem.field for problem in caught.value.problems] == ["manager", "timeout"]
    client = NatsClient(RetryManager(sinks=[], policies=SHORT))
    with pytest.raises(UsageError, match=r"RETRY_KV_GET.*kv_get\(\) is"):
        asyncio.run(client.request(RetryCategory.KV_GET, "s"))
    with pytest.raises(RetryError) as caught:
        asyncio.run(client.kv_get("b", "k"))
    assert "await client.connect(URL)" in str(caught.value.__cause__)


# --- the example ----------------------------------------------------------------------------------

EXAMPLE = Path(__file__).parents[3] / "examples/doors/switches_nats.py"


def ran_example(server, **settings):
    return subprocess.run(
        [sys.executable, EXAMPLE, "all_execution", "off", "host-7"],
        env={**os.environ, "NATS_URL": server.url, **settings}, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.req("CP-02", "CP-18")
def test_the_example_sets_a_switch_once_and_asks_a_service(server):
    """The second run finds the results of the first; in the third no service answers."""

    async def main():
        service = await nats.connect(server.url)

        async def contain(message):
            await message.respond(b"contained")

        listening = await service.subscribe("execution.contain", cb=contain)
        await service.flush()
        first = await asyncio.to_thread(ran_example, server)
        again = await asyncio.to_thread(ran_example, server)
        for done in (first, again):
            lines = done.stdout.splitlines()
            assert lines[:2] == ["all_execution off", "host-7 contained"], done.stderr
            is_first = "KV_PUT: 100% succeeded, 1.0 attempts on average" in lines
            assert is_first is (done is first)
        info = await service.jetstream().stream_info("AUDIT")
        assert info.state.messages == 1
        bucket = await service.jetstream().key_value("switches")
        assert (await bucket.get("all_execution")).revision == 1
        await listening.unsubscribe()
        await service.flush()
        alone = await asyncio.to_thread(ran_example, server)
        assert "given up: 'Request execution.contain'" in alone.stdout
        assert "EXECUTION_CONTAINMENT: 0% succeeded, 2.0 attempts on average" in alone.stdout
        await service.close()

    asyncio.run(main())
