"""Table 21: by how much a client of HTTP passes its deadline, whatever the server does.

The server never answers, sends its headers a byte at a time, or its body: always within the timeout
that the client has for one read. Or its name is looked up for longer than the deadline.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

from bench.lateness import AT_ONCE, Began, beside_a_bare_wait
from bench.measure import Effort
from bench.table import Table
from mainstay import DeadlineExceeded, RetryPolicy, deadline

ORDER = 21
IS_LONG = True
DEADLINE, TIMEOUT = 0.2, 30.0
FAULTS = ("never answers", "slow headers", "slow body")
SLOW_NAME, LOOKUP = "slow.example", 0.6
_SERVER = """
import socket, threading, time
answer = b"HTTP/1.1 200 OK\\r\\nContent-Length: 100000\\r\\n\\r\\n"
def drip(wire, data):
    for number in range(len(data)):
        wire.sendall(data[number:number + 1])
        time.sleep(0.02)
def serve(wire):
    try:
        path = wire.recv(65536).split()[1]
        if path.startswith(b"/1"):
            drip(wire, answer)
        elif path.startswith(b"/2"):
            wire.sendall(answer)
            drip(wire, bytes(100000))
        wire.recv(1)
    except (OSError, IndexError):
        pass
    wire.close()
listener = socket.create_server(("127.0.0.1", 0), backlog=100)
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()
"""


def run(effort: Effort) -> Table:
    """Every client against every fault."""
    rounds = 10 if effort.is_quick else 100
    with _server() as url, beside_a_bare_wait(DEADLINE) as late:
        unknown = url.replace("127.0.0.1", SLOW_NAME)
        places = {fault: f"{url}/{number}" for number, fault in enumerate(FAULTS)}
        places["slow lookup"] = f"{unknown}/0"
        late.measure(
            {
                f"{client}: {fault}": partial(_measured, client, place, rounds)
                for client in _CLIENTS
                for fault, place in places.items()
            },
            ("aiohttp", "boto3", "httpx", "httpx2", "requests"),
        )
        rows = late.finish()
    method = (
        f"A deadline of {DEADLINE:g} s, a client whose own timeout is {TIMEOUT:g} s. The 99th"
        f" percentile of the time past the deadline, of {rounds} requests; {AT_ONCE} clients at"
        " once, each in a process of its own. Beside them another waits for as long, which shows"
        " what the machine adds."
    )
    return Table("http_deadlines", "Deadlines of HTTP clients", method, rows)


def _measured(client: str, url: str, rounds: int) -> list[float]:
    with _slow_lookup():
        return _CLIENTS[client](url, rounds)


@contextmanager
def _server() -> Iterator[str]:
    with subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


@contextmanager
def _slow_lookup() -> Iterator[None]:
    """A name that the system looks up slowly, and in vain."""
    plain: Any = socket.getaddrinfo

    def slow(host: Any, *rest: Any, **more: Any) -> Any:
        if host in (SLOW_NAME, SLOW_NAME.encode()):
            time.sleep(LOOKUP)
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return plain(host, *rest, **more)

    socket.getaddrinfo = slow
    try:
        yield
    finally:
        socket.getaddrinfo = plain


def _policy() -> RetryPolicy:
    return RetryPolicy(max_attempts=3)


def _sync(get: Callable[[], object], errors: Any, rounds: int) -> list[float]:
    late: list[float] = []
    for _ in range(rounds):
        began = Began()
        try:
            with deadline.within(DEADLINE):
                get()
        except (errors, DeadlineExceeded):
            late.append(began.past(DEADLINE))
        else:
            raise AssertionError("an answer that cannot have come")
    return late


def _httpx(name: str, url: str, rounds: int) -> list[float]:
    library, ours = import_module(name), import_module(f"mainstay.integrations.{name}")
    with library.Client(transport=ours.Transport(_policy()), timeout=TIMEOUT) as client:
        return _sync(lambda: client.get(url), library.HTTPError, rounds)


def _requests(url: str, rounds: int) -> list[float]:
    import requests

    from mainstay.integrations.requests import Adapter

    with requests.Session() as session:
        session.mount("http://", Adapter(_policy()))
        return _sync(lambda: session.get(url, timeout=TIMEOUT), requests.RequestException, rounds)


def _urllib3(url: str, rounds: int) -> list[float]:
    from urllib3.exceptions import HTTPError

    from mainstay.integrations.urllib3 import PoolManager

    with PoolManager(_policy(), timeout=TIMEOUT) as http:
        return _sync(lambda: http.request("GET", url), HTTPError, rounds)


def _boto3(url: str, rounds: int) -> list[float]:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    from mainstay.integrations.boto3 import attach

    server, _, number = url.rpartition("/")
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "eu-west-1"}
    config = Config(s3={"addressing_style": "path"}, read_timeout=TIMEOUT)
    plain: Any = boto3.client("s3", endpoint_url=server, config=config, **keys)
    client = attach(plain, _policy())
    return _sync(lambda: client.list_objects_v2(Bucket=number), BotoCoreError, rounds)


async def _async(get: Callable[[], Any], errors: Any, rounds: int) -> list[float]:
    late: list[float] = []
    for _ in range(rounds):
        began = Began()
        try:
            with deadline.within(DEADLINE):
                await get()
        except (errors, DeadlineExceeded):
            late.append(began.past(DEADLINE))
        else:
            raise AssertionError("an answer that cannot have come")
    return late


def _httpx_async(name: str, url: str, rounds: int) -> list[float]:
    library, ours = import_module(name), import_module(f"mainstay.integrations.{name}")

    async def main() -> list[float]:
        transport = ours.AsyncTransport(_policy())
        async with library.AsyncClient(transport=transport, timeout=TIMEOUT) as client:
            return await _async(lambda: client.get(url), library.HTTPError, rounds)

    return asyncio.run(main())


def _aiohttp(url: str, rounds: int) -> list[float]:
    import aiohttp

    from mainstay.integrations.aiohttp import Middleware

    async def main() -> list[float]:
        async with aiohttp.ClientSession(middlewares=[Middleware(_policy())]) as session:

            async def get() -> bytes:
                async with session.get(url) as response:
                    return await response.read()

            return await _async(get, aiohttp.ClientError, rounds)

    return asyncio.run(main())


_CLIENTS: dict[str, Callable[[str, int], list[float]]] = {
    "httpx": partial(_httpx, "httpx"),
    "httpx2": partial(_httpx, "httpx2"),
    "requests": _requests,
    "urllib3": _urllib3,
    "boto3": _boto3,
    "httpx, async": partial(_httpx_async, "httpx"),
    "httpx2, async": partial(_httpx_async, "httpx2"),
    "aiohttp": _aiohttp,
}
