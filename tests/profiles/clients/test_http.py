"""The client front door with the real requests and httpx, against a server that fails."""

import asyncio
from email.utils import formatdate
from time import time as unix_now

import httpx
import pytest
import requests

from mainstay.profiles.clients import (
    CircuitBreaker,
    CircuitBreakerConfiguration,
    CircuitOpenException,
    RetryConfiguration,
    RetryDecorator,
    RetryPresets,
    with_api_retry,
)
from mainstay.testing import virtual_time
from tests.processes import at_some_speed
from tests.servers.http_faults import HttpFaults, Reset, Silence, Status, dead_port

SHORT = {"max_attempts": 3, "base_delay": 0.01, "max_delay": 0.02, "jitter": 0.0}
"""For calls that a server answers: no test depends on how quickly it does."""
PAGE = Status(200, body=b"page")


@pytest.fixture
def server():
    with HttpFaults() as made:
        yield made


def with_requests(url, decorate, timeout=60):
    @decorate
    def get():
        answer = requests.get(url, timeout=timeout)
        answer.raise_for_status()
        return answer.text

    return get()


def with_httpx(url, decorate, timeout=60):
    @decorate
    def get():
        return httpx.get(url, timeout=timeout).raise_for_status().text

    return get()


def with_async_httpx(url, decorate, timeout=60):
    @decorate
    async def get():
        async with httpx.AsyncClient(timeout=timeout) as client:
            return (await client.get(url)).raise_for_status().text

    return asyncio.run(get())


CLIENTS = [with_requests, with_httpx, with_async_httpx]
ERRORS = (requests.RequestException, httpx.HTTPError)


@pytest.mark.req("CL-04", "CL-11", "CL-12")
@pytest.mark.parametrize("get", CLIENTS)
@pytest.mark.parametrize(
    "fault", [Reset(), Silence(), *map(Status, (429, 500, 502, 503, 504, 507, 599))], ids=str
)
def test_the_servers_failures_are_repeated(server, get, fault):
    """A reset, a silent server, 429 and every 5xx: the third request is answered."""

    def check(timeout):
        path = f"/page-{timeout}"
        url = server.on(path, fault, fault, PAGE)
        assert get(url, with_api_retry(**SHORT), timeout) == "page"
        assert server.count(path) == 3

    at_some_speed(check, *((0.3, 2.0, 10.0) if isinstance(fault, Silence) else (60,)))


@pytest.mark.req("CL-04", "CL-12")
@pytest.mark.parametrize("get", CLIENTS)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 418, 422, 451])
def test_the_callers_mistakes_are_sent_once(server, get, status):
    """Every other 4xx, 408 included, as the document has it."""
    url = server.on("/page", Status(status))
    with pytest.raises(ERRORS):
        get(url, with_api_retry())
    assert server.count("/page") == 1


@pytest.mark.req("CL-04", "CL-12")
@pytest.mark.parametrize("get", CLIENTS)
def test_a_port_without_a_server_is_tried_as_often_as_asked(get):
    """ConnectionError of requests, ConnectError of httpx."""
    attempts = RetryDecorator(RetryConfiguration(**SHORT))
    with pytest.raises(ERRORS):
        get(f"http://127.0.0.1:{dead_port()}/", attempts)
    assert attempts.attempt_counter.total() == 3


@pytest.mark.req("CL-11")
@pytest.mark.parametrize("get", [with_requests, with_httpx])
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("sort", ["seconds", "date"])
@pytest.mark.parametrize("respect", [True, False])
def test_a_retry_after_of_the_server_is_respected_or_not(server, get, status, sort, respect):
    """In seconds and as an HTTP date, read against the Date of the response."""
    now = unix_now()
    asked = {"seconds": "9", "date": formatdate(now + 9, usegmt=True)}[sort]
    refusal = Status(status, {"Retry-After": asked, "Date": formatdate(now, usegmt=True)})
    url = server.on("/page", refusal, PAGE)
    with virtual_time() as time:
        assert get(url, with_api_retry(jitter=0.0, respect_retry_after=respect)) == "page"
    assert time.sleeps == [9.0 if respect else 0.5]
    assert server.count("/page") == 2


@pytest.mark.req("CL-07", "CL-08")
def test_an_open_breaker_sends_nothing(server):
    """Five requests fail, and the sixth call makes no connection."""
    url = server.on("/page", Status(503))
    breaker = CircuitBreaker("api", CircuitBreakerConfiguration())
    decorator = RetryDecorator(RetryPresets.API_CALL, breaker)
    with virtual_time():
        for _ in range(2):
            with pytest.raises(requests.HTTPError):
                with_requests(url, decorator)
        assert (server.count(), breaker.failure_count) == (5, 5)
        before = server.connections
        with pytest.raises(CircuitOpenException):
            with_requests(url, decorator)
    assert server.connections == before
