"""What every client of an HTTP service meets, in one table: the same fault, the same kind.

A dead port, a reset after sending, a black hole, throttled with Retry-After in seconds and as a
date, overloaded, unauthorised, not found; the requests are counted at the server. Databases and
brokers have their own faults, in their own files.
"""

import asyncio
import contextlib
import ssl
import warnings

import aiohttp
import anthropic
import boto3
import consul
import google.auth.transport.requests
import httpx
import httpx2
import hvac
import openai
import pytest
import requests
import urllib3
from azure.core import PipelineClient
from azure.core.pipeline.policies import RetryPolicy as AzureRetries
from azure.core.rest import HttpRequest
from botocore.config import Config
from elasticsearch import Elasticsearch
from google.auth.credentials import AnonymousCredentials

import mainstay
from mainstay import Kind
from mainstay.core.retry.kinds import kind_of
from tests.integrations.errors.service_stub import (
    DATE,
    LATER,
    RESET,
    SILENCE,
    Answer,
    ServiceStub,
    dead_port,
    seen,
)
from tests.processes import wait_until
from tools.provoked import handed

with warnings.catch_warnings():  # it asks for grpcio-status if there is grpcio
    warnings.simplefilter("ignore", ImportWarning)
    import google.api_core.exceptions

TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
S3 = boto3.Session("testing", "testing", region_name="eu-west-1")


def by_httpx(library):
    def get(url, timeout):
        with library.Client(verify=TLS, trust_env=False, timeout=timeout) as client:
            client.get(url).raise_for_status()

    return get


def by_requests(url, timeout):
    with requests.Session() as session:
        session.get(url, timeout=timeout).raise_for_status()


class Refused(urllib3.exceptions.HTTPError):
    """urllib3 raises for no status: what its users write."""


def by_urllib3(url, timeout):
    with urllib3.PoolManager(timeout=timeout, retries=False) as pool:
        answered = pool.request("GET", url)
        if answered.status >= 400:
            error = Refused(f"status {answered.status}")
            error.response = answered
            raise error


def by_aiohttp(url, timeout):
    async def get():
        limit = aiohttp.ClientTimeout(sock_read=timeout)
        async with aiohttp.ClientSession(timeout=limit) as session, session.get(url) as answered:
            answered.raise_for_status()

    asyncio.run(get())


def by_boto3(url, timeout):
    config = Config(
        retries={"total_max_attempts": 1}, read_timeout=timeout, s3={"addressing_style": "path"}
    )
    S3.client("s3", endpoint_url=url, config=config).get_object(Bucket="b", Key="k")


def by_google(url, timeout):
    session = google.auth.transport.requests.AuthorizedSession(
        AnonymousCredentials(), refresh_status_codes=()
    )
    with contextlib.closing(session):
        answered = session.get(url, timeout=timeout)
        if answered.status_code >= 300:
            raise handed(google.api_core.exceptions.from_http_response(answered))


def by_azure(url, timeout):
    with PipelineClient(url, policies=[AzureRetries(retry_total=0)]) as client:
        answered = client.send_request(HttpRequest("GET", url), read_timeout=timeout)
        answered.raise_for_status()


def by_elasticsearch(url, timeout):
    with Elasticsearch(url, max_retries=0, request_timeout=timeout) as client:
        client.get(index="i", id="7")


def by_hvac(url, timeout):
    with contextlib.closing(hvac.Client(url, token="t", timeout=timeout).adapter) as adapter:
        adapter.get("/v1/secret/shop")


def by_consul(url, timeout):
    port = int(url.rpartition(":")[2])
    consul.Consul("127.0.0.1", port, connections_timeout=timeout).session.renew("s")


def by_openai(url, timeout):
    with openai.OpenAI(
        api_key="k", base_url=url, max_retries=0, timeout=timeout, http_client=plain(timeout)
    ) as client:
        client.models.list()


def by_anthropic(url, timeout):
    with anthropic.Anthropic(
        api_key="k", base_url=url, max_retries=0, timeout=timeout, http_client=plain(timeout)
    ) as client:
        client.models.list()


def plain(timeout):
    return httpx2.Client(verify=TLS, trust_env=False, timeout=timeout)


CLIENTS = {
    "httpx": by_httpx(httpx),
    "httpx2": by_httpx(httpx2),
    "requests": by_requests,
    "urllib3": by_urllib3,
    "aiohttp": by_aiohttp,
    "boto3": by_boto3,
    "google": by_google,
    "azure": by_azure,
    "elasticsearch": by_elasticsearch,
    "hvac": by_hvac,
    "consul": by_consul,
    "openai": by_openai,
    "anthropic": by_anthropic,
}
HEADERS = {"Content-Type": "application/json", "X-Elastic-Product": "Elasticsearch"}


def refusal(status, **headers):
    named = {name.replace("_", "-").title(): value for name, value in headers.items()}
    return Answer(status, b"{}", HEADERS | named)


FAULTS = {
    "reset": (RESET, Kind.TRANSIENT, True, 3),
    "throttled, seconds": (refusal(429, retry_after="7"), Kind.THROTTLED, False, 3),
    "throttled, date": (refusal(429, retry_after=LATER, date=DATE), Kind.THROTTLED, False, 3),
    "overloaded": (refusal(503), Kind.OVERLOAD, False, 3),
    "unauthorised": (refusal(401), Kind.AUTH, False, 1),
    "not found": (refusal(404), Kind.PERMANENT, False, 1),
}
"""What the server does, the kind, whether it is in doubt, and the requests of three attempts."""


@pytest.fixture(scope="module")
def service():
    with ServiceStub() as stub:
        yield stub


@pytest.mark.req("CL-04", "CL-12")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_fault_is_of_the_same_kind_in_every_client(service, client, fault):
    """Retries of the clients themselves are off; the wait that the server asks for is kept."""
    answer, kind, ambiguous, count = FAULTS[fault]
    service.answers(answer)
    problem = seen(lambda: CLIENTS[client](service.url, 30))
    known = kind_of(problem)
    assert (known.kind, known.is_ambiguous) == (kind, ambiguous), repr(problem)
    own = 2 if (client, fault) == ("aiohttp", "reset") else 1  # it repeats a GET once, always
    assert service.count == count * own
    if fault.startswith("throttled"):
        assert mainstay.RetryPolicy().classification(problem).retry_after == 7.0
        assert min(problem.waits) >= 7.0


@pytest.mark.parametrize("client", CLIENTS)
def test_a_dead_port_is_tried_again_by_every_client(client):
    """Nothing was sent, so nothing is in doubt."""
    tries, url = [], f"http://127.0.0.1:{dead_port()}"
    known = kind_of(seen(lambda: (tries.append(1), CLIENTS[client](url, 30))))
    assert (known.kind, known.is_ambiguous, len(tries)) == (Kind.TRANSIENT, False, 3)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_black_hole_is_a_timeout_in_every_client(service, client):
    """The request arrived, so it is in doubt."""
    service.answers(SILENCE)
    known = kind_of(seen(lambda: CLIENTS[client](service.url, 0.2), attempts=1))
    wait_until(lambda: service.count == 1, "the request")
    assert (known.kind, known.is_ambiguous) == (Kind.TIMEOUT, True)
