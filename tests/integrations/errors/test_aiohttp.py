"""aiohttp against a server that fails."""

import asyncio
import socket
import ssl

import aiohttp
import pytest
from aiohttp import web

from mainstay import Kind
from mainstay.integrations.errors import table
from tests.integrations.errors.http_contract import (
    CUT,
    PATIENT,
    SHORT,
    HttpContract,
    check,
    failure,
    judged,
)
from tests.processes import wait_until
from tests.servers.http_faults import Close, Raw, Silence, Status, dead_port


class TestAiohttp(HttpContract):
    library, base, status_error = "aiohttp", aiohttp.ClientError, aiohttp.ClientResponseError
    each_get = 2

    @staticmethod
    async def send(method, url, headers, timeout=PATIENT, connect=PATIENT):  # noqa: ASYNC109 -- the client's own
        limits = aiohttp.ClientTimeout(sock_connect=connect, sock_read=timeout)
        async with (
            aiohttp.ClientSession(timeout=limits, raise_for_status=True) as session,
            session.request(method, url, headers=headers) as answer,
        ):
            return await answer.read()


def using(act, **options):
    """A function that opens a session, and does something with it."""

    async def used():
        async with aiohttp.ClientSession(**options) as session:
            return await act(session)

    return used


def getting(url, read=aiohttp.ClientResponse.read, method="GET", **options):
    """A function that sends one request in a session of its own, and reads the answer."""

    async def get(session):
        async with session.request(method, url, **options) as answer:
            return await read(answer)

    return using(get)


# --- what it repeats by itself --------------------------------------------------------------------


@pytest.mark.parametrize(("method", "requests"), [("GET", 2), ("POST", 1)])
def test_an_idempotent_request_is_sent_twice_if_its_connection_is_lost(server, method, requests):
    """By aiohttp itself and at once, also on a new connection; the table names it."""
    check(
        getting(server.on("/", Close()), method=method),
        "ServerDisconnectedError",
        Kind.TRANSIENT,
        ambiguous=True,
    )
    assert server.count() == requests
    assert "once more" in table("aiohttp").retries


# --- what a table cannot know ---------------------------------------------------------------------


def test_a_total_timeout_is_pythons_own(server):
    """`ClientTimeout(total=...)` raises TimeoutError; a POST that was sent is not sent again."""
    limit = aiohttp.ClientTimeout(total=SHORT)
    error, _ = failure(
        getting(server.on("/", Silence()), method="POST", timeout=limit), max_attempts=2
    )
    kind, is_ambiguous = judged(error)
    assert (type(error), kind) == (TimeoutError, Kind.TIMEOUT)
    if is_ambiguous:  # else it was cut while it was connecting
        wait_until(lambda: server.count("/"), "the request")
    assert server.count("/", "POST") <= 1


def test_a_rule_names_what_was_not_done(server):
    """What the cookbook has for a total timeout: connecting, throttled and overloaded alone."""
    rule = (aiohttp.ClientConnectorError, Kind.THROTTLED, Kind.OVERLOAD)
    for answer, requests in ((Close(), 1), (Status(503), 3), (Status(500), 1)):
        server.clear()
        url = server.on("/", answer)
        failure(getting(url, method="POST", raise_for_status=True), retry_on=rule)
        assert server.count("/", "POST") == requests
    _, calls = failure(getting(f"http://127.0.0.1:{dead_port()}/", method="POST"), retry_on=rule)
    assert calls == 3


# --- classes that the contract does not raise -----------------------------------------------------
# A client cannot be made to raise: base classes; UploadAbortedError, which is the result of a
# future; EofStream and payload.LookupError, which stay inside; WSHandshakeError, CleanupError and
# what web_protocol and web_runner have, which are of the server.


@pytest.mark.parametrize(
    ("status", "kind"),
    [(407, Kind.AUTH), (403, Kind.AUTH), (502, Kind.TRANSIENT), (503, Kind.OVERLOAD),
     (504, Kind.TIMEOUT), (400, Kind.PERMANENT)],
)  # fmt: skip
def test_a_tunnel_that_the_proxy_refuses_was_never_used(server, status, kind):
    """The answer to CONNECT decides, and no status of it is ambiguous."""
    server.on("orders.test:443", Status(status))
    post = getting("https://orders.test/", method="POST", proxy=server.url)
    check(post, "ClientHttpProxyError", kind)
    assert server.count(method="CONNECT") == server.count() == 1


def test_a_proxy_that_is_away_is_a_connection_that_was_not_made():
    """A dead port, one hop earlier."""
    proxy = f"http://127.0.0.1:{dead_port()}"
    check(getting("http://orders.test/", proxy=proxy), "ClientProxyConnectionError", Kind.TRANSIENT)


def test_a_unix_socket_without_a_server_is_one_that_was_not_made(tmp_path):
    """The file is there again when the server is."""

    async def get():
        connector = aiohttp.UnixConnector(str(tmp_path / "none"))
        async with aiohttp.ClientSession(connector=connector) as session:
            await session.get("http://localhost/")

    check(get, "UnixClientConnectorError", Kind.TRANSIENT)


def test_another_certificate_than_the_expected_is_final(tls_server):
    """A fingerprint is pinned on purpose."""
    get = getting(tls_server.url, ssl=aiohttp.Fingerprint(bytes(32)))

    async def get_and_wait():
        try:
            await get()
        finally:
            await asyncio.sleep(0.05)  # aiohttp does not wait for the end of the connection

    check(get_and_wait, "ServerFingerprintMismatch", Kind.PERMANENT)


def test_tls_that_ends_after_sending_is_ambiguous(tls_server, certificate):
    """The request was sent."""
    trusting = ssl.create_default_context(cafile=certificate / "cert.pem")
    post = getting(tls_server.on("/", Close()), method="POST", ssl=trusting)
    error, calls = failure(post)
    assert (judged(error), calls) == ((Kind.TRANSIENT, True), 1)
    assert tls_server.count("/", "POST") == 1


@pytest.mark.parametrize(
    ("status", "kind", "ambiguous"), [(200, Kind.PERMANENT, True), (503, Kind.OVERLOAD, False)]
)
def test_a_page_instead_of_json_is_judged_by_its_status(server, status, kind, ambiguous):
    """The page of an overloaded proxy is no JSON either, and is worth another request."""
    url = server.on("/", Status(status, {"Content-Type": "text/html"}, b"<html>"))
    get = getting(url, aiohttp.ClientResponse.json)
    check(get, "ContentTypeError", kind, ambiguous=ambiguous)


@pytest.mark.parametrize(("status", "kind"), [(101, Kind.PERMANENT), (503, Kind.OVERLOAD)])
def test_a_websocket_that_is_refused_is_judged_by_the_status(server, status, kind):
    """101 without the headers of a WebSocket is no overload."""
    url = server.on("/", Status(status))
    check(using(lambda session: session.ws_connect(url)), "WSServerHandshakeError", kind)


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("ftp://127.0.0.1/", "NonHttpUrlRedirectClientError"),
        ("http://[::1/", "InvalidUrlRedirectClientError"),
    ],
)
def test_a_redirect_to_nowhere_is_final(server, location, name):
    """The server would send the same again."""
    check(getting(server.on("/", Status(302, {"Location": location}))), name, Kind.PERMANENT)


def test_a_chunk_without_a_length_is_no_http(server):
    """Aiohttp gives it the status 400, which nobody has sent."""
    url = server.on("/", Raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab"))
    check(getting(url), "ClientResponseError", Kind.TRANSIENT, ambiguous=True)


async def _read_in_parts(answer):
    return [part async for part in answer.content.iter_chunked(10)]


@pytest.mark.parametrize(
    ("method", "headers", "requests"),
    [("GET", {}, 3), ("POST", {}, 1), ("POST", {"Idempotency-Key": "a"}, 3)],
)
def test_half_an_answer_that_is_read_in_parts_is_of_its_request(server, method, headers, requests):
    """The stream has no request; the answer that it is the content of does."""
    url = server.on("/parts", CUT)
    error, _ = failure(getting(url, _read_in_parts, method, headers=headers))
    assert type(error).__name__ == "ClientPayloadError"
    assert server.count("/parts", method) == requests


async def _read_late(answer):
    answer.close()
    return await answer.read()


def test_an_answer_that_was_closed_is_a_mistake(server):
    """It cannot be read any more."""
    url = server.on("/", Status(200, body=bytes(2**20)))
    check(getting(url, _read_late), "ClientConnectionError", Kind.PERMANENT)


def test_a_body_that_cannot_be_made_is_judged_by_its_reason(server):
    """What a generator of the caller raised is inside; part of the request was sent."""

    async def body():
        yield b"half"
        raise LookupError("no more")

    url = server.on("/", Status(200))
    post = getting(url, method="POST", data=body())
    check(post, "ClientConnectionError", Kind.PERMANENT, ambiguous=True)


def test_frames_of_a_websocket():
    """A message of another type than was asked for, and sending after the end."""

    async def handler(request):
        wire = web.WebSocketResponse()
        await wire.prepare(request)
        await wire.send_bytes(b"no text")
        await wire.close()
        return wire

    async def talk(act):
        app = web.Application()
        app.router.add_get("/", handler)
        runner = web.AppRunner(app)
        await runner.setup()
        listener = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(runner, listener).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        try:
            async with aiohttp.ClientSession() as session, session.ws_connect(url) as wire:
                await act(wire)
        finally:
            await runner.cleanup()

    async def receive():
        await talk(lambda wire: wire.receive_str())

    async def send_after_the_end():
        async def act(wire):
            while not wire.closed:
                await wire.receive()
            await wire.send_str("late")

        await talk(act)

    check(receive, "WSMessageTypeError", Kind.PERMANENT)
    check(send_after_the_end, "ClientConnectionResetError", Kind.TRANSIENT, ambiguous=True)


@pytest.mark.parametrize(("number", "kind"), [(4, Kind.PERMANENT), (12, Kind.TRANSIENT)])
def test_names_that_aiodns_resolves(number, kind):
    """Aiohttp wraps the errors of aiodns, if it is installed; raised here, in its shape."""
    error_class = type("DNSError", (Exception,), {"__module__": "aiodns.error"})
    wrapped = OSError(None, "DNS lookup failed")
    wrapped.__cause__ = error_class(number, "planted")
    assert judged(aiohttp.ClientConnectorDNSError(None, wrapped)) == (kind, False)


def test_answers_of_its_own_server_have_their_status():
    """An exception that a handler raises is an answer, and is judged by its status."""
    assert judged(web.HTTPServiceUnavailable()) == (Kind.OVERLOAD, False)
    assert judged(web.HTTPNotFound()) == (Kind.PERMANENT, False)
    assert judged(web.HTTPFound("/")) == (Kind.UNKNOWN, False)
