"""Clients that repeat by themselves inside a retry of ours: a warning, once, with the product.

Each through the real client; the requests are counted at a local server.
"""

import asyncio
import importlib
import socket
import threading
import warnings
from contextlib import contextmanager, suppress

import boto3
import pytest
import redis
import requests
import urllib3
from botocore.config import Config
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
from redis.backoff import NoBackoff

import mainstay
from mainstay import Backoff
from mainstay.core.known.kind import Kind
from mainstay.drivers.call import call as driver
from mainstay.integrations.errors import OwnRetries, Row, Table, register, unregister
from mainstay.integrations.errors.shared import counted, sent_by_urllib3
from mainstay.testing import virtual_time
from tests.servers.http_faults import HttpFaults, Reset, Status, dead_port

with warnings.catch_warnings():
    warnings.simplefilter("ignore", ImportWarning)  # that it would like grpcio-status
    google_errors = importlib.import_module("google.api_core.exceptions")
    GoogleRetry = importlib.import_module("google.api_core.retry").Retry

DOWN = Status(503, {"Content-Type": "application/json", "retry-after-ms": "1"}, b"{}")


@pytest.fixture(autouse=True)
def _not_warned_yet(monkeypatch):
    """A warning is given once in a process."""
    monkeypatch.setattr(driver, "_warned", set())


@pytest.fixture
def server():
    with HttpFaults() as running:
        yield running


def repeated(call, **fields):
    """Two calls under one policy of two attempts: the texts of the warnings."""
    options = {"on": mainstay.transient, "attempts": 2, "backoff": Backoff.constant(0), **fields}
    wrapped = mainstay.retry(**options)(call)
    with virtual_time(), warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        for _ in range(2):
            with suppress(Exception):
                wrapped()
    return [str(each.message) for each in given if each.category is mainstay.NestedRetryWarning]


def model(library, server, **options):
    """A call of a model's client, with its default of two retries."""
    module = importlib.import_module(library)
    make = module.OpenAI if library == "openai" else module.Anthropic
    ask = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}

    def complete():
        with make(api_key="k", base_url=server.url, **options) as client:
            if library == "openai":
                client.chat.completions.create(**ask)
            else:
                client.messages.create(max_tokens=1, **ask)

    return complete


@pytest.mark.parametrize("library", ["openai", "anthropic"])
def test_the_clients_of_models(server, library):
    """Two retries of their own by default: three requests for each attempt."""
    for path in ("/chat/completions", "/v1/messages"):
        server.on(path, DOWN)
    (text,) = repeated(model(library, server))
    assert f"{library} has sent a request 3 times by itself inside" in text
    assert "up to 3 x 2 = 6 requests; pass max_retries=0 to the client" in text
    assert server.count() == 12, "two calls"
    assert repeated(model(library, server, max_retries=0)) == []
    assert repeated(model(library, server), nested="allow") == []


def test_an_async_client_of_a_model(server):
    """The same number is in its traceback."""
    openai = pytest.importorskip("openai")
    server.on("/chat/completions", DOWN)

    @mainstay.retry(on=mainstay.transient, attempts=2, backoff=Backoff.constant(0))
    async def complete():
        async with openai.AsyncOpenAI(api_key="k", base_url=server.url) as client:
            await client.chat.completions.create(model="m", messages=[])

    with (
        virtual_time(),
        pytest.warns(mainstay.NestedRetryWarning, match="3 x 2 = 6"),
        pytest.raises(openai.InternalServerError),
    ):
        asyncio.run(complete())
    assert server.count() == 6


def s3(server, **config):
    options = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "eu-west-1"}
    plain = Config(s3={"addressing_style": "path"}, **config)
    return boto3.client("s3", endpoint_url=server, config=plain, **options)


@pytest.mark.parametrize("mode", ["standard", "legacy"])
def test_botocore_by_what_its_answer_has(server, mode):
    """An error that was answered has the number of retries in its metadata."""
    server.on("/b/k", Status(503))
    client = s3(server.url, retries={"mode": mode, "total_max_attempts": 2})

    def read():
        client.get_object(Bucket="b", Key="k")

    (text,) = repeated(read)
    assert "botocore has sent a request 2 times" in text
    assert "2 x 2 = 4 requests; pass Config(retries={'total_max_attempts': 1})" in text
    assert server.count() == 8


def test_botocore_by_its_traceback():
    """A connection that was not made has no answer; the function that tried still counts."""
    client = s3(f"http://127.0.0.1:{dead_port()}", retries={"mode": "legacy", "max_attempts": 1})
    (text,) = repeated(client.list_buckets)
    assert "botocore has sent a request 2 times" in text


def test_botocore_without_its_retries(server):
    """One request for each attempt: nothing to state."""
    server.on("/b/k", Status(503))
    client = s3(server.url, retries={"total_max_attempts": 1})
    assert repeated(lambda: client.get_object(Bucket="b", Key="k")) == []
    assert server.count() == 4


@contextmanager
def hanging_up():
    """A server that closes each connection once something was sent; how often that was."""
    commands = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with suppress(OSError):
                while True:
                    wire, _ = listener.accept()
                    with wire:
                        commands.append(wire.recv(4096))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1], commands
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_redis():
    """Its retries are in the traceback of the last one."""
    retry = redis.retry.Retry(NoBackoff(), 2)
    options = {"host": "127.0.0.1", "protocol": 2, "socket_timeout": 20}
    with hanging_up() as (port, _):
        client = redis.Redis(port=port, retry=retry, **options)
        (text,) = repeated(lambda: client.get("k"))
        assert "redis has sent a request 3 times" in text
        assert "3 x 2 = 6 requests; pass retry=Retry(NoBackoff(), 0)" in text
        client = redis.Redis(port=port, retry=redis.retry.Retry(NoBackoff(), 0), **options)
        assert repeated(lambda: client.get("k")) == []


def test_urllib3(server):
    """Three retries by default; a redirect is none."""
    url = server.on("/", Reset())
    http = urllib3.PoolManager()
    (text,) = repeated(lambda: http.request("GET", url))
    assert "urllib3 has sent a request 4 times" in text
    assert "4 x 2 = 8 requests; pass retries=False" in text
    assert server.count() == 16
    moved = server.on("/moved", Status(302, {"Location": "/gone"}))
    server.on("/gone", Reset())
    only = urllib3.Retry(3, connect=0, read=0)
    assert repeated(lambda: http.request("GET", moved, retries=only)) == []
    assert server.count("/gone") == 4


def test_requests_with_an_adapter_that_retries(server):
    """The exception of urllib3 is inside that of requests."""
    url = server.on("/", Reset())
    with requests.Session() as session:
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=2))
        (text,) = repeated(lambda: session.get(url))
    assert "requests has sent a request 3 times" in text
    assert "3 x 2 = 6 requests; leave out max_retries of the adapter" in text
    assert server.count() == 12
    with requests.Session() as session:
        assert repeated(lambda: session.get(url)) == []


def test_elasticsearch(server):
    """Its errors of the connection carry those before them; a status does not show it."""
    elasticsearch = pytest.importorskip("elasticsearch")
    server.on("/_cluster/health", Reset())
    client = elasticsearch.Elasticsearch(server.url).options(max_retries=2)
    (text,) = repeated(client.cluster.health)
    assert "elasticsearch has sent a request 3 times" in text
    assert server.count() == 12


def test_google(server):
    """A method with a Retry of google-api-core, which repeats twice here."""
    url = server.on("/", Status(503))
    session = AuthorizedSession(AnonymousCredentials())
    failures = []

    def is_repeated(error):
        failures.append(error)
        return len(failures) % 3 != 0

    @GoogleRetry(is_repeated, initial=0.01, maximum=0.01, multiplier=1.0, timeout=600.0)
    def read():
        response = session.get(url)
        raise google_errors.from_http_response(response)

    (text,) = repeated(read)
    assert "google has sent a request 3 times" in text
    assert "3 x 2 = 6 requests; pass retry=None to the method" in text
    assert server.count() == 12


def test_a_policy_of_one_attempt_multiplies_nothing(server):
    """Nothing is repeated here."""
    server.on("/", Reset())
    http = urllib3.PoolManager()
    assert repeated(lambda: http.request("GET", server.url), attempts=1) == []


def test_a_table_of_your_own_states_it_too():
    """`own_retries` reads the number; one that cannot be read is none."""
    cls = type("AcmeBusy", (Exception,), {"__module__": "acme"})
    busy = {"acme.AcmeBusy": Row(Kind.OVERLOAD, "the queue is full")}
    own = OwnRetries(lambda error: error.tries, "turn it off")
    register(Table("acme", busy, own_retries=own))
    try:

        def fail(**carried):
            error = cls()
            vars(error).update(carried)
            raise error

        assert repeated(lambda: fail(tries="many")) == []
        assert repeated(fail) == []
        (text,) = repeated(lambda: fail(tries=5))
        assert "5 x 2 = 10 requests; turn it off" in text
    finally:
        unregister("acme")


def test_nothing_is_counted_where_there_is_nothing():
    """An exception that was never raised, or by another client."""
    assert counted(ValueError(), "attempts", "botocore.endpoint") == 0
    assert sent_by_urllib3(ValueError()) == 1
