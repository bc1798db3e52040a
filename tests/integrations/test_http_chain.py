"""Services in a chain, over real HTTP: give-ups and deadlines travel, from listed hosts alone."""

import asyncio
import ssl
import threading
import warnings
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import httpx
import pytest
import uvicorn

import mainstay
from mainstay import Backoff, RetryPolicy, deadline
from mainstay.integrations.asgi_deadline import DeadlineMiddleware as AsgiDeadline
from mainstay.integrations.httpx import AsyncTransport, Transport
from mainstay.integrations.wsgi import DeadlineMiddleware as WsgiDeadline
from tests.servers.http_faults import HttpFaults, Status

HERE = ["127.0.0.1"]
TLS = ssl.create_default_context()
THREE = RetryPolicy(attempts=3, backoff=Backoff.constant(0))


@pytest.fixture
def leaf():
    """The leaf of the chain, which answers 503."""
    with HttpFaults() as running:
        running.on("/", Status(503))
        yield running


class Service:
    """What the service in the middle does: it asks the leaf, and answers 502 if that fails."""

    def __init__(self, leaf, *, hands_back=True):
        self.leaf, self.hands_back = leaf, hands_back
        self.seen, self.left = 0, []
        sends = httpx.HTTPTransport(verify=TLS)
        self.client = httpx.Client(transport=Transport(THREE, transport=sends, trust=HERE))

    def began(self):
        self.seen += 1
        self.left.append(deadline.remaining())

    def answer(self, error):
        headers = mainstay.gave_up_headers(error) if self.hands_back else {}
        return 502, headers

    def wsgi(self, environ, start_response):
        self.began()
        try:
            self.client.get(self.leaf.url + "/").raise_for_status()
        except httpx.HTTPError as error:
            status, headers = self.answer(error)
        else:
            status, headers = 200, {}
        start_response(f"{status} x", list(headers.items()))
        yield b""  # as an application that makes its answer piece by piece

    async def asgi(self, scope, receive, send):
        if scope["type"] != "http":
            return
        self.began()
        sends = httpx.AsyncHTTPTransport(verify=TLS)
        transport = AsyncTransport(THREE, transport=sends, trust=HERE)
        async with httpx.AsyncClient(transport=transport) as client:
            try:
                (await client.get(self.leaf.url + "/")).raise_for_status()
            except httpx.HTTPError as error:
                status, headers = self.answer(error)
            else:
                status, headers = 200, {}
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": b""})


class _Threaded(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        """No line for each request."""


@contextmanager
def wsgi_server(app):
    """The application under the server of the standard library."""
    with make_server("127.0.0.1", 0, app, _Threaded, _Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@contextmanager
def asgi_server(app):
    """The application under uvicorn."""
    config = uvicorn.Config(app, port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    while not server.started:
        threading.Event().wait(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}/"
    server.should_exit = True
    thread.join()


@contextmanager
def running(kind, service, trust=HERE):
    """The service in the middle, under a real server."""
    with service.client:
        if kind == "wsgi":
            with wsgi_server(WsgiDeadline(service.wsgi, trust=trust)) as url:
                yield url
        else:
            with asgi_server(AsgiDeadline(service.asgi, trust=trust)) as url:
                yield url


@pytest.fixture(params=["wsgi", "asgi"])
def kind(request):
    """The server of the service in the middle."""
    return request.param


def ask(url, trust=HERE, retry=THREE):
    """The service at the start of the chain."""
    sends = httpx.HTTPTransport(verify=TLS)
    with (
        warnings.catch_warnings(),
        httpx.Client(transport=Transport(retry, transport=sends, trust=trust)) as client,
    ):
        warnings.simplefilter("ignore", mainstay.NestedRetryWarning)
        return client.get(url)


def test_two_services_with_three_attempts_each_make_three_calls_of_the_leaf(leaf, kind):
    """Not nine: the first service does not repeat what the second has given up on."""
    service = Service(leaf)
    with running(kind, service) as url:
        response = ask(url)
    assert response.status_code == 502
    assert response.headers["mainstay-gave-up"] == "3"
    assert (service.seen, leaf.count()) == (1, 3)


def test_without_the_header_or_trust_both_services_retry(leaf):
    """The product that the header avoids; a stranger's word is not taken."""
    service = Service(leaf, hands_back=False)
    with running("wsgi", service) as url:
        ask(url)
        assert (service.seen, leaf.count()) == (3, 9)
        service.hands_back = True
        ask(url, trust=())
    assert (service.seen, leaf.count()) == (6, 18)


def test_an_outer_retry_around_the_client_stands_back_too(leaf):
    """The mark is on the response, and so on what raise_for_status() raises."""
    service = Service(leaf)

    @mainstay.retry(on=mainstay.transient, attempts=3, backoff=Backoff.constant(0))
    def load(url):
        return ask(url, retry=None).raise_for_status()

    with (
        running("wsgi", service) as url,
        warnings.catch_warnings(),
        pytest.raises(httpx.HTTPStatusError) as caught,
    ):
        warnings.simplefilter("ignore", mainstay.NestedRetryWarning)
        load(url)
    assert (service.seen, leaf.count()) == (1, 3)
    assert mainstay.gave_up_headers(caught.value) == {"Mainstay-Gave-Up": "3"}, "and further on"


def test_a_failure_that_nobody_gave_up_on_is_repeated(leaf, kind):
    """The second service answers with another failure than the leaf's: it may be gone next time."""
    leaf.on("/", Status(404))
    service = Service(leaf)
    with running(kind, service) as url:
        assert "mainstay-gave-up" not in ask(url).headers
    assert (service.seen, leaf.count()) == (3, 3)


def test_the_deadline_of_the_first_service_is_that_of_all(leaf, kind):
    """It arrives as seconds that are left, and each service hands on what is left of it."""
    leaf.on("/", Status(200))
    service = Service(leaf)
    with running(kind, service) as url, deadline.within(2000.0):
        assert ask(url).status_code == 200
    (middle,), (last,) = service.left, leaf.seen
    assert 1900.0 < float(last.headers["mainstay-timeout"]) <= middle + 0.001 <= 2000.001


def test_the_deadline_of_a_caller_that_is_not_listed_is_ignored(leaf, kind):
    """Nobody but a listed host can cut short what a service does."""
    leaf.on("/", Status(200))
    service = Service(leaf)
    with running(kind, service, trust=["10.0.0.0/8"]) as url, deadline.within(20.0):
        assert ask(url).status_code == 200
    assert service.left == [None]
    assert "mainstay-timeout" not in leaf.seen[0].headers


@pytest.mark.parametrize("value", ["soon", "-1", "1e9", ""])
def test_a_deadline_that_makes_no_sense_is_ignored(leaf, kind, value):
    """A request with it is served as one without."""
    leaf.on("/", Status(200))
    service = Service(leaf)
    with running(kind, service) as url:
        assert httpx.get(url, headers={"Mainstay-Timeout": value}, verify=TLS).status_code == 200
    assert service.left == [None]


def test_a_service_whose_caller_has_no_time_left_calls_nobody(leaf, kind):
    """The answer would come too late for anyone."""
    service = Service(leaf)
    with running(kind, service) as url:
        answer = httpx.get(url, headers={"Mainstay-Timeout": "0.000"}, verify=TLS)
    assert answer.status_code == 502
    assert leaf.count() == 0


def test_without_a_header_the_middlewares_change_nothing():
    """A list is returned as it is; other scopes pass; a body is closed as the server does."""
    called = []

    def app(_environ, _start):
        called.append(deadline.remaining())
        return [b"x"]

    plain = WsgiDeadline(app, trust=HERE)
    assert plain({"REMOTE_ADDR": "127.0.0.1"}, None) == [b"x"]
    assert plain({"REMOTE_ADDR": "127.0.0.1", "HTTP_MAINSTAY_TIMEOUT": "x"}, None) == [b"x"]
    assert called == [None, None]
    limited = plain({"REMOTE_ADDR": "127.0.0.1", "HTTP_MAINSTAY_TIMEOUT": "9, 5.5"}, None)
    assert (list(limited), limited.close()) == ([b"x"], None)
    assert called[-1] <= 5.5, "the least of several"

    async def asgi(scope, _receive, _send):
        called.append((scope["type"], deadline.remaining()))

    asyncio.run(AsgiDeadline(asgi, trust=HERE)({"type": "lifespan"}, None, None))
    assert called[-1] == ("lifespan", None)


def test_a_deadline_that_is_further_than_a_limit_may_be_is_the_longest_one():
    """The request is answered, and not refused for what its caller has sent."""
    left = []

    def app(environ, start_response):
        left.append(deadline.remaining())
        return [b""]

    sent = {"REMOTE_ADDR": "127.0.0.1", "HTTP_MAINSTAY_TIMEOUT": "999999999"}
    assert list(WsgiDeadline(app, trust=HERE)(sent, None)) == [b""]
    assert left[0] > 86_400.0


def test_the_parts_of_a_body_are_made_under_the_deadline_and_closed():
    """A generator runs when the server asks for its parts; outside of them nothing is limited."""
    left, closed = [], []

    class Body:
        def __iter__(self):
            left.append(deadline.remaining())
            yield b"x"
            left.append(deadline.remaining())

        def close(self):
            closed.append(True)

    app = WsgiDeadline(lambda _environ, _start: Body(), trust=HERE)
    body = app({"REMOTE_ADDR": "127.0.0.1", "HTTP_MAINSTAY_TIMEOUT": "5"}, None)
    for _ in body:
        assert deadline.remaining() is None
    body.close()
    assert [each is not None and each <= 5.0 for each in left] == [True, True]
    assert closed == [True]


@pytest.mark.parametrize("stated", [["5", "3"], ["5, 3"], ["nonsense, 3"]])
def test_the_least_of_several_deadlines_counts_also_if_a_proxy_joined_them(kind, leaf, stated):
    """Both servers read the lines of a header and one line of them alike (RFC 9110, 5.3)."""
    service = Service(leaf)
    with running(kind, service) as url:
        httpx.get(url, headers=[("Mainstay-Timeout", each) for each in stated], verify=TLS)
    assert 0.0 < service.left[0] <= 3.0
