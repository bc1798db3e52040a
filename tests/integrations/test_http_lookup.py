"""Names that are looked up too slowly, or to several addresses, by the clients with hands."""

import asyncio
import contextlib
import importlib
import socket
import ssl
import sys
import threading
from functools import partial

import aiohttp
import httpx
import httpx2
import pytest
import requests

from mainstay import RetryPolicy, deadline
from mainstay.integrations.aiohttp import Middleware
from mainstay.integrations.requests import Adapter
from tests.servers.http_faults import HttpFaults, Status

TLS = ssl.create_default_context()
ONCE = RetryPolicy(attempts=1)


@pytest.fixture
def server():
    """A server that answers."""
    with HttpFaults() as running:
        running.on("/", Status(200, body=b"ok"))
        yield running


@pytest.fixture
def names(monkeypatch):
    """What the resolver answers for a name: addresses, or an event that it waits for."""
    known, plain = {}, socket.getaddrinfo

    def getaddrinfo(host, port, *rest, **more):
        answer = known.get(host.decode() if isinstance(host, bytes) else host)
        if answer is None:
            return plain(host, port, *rest, **more)
        if isinstance(answer, threading.Event):
            answer.wait(120)
            answer = ["127.0.0.1"]
        return [each for one in answer for each in plain(one, port, *rest, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield known
    for each in known.values():
        if isinstance(each, threading.Event):
            each.set()


def by_httpx(library, url, timeout=60.0):
    ours = importlib.import_module(f"mainstay.integrations.{library.__name__}")
    transport = ours.Transport(ONCE, transport=library.HTTPTransport(verify=TLS))
    with library.Client(transport=transport, trust_env=False) as client:
        return client.get(url, timeout=timeout).text


def by_requests(url, timeout=None):
    with requests.Session() as session:
        session.trust_env = False
        session.mount("http://", Adapter(ONCE))
        return session.get(url, timeout=timeout).text


def by_httpx_async(library, url, ended):
    ours = importlib.import_module(f"mainstay.integrations.{library.__name__}")

    async def main():
        transport = ours.AsyncTransport(ONCE, transport=library.AsyncHTTPTransport(verify=TLS))
        try:
            async with library.AsyncClient(transport=transport, trust_env=False) as client:
                return (await client.get(url)).text
        finally:
            ended()

    return asyncio.run(main())


def by_aiohttp(url, ended):
    async def main():
        try:
            async with (
                aiohttp.ClientSession(middlewares=[Middleware(ONCE)]) as session,
                session.get(url) as response,
            ):
                return await response.text()
        finally:
            ended()

    return asyncio.run(main())


CLIENTS = [
    pytest.param(partial(by_httpx, httpx), id="httpx"),
    pytest.param(partial(by_httpx, httpx2), id="httpx2"),
    pytest.param(by_requests, id="requests"),
]
LOOPS = [
    pytest.param(partial(by_httpx_async, httpx), id="httpx"),
    pytest.param(partial(by_httpx_async, httpx2), id="httpx2"),
    pytest.param(by_aiohttp, id="aiohttp"),
]
LATE = (httpx.ConnectTimeout, httpx2.ConnectTimeout, requests.ConnectTimeout)
REFUSED = (httpx.ConnectError, httpx2.ConnectError, requests.ConnectionError)


@pytest.mark.parametrize("get", CLIENTS)
def test_a_slow_lookup_ends_at_the_deadline(server, names, get):
    """Though the resolver itself cannot be interrupted."""
    names["slow.example"] = threading.Event()
    with deadline.within(0.5), pytest.raises(LATE, match=r"slow\.example"):
        get(f"http://slow.example:{server.port}/")
    assert server.count() == 0


@pytest.mark.parametrize("get", LOOPS)
def test_a_slow_lookup_ends_at_the_deadline_in_a_loop(server, names, get):
    """Loops look up in a thread of their own, which asyncio.run() waits for at its end."""
    names["slow.example"] = threading.Event()
    with deadline.within(0.5), pytest.raises((*LATE, aiohttp.ClientError)):
        get(f"http://slow.example:{server.port}/", names["slow.example"].set)
    assert server.count() == 0


@pytest.mark.parametrize("get", CLIENTS)
def test_the_next_address_of_a_name_is_tried(server, names, get):
    """As without a deadline: the first address refuses, the second one answers."""
    names["two.example"] = ["127.0.0.9", "127.0.0.1"]
    with deadline.within(60.0):
        assert get(f"http://two.example:{server.port}/") == "ok"


@pytest.fixture
def black_hole(server):
    """An address whose connections are never made: its queue is full."""
    address = ("127.0.0.2", server.port)
    with contextlib.ExitStack() as held, socket.socket() as full:
        full.bind(address)
        full.listen(0)
        for _ in range(4):
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        yield address[0]


@pytest.mark.skipif(sys.platform != "linux", reason="a full queue refuses elsewhere")
@pytest.mark.parametrize("get", CLIENTS)
def test_the_next_address_is_tried_if_the_first_one_does_not_answer(server, names, black_hole, get):
    """As without a deadline: the client's own timeout is for one address."""
    names["two.example"] = [black_hole, "127.0.0.1"]
    with deadline.within(60.0):
        assert get(f"http://two.example:{server.port}/", timeout=1.0) == "ok"


@pytest.mark.skipif(sys.platform != "linux", reason="a full queue refuses elsewhere")
@pytest.mark.parametrize("get", CLIENTS)
def test_an_address_that_takes_all_the_time_is_the_timeout_of_connecting(
    server, names, black_hole, get
):
    """Nothing was sent, and the failure is one of which that is known."""
    names["two.example"] = [black_hole, "127.0.0.1"]
    with deadline.within(0.5), pytest.raises(LATE):
        get(f"http://two.example:{server.port}/")
    assert server.count() == 0


@pytest.mark.parametrize("get", CLIENTS)
def test_an_address_that_refuses_is_the_failure(server, names, get):
    """The last one that was tried."""
    names["none.example"] = ["127.0.0.9", "127.0.0.8"]
    with (
        deadline.within(60.0),
        pytest.raises(REFUSED, match="refused"),
    ):
        get(f"http://none.example:{server.port}/")


@pytest.mark.parametrize("get", CLIENTS)
def test_a_name_that_nobody_has_is_the_failure_of_the_client(names, get):
    """As without a deadline."""

    def unknown(*_given, **_named):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    names["nobody.example"] = None
    plain, socket.getaddrinfo = socket.getaddrinfo, unknown
    try:
        with (
            deadline.within(60.0),
            pytest.raises(REFUSED, match="not known"),
        ):
            get("http://nobody.example/")
    finally:
        socket.getaddrinfo = plain
