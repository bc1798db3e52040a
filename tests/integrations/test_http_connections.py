"""What becomes of the connection of a response that is repeated, counted at a real server."""

import asyncio
import importlib
from contextlib import suppress

import aiohttp
import httpx
import httpx2
import pytest
import requests
import trio
import urllib3

import mainstay
import mainstay.testing
from mainstay import Backoff, Jitter, RetryPolicy, deadline
from mainstay.integrations.aiohttp import Middleware
from mainstay.integrations.http_exchange import LONGEST
from mainstay.integrations.requests import Adapter
from mainstay.integrations.urllib3 import PoolManager, StatusError
from tests.processes import wait_until
from tests.servers.http_faults import Chunks, Drip, HttpFaults, Status

OK = Status(200, body=b"ok")
DOWN = Status(503, body=b"down")
LONG = Status(503, body=b"x" * (LONGEST * 8))
ONE = {"max_connections": 1}


@pytest.fixture
def server():
    """A server of its own: what the client of the test before gave up on may yet arrive there."""
    with HttpFaults() as running:
        yield running


@pytest.fixture(autouse=True)
def patient(request, monkeypatch):
    """A busy machine may take a while from one chunk to the next."""
    if "slow_body" not in request.node.name:
        for name in ("httpx_exchange", "aiohttp", "urllib3"):
            monkeypatch.setattr(f"mainstay.integrations.{name}.PATIENCE", 30.0)


def three(**fields):
    """A policy of three attempts that waits for a moment."""
    waits = {"backoff": Backoff.constant(0.001), "jitter": Jitter.none()}
    return RetryPolicy(**{"attempts": 3, **waits, **fields})


def ours(library):
    return importlib.import_module(f"mainstay.integrations.{library.__name__}")


class Httpx:
    """A client of httpx with one connection."""

    library = httpx
    error = httpx.HTTPStatusError

    def __init__(self, policy):
        library = self.library
        inner = library.HTTPTransport(limits=library.Limits(**ONE))
        timeout = library.Timeout(30.0, pool=60.0)
        transport = ours(library).Transport(policy, transport=inner)
        self.client = library.Client(transport=transport, timeout=timeout)

    def get(self, url, method="GET"):
        answer = self.client.request(method, url)
        return answer.status_code, answer.content

    def close(self):
        self.client.close()


class Httpx2(Httpx):
    """A client of httpx2."""

    library = httpx2
    error = httpx2.HTTPStatusError


class Requests:
    """A session of requests with one connection."""

    error = requests.HTTPError

    def __init__(self, policy):
        self.session = requests.Session()
        self.session.trust_env = False
        adapter = Adapter(policy, pool_maxsize=1, pool_block=True)
        self.session.mount("http://", adapter)

    def get(self, url, method="GET"):
        with deadline.within(60.0):
            answer = self.session.request(method, url)
        return answer.status_code, answer.content

    def close(self):
        self.session.close()


class Urllib3:
    """A manager of urllib3 with one connection, whose bodies are read later."""

    error = StatusError
    is_read = False

    def __init__(self, policy):
        self.http = PoolManager(policy, maxsize=1, block=True)

    def get(self, url, method="GET"):
        answer = self.http.request(method, url, preload_content=self.is_read, pool_timeout=60.0)
        body = answer.read() if not self.is_read else answer.data
        answer.release_conn()
        return answer.status, body

    def close(self):
        self.http.clear()


class Urllib3Read(Urllib3):
    """The same, whose bodies are read at once."""

    is_read = True


class Asynchronous:
    """What sends in an event loop, from outside of one."""

    def __init__(self, policy):
        self.policy = policy
        self.runner = asyncio.Runner()
        self.made = self.runner.run(self.make())

    def get(self, url, method="GET"):
        return self.runner.run(self.aget(url, method))

    def close(self):
        self.runner.run(self.aclose())
        self.runner.close()


class AsyncHttpx(Asynchronous):
    """An async client of httpx with one connection, on asyncio."""

    library = httpx
    error = httpx.HTTPStatusError

    async def make(self):
        library = self.library
        inner = library.AsyncHTTPTransport(limits=library.Limits(**ONE))
        timeout = library.Timeout(30.0, pool=60.0)
        transport = ours(library).AsyncTransport(self.policy, transport=inner)
        return library.AsyncClient(transport=transport, timeout=timeout)

    async def aget(self, url, method="GET"):
        answer = await self.made.request(method, url)
        return answer.status_code, answer.content

    async def aclose(self):
        await self.made.aclose()


class AsyncHttpx2(AsyncHttpx):
    """An async client of httpx2."""

    library = httpx2
    error = httpx2.HTTPStatusError


class Aiohttp(Asynchronous):
    """A session of aiohttp with one connection."""

    error = aiohttp.ClientResponseError

    async def make(self):
        connector = aiohttp.TCPConnector(limit=1)
        timeout = aiohttp.ClientTimeout(connect=60.0)
        return aiohttp.ClientSession(
            middlewares=[Middleware(self.policy)], connector=connector, timeout=timeout
        )

    async def aget(self, url, method="GET"):
        async with self.made.request(method, url) as answer:
            return answer.status, await answer.read()

    async def aclose(self):
        await self.made.close()


SYNC = [Httpx, Httpx2, Requests, Urllib3, Urllib3Read]
CLIENTS = [*SYNC, AsyncHttpx, AsyncHttpx2, Aiohttp]
LAZY = [each for each in CLIENTS if each is not Urllib3Read]


@pytest.fixture(params=CLIENTS, ids=lambda client: client.__name__)
def opened(request):
    """Makes a client with a policy, and closes it."""
    yield from opening(request)


@pytest.fixture(params=LAZY, ids=lambda client: client.__name__)
def lazy(request):
    """The same, of those that do not read a body within the attempt."""
    yield from opening(request)


def opening(request):
    made = []

    def make(policy):
        made.append(request.param(policy))
        return made[-1]

    make.cls = request.param
    yield make
    for client in made:
        client.close()


@pytest.mark.parametrize(
    "down", [DOWN, Chunks(503, (b"do", b"wn")), Status(503), Status(503, body=b"x" * LONGEST)],
    ids=["a length", "chunks", "empty", "the longest"],
)  # fmt: skip
def test_a_repeated_response_gives_its_connection_back(server, opened, down):
    """Three attempts, and a request after them, on one connection."""
    client = opened(three())
    url = server.on("/", down, down, OK)
    assert [client.get(url), client.get(url)] == [(200, b"ok")] * 2
    assert (server.count(), server.connections) == (4, 1)


def test_a_head_gives_its_connection_back(server, opened):
    """Its answer has a length and no body."""
    client = opened(three())
    url = server.on("/", DOWN, DOWN, OK)
    assert client.get(url, "HEAD") == (200, b"")
    assert (server.count(), server.connections) == (3, 1)


@pytest.mark.parametrize(
    "down",
    [LONG, Chunks(503, (b"x" * 1000,), endless=True), Drip(0.02, LONG, after=200)],
    ids=["long", "endless", "slow and long"],
)
def test_a_long_or_endless_body_is_closed(server, lazy, down):
    """A new connection costs less than reading it; the old one has ended at the server."""
    client = lazy(three())
    url = server.on("/", down, down, OK)
    assert client.get(url) == (200, b"ok")
    assert (server.count(), server.connections) == (3, 3)
    wait_until(lambda: len(server._open) <= 1, "the connections before the last have ended")


def test_a_slow_body_is_not_waited_for(server, lazy):
    """Half a second, and then another attempt is made on a new connection."""
    client = lazy(three(attempts=2))
    head = len(DOWN.written()) - 4
    url = server.on("/", Drip(30.0, DOWN, after=head + 1), OK)
    assert client.get(url) == (200, b"ok")
    assert (server.count(), server.connections) == (2, 2)


@pytest.mark.parametrize("limit", [None, 30.0])
def test_the_connection_is_free_while_the_policy_waits(server, opened, limit, monkeypatch):
    """Another request takes it meanwhile, from a pool of one."""
    client, other, seen = opened(three(deadline=limit)), server.on("/other", OK), []
    url = server.on("/", DOWN, DOWN, OK)
    sleep = asyncio.sleep

    async def asleep(delay, *rest):
        if delay == 0.001 and not seen:
            seen.append(await client.aget(other))
        return await sleep(0)

    class Clock:
        """The real one; another request is made in each wait."""

        def __getattr__(self, name):
            return getattr(mainstay.runtime.clock.SYSTEM, name)

        def sleep(self, seconds, cancel=None):
            if not seen:
                seen.append(client.get(other))
            return False

    if opened.cls in SYNC:
        monkeypatch.setattr(mainstay.runtime.clock, "current", Clock())
    else:
        monkeypatch.setattr(asyncio, "sleep", asleep)
    assert client.get(url) == (200, b"ok")
    assert seen == [(200, b"ok")]
    assert (server.count(), server.connections) == (4, 1)


@pytest.mark.parametrize("client", [Requests, Urllib3])
def test_a_pool_that_blocks_does_so_up_to_the_deadline(server, client):
    """The only connection is in use: nothing is sent, and there is a timeout."""
    made = client(three())
    held, url = server.on("/held", OK), server.on("/", OK)
    if client is Requests:
        kept = made.session.get(held, stream=True)
        send = made.session.get
    else:
        kept = made.http.request("GET", held, preload_content=False)
        send = lambda url: made.http.request("GET", url)  # noqa: E731
    with (
        deadline.within(0.1),
        pytest.raises((requests.ConnectTimeout, urllib3.exceptions.PoolError)),
    ):
        send(url)
    kept.close()
    made.close()
    assert server.count() == 1


@pytest.fixture
def oversleeping(monkeypatch):
    """Every wait of a policy takes an hour more."""
    with mainstay.testing.virtual_time() as time:
        sleep = time.sleep
        monkeypatch.setattr(time, "sleep", lambda seconds, cancel=None: sleep(seconds + 3600.0))
        yield


@pytest.mark.usefixtures("oversleeping")
@pytest.mark.parametrize("client", [Httpx, Httpx2, Urllib3, Urllib3Read])
def test_a_response_that_was_read_is_returned_whole(server, client):
    """If no time is left after the wait, the last response is the answer."""
    made = client(three(deadline=60.0))
    assert made.get(server.on("/", DOWN)) == (503, b"down")
    made.close()
    assert server.count() == 1


@pytest.mark.usefixtures("oversleeping")
@pytest.mark.parametrize("down", [DOWN, Chunks(503, (b"do", b"wn"))])
@pytest.mark.parametrize("stream", [False, True])
def test_a_session_of_requests_gets_it_whole_as_well(server, down, stream):
    """By each way of reading it."""
    with requests.Session() as session:
        session.mount("http://", Adapter(three(deadline=60.0)))
        answer = session.get(server.on("/", down), stream=stream)
        assert b"".join(answer.iter_content(2)) == b"down"
        assert answer.mainstay_notes
    assert server.count() == 1


@pytest.mark.usefixtures("oversleeping")
@pytest.mark.parametrize("client", [Httpx, Httpx2, Urllib3])
def test_a_response_that_was_closed_is_raised(server, client):
    """No part of a body is returned as if it were the whole; the status is in the exception."""
    made = client(three(deadline=60.0))
    with pytest.raises(client.error, match="status 503") as caught:
        made.get(server.on("/", LONG))
    made.close()
    assert not hasattr(caught.value, "ms_release")
    assert server.count() == 1


def test_aiohttp_gets_a_response_that_was_read_whole(server):
    """By each way of reading it."""

    async def main():
        middleware = Middleware(three(deadline=60.0))
        bodies = []
        async with aiohttp.ClientSession(middlewares=[middleware]) as session:
            for read in (lambda a: a.read(), lambda a: a.content.read(), lambda a: a.text()):
                with mainstay.testing.virtual_time() as time:
                    sleep = asyncio.sleep

                    async def late(delay, sleep=sleep, time=time):
                        if delay == 0.001:
                            time.advance(3600.0)
                        await sleep(0)

                    with pytest.MonkeyPatch.context() as patch:
                        patch.setattr(asyncio, "sleep", late)
                        async with session.get(server.url + "/down") as answer:
                            bodies.append((answer.status, await read(answer)))
        return bodies

    server.on("/down", DOWN)
    assert asyncio.run(main()) == [(503, b"down"), (503, b"down"), (503, "down")]
    assert server.count() == 3


@pytest.mark.parametrize("library", [httpx, httpx2], ids=lambda library: library.__name__)
def test_on_trio_too(server, library):
    """The transport of httpx drains under any event loop."""

    async def main():
        inner = library.AsyncHTTPTransport(limits=library.Limits(**ONE))
        transport = ours(library).AsyncTransport(three(), transport=inner)
        async with library.AsyncClient(transport=transport) as client:
            return (await client.get(server.on("/", DOWN, DOWN, OK))).text

    assert trio.run(main) == "ok"
    assert (server.count(), server.connections) == (3, 1)


def test_a_rejected_result_gives_its_connection_back(server, opened):
    """A 202 that `retry_if_result` does not accept has a connection as well."""
    client = opened(three(retry_if_result=lambda answer: status_of(answer) == 202))
    url = server.on("/", Status(202, body=b"wait"), Chunks(202, (b"wait",)), OK)
    assert client.get(url) == (200, b"ok")
    assert (server.count(), server.connections) == (3, 1)


def status_of(answer):
    return getattr(answer, "status_code", None) or answer.status


def test_a_cancelled_call_closes_its_response(server):
    """While it waits for the rest of a body."""

    async def main():
        async with aiohttp.ClientSession(middlewares=[Middleware(three())]) as session:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await session.get(url)

    slow = Status(503, body=b"x" * 100)
    url = server.on("/", Drip(0.1, slow, after=len(slow.written()) - 90))
    asyncio.run(main())
    wait_until(lambda: not server._open, "the connection has ended")
    assert server.count() <= 1


def test_urllib3_itself_has_the_attribute_that_is_replaced(server):
    """`drained` replaces what a response reads from; see that it still has it."""
    with urllib3.PoolManager() as http:
        answer = http.request("GET", server.on("/", OK), preload_content=False)
        assert answer._fp is not None
        answer.drain_conn()
