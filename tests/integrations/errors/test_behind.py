"""Errors of Python's own that a client lets through: the request is found in the traceback."""

import asyncio
import http.client
import inspect
import urllib.error
import urllib.request

import aiohttp
import anthropic
import httpx
import httpx2
import openai
import pytest

import mainstay
from mainstay.testing import virtual_time
from tests.processes import wait_until
from tests.servers.http_faults import Close, Reset, Silence, Status, dead_port, full_port

KEY = {"Idempotency-Key": "order-7"}
HALF = Status(200, {"Content-Length": "900"}, b"{")


async def by_httpx(method, url, headers, _limit):
    async with httpx.AsyncClient(verify=False, timeout=60) as client:
        return await client.request(method, url, headers=headers)


async def by_httpx2(method, url, headers, _limit):
    async with httpx2.AsyncClient(verify=False, timeout=60) as client:
        return await client.request(method, url, headers=headers)


async def by_aiohttp(method, url, headers, limit):
    of_aiohttp = aiohttp.ClientTimeout(total=limit)
    async with (
        aiohttp.ClientSession(timeout=of_aiohttp) as session,
        session.request(method, url, headers=headers) as answer,
    ):
        return await answer.read()


async def under_timeout(send, *given, limit):
    async with asyncio.timeout(limit):
        return await send(*given, 60)


async def under_wait_for(send, *given, limit):
    return await asyncio.wait_for(send(*given, 60), limit)


async def by_itself(send, *given, limit):
    return await send(*given, limit)


SENDERS = {
    "asyncio.timeout around httpx": (under_timeout, by_httpx),
    "wait_for around httpx": (under_wait_for, by_httpx),
    "asyncio.timeout around httpx2": (under_timeout, by_httpx2),
    "wait_for around httpx2": (under_wait_for, by_httpx2),
    "asyncio.timeout around aiohttp": (under_timeout, by_aiohttp),
    "wait_for around aiohttp": (under_wait_for, by_aiohttp),
    "total of aiohttp": (by_itself, by_aiohttp),
}


def cut(sender, *given, until):
    """The error of a request that was cut, as soon as it was cut where it should be."""
    limited, send = SENDERS[sender]
    for limit in (0.3, 1.0, 5.0, 25.0):
        with pytest.raises(TimeoutError) as caught:
            asyncio.run(limited(send, *given, limit=limit))
        if until():
            break
    return caught.value


def is_repeated(error):
    return mainstay.RetryPolicy(on=mainstay.transient).classification(error).retryable


@pytest.mark.parametrize("sender", SENDERS)
@pytest.mark.parametrize(
    ("method", "headers", "expected"),
    [("POST", {}, False), ("POST", KEY, True), ("GET", {}, True)],
    ids=["POST", "POST with a key", "GET"],
)
def test_a_post_that_was_cut_is_not_sent_again(server, sender, method, headers, expected):
    """Whoever cuts it: the server may be carrying it out."""
    url = server.on("/hole", Silence())
    error = cut(sender, method, url, headers, until=lambda: server.count("/hole"))
    assert type(error) is TimeoutError
    assert is_repeated(error) is expected


@pytest.mark.parametrize("sender", SENDERS)
def test_a_connection_that_was_cut_sent_nothing(sender):
    """A POST is made again, as after a timeout of connecting."""
    with full_port() as port:
        error = cut(sender, "POST", f"http://127.0.0.1:{port}/", {}, until=lambda: True)
    assert is_repeated(error)


def completion(made):
    return made.chat.completions.create(model="m", messages=[])


def message(made):
    return made.messages.create(model="m", max_tokens=1, messages=[])


@pytest.mark.parametrize(
    ("library", "client", "path", "ask", "expected"),
    [
        (openai, httpx2, "/chat/completions", completion, True),
        (openai, httpx, "/chat/completions", completion, True),
        (openai, httpx2, "/batches/7/cancel", lambda made: made.batches.cancel("7"), False),
        (anthropic, httpx2, "/v1/messages", message, True),
        (
            anthropic,
            httpx2,
            "/v1/messages/batches/7/cancel",
            lambda made: made.messages.batches.cancel("7"),
            False,
        ),
    ],
    ids=["openai", "openai on httpx", "a batch of openai", "anthropic", "a batch of anthropic"],
)
def test_what_a_model_computes_is_asked_for_again_if_it_was_cut(
    server, library, client, path, ask, expected
):
    """Its clients send POSTs, and know by the path which ones change nothing."""
    make = library.AsyncOpenAI if library is openai else library.AsyncAnthropic

    async def asked(url):
        http = client.AsyncClient(verify=False, timeout=60)
        async with make(api_key="k", base_url=url, max_retries=0, http_client=http) as made:
            return await ask(made)

    async def cut_after(limit):
        async with asyncio.timeout(limit):
            await asked(server.url)

    server.on(path, Silence())
    for limit in (0.5, 2.0, 10.0):
        with pytest.raises(TimeoutError) as caught:
            asyncio.run(cut_after(limit))
        if server.count(path):
            break
    assert server.count(path)
    assert is_repeated(caught.value) is expected


@pytest.mark.parametrize(("headers", "count"), [({}, 1), (KEY, 2)], ids=["plain", "key"])
def test_what_the_server_sees_of_a_post_that_is_cut(server, headers, count):
    """A limit of the caller's own, inside the function that is retried."""
    url = server.on("/hole", Silence())

    async def pay():
        seen = server.count("/hole")
        async with asyncio.timeout(None) as limit:
            sent = asyncio.create_task(by_httpx("POST", url, headers, None))
            await asyncio.to_thread(wait_until, lambda: server.count("/hole") > seen, "the POST")
            limit.reschedule(0.0)
            return await sent

    tries(pay)
    assert server.count("/hole", "POST") == count


def tries(send, *given, attempts=2):
    """The error of a call, of which the server counts the requests."""
    backoff = mainstay.Backoff.constant(0.0)
    retried = mainstay.retry(on=mainstay.transient, attempts=attempts, backoff=backoff)(send)
    with pytest.raises((OSError, http.client.HTTPException)) as caught:
        if inspect.iscoroutinefunction(send):
            asyncio.run(retried(*given))
        else:
            retried(*given)
    return caught.value


def by_urllib(method, url, headers, timeout=60.0):
    asked = urllib.request.Request(url, method=method, headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=timeout) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        error.close()  # it has the connection
        raise


@pytest.mark.parametrize(
    ("answer", "plain", "keyed"),
    [
        (Reset(), 1, 3),
        (Close(), 1, 3),
        (Status(500), 1, 3),
        (Status(503), 3, 3),
        (Status(429), 3, 3),
        (HALF, 1, 1),
    ],
    ids=["reset", "close", "500", "503", "429", "half"],
)
def test_a_post_of_urllib(server, answer, plain, keyed):
    """As with every client. Once a body is read nobody knows whether the request had a key."""
    with virtual_time():
        for headers, count in (({}, plain), (KEY, keyed)):
            server.clear()
            url = server.on("/orders", answer)
            tries(by_urllib, "POST", url, headers, attempts=3)
            assert server.count("/orders", "POST") == count
        server.clear()
        tries(by_urllib, "GET", server.on("/orders", answer), {}, attempts=3)
        assert server.count("/orders", "GET") == 3


def test_a_post_of_urllib_that_gets_no_answer(server):
    """Its own timeout after sending; a name that nothing listens at is asked again."""
    url = server.on("/hole", Silence())
    for limit in (0.3, 1.0, 5.0, 25.0):
        error = tries(by_urllib, "POST", url, {}, limit)
        if type(error) is TimeoutError:  # connected in time, so it was sent
            break
    wait_until(lambda: server.count("/hole"), "the request")
    assert not is_repeated(error)
    error = tries(by_urllib, "POST", f"http://127.0.0.1:{dead_port()}/", {}, attempts=3)
    assert isinstance(error, urllib.error.URLError)
    assert "after 3 attempts" in error.__notes__[0]


def test_http_client_by_itself_is_as_a_socket(server):
    """Its headers are gone when the answer is awaited, so nothing is known of the request."""
    server.on("/orders", Reset())

    def post():
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        try:
            connection.request("POST", "/orders")
            return connection.getresponse().read()
        finally:
            connection.close()

    tries(post, attempts=3)
    assert server.count("/orders", "POST") == 3
