"""aiohttp: rows that the other tests do not come to, of its client and of its server."""

import asyncio
import contextlib
import gzip
import socket

import aiohttp
import aiohttp.compression_utils
import pytest
from aiohttp import web

from tests.integrations.errors.rows import comes_to
from tests.servers.http_faults import HttpFaults, Raw, Status, dead_port
from tools.provoked import handed

MANY = gzip.compress(b"x") * (aiohttp.compression_utils.MAX_DECOMPRESS_MEMBERS + 1)
PARTS = b"--b\r\nContent-Encoding: gzip\r\n\r\n" + MANY + b"\r\n--b--\r\n"
NO_PART = b"--b\r\nno header at all\r\n\r\nx\r\n--b--\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def faults():
    with HttpFaults() as server:
        server.on("/", Status(200, body=b"page"))
        server.on("/307", Status(307, {"Location": "/"}))
        server.on("/cut", Raw(CHUNKED + b"9\r\nhalf"))
        server.on("/bad", Raw(CHUNKED + b"4\r\npage\r\nnonsense\r\n"))
        parts = {"Content-Type": "multipart/mixed; boundary=b"}
        server.on("/parts", Status(200, parts, PARTS))
        server.on("/no-part", Status(200, parts, NO_PART))
        yield server


async def sent(url, method="GET", read=aiohttp.ClientResponse.read, **options):
    async with aiohttp.ClientSession() as session, session.request(method, url, **options) as got:
        await read(got)


async def body():
    yield b"once"


async def decoded(answer):
    async for part in aiohttp.MultipartReader.from_response(answer):
        await part.read(decode=True)


async def not_uploaded(_url):
    """What the tracker of an upload has, after nobody was there to take it."""
    tracker = aiohttp.UploadTracker()
    with contextlib.suppress(aiohttp.ClientConnectorError):
        await sent(f"http://127.0.0.1:{dead_port()}/", "POST", data=b"x", upload_tracker=tracker)
    await tracker.upload_complete


CALLS = {
    "client_exceptions.ClientPayloadError text Cannot follow redirect*": lambda url: sent(
        f"{url}/307", "POST", data=body()
    ),
    "client_exceptions.ClientPayloadError wraps": lambda url: sent(f"{url}/cut"),
    "client_exceptions.ClientResponseError cause parser": lambda url: sent(f"{url}/bad"),
    "client_exceptions.UploadAbortedError": not_uploaded,
    "client_exceptions.InvalidURL": lambda url: sent(url, proxy="http://[::1"),
    "http_exceptions.*": lambda url: sent(f"{url}/no-part", read=decoded),
    "compression_utils.TooManyMembersError": lambda url: sent(f"{url}/parts", read=decoded),
}


@pytest.mark.parametrize("row", CALLS)
def test_calls(faults, row):
    """Of the server's doing, and of the caller's."""
    comes_to(f"aiohttp.{row}", lambda: CALLS[row](faults.url))


# --- aiohttp on both sides ------------------------------------------------------------------------


async def served(act, handler=None, middlewares=()):
    """Does something with a session and the address of a server of aiohttp's own."""
    app = web.Application(middlewares=middlewares)
    app.router.add_get("/", handler or page)
    app.router.add_get("/folder/", page)
    runner = web.AppRunner(app)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listener).start()
    try:
        async with aiohttp.ClientSession() as session:
            await act(session, f"http://127.0.0.1:{listener.getsockname()[1]}")
    finally:
        await runner.cleanup()


async def page(_request):
    return web.Response()


async def deaf(request):
    """A WebSocket that does not answer a ping."""
    wire = web.WebSocketResponse(autoping=False)
    await wire.prepare(request)
    async for _ in wire:
        pass
    return wire


async def broken(request):
    """One that sends a frame of a kind that there is not."""
    wire = web.WebSocketResponse()
    await wire.prepare(request)
    request.transport.write(b"\x83\x00")
    async for _ in wire:
        pass
    return wire


def received(handler, **options):
    """The failure that the next message of a WebSocket is."""

    async def act(session, url):
        async with session.ws_connect(url, **options) as wire:
            message = await asyncio.wait_for(wire.receive(), 60)
        raise handed(message.data)

    return served(act, handler)


async def redirected():
    """The answer that a middleware of aiohttp raises."""
    found = []

    @web.middleware
    async def note(request, handler):
        try:
            return await handler(request)
        except web.HTTPException as answer:
            found.append(answer)
            raise

    async def act(session, url):
        async with session.get(f"{url}/folder", allow_redirects=False):
            pass

    await served(act, middlewares=[note, web.normalize_path_middleware()])
    raise found[0]


BOTH = {
    "client_exceptions.ServerTimeoutError otherwise": lambda: received(deaf, heartbeat=0.02),
    "_websocket.models.WebSocketError": lambda: received(broken),
    "web_exceptions.* otherwise": redirected,
}


@pytest.mark.parametrize("row", BOTH)
def test_both_sides(row):
    """Its WebSocket, and an answer of its server."""
    comes_to(f"aiohttp.{row}", BOTH[row])
