"""The transports for httpx and httpx2, through real clients against a server that fails."""

import asyncio
import importlib
import socket
import ssl
import subprocess
import sys
import time
import warnings
from functools import partial

import pytest
import trio

import mainstay
from mainstay import Backoff, Engine, RetryPolicy, deadline
from mainstay.core.known.kind import Kind
from mainstay.integrations import http_headers, httpx_streams
from mainstay.integrations.idempotency_key import keyed_call
from mainstay.testing import FaultProxy
from tests.processes import at_some_speed, wait_until
from tests.servers.certificate import make_certificate, server_side
from tests.servers.http_faults import Drip, HttpFaults, Reset, Silence, Status, dead_port

OK = Status(200, body=b"ok")
DOWN = Status(503, body=b"down")
NOW = Backoff.constant(0)
TLS = ssl.create_default_context()  # made once: it takes longer than a test here


@pytest.fixture
def server():
    """A server of its own: what the client of the test before gave up on may yet arrive there."""
    with HttpFaults() as running:
        yield running


def three(**fields):
    """A policy of three attempts that does not wait."""
    return RetryPolicy(**{"attempts": 3, "backoff": NOW, **fields})


class Sync:
    """Requests through Transport."""

    is_async = False

    def __init__(self, library):
        self.library = importlib.import_module(library)
        self.ours = importlib.import_module(f"mainstay.integrations.{library}")
        self.kind = self.library.AsyncHTTPTransport if self.is_async else self.library.HTTPTransport

    def __call__(self, method, url, retry=None, *, timeout=60.0, inner=None, **options):
        own = {name: options.pop(name) for name in ("trust", "operation") if name in options}
        transport = self.ours.Transport(retry, transport=inner or self.kind(verify=TLS), **own)
        with self.library.Client(
            transport=transport, timeout=timeout, follow_redirects=True
        ) as client:
            return client.request(method, url, **options)


class Async(Sync):
    """The same through AsyncTransport, on asyncio."""

    is_async = True

    def __call__(self, method, url, retry=None, *, timeout=60.0, inner=None, **options):
        own = {name: options.pop(name) for name in ("trust", "operation") if name in options}
        if "content" in options and not isinstance(options["content"], bytes):
            options["content"] = _async(options["content"])

        async def main():
            sends = inner or self.kind(verify=TLS)
            transport = self.ours.AsyncTransport(retry, transport=sends, **own)
            async with self.library.AsyncClient(
                transport=transport, timeout=timeout, follow_redirects=True
            ) as client:
                return await client.request(method, url, **options)

        return asyncio.run(main())


async def _async(parts):
    for part in parts:
        yield part


LIBRARIES = ["httpx", "httpx2"]


@pytest.fixture(params=LIBRARIES)
def sync(request):
    """Sends one request with a client of its own, of each library."""
    return Sync(request.param)


@pytest.fixture
def httpx(sync):
    """The library itself."""
    return sync.library


@pytest.fixture(params=[Sync, Async], ids=["sync", "async"])
def send(request, sync):
    """Sends one request with a client of its own, sync and async."""
    return request.param(sync.library.__name__)


def test_a_response_that_is_worth_repeating_is_repeated(server, send):
    """The caller gets the response that came in the end."""
    url = server.on("/", DOWN, Reset(), OK)
    assert send("GET", url, three()).text == "ok"
    assert server.count("/") == 3


def test_the_last_response_is_returned_as_httpx_would(server, send):
    """No exception for a status: the client does not raise either. The body is there."""
    url = server.on("/", DOWN)
    response = send("GET", url, three())
    assert (response.status_code, response.text) == (503, "down")
    assert server.count("/") == 3


def test_the_last_failure_is_raised_as_httpx_would(server, send, httpx):
    """With the note of who gave up."""
    url = server.on("/", Reset())
    with pytest.raises(httpx.ReadError) as caught:
        send("GET", url, three())
    assert caught.value.__notes__ == [
        f"mainstay: gave up on {httpx.__name__} after 3 attempts: no attempt left"
    ]
    assert server.count("/") == 3


@pytest.mark.parametrize("status", [400, 401, 404, 409])
def test_a_response_that_is_not_worth_it_is_returned_at_once(server, send, status):
    """Another request would get the same answer."""
    url = server.on("/", Status(status, body=b"no"))
    assert send("GET", url, three()).text == "no"
    assert server.count("/") == 1


def test_a_rule_of_the_policy_names_a_status(server, send):
    """What the policy retries is what it says, as everywhere."""
    url = server.on("/", Status(409), OK)
    assert send("GET", url, three(on="status:409")).status_code == 200
    assert server.count("/") == 2


def test_nothing_listens(send, httpx):
    """A dead port is repeated: nothing was sent."""
    seen = []
    policy = three(before_retry=lambda info: seen.append(info.kind))
    with pytest.raises(httpx.ConnectError):
        send("POST", f"http://127.0.0.1:{dead_port()}/", policy, content=b"x")
    assert seen == [Kind.TRANSIENT] * 2


def test_the_wait_that_a_response_asks_for_is_waited_for(server, send):
    """Retry-After, as seconds, in place of a shorter delay of the policy's own."""
    url = server.on("/", Status(429, {"Retry-After": "7"}), OK)
    delays = []
    policy = three(before_retry=lambda info: delays.append(info.delay))
    with mainstay.testing.virtual_time():
        assert send("GET", url, policy).status_code == 200
    assert 7.0 <= delays[0] < 9.0


@pytest.mark.parametrize("fault", [Reset(), Status(500), Status(502), Status(504)])
def test_a_post_is_not_repeated_if_it_may_have_been_carried_out(server, send, fault, httpx):
    """Without a key the server could not tell the second one from a new order."""
    url = server.on("/", fault, OK)
    notes = []
    try:
        notes += send("POST", url, three(), content=b"order").extensions["mainstay_notes"]
    except httpx.ReadError as error:
        notes += error.__notes__
    assert any("POST without an Idempotency-Key" in note for note in notes)
    assert server.count("/") == 1


async def cut(sync, method, url, content, **fields):
    """A request whose attempts have a time each; a task of the policy's loop is then cancelled."""
    transport = sync.ours.AsyncTransport(
        three(timeout=1.0, **fields), transport=sync.library.AsyncHTTPTransport(verify=TLS)
    )
    async with sync.library.AsyncClient(transport=transport) as client:
        return await client.request(method, url, content=content)


@pytest.mark.parametrize("run", [lambda *given: asyncio.run(cut(*given)), partial(trio.run, cut)])
def test_a_post_whose_attempt_was_cut_is_not_repeated(server, run, httpx, sync):
    """The server may have it; what the policy cuts with does not carry the request."""
    url = server.on("/", Silence(), OK)
    with pytest.raises(httpx.ReadTimeout):
        run(sync, "POST", url, b"order")
    wait_until(lambda: server.count("/") == 1, "the request")


def test_a_post_that_a_thread_was_late_with_is_not_repeated(sync, httpx):
    """The thread was abandoned, and its own timeout comes while the policy waits."""
    sent = []

    def late(request):
        sent.append(request)
        time.sleep(1.0)
        raise httpx.ReadTimeout("late", request=request)

    policy = three(timeout=0.1, timeout_by="thread", backoff=Backoff.constant(3.0))
    with pytest.raises(httpx.ReadTimeout, match="may have been carried out"):
        sync("POST", "http://a/", policy, inner=httpx.MockTransport(late), content=b"order")
    assert len(sent) == 1


def test_a_get_whose_attempt_was_cut_is_repeated(server, sync):
    """As after a timeout of httpx itself."""
    url = server.on("/", Silence(), OK)
    assert asyncio.run(cut(sync, "GET", url, None)).text == "ok"


def test_a_rule_that_names_the_timeout_repeats_a_post_that_was_cut(server, httpx, sync):
    """As with a timeout of httpx itself: the rule decides."""
    url = server.on("/", Silence(), OK)
    on = (httpx.ReadTimeout, mainstay.AttemptTimeout)
    assert asyncio.run(cut(sync, "POST", url, b"order", on=on)).text == "ok"
    assert server.count("/") == 2


def test_a_body_of_an_attempt_that_was_cut_is_not_sent_again_if_it_was_read(server, httpx, sync):
    """The rest of it would be another request."""
    url = server.on("/", Silence(), OK)
    with pytest.raises(httpx.ReadTimeout):
        asyncio.run(cut(sync, "PUT", url, _async(parts())))
    assert [each.body for each in server.seen] == [b"onetwo"]


def test_a_post_that_was_refused_is_repeated(server, send):
    """503 and 429 mean that it was not carried out."""
    url = server.on("/", DOWN, Status(429), OK)
    assert send("POST", url, three(), content=b"order").status_code == 200
    assert server.count("/") == 3


def test_a_post_with_a_key_is_repeated_with_the_same_key(server, send):
    """The key of the call that is under way goes to a host that is listed."""
    url = server.on("/", Reset(), Status(500), OK)
    with keyed_call("order-7"):
        assert send("POST", url, three(), content=b"o", trust=["127.0.0.1"]).status_code == 200
    assert [each.headers["idempotency-key"] for each in server.seen] == ['"order-7"'] * 3


def test_headers_go_to_listed_hosts_alone(server, send):
    """The time that is left, the key and the attempt are nobody else's business."""
    url = server.on("/", DOWN, OK)
    with deadline.within(3000.0), keyed_call("order-7"):
        send("POST", url, three(), content=b"o", trust=["other.internal"])
    ours = {"mainstay-timeout", "mainstay-attempt", "idempotency-key"}
    assert not any(ours & set(each.headers) for each in server.seen)
    server.on("/", DOWN, OK)
    server.seen.clear()
    with deadline.within(3000.0), keyed_call("order-7"):
        send("POST", url, three(), content=b"o", trust=[f"127.0.0.1:{server.port}"])
    assert [each.headers["mainstay-attempt"] for each in server.seen] == ["1", "2"]
    assert all(2900.0 < float(each.headers["mainstay-timeout"]) <= 3000.0 for each in server.seen)
    assert all(ours <= set(each.headers) for each in server.seen)


@pytest.mark.parametrize(
    ("url", "is_covered"),
    [
        ("https://orders.internal/", True),
        ("http://orders.internal/", False),
        ("wss://orders.internal/", True),
    ],
)
def test_a_url_without_a_port_has_that_of_its_scheme(url, is_covered, sync, httpx):
    """A list that names the port means it, whether the URL does or not."""
    inner = httpx.MockTransport(lambda request: httpx.Response(200, json=dict(request.headers)))
    sent = sync("GET", url, inner=inner, trust=["orders.internal:443"]).json()
    assert ("mainstay-attempt" in sent) is is_covered


def test_our_headers_do_not_follow_a_redirect_to_another_host(server, send):
    """The client copies the headers of the request: ours are off it by then."""
    with HttpFaults() as other:
        elsewhere = other.on("/", OK).replace("127.0.0.1", "localhost")
        url = server.on("/", Status(307, {"Location": elsewhere}))
        with deadline.within(3000.0):
            send("GET", url, three(), trust=["127.0.0.1"])
        assert "mainstay-timeout" in server.seen[0].headers
        assert not any(name.startswith("mainstay-") for name in other.seen[0].headers)


def test_without_a_policy_one_attempt_is_made_and_handed_on(server, send):
    """The retry may be around the client, or nowhere."""
    url = server.on("/", DOWN, OK)
    with deadline.within(3000.0):
        assert send("GET", url, trust=["127.0.0.1"]).status_code == 503
    (seen,) = server.seen
    assert seen.headers["mainstay-attempt"] == "1"
    assert float(seen.headers["mainstay-timeout"]) > 2900.0


FAULTS = [
    pytest.param(Silence(), id="no answer"),
    pytest.param(Drip(every=0.03), id="slow headers"),
    pytest.param(Drip(every=0.03, after=70), id="a byte at a time"),
]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("timeout", [60.0, None], ids=["timeout", "no timeout"])
def test_the_deadline_ends_a_request_whatever_the_server_does(server, send, fault, timeout, httpx):
    """The server sends a byte well within each timeout of the client; the deadline comes first."""

    def check(seconds):
        server.clear()
        url = server.on("/", fault)
        with deadline.within(seconds), pytest.raises(httpx.ReadTimeout):
            send("GET", url, timeout=timeout)
        wait_until(lambda: server.count("/") == 1, "the request", 5.0)

    at_some_speed(check, 0.2, 2.0, 10.0)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_deadline_of_the_policy_ends_it_too(server, send, fault, httpx):
    """Headers and body have one deadline."""
    url = server.on("/", fault)
    with pytest.raises((httpx.ReadTimeout, mainstay.DeadlineExceeded)):
        send("GET", url, three(deadline=0.25))


def test_nothing_is_sent_if_no_time_is_left(server, send, httpx):
    """A request whose answer nobody waits for is work for nothing."""
    url = server.on("/", OK)
    with mainstay.testing.virtual_time() as time, deadline.within(1.0):
        time.advance(2.0)
        if send.is_async:
            with pytest.raises(httpx.ConnectTimeout):
                send("GET", url)
        else:
            with pytest.raises(httpx.ConnectTimeout, match="no time is left"):
                send("GET", url, three())
    assert server.count() == 0


def parts():
    """A body that can be read once."""
    yield b"one"
    yield b"two"


@pytest.mark.parametrize("fault", [DOWN, Reset()], ids=["503", "reset"])
@pytest.mark.parametrize("on", [None, "HTTPError", (lambda error: True,)])
def test_a_body_that_cannot_be_read_again_is_not_sent_again(server, send, fault, on, httpx):
    """Half a body, or none, would be another request; a note states it."""
    url = server.on("/", fault, OK)
    on = httpx.HTTPError if on == "HTTPError" else on
    try:
        response = send("PUT", url, three(on=on), content=parts())
        notes = response.extensions["mainstay_notes"]
    except httpx.ReadError as error:
        notes = error.__notes__
    assert any("PUT whose body cannot be read again" in note for note in notes)
    assert [each.body for each in server.seen] == [b"onetwo"]


def test_a_body_that_was_not_begun_is_sent_again(server, send, monkeypatch):
    """If there was no connection, nothing was read of it."""
    url = server.on("/", OK)
    backend = httpx_streams.AsyncBackend if send.is_async else httpx_streams.Backend
    connect, made = backend.connect_tcp, []

    def refuse_once(self, host, port, *rest, **more):
        made.append(port)
        port = dead_port() if len(made) == 1 else port
        return connect(self, host, port, *rest, **more)

    monkeypatch.setattr(backend, "connect_tcp", refuse_once)
    assert send("PUT", url, three(), content=parts()).status_code == 200
    assert [each.body for each in server.seen] == [b"onetwo"]
    assert len(made) == 2


@pytest.mark.parametrize(
    "body", [{"json": {"a": 1}}, {"files": {"f": b"data"}}, {"data": {"a": "b"}}]
)
def test_a_body_that_is_the_same_again_is_sent_again(server, send, body):
    """Bytes, forms and files that can be sought."""
    url = server.on("/", DOWN, OK)
    assert send("PUT", url, three(), **body).status_code == 200
    first, second = server.seen
    assert first.body == second.body != b""


def test_an_engine_makes_the_calls_of_an_operation(server, send):
    """With its policy, and with what else the engine has for that name."""
    url = server.on("/", DOWN)
    with Engine(policies=[three(name="api", attempts=2)], operations={"orders": "api"}) as engine:
        assert send("GET", url, engine, operation="orders").status_code == 503
        assert server.count() == 2
        assert send("GET", url, engine.operation("orders")).status_code == 503
        assert server.count() == 4


def test_a_circuit_counts_what_the_responses_were(server, sync):
    """A refused call raises, since there is no response."""
    url = server.on("/", DOWN)
    with Engine(
        policies=[three(name="standard", attempts=1)],
        breaker=mainstay.BreakerSettings(failure_threshold=2),
    ) as engine:
        sync("GET", url, engine)
        sync("GET", url, engine)
        with pytest.raises(mainstay.CircuitOpenError):
            sync("GET", url, engine)
    assert server.count() == 2


def test_what_is_no_policy_is_refused(sync):
    """At once, and not at the first failure."""
    with pytest.raises(mainstay.UsageError, match="retry = 3"):
        sync.ours.Transport(3)


def test_the_retries_of_httpx_itself_are_warned_of_once(monkeypatch, sync, httpx):
    """With the number of connections that it may come to."""
    monkeypatch.setattr(http_headers, "_warned", set())
    with pytest.warns(mainstay.MainstayWarning, match="4 x 3 = 12"):
        sync.ours.Transport(three(), transport=httpx.HTTPTransport(verify=TLS, retries=3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sync.ours.Transport(three(), transport=httpx.HTTPTransport(verify=TLS, retries=3))
        sync.ours.Transport(three(), transport=httpx.HTTPTransport(verify=TLS))


def test_an_outer_retry_stands_back_from_what_the_transport_has_given_up_on(server, sync, httpx):
    """Three requests, not nine, though raise_for_status() makes an exception of its own."""
    url = server.on("/", DOWN)

    @mainstay.retry(on=mainstay.transient, attempts=3, backoff=NOW)
    def fetch():
        return sync("GET", url, three()).raise_for_status()

    with pytest.warns(mainstay.NestedRetryWarning), pytest.raises(httpx.HTTPStatusError) as caught:
        fetch()
    assert server.count() == 3
    assert mainstay.gave_up_headers(caught.value) == {"Mainstay-Gave-Up": "3"}


@pytest.mark.parametrize(("trust", "requests"), [(["127.0.0.1"], 1), ([], 3)])
def test_a_give_up_is_believed_from_a_listed_host_alone(server, send, trust, requests):
    """A stranger cannot switch off the retries of its callers."""
    url = server.on("/", Status(503, {"Mainstay-Gave-Up": "3"}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mainstay.NestedRetryWarning)
        assert send("GET", url, three(), trust=trust).status_code == 503
    assert server.count() == requests


def test_responses_of_earlier_attempts_are_closed(server, send, httpx):
    """A pool of one connection is enough: the attempt before does not hold it."""
    url = server.on("/", Status(503, body=b"x" * 100_000), OK)
    limits = httpx.Limits(max_connections=1)
    assert (
        send("GET", url, three(), inner=send.kind(verify=TLS, limits=limits), timeout=60.0).text
        == "ok"
    )


def test_a_stream_is_read_by_the_caller(server, sync, httpx):
    """The transport does not read the body of a response that it returns."""
    url = server.on("/", DOWN, Status(200, body=b"x" * 100_000))
    transport = sync.ours.Transport(three(), transport=httpx.HTTPTransport(verify=TLS))
    with httpx.Client(transport=transport) as client, client.stream("GET", url) as response:
        assert sum(len(part) for part in response.iter_bytes(1000)) == 100_000


def test_any_transport_can_send(send, httpx):
    """One without sockets gets the timeouts and the policy."""
    seen = []

    def answer(request):
        seen.append(request.extensions["timeout"]["read"])
        return httpx.Response(503 if len(seen) == 1 else 200)

    with deadline.within(50.0):
        inner = httpx.MockTransport(answer)
        assert send("GET", "http://a.example/", three(), inner=inner).status_code == 200
    assert all(0 < each <= 50.0 for each in seen)
    assert len(seen) == 2


@pytest.mark.parametrize("fault", FAULTS)
def test_the_deadline_ends_a_request_on_trio_too(server, fault, sync, httpx):
    """The streams of the pool are the same on both event loops."""

    async def main(url, retry):
        inner = httpx.AsyncHTTPTransport(verify=TLS)
        transport = sync.ours.AsyncTransport(retry, transport=inner)
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.get(url)

    url = server.on("/", DOWN, OK)
    assert trio.run(main, url, three()).text == "ok"

    def check(seconds):
        url = server.on("/", fault)
        with deadline.within(seconds), pytest.raises(httpx.ReadTimeout):
            trio.run(main, url, None)

    at_some_speed(check, 0.2, 2.0, 10.0)


def test_the_deadline_ends_a_request_whose_body_nobody_reads(server, send, httpx):
    """Writing has what is left of the time, too."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
        with deadline.within(1.0), pytest.raises((httpx.WriteTimeout, httpx.ReadTimeout)):
            send("PUT", url, content=bytes(30_000_000))


def test_our_headers_are_those_of_the_deadline_of_the_attempt(server, send):
    """A policy that limits each attempt has its limit sent, and not the whole deadline."""
    url = server.on("/", DOWN, OK)
    with deadline.within(3000.0):
        send("GET", url, three(timeout=900.0), trust=["127.0.0.1"])
    assert all(800.0 < float(each.headers["mainstay-timeout"]) <= 900.0 for each in server.seen)


def test_the_deadline_ends_a_request_through_a_proxy(server, sync, httpx):
    """The connections to a proxy are made by the same pool."""
    server.on("http://a.example/", Drip(every=0.03))
    inner = httpx.HTTPTransport(verify=TLS, proxy=server.url)
    with deadline.within(1.0), pytest.raises(httpx.ReadTimeout):
        sync("GET", "http://a.example/", inner=inner)


def test_a_response_that_the_policy_does_not_accept_is_closed(server, send, httpx):
    """Its connection is free for the next attempt, and after the last one."""
    url = server.on("/", Status(202, body=b"x" * 100_000), OK)
    policy = three(retry_if_result=lambda response: response.status_code == 202)
    limits = httpx.Limits(max_connections=1)
    inner = send.kind(verify=TLS, limits=limits)
    assert send("GET", url, policy, inner=inner, timeout=60.0).text == "ok"
    assert server.count() == 2
    url = server.on("/", Status(202, body=b"x" * 100_000))
    with pytest.raises(mainstay.ResultRejected):
        send("GET", url, three(retry_if_result=lambda _: True, on_exhausted="raise"))


def test_the_deadline_ends_a_request_over_tls(send, tmp_path, httpx):
    """The streams of TLS are others, made of the first ones."""
    served = server_side(make_certificate(tmp_path))
    trusted = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    with HttpFaults(served) as server:
        url = server.on("/", DOWN, OK, Drip(every=0.03))
        assert send("GET", url, three(), inner=send.kind(verify=trusted)).text == "ok"
        with deadline.within(2.0), pytest.raises(httpx.ReadTimeout):
            send("GET", url, inner=send.kind(verify=trusted))


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="there are none on this system")
def test_a_unix_socket_ends_at_the_deadline_too(send, tmp_path, httpx):
    """As any other connection."""
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(path)
        deaf.listen()
        with deadline.within(1.0), pytest.raises(httpx.ReadTimeout):
            send("GET", "http://deaf/", inner=send.kind(verify=TLS, uds=path))


@pytest.fixture
def other(httpx):
    """The other library, whose classes have the same names."""
    return importlib.import_module("httpx2" if httpx.__name__ == "httpx" else "httpx")


def test_a_client_of_the_other_library_is_refused(server, send, httpx, other):
    """Its requests look alike; an assertion would fail at the response. The right one is named."""
    url = server.on("/", OK)
    transport = send.ours.AsyncTransport(three()) if send.is_async else send.ours.Transport(three())

    async def ask():
        async with other.AsyncClient(transport=transport) as client:
            await client.get(url)

    stated = f"a request of {other.__name__}: must be one of {httpx.__name__}\\."
    with pytest.raises(mainstay.UsageError, match=stated) as caught:
        if send.is_async:
            asyncio.run(ask())
        with other.Client(transport=transport) as client:
            client.get(url)
    name = type(transport).__name__
    assert caught.value.hint == f"use {name} of mainstay.integrations.{other.__name__}"
    assert server.count() == 0


def test_what_is_no_request_is_refused(sync, httpx):
    """As from a client that nobody has thought of."""
    request = type("Request", (), {"stream": None, "__module__": "acme.client"})()
    with pytest.raises(mainstay.UsageError, match=r"a request of acme: must be") as caught:
        sync.ours.Transport(three()).handle_request(request)
    assert "with @mainstay.retry" in caught.value.hint


def test_a_transport_of_the_other_library_is_refused(send, httpx, other):
    """At once: it would fail at the first request, with an assertion."""
    make = send.ours.AsyncTransport if send.is_async else send.ours.Transport
    kind = other.AsyncHTTPTransport if send.is_async else other.HTTPTransport
    with pytest.raises(
        mainstay.UsageError, match=f"a transport of {other.__name__}: must"
    ) as caught:
        make(three(), transport=kind(verify=TLS))
    name = make.__name__
    assert caught.value.hint == f"use {name} of mainstay.integrations.{other.__name__}"


def test_any_class_that_sends_may_be_the_transport(sync, httpx):
    """It need not be derived from one of the library's."""

    class Sends:
        def handle_request(self, request):
            return httpx.Response(200, text="ok")

    assert (
        sync.ours.Transport(transport=Sends())
        .handle_request(httpx.Request("GET", "http://a/"))
        .is_success
    )


def test_a_full_pool_is_waited_for_up_to_the_deadline(server, send, httpx):
    """The only connection is in use: nothing is sent, and there is the timeout of the pool."""
    url = server.on("/", Status(200, body=b"x" * 1_000_000))
    inner = send.kind(verify=TLS, limits=httpx.Limits(max_connections=1))

    async def held():
        transport = send.ours.AsyncTransport(transport=inner)
        async with (
            httpx.AsyncClient(transport=transport, timeout=60.0) as client,
            client.stream("GET", url),
        ):
            with deadline.within(0.2):
                await client.get(url)

    with pytest.raises(httpx.PoolTimeout):
        if send.is_async:
            asyncio.run(held())
        transport = send.ours.Transport(transport=inner)
        with (
            httpx.Client(transport=transport, timeout=60.0) as client,
            client.stream("GET", url),
            deadline.within(0.2),
        ):
            client.get(url)
    assert server.count() == 1


def test_the_deadline_ends_a_request_over_a_network_that_fails(server, send, httpx):
    """A connection through which nothing comes; one that breaks off in the answer is repeated."""
    server.on("/", OK)
    delays = []

    def heal(info):
        delays.append(info.kind)
        proxy.heal()

    with FaultProxy("127.0.0.1", server.port) as proxy:
        url = proxy.url(server.url + "/")
        proxy.black_hole()
        with deadline.within(0.5), pytest.raises(httpx.ReadTimeout):
            send("GET", url)
        proxy.heal()
        proxy.cut_after(20)
        assert send("GET", url, three(before_retry=heal)).text == "ok"
    assert delays == [Kind.TRANSIENT]


ALONE = """
import sys
from mainstay.integrations.{0} import AsyncTransport, Transport
assert "{1}" not in sys.modules, "it would cost its import, or need not be installed"
"""
ALIASED = """
import httpx2
httpx2.alias_httpx()
import httpx, mainstay
from mainstay.integrations.httpx import Transport
answers = [httpx.Response(503), httpx.Response(200)]
sends = httpx.MockTransport(lambda request: answers.pop(0))
policy = mainstay.RetryPolicy(attempts=2, backoff=mainstay.Backoff.constant(0))
with httpx2.Client(transport=Transport(policy, transport=sends)) as client:
    assert client.get("http://orders.internal/").status_code == 200
Transport(transport=httpx2.HTTPTransport(verify=False))
"""


@pytest.mark.parametrize(
    "program",
    [ALONE.format("httpx", "httpx2"), ALONE.format("httpx2", "httpx"), ALIASED],
    ids=["httpx alone", "httpx2 alone", "httpx2 under the name httpx"],
)
def test_one_library_is_enough(program):
    """Who has one of them needs not the other; one may also have the name of the other."""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_events_that_a_server_sends_end_at_the_deadline(server, is_async):
    """`client.sse()` of httpx2 is a stream: attempts until it begins, then the deadline."""
    send = (Async if is_async else Sync)("httpx2")
    events = Status(200, {"Content-Type": "text/event-stream"}, b"data: tea\n\n" * 200)
    url = server.on("/", DOWN, Drip(0.02, events, after=len(events.written()) - 1000))
    got = []

    async def read():
        transport = send.ours.AsyncTransport(three(), transport=send.kind(verify=TLS))
        async with (
            send.library.AsyncClient(transport=transport) as client,
            client.sse(url) as source,
        ):
            async for event in source:
                assert event.data == "tea"
                got.append(event)

    with deadline.within(2.0), pytest.raises(send.library.ReadTimeout):
        if is_async:
            asyncio.run(read())
        transport = send.ours.Transport(three(), transport=send.kind(verify=TLS))
        with send.library.Client(transport=transport) as client, client.sse(url) as source:
            for event in source:
                assert event.data == "tea"
                got.append(event)
    assert server.count() == 2
    assert 0 < len(got) < 200
