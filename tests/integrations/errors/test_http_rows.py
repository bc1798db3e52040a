"""aiohttp, urllib3, requests, smtplib and gRPC: rows that the other tests do not come to."""

import asyncio
import contextlib
import io
import smtplib
import socket
import ssl
import threading

import aiohttp
import aiohttp._websocket.helpers
import aiohttp.compression_utils
import aiohttp.http_exceptions
import aiohttp.payload
import aiohttp.web
import grpc.aio
import grpc.experimental
import pytest
import urllib3
import urllib3.connection
import urllib3.util.response
import urllib3.util.ssl_
import urllib3.util.ssl_match_hostname

from tests.integrations.errors.rows import comes_to
from tests.servers.http_faults import HttpFaults, Raw, Silence, Status

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def web():
    with HttpFaults() as server:
        server.on("/", Status(200, body=b"page"))
        server.on("/304", Status(304))
        server.on("/401", Status(401, {"WWW-Authenticate": 'Digest nonce="n"'}))
        server.on("/302", Status(302))
        server.on("/silence", Silence())
        server.on("/chunk", Raw(CHUNKED + b"nonsense\r\n"))
        server.on("/cut", Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"))
        server.on("s500.test:443", Status(500))
        server.on("s400.test:443", Status(400))
        server.on("s305.test:443", Status(305))
        yield server


# --- aiohttp --------------------------------------------------------------------------------------


async def by_aiohttp(url, **options):
    async with aiohttp.ClientSession() as session, session.get(url, **options) as answered:
        answered.raise_for_status()
        await answered.read()


async def digest(web):
    """A challenge without a realm."""
    middleware = aiohttp.DigestAuthMiddleware("me", "secret")
    async with aiohttp.ClientSession(middlewares=[middleware]) as session:
        await session.get(f"{web.url}/401")


async def cleaned(_web):
    app = aiohttp.web.Application()

    async def broken(_app):
        yield
        raise OSError("first")

    async def broken_too(_app):
        yield
        raise OSError("second")

    app.cleanup_ctx.extend([broken, broken_too])
    app.freeze()
    await app.startup()
    await app.cleanup()


AIOHTTP = {
    "ClientError": digest,
    "ClientHttpProxyError status 500": lambda web: by_aiohttp("https://s500.test/", proxy=web.url),
    "ClientHttpProxyError otherwise": lambda web: by_aiohttp("https://s305.test/", proxy=web.url),
    "aiohttp._websocket.models.WSHandshakeError": lambda _: aiohttp._websocket.helpers.ws_ext_parse(
        "permessage-deflate; client_max_window_bits=7"
    ),
    "aiohttp.payload.LookupError": lambda _: aiohttp.payload.get_payload(object()),
    "aiohttp.web_app.CleanupError": cleaned,
}


@pytest.mark.parametrize("row", AIOHTTP)
def test_aiohttp(web, row):
    """The client, and what it shares with the server."""
    full = row if row.startswith("aiohttp") else f"aiohttp.client_exceptions.{row}"
    comes_to(full, lambda: AIOHTTP[row](web))


# --- urllib3 and requests -------------------------------------------------------------------------


def full_pool(web):
    """More connections come back than a pool that blocks may keep."""
    with urllib3.HTTPConnectionPool("127.0.0.1", web.port, maxsize=1, block=True) as made:
        taken = made._get_conn()
        made._put_conn(taken)
        made._put_conn(urllib3.connection.HTTPConnection("127.0.0.1", web.port))


def proxied(web, name):
    with urllib3.ProxyManager(web.url, retries=False, timeout=30) as made:
        made.request("GET", f"https://{name}.test/")


URLLIB3 = {
    "urllib3.exceptions.FullPoolError": full_pool,
    "urllib3.exceptions.BodyNotHttplibCompatible": lambda _: list(
        urllib3.HTTPResponse(io.BytesIO(), headers={"transfer-encoding": "chunked"}).read_chunked()
    ),
    "urllib3.exceptions.HeaderParsingError": lambda _: urllib3.util.response.assert_header_parsing(
        broken_headers()
    ),
    "urllib3.util.ssl_match_hostname.CertificateError": lambda _: (
        urllib3.util.ssl_match_hostname.match_hostname(
            {"subjectAltName": (("DNS", "other.test"),)}, "shop.test"
        )
    ),
    "urllib3.exceptions.ProxyError status 500": lambda web: proxied(web, "s500"),
}


def checked(url, tls, **options):
    with urllib3.PoolManager(ssl_context=tls, retries=False, timeout=30, **options) as made:
        made.request("GET", url)


class WithoutBio(ssl.SSLContext):
    """A context that makes no TLS inside of TLS, as those of pyOpenSSL."""

    @property
    def wrap_bio(self):
        raise AttributeError("wrap_bio")


def tunnel(url, tls):
    """A proxy that speaks TLS, to a server that does."""
    options = {"proxy_ssl_context": tls, "ssl_context": WithoutBio(ssl.PROTOCOL_TLS_CLIENT)}
    with urllib3.ProxyManager(url, retries=False, timeout=30, **options) as made:
        made.request("GET", "https://s200.test/")


REFUSED = {
    "SSLError cause Fingerprints did not match*": lambda url, tls, _: checked(
        url, tls, assert_fingerprint="00" * 32
    ),
    "SSLError cause Fingerprint of invalid length*": lambda url, tls, _: checked(
        url, tls, assert_fingerprint="00"
    ),
    "SSLError cause Client private key is encrypted*": lambda url, tls, key: checked(
        url, tls, key_file=key
    ),
    "ProxySchemeUnsupported": lambda url, tls, _: tunnel(url, tls),
}


@pytest.mark.parametrize("row", REFUSED)
def test_tls_that_urllib3_refuses(tls_server, certificate, tmp_path, row):
    """The certificate of the server, or the settings of the caller."""
    tls_server.on("s200.test:443", Status(200))
    trusting = ssl.create_default_context(cafile=certificate / "cert.pem")
    key = tmp_path / "key.pem"
    key.write_text("Proc-Type: 4,ENCRYPTED\n", encoding="ascii")
    comes_to(f"urllib3.exceptions.{row}", lambda: REFUSED[row](tls_server.url, trusting, str(key)))


def broken_headers():
    import http.client

    return http.client.parse_headers(io.BytesIO(b"A: 1\r\nno header at all\r\nB: 2\r\n\r\n"))


@pytest.mark.parametrize("row", URLLIB3)
def test_urllib3(web, row):
    """By itself."""
    comes_to(row, lambda: URLLIB3[row](web))


# --- smtplib --------------------------------------------------------------------------------------


@contextlib.contextmanager
def mail(**replies):
    """A server that greets with 220, and answers each word of the client with a line."""

    def serve():
        with contextlib.suppress(OSError):
            wire, _ = listener.accept()
            with wire, wire.makefile("rb") as reader:
                wire.sendall(f"{replies.get('greeting', '220 ready')}\r\n".encode())
                for line in reader:
                    word = line.split()[0].decode().lower()
                    wire.sendall(f"{replies.get(word, '250 fine')}\r\n".encode())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]


def send(**replies):
    with mail(**replies) as port:
        client = smtplib.SMTP("127.0.0.1", port, timeout=30)
        try:
            client.sendmail("a@x.test", ["b@x.test"], "m")
        finally:
            client.close()


SMTP = {
    "SMTPConnectError otherwise": {"greeting": "199 odd"},
    "SMTPSenderRefused otherwise": {"mail": "399 odd"},
    "SMTPRecipientsRefused otherwise": {"rcpt": "399 odd"},
    "SMTPDataError otherwise": {"data": "399 odd"},
    "SMTPSenderRefused code 534": {"mail": "534 x"},
    "SMTPSenderRefused code 535": {"mail": "535 x"},
}


@pytest.mark.parametrize("row", SMTP)
def test_smtp(row):
    """A reply that the server should not give there."""
    comes_to(f"smtplib.{row}", lambda: send(**SMTP[row]))


# --- gRPC -----------------------------------------------------------------------------------------


async def used_twice():
    """A call whose answers are read in two ways."""
    channel = grpc.aio.insecure_channel("127.0.0.1:1")
    call = channel.unary_stream("/t.T/x")(b"")
    try:
        call.__aiter__()
        await call.read()
    finally:
        call.cancel()
        await channel.close()


def asked_too_early():
    """A call without a thread of its own, which cannot wait for what has not come."""
    options = [(grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1)]
    with grpc.insecure_channel("127.0.0.1:1", options) as channel:
        channel.unary_stream("/t.T/x")(b"").result()


async def aborted():
    """What a handler that aborts its call gets; its client may have the status before that."""
    found = asyncio.get_running_loop().create_future()

    async def handle(_request, context):
        try:
            await context.abort(grpc.StatusCode.ABORTED, "as asked")
        except grpc.aio.AbortError as error:
            found.set_result(error)
            raise

    handlers = {"x": grpc.unary_unary_rpc_method_handler(handle)}
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("t.T", handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await channel.unary_unary("/t.T/x")(b"", wait_for_ready=True)
            error = await asyncio.wait_for(found, 60.0)
    finally:
        await server.stop(None)
    raise error


GRPC = {
    "grpc._cython.cygrpc.UsageError": used_twice,
    "grpc.experimental.UsageError": asked_too_early,
    "grpc._cython.cygrpc.AbortError": aborted,
}


@pytest.mark.parametrize("row", GRPC)
def test_grpc(row):
    """A mistake in the call, and a handler of its server."""
    comes_to(row, GRPC[row])
