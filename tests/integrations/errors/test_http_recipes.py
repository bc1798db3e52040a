"""The code of README.md and of the cookbook's pages on HTTP, against a server that fails."""

import asyncio
from pathlib import Path

import aiohttp
import httpx
import pytest
import requests

from mainstay.testing import virtual_time
from tests.servers.http_faults import Close, Reset, Status, dead_port
from tools.pages import read_blocks

ROOT = Path(__file__).parents[3]
ORDER = Status(200, {"Content-Type": "application/json"}, b'{"id": 7}')


def python_of(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    return [each.text for each in read_blocks(text) if each.language == "python"]


def recipe(library, server):
    """What the blocks of a page define, with the test's server in place of the page's."""
    code = "".join(python_of(f"docs/cookbook/{library}.md"))
    assert "http://localhost:8000" in code
    names = {}
    exec(code.replace("http://localhost:8000", server.url), names)  # a page of our own
    return names


@pytest.mark.parametrize("get", [httpx.get, requests.get], ids=["httpx", "requests"])
def test_the_first_example_of_the_readme_retries_a_dead_port(get):
    """What anybody tries first: a client's own function in place of the example's body."""
    block = python_of("README.md")[0]
    decorated, _ = block.split("def fetch(url):\n")
    calls = []

    def counted(url):
        calls.append(url)
        return get(url)

    names = {"get": counted}
    exec(f"{decorated}def fetch(url):\n    return get(url)\n", names)  # a page of our own
    with virtual_time(), pytest.raises((httpx.ConnectError, requests.ConnectionError)) as caught:
        names["fetch"](f"http://127.0.0.1:{dead_port()}/")
    assert len(calls) == 3
    assert caught.value.__notes__ == [
        "mainstay: gave up on fetch after 3 attempts: no attempt left"
    ]


@pytest.mark.parametrize("library", ["httpx", "requests"])
def test_the_recipe_of_a_client_with_requests_in_its_errors(server, library):
    """A GET is repeated, and a POST with its key; the key stays the same."""
    names = recipe(library, server)
    server.on("/orders/7", Status(503, {"Retry-After": "2"}), Reset(), ORDER)
    server.on("/orders/7/payment", Close(), Status(429), ORDER)
    with virtual_time() as time, names.get("client") or names["session"]:
        assert names["order"](7) == {"id": 7}
        assert time.sleeps[0] >= 2.0
        assert names["pay"](7, "payment-7") == {"id": 7}
    assert (server.count("/orders/7"), server.count("/orders/7/payment")) == (3, 3)
    keys = [each.headers.get("idempotency-key") for each in server.seen if "pay" in each.path]
    assert keys == ["payment-7"] * 3


def test_the_recipe_of_urllib3(server):
    """Statuses are results; a POST is repeated with its key."""
    names = recipe("urllib3", server)
    server.on("/orders/7", Status(503, {"Retry-After": "2"}), Reset(), ORDER)
    server.on("/orders/7/payment", Close(), ORDER)
    with virtual_time() as time, names["pool"]:
        assert names["order"](7).json() == {"id": 7}
        assert time.sleeps[0] >= 2.0
        assert names["pay"](7, "payment-7").json() == {"id": 7}
    assert (server.count("/orders/7"), server.count("/orders/7/payment")) == (3, 2)


def test_the_recipe_of_aiohttp(server):
    """A POST is repeated only if nothing was done."""
    names = recipe("aiohttp", server)
    server.on("/orders/7", Status(503), Close(), ORDER)
    server.on("/orders/7/payment", Status(503), Close())

    async def use():
        async with aiohttp.ClientSession() as session:
            assert await names["order"](session, 7) == {"id": 7}
            with pytest.raises(aiohttp.ServerDisconnectedError):
                await names["pay"](session, 7)

    asyncio.run(use())
    assert (server.count("/orders/7"), server.count("/orders/7/payment")) == (3, 2)
