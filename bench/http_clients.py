"""Table 20: clients of HTTP with a transport, adapter or middleware of ours, against the bare ones.

The first attempt succeeds. The server is a process of its own that answers every request with the
same bytes; client and server share a core, as in the table `servers`, and the connection is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from importlib import import_module
from typing import Any

from bench.compare import duration, ratios
from bench.measure import Contender, Effort, Results, Timing, race, race_awaited, reason
from bench.table import Goal, Row, Table, at_most
from mainstay import RetryPolicy, deadline

Get = Callable[[], Awaitable[object]]
Opened = contextlib.AbstractAsyncContextManager[tuple[Get, Get]]

ORDER = 20
GOAL = at_most(1.03)
BARE, MINE, TIMED = "bare", "mainstay", "mainstay, with a deadline"
_OPENS = "opens a deadline for each request"
_SERVER = """
import socket, threading
def serve(wire):
    while data := wire.recv(65536):
        if data.endswith(b"\\r\\n\\r\\n"):
            wire.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
listener = socket.create_server(("127.0.0.1", 0), backlog=100)
print(listener.getsockname()[1], flush=True)
while True:
    wire, _ = listener.accept()
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=serve, args=[wire], daemon=True).start()
"""


def run(effort: Effort) -> Table:
    """Every client, sync and async."""
    rows: list[Row] = []
    with _one_core(), _server() as url:
        for name, measured in _CLIENTS.items():
            try:
                rows += measured(name, url, effort.scaled(0.5))
            except Exception as error:
                rows.append(Row(f"{name}: {MINE}", None, GOAL, note=reason(error)))
    method = (
        "Minima of single requests, interleaved: a GET of two bytes over loopback, client and"
        " server on one core."
    )
    return Table("http_clients", "Clients of HTTP, the first attempt succeeds", method, rows)


@contextlib.contextmanager
def _one_core() -> Iterator[None]:
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextlib.contextmanager
def _server() -> Iterator[str]:
    with subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/"
        finally:
            process.kill()


def _policy() -> RetryPolicy:
    return RetryPolicy(max_attempts=3)


def _timed(get: Callable[[], object]) -> Callable[[], object]:
    def call() -> object:
        with deadline.within(30.0):
            return get()

    return call


def _sync(name: str, effort: Effort, bare: Any, mine: Any) -> list[Row]:
    contenders = [
        Contender(BARE, lambda: (bare,), _once),
        Contender(MINE, lambda: (mine,), _once),
        Contender(TIMED, lambda: (_timed(mine),), _once),
    ]
    goals = {MINE: GOAL}
    return _rows(name, race(contenders, effort, goals), goals)


def _once(n: int, get: Callable[[], object]) -> None:
    """A batch is one call where the harness counts ten: what is short is not interrupted."""
    for _ in range(n):
        get()


async def _awaited_once(n: int, get: Get) -> None:
    for _ in range(n):
        await get()


def _rows(name: str, results: Results, goals: dict[str, Goal]) -> list[Row]:
    bare, *rest = ratios(results, BARE, goals, named=f"{name}: {{}}", notes={TIMED: _OPENS})
    timing = results[BARE]
    if isinstance(timing, Timing):
        bare = Row(bare.what, bare.value, note=f"{duration(timing.best * 10)} on this machine")
    return [bare, *rest]


def _async(name: str, effort: Effort, opened: Callable[[], Opened]) -> list[Row]:
    async def main() -> Results:
        async with opened() as (bare, mine):
            contenders = [
                Contender(BARE, lambda: (bare,), _awaited_once),
                Contender(MINE, lambda: (mine,), _awaited_once),
            ]
            return await race_awaited(contenders, effort, goals)

    goals = {MINE: GOAL} if name.startswith("httpx") else {}
    return _rows(name, asyncio.run(main()), goals)


def _httpx(name: str, url: str, effort: Effort) -> list[Row]:
    library, ours = _libraries(name)
    with library.Client() as bare, library.Client(transport=ours.Transport(_policy())) as mine:
        return _sync(name, effort, lambda: bare.get(url), lambda: mine.get(url))


def _libraries(name: str) -> tuple[Any, Any]:
    """httpx or httpx2, by the name of a row, and the integration for it."""
    library = name.partition(",")[0]
    return import_module(library), import_module(f"mainstay.integrations.{library}")


def _requests(name: str, url: str, effort: Effort) -> list[Row]:
    import requests

    from mainstay.integrations.requests import Adapter

    with requests.Session() as bare, requests.Session() as mine:
        bare.trust_env = mine.trust_env = False
        mine.mount("http://", Adapter(_policy()))
        return _sync(name, effort, lambda: bare.get(url), lambda: mine.get(url))


def _httpx_async(name: str, url: str, effort: Effort) -> list[Row]:
    library, ours = _libraries(name)

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[tuple[Get, Get]]:
        transport = ours.AsyncTransport(_policy())
        async with library.AsyncClient() as bare, library.AsyncClient(transport=transport) as mine:
            yield lambda: bare.get(url), lambda: mine.get(url)

    return _async(name, effort, opened)


def _aiohttp(name: str, url: str, effort: Effort) -> list[Row]:
    import aiohttp

    from mainstay.integrations.aiohttp import Middleware

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[tuple[Get, Get]]:
        hands = Middleware(_policy())
        async with (
            aiohttp.ClientSession() as bare,
            aiohttp.ClientSession(middlewares=[hands]) as mine,
        ):
            yield _page(bare, url), _page(mine, url)

    return _async(name, effort, opened)


def _page(session: Any, url: str) -> Get:
    async def get() -> object:
        async with session.get(url) as response:
            return await response.read()

    return get


_CLIENTS: dict[str, Callable[[str, str, Effort], list[Row]]] = {
    "httpx": _httpx,
    "httpx2": _httpx,
    "requests": _requests,
    "httpx, async": _httpx_async,
    "httpx2, async": _httpx_async,
    "aiohttp": _aiohttp,
}
