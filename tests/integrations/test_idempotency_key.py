"""The key that requests carry, against a real server on the loopback interface."""

from __future__ import annotations

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import aiohttp
import httpx
import pytest
import requests
from requests.auth import HTTPBasicAuth

import mainstay
from mainstay.errors import MainstayWarning, UsageError
from mainstay.integrations.idempotency_key import (
    IdempotencyKeyHeader,
    carries_key,
    current_key,
    keyed_call,
    new_key,
)

KEY = IdempotencyKeyHeader()


class Service(ThreadingHTTPServer):
    """Fails twice, then succeeds, over and over; remembers the key of each request."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.keys = []
        self.credentials = []
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/pay"


class Handler(BaseHTTPRequestHandler):
    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.server.lock:
            self.server.keys.append(self.headers.get("Idempotency-Key"))
            self.server.credentials.append(self.headers.get("Authorization"))
            is_success = len(self.server.keys) % 3 == 0
        self.send_response(200 if is_success else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def __getattr__(self, name):
        """Every method is answered alike."""
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def log_message(self, *_):
        """Stays quiet."""


@pytest.fixture
def service(monkeypatch):
    """A service that listens while the test runs, asked without a proxy."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Service()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join(60)
    server.server_close()


def patient(function):
    """The function, retried without a pause."""
    policy = mainstay.RetryPolicy(
        max_attempts=3,
        backoff=mainstay.Backoff.constant(0.0),
        jitter=mainstay.Jitter.none(),
        retry_on=(httpx.HTTPStatusError, requests.HTTPError, aiohttp.ClientResponseError),
    )
    return policy(function)


def assert_one_key_a_call(keys):
    """Two calls of three attempts: two keys, each sent three times."""
    assert len(keys) == 6
    assert len(set(keys[:3])) == len(set(keys[3:])) == 1
    assert keys[0] != keys[3]
    assert all(key[0] == key[-1] == '"' and len(key) == 38 for key in keys)


def test_httpx_sends_one_key_a_call(service):
    """The hook of a plain client."""
    with httpx.Client(event_hooks={"request": [KEY.httpx]}) as client:

        @carries_key
        @patient
        def pay():
            client.post(service.url, json={"amount": 5}).raise_for_status()

        pay()
        pay()
    assert_one_key_a_call(service.keys)


def test_httpx_sends_one_key_a_call_when_awaited(service):
    """The hook of an async client; two calls at once keep their keys apart."""

    async def main():
        async with httpx.AsyncClient(event_hooks={"request": [KEY.httpx_async]}) as client:

            @carries_key
            @patient
            async def pay():
                (await client.post(service.url, json={"amount": 5})).raise_for_status()

            await pay()
            await pay()

    asyncio.run(main())
    assert_one_key_a_call(service.keys)


def test_requests_sends_one_key_a_call(service):
    """The auth hook of a session."""
    with requests.Session() as session:
        session.auth = KEY.requests()

        @carries_key
        @patient
        def pay():
            session.post(service.url, json={"amount": 5}, timeout=60).raise_for_status()

        pay()
        pay()
    assert_one_key_a_call(service.keys)


def test_requests_keeps_its_credentials(service):
    """The hook takes the place of auth, and so takes auth along."""
    with requests.Session() as session, keyed_call("order-7"):
        session.auth = KEY.requests(HTTPBasicAuth("me", "secret"))
        session.post(service.url, timeout=60)
    assert service.keys == ['"order-7"']
    assert service.credentials[0].startswith("Basic ")


def test_credentials_that_are_no_function_are_refused():
    """A pair is turned into basic auth by requests itself; here nobody would."""
    with pytest.raises(UsageError, match="HTTPBasicAuth"):
        KEY.requests(("me", "secret"))


def test_aiohttp_sends_one_key_a_call(service):
    """The middleware of a session."""

    async def main():
        async with aiohttp.ClientSession(middlewares=[KEY.aiohttp]) as session:

            @carries_key
            @patient
            async def pay():
                async with session.post(service.url, json={"amount": 5}) as response:
                    response.raise_for_status()

            await pay()
            await pay()

    asyncio.run(main())
    assert_one_key_a_call(service.keys)


def test_a_post_outside_a_keyed_call_is_not_marked(service):
    """No key is made up for a request whose attempts could not share it."""

    async def main():
        session = aiohttp.ClientSession(middlewares=[KEY.aiohttp])
        async with session, session.post(service.url) as response:
            await response.read()

    asyncio.run(main())
    with httpx.Client(event_hooks={"request": [KEY.httpx]}) as client:
        client.post(service.url)
    with requests.Session() as session:
        session.auth = KEY.requests()
        session.post(service.url, timeout=60)
    assert service.keys == [None, None, None]


def test_only_methods_that_need_a_key_are_marked(service):
    """GET and PUT may be repeated as they are."""
    with httpx.Client(event_hooks={"request": [KEY.httpx]}) as client, keyed_call("k"):
        for method in ("GET", "PUT", "PATCH", "POST"):
            client.request(method, service.url)
    assert service.keys == [None, None, '"k"', '"k"']


def test_a_key_that_the_request_has_is_kept(service):
    """Whoever sets the header means it."""
    mine = {"idempotency-key": "mine"}

    async def main():
        session = aiohttp.ClientSession(middlewares=[KEY.aiohttp])
        async with session, session.post(service.url, headers=mine) as response:
            await response.read()

    with httpx.Client(event_hooks={"request": [KEY.httpx]}) as client, keyed_call("k"):
        client.post(service.url, headers=mine)
        requests.post(service.url, headers=mine, auth=KEY.requests(), timeout=60)
        asyncio.run(main())
        assert KEY.headers(mine) == mine
    assert service.keys == ["mine", "mine", "mine"]


def test_the_header_and_its_quotes_are_the_services_choice(service):
    """Some want a bare UUID under a name of their own."""
    key = IdempotencyKeyHeader(header="X-Request-Id", quoted=False)
    with keyed_call("k"):
        assert key.headers() == {"X-Request-Id": "k"}


def test_a_key_with_quotes_is_escaped():
    """As a string of RFC 8941."""
    with keyed_call('a"b\\c'):
        assert KEY.headers() == {"Idempotency-Key": '"a\\"b\\\\c"'}


def test_without_a_current_key_headers_are_as_given():
    """A new dict, so that the caller's own is never changed."""
    given = {"Accept": "*/*"}
    assert KEY.headers(given) == given
    assert KEY.headers(given) is not given
    assert KEY.headers() == {}


def test_tasks_keep_their_keys_apart():
    """A key follows its own call, also where calls run side by side."""
    seen = {}

    @carries_key
    async def pay(name):
        first = current_key()
        await asyncio.sleep(0)
        seen[name] = (first, current_key())

    async def main():
        await asyncio.gather(*(pay(name) for name in range(10)))

    asyncio.run(main())
    assert all(first == second for first, second in seen.values())
    assert len({first for first, _ in seen.values()}) == 10


def test_a_key_ends_with_its_call():
    """Also with one that fails; an inner call has a key of its own."""
    with pytest.raises(ZeroDivisionError), keyed_call("outer"):
        with keyed_call("inner"):
            assert current_key() == "inner"
        assert current_key() == "outer"
        raise ZeroDivisionError
    assert current_key() is None


def test_a_function_that_returns_a_coroutine_carries_its_key():
    """Not every async function says that it is one."""

    async def pay():
        return current_key()

    def plain():
        return pay()

    assert asyncio.run(carries_key(plain)()) is not None
    assert current_key() is None


def test_a_key_made_inside_a_retry_is_warned_of():
    """There each attempt has another, and the server takes each for a new request."""

    @mainstay.retry(on=ConnectionError, attempts=2)
    @carries_key
    def pay():
        return current_key()

    with pytest.warns(MainstayWarning, match="outside the retry"):
        assert pay() is not None


def test_a_key_given_inside_a_retry_is_fine():
    """It is the same on each attempt, since it comes from outside."""
    key, seen = new_key(), []

    @mainstay.retry(on=ConnectionError, attempts=2)
    def pay():
        with keyed_call(key):
            seen.append(current_key())

    pay()
    assert seen == [key]


@pytest.mark.parametrize("key", ["", "  ", "é", "a\nb", "x" * 256, 7])
def test_a_key_that_no_header_can_carry_is_refused(key):
    """At once, not when a request is sent."""
    with pytest.raises(UsageError, match="key = "):
        keyed_call(key)


def test_names_and_texts_of_the_function_stay():
    """A decorated function is known by its own name."""

    @carries_key
    def pay():
        """Pays."""

    assert (pay.__name__, pay.__doc__) == ("pay", "Pays.")


def test_tasks_that_share_one_keyed_call_each_leave_their_own_block():
    """The first to enter is also the first to leave; what was outside is there again."""
    shared = keyed_call("order-7")

    async def work(outside, turns):
        with keyed_call(outside):
            with shared:
                for _ in range(turns):
                    await asyncio.sleep(0)
                assert current_key() == "order-7"
            assert current_key() == outside
        assert current_key() is None

    async def main():
        await asyncio.gather(work("a", 2), work("b", 5))

    asyncio.run(main())
