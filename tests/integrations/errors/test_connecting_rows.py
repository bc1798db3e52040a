"""Name lookups and TLS as every client meets them, each provoked through the real client.

A raw server answers the first message of a handshake with bytes; a name server on loopback, or the
scripted resolver, answers a lookup.
"""

import contextlib
import gc
import socket
import ssl
import threading
import warnings

import aiohttp
import httpx
import httpx2
import pytest
import urllib3

from mainstay.core.retry.kinds import kind_of
from tests.integrations.errors import name_server
from tests.integrations.errors.raw_server import RawServer
from tests.integrations.errors.rows import comes_to, raised_by, row_of
from tests.servers.certificate import server_side

ALERT, HELLO = b"\x15\x03\x03\x00\x02", b"\x16\x03\x01"


def alert(number, level=2):
    """An alert of TLS, by its number in RFC 8446, section 6."""
    return ALERT + bytes([level, number])


def old_hello():
    """The hello of a server that speaks TLS 1.0 at most."""
    body = b"\x03\x01" + bytes(32) + b"\x00" + b"\x00\x2f" + b"\x00"
    message = b"\x02" + len(body).to_bytes(3, "big") + body
    return HELLO + len(message).to_bytes(2, "big") + message


@pytest.fixture(scope="module")
def raw():
    server = RawServer()
    yield server
    server.close()


def context(**options):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    for name, value in options.items():
        setattr(made, name, value)
    return made


def by_httpx(url, tls):
    with httpx.Client(verify=tls, timeout=30) as client:
        client.get(url)


def by_httpx2(url, tls):
    with httpx2.Client(verify=tls, timeout=30) as client:
        client.get(url)


def by_urllib3(url, tls):
    with urllib3.PoolManager(ssl_context=tls, timeout=30, retries=False) as pool:
        pool.request("GET", url)


async def by_aiohttp(url, tls):
    async with aiohttp.ClientSession() as session:
        await session.get(url, ssl=tls)


CLIENTS = {"httpx": by_httpx, "httpx2": by_httpx2, "urllib3": by_urllib3, "aiohttp": by_aiohttp}
NEW_ALONE = {"minimum_version": ssl.TLSVersion.TLSv1_3, "maximum_version": ssl.TLSVersion.TLSv1_2}
NO_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"}
"""What versions of OpenSSL call an answer that is none of TLS."""
CAUSES = {
    "SSLZeroReturnError": (alert(0, level=1), {}),
    "SSLEOFError": (b"", {}),
    "WRONG_VERSION_NUMBER": (b"SSH-2.0-x\r\n", {}),
    "HTTP_REQUEST": (b"GET / HTTP/1.1\r\n\r\n", {}),
    "UNSUPPORTED_PROTOCOL": (old_hello(), {}),
    "NO_PROTOCOLS_AVAILABLE": (b"", NEW_ALONE),
    "TLSV1_ALERT_*": (alert(70), {}),
    "TLSV13_ALERT_*": (alert(116), {}),
    "SSLV3_ALERT_*": (alert(40), {}),
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("cause", CAUSES)
def test_tls_that_fails(raw, client, cause):
    """What OpenSSL gives as the reason decides, in the exception of whichever client."""
    raw.reply, options = CAUSES[cause]
    error = raised_by(lambda: CLIENTS[client](f"https://127.0.0.1:{raw.port}/", context(**options)))
    name, _ = row_of(error)
    if (client, cause) != ("aiohttp", "SSLEOFError"):  # asyncio makes a reset of it
        causes = NO_TLS if cause in NO_TLS else {cause}
        assert name.rpartition(" cause ")[2] in causes, (name, error)
    assert name.startswith(client)
    del error
    if client == "aiohttp":
        collect()


UNNAMED = {"urllib3": "SSLError otherwise", "aiohttp": "ClientConnectorSSLError otherwise"}


@pytest.mark.parametrize("client", UNNAMED)
def test_a_reason_of_openssl_that_no_table_has(raw, client):
    """The alert that an extension is not supported, which OpenSSL does not name an alert."""
    raw.reply = alert(110)
    url = f"https://127.0.0.1:{raw.port}/"
    comes_to(UNNAMED[client], lambda: CLIENTS[client](url, context()))
    if client == "aiohttp":
        collect()


def collect():
    """Asyncio leaves the transport of a handshake that failed open."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_certificate_that_is_not_trusted(tls_server, client):
    """Each verifies it."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    error = raised_by(lambda: CLIENTS[client](tls_server.url, trusting))
    names = ("cause SSLCertVerificationError", "ClientConnectorCertificateError")
    assert row_of(error)[0].endswith(names), error


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("number", ["EAI_AGAIN", "EAI_NONAME", "EAI_NODATA", "EAI_FAIL"])
def test_a_name_that_is_not_found(monkeypatch, client, number):
    """The real client asks, and the answer of the resolver is scripted."""

    def refused(*_, **__):
        raise socket.gaierror(getattr(socket, number), "as asked")

    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", refused)
        error = raised_by(lambda: CLIENTS[client]("http://shop.example/", context()))
    name, line = row_of(error)
    assert name.endswith(f" cause {number}"), (name, error)
    assert not line.row.ambiguous


# --- the modules of the standard library ----------------------------------------------------------


def handshake(port, tls):
    with socket.create_connection(("127.0.0.1", port)) as wire, tls.wrap_socket(wire):
        pass


REASONS = {
    "SSLError reason HTTP_REQUEST": (b"GET / HTTP/1.1\r\n\r\n", {}),
    "SSLError reason HTTPS_PROXY_REQUEST": (b"CONNECT a:1 HTTP/1.1\r\n\r\n", {}),
    "SSLError reason UNSUPPORTED_PROTOCOL": (old_hello(), {}),
    "SSLError reason NO_PROTOCOLS_AVAILABLE": (b"", NEW_ALONE),
    "SSLError reason TLSV1_UNRECOGNIZED_NAME": (alert(112), {}),
    "SSLZeroReturnError": (alert(0, level=1), {}),
}


if ssl.OPENSSL_VERSION_INFO < (3, 2):  # newer ones make a failure of the record layer of it
    REASONS["SSLError otherwise"] = (b"\x16\x03\x03\xff\xff" + bytes(100), {})


@pytest.mark.parametrize("row", REASONS)
def test_reasons_of_openssl(raw, row):
    """A handshake of the module `ssl`."""
    raw.reply, options = REASONS[row]
    comes_to(f"ssl.{row}", lambda: handshake(raw.port, context(**options)))


def test_a_handshake_that_does_not_block():
    """Nothing can be written as long as the buffers are full."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    made = context().wrap_bio(incoming, outgoing)
    comes_to("ssl.SSLWantReadError", made.do_handshake)


def test_a_socket_whose_buffers_are_full(certificate):
    """The other side does not read."""
    ours, theirs = socket.socketpair()
    server = server_side(certificate)

    def greet():
        with contextlib.suppress(OSError), server.wrap_socket(theirs, server_side=True) as made:
            done.wait(60)
            made.close()

    done = threading.Event()
    thread = threading.Thread(target=greet)
    thread.start()
    with context().wrap_socket(ours) as made:
        made.setblocking(False)
        comes_to("ssl.SSLWantWriteError", lambda: [made.send(bytes(2**16)) for _ in range(2**12)])
        done.set()
    thread.join()


def test_a_server_that_has_no_cipher_in_common(certificate):
    """Both ends are real."""
    ours, theirs = socket.socketpair()
    server = server_side(certificate)
    server.maximum_version = ssl.TLSVersion.TLSv1_2
    server.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")
    client = context(maximum_version=ssl.TLSVersion.TLSv1_2)
    client.set_ciphers("ECDHE-RSA-AES256-GCM-SHA384")

    def greet():
        with contextlib.suppress(OSError), ours, client.wrap_socket(ours):
            pass

    thread = threading.Thread(target=greet)
    thread.start()
    with theirs:
        comes_to(
            "ssl.SSLError reason NO_SHARED_CIPHER",
            lambda: server.wrap_socket(theirs, server_side=True),
        )
    thread.join()


LOOKUPS = {
    "socket.gaierror code EAI_NODATA": name_server.NOERROR,
    "socket.gaierror code EAI_AGAIN": name_server.SERVFAIL,
    "socket.gaierror code EAI_NONAME": name_server.NXDOMAIN,
}
ADDRESSES = {
    "socket.herror code 1": name_server.NXDOMAIN,
    "socket.herror code 2": name_server.SERVFAIL,
    "socket.herror code 3": name_server.FORMERR,
    "socket.herror code 4": name_server.NOERROR,
}


@pytest.mark.parametrize("row", LOOKUPS)
def test_a_name_server_that_refuses_a_name(row):
    """The real resolver asks a real name server."""
    error = name_server.refused(LOOKUPS[row], lambda: socket.getaddrinfo("shop.example", 80))
    assert row_of(error)[0] == row
    assert kind_of(error).table == "socket"


@pytest.mark.parametrize("row", ADDRESSES)
def test_a_name_server_that_refuses_an_address(row):
    """Of a network for documentation."""
    error = name_server.refused(ADDRESSES[row], lambda: socket.gethostbyaddr("192.0.2.1"))
    assert row_of(error)[0] == row
    assert kind_of(error).table == "socket"
