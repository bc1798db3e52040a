"""httpx and httpx2, which is its successor, with the pool below each: rows one by one.

No server can provoke these: WriteError, which httpcore passes over to read an answer that was sent
before; CloseError, which httpx 0.28 maps from nothing; ConnectionNotAvailable, which stays inside
httpcore.
"""

import ssl
from types import SimpleNamespace

import httpcore
import httpcore2
import httpx
import httpx2
import pytest

from tests.integrations.errors.http_contract import SHORT, deaf_port
from tests.integrations.errors.raw_server import scripted
from tests.integrations.errors.rows import comes_to, leaving_open
from tests.servers.http_faults import (
    Close,
    HttpFaults,
    Reset,
    Silence,
    Status,
    dead_port,
    full_port,
)

TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""One for all: a context of its own reads the certificates of the system again for each client."""
BOTH = {
    "httpx": SimpleNamespace(x=httpx, core=httpcore),
    "httpx2": SimpleNamespace(x=httpx2, core=httpcore2),
}


@pytest.fixture(scope="module")
def web():
    with HttpFaults() as server:
        server.on("/", Status(200, body=b"page"))
        server.on("/reset", Reset())
        server.on("/close", Close())
        server.on("/silence", Silence())
        server.on("/gzip", Status(200, {"Content-Encoding": "gzip"}, b"no gzip"))
        server.on("/digest", Status(401, {"WWW-Authenticate": 'Digest nonce="n"'}))
        server.on("/again", Status(302, {"Location": "/again"}))
        for status in (*range(400, 431), *range(500, 511), 304):
            server.on(f"/{status}", Status(status))
            server.on(f"s{status}.test:443", Status(status))
        yield server


@pytest.fixture(params=BOTH)
def lib(request):
    return BOTH[request.param]


def name_of(lib):
    return lib.x.__name__


def client(lib, **options):
    return lib.x.Client(**{"timeout": 30, "trust_env": False, "verify": TLS} | options)


STATUSES = {str(each): each for each in (401, 403, 407, 408, 425, 429, 500, 502, 503, 504)}
STATUSES |= {"4*": 418, "5*": 505}


@pytest.mark.parametrize("case", [*STATUSES, "otherwise"])
def test_statuses(web, lib, case):
    """`raise_for_status` raises for a redirect as well."""
    status = STATUSES.get(case, 304)
    row = f"{name_of(lib)}.HTTPStatusError " + (case if case == "otherwise" else f"status {case}")
    with client(lib) as made:
        comes_to(row, made.get(f"{web.url}/{status}").raise_for_status)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 400])
def test_proxies(web, lib, status):
    """The answer to CONNECT decides."""
    case = "otherwise" if status == 400 else f"status {status}"
    with client(lib, proxy=web.url) as made:
        send = made.get
        comes_to(
            f"{name_of(lib)}.ProxyError {case}" if status != 400 else "ProxyError status 4*",
            lambda: send(f"https://s{status}.test/"),
        )


LOGIN = b"\x05\x02"
REFUSED = {
    "code Invalid username/password*": (LOGIN, b"\x01\x01"),
    "code Requested *": (b"\x05\xff",),
    "code Connection not allowed*": (LOGIN, b"\x01\x00", 2),
    "code Command not supported*": (LOGIN, b"\x01\x00", 7),
    "code Address type not supported*": (LOGIN, b"\x01\x00", 8),
    "otherwise": (LOGIN, b"\x01\x00", 4),
}
"""What a proxy of SOCKS answers: how to log in, whether that is right, and a code of RFC 1928."""


@pytest.mark.parametrize("case", REFUSED)
def test_proxies_of_socks(lib, case):
    """Its answers, and those of the pool by itself."""
    replies = [
        each if isinstance(each, bytes) else bytes([5, each, 0, 1, *[0] * 6])
        for each in REFUSED[case]
    ]
    with leaving_open(), scripted(*replies) as port:
        with client(lib, proxy=f"socks5://ann:secret@127.0.0.1:{port}") as made:
            comes_to(f"{name_of(lib)}.ProxyError {case}", lambda: made.get("http://shop.test/"))
        login = {"proxy_auth": (b"ann", b"secret")}
        with lib.core.SOCKSProxy(f"socks5://127.0.0.1:{port}", **login) as pool:
            comes_to(f"ProxyError {case}", lambda: pool.request("GET", "http://shop.test/"))


def streamed(made, url, times=0):
    with made.stream("GET", url) as answer:
        for _ in range(times):
            list(answer.iter_raw())
    return answer


def two_cookies(lib):
    cookies = lib.x.Cookies()
    cookies.set("a", "1", path="/x")
    cookies.set("a", "2", path="/y")
    return cookies.get("a")


CALLS = {
    "ReadError": lambda lib, c, url: c.get(f"{url}/reset"),
    "RemoteProtocolError": lambda lib, c, url: c.get(f"{url}/close"),
    "ReadTimeout": lambda lib, c, url: c.get(f"{url}/silence", timeout=SHORT),
    "DecodingError": lambda lib, c, url: c.get(f"{url}/gzip"),
    "TooManyRedirects": lambda lib, c, url: c.get(f"{url}/again", follow_redirects=True),
    "ConnectError otherwise": lambda lib, c, url: c.get(f"http://127.0.0.1:{dead_port()}"),
    "LocalProtocolError": lambda lib, c, url: c.get(url, headers={"X-Bad": "a\nb"}),
    "UnsupportedProtocol": lambda lib, c, url: c.get("ftp://127.0.0.1/"),
    "InvalidURL": lambda lib, c, url: c.get("http://[::1/"),
    "ResponseNotRead": lambda lib, c, url: streamed(c, url).content,
    "StreamConsumed": lambda lib, c, url: streamed(c, url, times=2),
    "StreamClosed": lambda lib, c, url: streamed(c, url).read(),
    "RequestNotRead": lambda lib, c, url: lib.x.Request("POST", url, content=iter([])).content,
    "ProtocolError": lambda lib, c, url: c.get(f"{url}/digest", auth=lib.x.DigestAuth("a", "b")),
    "CookieConflict": lambda lib, c, url: two_cookies(lib),
}


@pytest.mark.parametrize("row", CALLS)
def test_calls(web, lib, row):
    """Of the server's doing, and of the caller's."""
    with client(lib) as made:
        comes_to(f"{name_of(lib)}.{row}", lambda: CALLS[row](lib, made, web.url))


def test_timeouts(web, lib):
    """Before a connection is made, before it is free, while the body is sent."""
    name = name_of(lib)
    with full_port() as port, client(lib, timeout=SHORT) as made:
        comes_to(f"{name}.ConnectTimeout", lambda: made.get(f"http://127.0.0.1:{port}/"))
    limits = lib.x.Limits(max_connections=1)
    patient = lib.x.Timeout(30, pool=SHORT)
    with client(lib, limits=limits, timeout=patient) as made, made.stream("GET", web.url):
        comes_to(f"{name}.PoolTimeout", lambda: made.get(web.url))
    with deaf_port() as port, client(lib, timeout=SHORT) as made:
        url = f"http://127.0.0.1:{port}/"
        comes_to(f"{name}.WriteTimeout", lambda: made.post(url, content=bytes(2**24)))


def test_events_of_httpx2(web):
    """An answer that is no stream of events."""
    with client(BOTH["httpx2"]) as made, made.stream("GET", web.url) as answer:
        comes_to("httpx2.SSEError", lambda: list(httpx2.EventSource(answer)))


def test_the_pool_by_itself(web, lib):
    """Httpcore without httpx."""
    core = lib.core.__name__
    limit = {"timeout": {"connect": SHORT, "read": SHORT, "write": SHORT, "pool": SHORT}}

    def send(path, **options):
        return lambda: lib.core.request("GET", path, **options)

    comes_to(f"{core}.ReadError", send(f"{web.url}/reset"))
    comes_to(f"{core}.RemoteProtocolError", send(f"{web.url}/close"))
    comes_to(f"{core}.ReadTimeout", send(f"{web.url}/silence", extensions=limit))
    comes_to(f"{core}.UnsupportedProtocol", send("ftp://x/"))
    comes_to(f"{core}.LocalProtocolError", send(web.url, headers=[(b"X-Bad", b"a\nb")]))
    comes_to(f"{core}.ConnectError otherwise", send(f"http://127.0.0.1:{dead_port()}/"))
    with full_port() as port:
        comes_to(f"{core}.ConnectTimeout", send(f"http://127.0.0.1:{port}/", extensions=limit))
    with deaf_port() as port:
        big = {"content": bytes(2**24), "extensions": limit}
        comes_to(f"{core}.WriteTimeout", send(f"http://127.0.0.1:{port}/", **big))
    with (
        lib.core.ConnectionPool(max_connections=1) as pool,
        pool.stream("GET", web.url),
    ):
        comes_to(f"{core}.PoolTimeout", lambda: pool.request("GET", web.url, extensions=limit))
