"""httpx, sync and async, against a server that fails."""

import ssl

import httpcore
import httpx
import pytest
import trio

import mainstay
from mainstay import Kind, RetryPolicy
from tests.integrations.errors.http_contract import (
    AT_ONCE,
    PATIENT,
    SHORT,
    HttpContract,
    check,
    deaf_port,
    failure,
    judged,
)
from tests.servers.http_faults import Close, Reset, Silence, Status, dead_port, full_port

OPTIONS = {
    "follow_redirects": True,
    "trust_env": False,
    "verify": ssl.create_default_context(),  # loading the authorities takes a while
}


class TestHttpx(HttpContract):
    library, base, status_error = "httpx", httpx.HTTPError, httpx.HTTPStatusError

    @staticmethod
    def send(method, url, headers, timeout=PATIENT, connect=PATIENT):
        limits = httpx.Timeout(PATIENT, read=timeout, connect=connect)
        with httpx.Client(timeout=limits, **OPTIONS) as client:
            return client.request(method, url, headers=headers).raise_for_status()


class TestAsyncHttpx(HttpContract):
    library, base, status_error = "httpx", httpx.HTTPError, httpx.HTTPStatusError

    @staticmethod
    async def send(method, url, headers, timeout=PATIENT, connect=PATIENT):  # noqa: ASYNC109 -- the client's own
        limits = httpx.Timeout(PATIENT, read=timeout, connect=connect)
        async with httpx.AsyncClient(timeout=limits, **OPTIONS) as client:
            return (await client.request(method, url, headers=headers)).raise_for_status()


def test_tls_that_ends_after_sending_is_ambiguous(tls_server, certificate):
    """The request was sent."""
    url = tls_server.on("/", Close())
    trusting = ssl.create_default_context(cafile=certificate / "cert.pem")
    with client_with(verify=trusting) as client:
        error, calls = failure(client.post, url)
        assert (judged(error), calls) == ((Kind.TRANSIENT, True), 1)
    assert tls_server.count("/", "POST") == 1


@pytest.mark.parametrize(
    ("method", "answer", "requests"), [("GET", Reset(), 3), ("POST", Reset(), 1), ("GET", None, 3)]
)
def test_trio_raises_the_same(server, method, answer, requests):
    """There httpx has another backend."""
    url = f"http://127.0.0.1:{dead_port()}/" if answer is None else server.on("/", answer)
    calls = []

    async def send():
        calls.append(url)
        return await TestAsyncHttpx.send(method, url, {})

    async def main():
        policy = RetryPolicy(retry_on=mainstay.transient, **AT_ONCE)
        with pytest.raises(httpx.NetworkError):
            await policy.acall(send)

    trio.run(main)
    assert len(calls) == requests


# --- classes that the contract does not raise -----------------------------------------------------
# No server can provoke these: WriteError, which httpcore passes over to read an answer that was
# sent before; CloseError, which httpx 0.28 maps from nothing; ConnectionNotAvailable, which stays
# inside httpcore; and the base classes.


def client_with(**options):
    return httpx.Client(**OPTIONS | options)


def test_a_pool_that_is_full_is_a_timeout_before_sending(server):
    """The request waited for a connection of ours."""
    url = server.on("/", Status(200, body=b"x" * 10))
    limits = httpx.Limits(max_connections=1)
    limit = httpx.Timeout(PATIENT, pool=SHORT)
    with client_with(limits=limits, timeout=limit) as client, client.stream("GET", url):
        check(lambda: client.post(url), "PoolTimeout", Kind.TIMEOUT)
    assert server.count() == 1


def test_a_body_that_nobody_reads_is_a_timeout_while_sending():
    """Part of the request was sent."""
    with deaf_port() as port, client_with(timeout=httpx.Timeout(PATIENT, write=SHORT)) as client:
        url = f"http://127.0.0.1:{port}/"
        check(
            lambda: client.post(url, content=bytes(2**24)),
            "WriteTimeout",
            Kind.TIMEOUT,
            ambiguous=True,
        )


@pytest.mark.parametrize(
    ("status", "kind"),
    [(407, Kind.AUTH), (403, Kind.AUTH), (502, Kind.TRANSIENT), (503, Kind.OVERLOAD),
     (504, Kind.TIMEOUT), (400, Kind.PERMANENT)],
)  # fmt: skip
def test_a_tunnel_that_the_proxy_refuses_was_never_used(server, status, kind):
    """The answer to CONNECT decides, and no status of it is ambiguous."""
    server.on("orders.test:443", Status(status))
    with client_with(proxy=server.url) as client:
        check(lambda: client.post("https://orders.test/"), "ProxyError", kind)
    assert server.count(method="CONNECT") == server.count() == 1


def test_a_proxy_that_is_away_is_a_connection_that_was_not_made():
    """A dead port, one hop earlier."""
    with client_with(proxy=f"http://127.0.0.1:{dead_port()}") as client:
        check(lambda: client.post("https://orders.test/"), "ConnectError", Kind.TRANSIENT)


MISTAKES = {
    "LocalProtocolError": lambda client, url: client.get(url, headers={"X-Bad": "a\nb"}),
    "UnsupportedProtocol": lambda client, url: client.get("ftp://127.0.0.1/"),
    "InvalidURL": lambda client, url: client.get("http://[::1/"),
    "ResponseNotRead": lambda client, url: _streamed(client, url).content,
    "StreamConsumed": lambda client, url: _streamed(client, url, times=2),
    "StreamClosed": lambda client, url: _streamed(client, url).read(),
    "RequestNotRead": lambda client, url: httpx.Request("POST", url, content=iter([])).content,
    "CookieConflict": lambda client, url: _two_cookies().get("a"),
}


def _streamed(client, url, times=0):
    with client.stream("GET", url) as answer:
        for _ in range(times):
            list(answer.iter_raw())
    return answer


def _two_cookies():
    cookies = httpx.Cookies()
    cookies.set("a", "1", path="/x")
    cookies.set("a", "2", path="/y")
    return cookies


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_call_is_permanent(server, name):
    """As the library finds it, before or after a request."""
    url = server.on("/", Status(200, body=b"page"))
    with client_with() as client:
        check(lambda: MISTAKES[name](client, url), name, Kind.PERMANENT)


@pytest.mark.parametrize(
    ("answer", "name", "kind"),
    [
        (Reset(), "ReadError", Kind.TRANSIENT),
        (Close(), "RemoteProtocolError", Kind.TRANSIENT),
        (Silence(), "ReadTimeout", Kind.TIMEOUT),
    ],
)
def test_httpcore_by_itself_is_judged_as_well(server, answer, name, kind):
    """Its errors carry no request."""
    url = server.on("/", answer)
    limit = {"timeout": {"read": SHORT if isinstance(answer, Silence) else PATIENT}}
    check(lambda: httpcore.request("GET", url, extensions=limit), name, kind, ambiguous=True)


def test_httpcore_before_it_sends():
    """Connecting, and mistakes."""
    dead = f"http://127.0.0.1:{dead_port()}/"
    check(lambda: httpcore.request("GET", dead), "ConnectError", Kind.TRANSIENT)
    check(lambda: httpcore.request("GET", "ftp://x/"), "UnsupportedProtocol", Kind.PERMANENT)
    with full_port() as port:
        url, limit = f"http://127.0.0.1:{port}/", {"timeout": {"connect": SHORT}}
        check(
            lambda: httpcore.request("GET", url, extensions=limit), "ConnectTimeout", Kind.TIMEOUT
        )


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Invalid username/password", Kind.AUTH),
        ("Requested NO AUTHENTICATION REQUIRED from proxy server, but got X.", Kind.AUTH),
        ("Proxy Server could not connect: Connection not allowed by ruleset.", Kind.PERMANENT),
        ("Proxy Server could not connect: Host unreachable.", Kind.TRANSIENT),
    ],
)
def test_what_a_socks_proxy_answers(text, kind):
    """The texts of httpcore, raised here: no server of these tests speaks SOCKS."""

    def refuse():
        raise httpx.ProxyError(text)

    check(refuse, "ProxyError", kind)


@pytest.mark.req("CL-04")
@pytest.mark.parametrize(
    ("status", "requests_"), [(429, 3), (500, 3), (502, 3), (503, 3), (504, 3), (400, 1), (404, 1)]
)
def test_what_is_repeated_by_its_status_is_counted_at_the_server(server, status, requests_):
    """5xx and 429 are repeated, other 4xx are not."""
    url = server.on("/", *[Status(status)] * 3)
    error, _ = failure(TestHttpx.send, "GET", url, {})
    assert type(error) is TestHttpx.status_error
    assert server.count() == requests_
