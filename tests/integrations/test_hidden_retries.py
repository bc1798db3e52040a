"""Clients that repeat by themselves inside a retry of ours: a warning, once, with the product.

Each through the real client; the requests are counted at a local server.
"""

import asyncio
import importlib
import socket
import threading
import warnings
from contextlib import contextmanager, suppress

import aiohttp
import boto3
import httpx
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
from mainstay.integrations import http_headers
from mainstay.integrations.aiohttp import Middleware
from mainstay.integrations.errors import OwnRetries, Row, Table, register, unregister
from mainstay.integrations.errors.shared import counted, sent_by_urllib3
from mainstay.testing import virtual_time
from tests.integrations.errors.bolt_stub import RUN, BoltStub
from tests.servers.http_faults import Close, HttpFaults, Reset, Status, dead_port
from tests.servers.mongo import CLOSE, MongoStub

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


def by_aiohttp(url, method="GET", middlewares=()):
    """Makes a call through a session of its own."""

    async def call():
        async with (
            aiohttp.ClientSession(middlewares=middlewares) as session,
            session.request(method, url) as answer,
        ):
            await answer.read()

    return call


def repeated_in_a_loop(call):
    """As `repeated`, of a coroutine function."""
    wrapped = mainstay.retry(on=mainstay.transient, attempts=2, backoff=Backoff.constant(0))(call)
    with virtual_time(), warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        for _ in range(2):
            with suppress(Exception):
                asyncio.run(wrapped())
    return [str(each.message) for each in given if each.category is mainstay.NestedRetryWarning]


@pytest.mark.parametrize("answer", [Close(), Reset()])
def test_aiohttp_sends_what_is_idempotent_once_more(server, answer):
    """Each attempt is two requests, for which it has no public switch."""
    (text,) = repeated_in_a_loop(by_aiohttp(server.on("/down", answer)))
    assert "aiohttp has sent a request 2 times by itself inside" in text
    assert "up to 2 x 2 = 4 requests; send through a Middleware" in text
    assert server.count() == 8, "two calls"


def test_aiohttp_sends_other_requests_once(server):
    """A POST, one on a dead port, and each that goes through a middleware of ours."""
    url = server.on("/down", Close())
    assert repeated_in_a_loop(by_aiohttp(url, "POST")) == []
    assert repeated_in_a_loop(by_aiohttp(f"http://127.0.0.1:{dead_port()}/")) == []
    assert repeated_in_a_loop(by_aiohttp(server.on("/busy", Status(503)))) == []
    away = server.on("/away", Status(303, {"Location": "/down"}))
    assert repeated_in_a_loop(by_aiohttp(away, "POST")) == []
    before = server.count("/down")
    three = mainstay.RetryPolicy(attempts=3, backoff=Backoff.constant(0))
    (text,) = repeated_in_a_loop(by_aiohttp(url, middlewares=(Middleware(three),)))
    assert "aiohttp retries inside" in text, "the policy of the middleware, not aiohttp"
    assert server.count("/down") == before + 6, "two calls"


AROUND = (
    "repeats a request up to 3 times around a retry of {0} attempts: up to 3 x {0} = {1} requests"
)


BUILT_ON = [("openai", "httpx2"), ("openai", "httpx"), ("anthropic", "httpx2")]
"""The clients of models, and the libraries whose clients they take: httpx2 by default."""


def client_for(library, client, transport):
    """What a user passes as `http_client`: a default client, or one of the older library."""
    kind = type(transport).__name__.removesuffix("Transport")
    if client == "httpx2":
        return getattr(importlib.import_module(library), f"Default{kind}HttpxClient")(
            transport=transport
        )
    return getattr(httpx, f"{kind}Client")(transport=transport)


@pytest.mark.parametrize(("library", "client"), BUILT_ON)
def test_the_client_of_a_model_around_a_transport_that_retries(
    server, monkeypatch, library, client
):
    """Its own retries begin when the transport has given up, which sees how many there will be.

    The warning is given once in a process, with what to write.
    """
    monkeypatch.setattr(http_headers, "_warned", set())
    ours = importlib.import_module(f"mainstay.integrations.{client}")
    for path in ("/chat/completions", "/v1/messages"):
        server.on(path, DOWN)
    failed = importlib.import_module(library).InternalServerError

    def ask(**options):
        transport = ours.Transport(mainstay.RetryPolicy(attempts=3, backoff=Backoff.constant(0)))
        made = client_for(library, client, transport)
        with made, warnings.catch_warnings(record=True) as given, pytest.raises(failed):
            warnings.simplefilter("always")
            model(library, server, http_client=made, **options)()
        return [str(each.message) for each in given if each.category is mainstay.MainstayWarning]

    stated = f"{library} {AROUND.format(3, 9)}; pass max_retries=0 to the client"
    assert ask() == [stated], "the transport has given up three times by then"
    assert server.count() == 9
    assert ask() == []
    assert server.count() == 18
    monkeypatch.setattr(http_headers, "_warned", set())
    assert ask(max_retries=0) == []
    assert server.count() == 21


@pytest.mark.parametrize(("library", "client"), BUILT_ON)
def test_an_async_client_of_a_model_around_a_transport_that_retries(
    server, monkeypatch, library, client
):
    """The function that called is found across its awaits."""
    monkeypatch.setattr(http_headers, "_warned", set())
    ours = importlib.import_module(f"mainstay.integrations.{client}")
    for path in ("/chat/completions", "/v1/messages"):
        server.on(path, DOWN)
    module = importlib.import_module(library)
    transport = ours.AsyncTransport(mainstay.RetryPolicy(attempts=2, backoff=Backoff.constant(0)))
    ask = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}

    async def complete():
        async with client_for(library, client, transport) as http:
            options = {"api_key": "k", "base_url": server.url, "http_client": http}
            if library == "openai":
                await module.AsyncOpenAI(**options).chat.completions.create(**ask)
            else:
                await module.AsyncAnthropic(**options).messages.create(max_tokens=1, **ask)

    with (
        pytest.warns(mainstay.MainstayWarning, match=f"{library} {AROUND.format(2, 6)}"),
        pytest.raises(module.InternalServerError),
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


@pytest.mark.parametrize("raises", [True, False])
def test_requests_with_an_adapter_that_retries_a_status(server, raises):
    """The response that is raised for has what urllib3 did; or urllib3 raises itself."""
    url = server.on("/", Status(503))
    retries = urllib3.Retry(2, status_forcelist=[503], raise_on_status=raises)
    with requests.Session() as session:
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retries))
        (text,) = repeated(lambda: session.get(url).raise_for_status())
    assert "requests has sent a request 3 times" in text
    assert server.count() == 12
    with requests.Session() as session:
        assert repeated(lambda: session.get(url).raise_for_status()) == []


@pytest.mark.parametrize("fault", [Reset(), DOWN], ids=["reset", "503"])
def test_elasticsearch(server, fault):
    """Errors of the connection carry those before them; after a status its settings are read."""
    elasticsearch = pytest.importorskip("elasticsearch")
    server.on("/_cluster/health", fault)
    with elasticsearch.Elasticsearch(server.url, retry_backoff_base=0) as client:
        (text,) = repeated(client.options(max_retries=2).cluster.health)
        assert "elasticsearch has sent a request 3 times" in text
        assert server.count() == 12
        assert repeated(client.options(max_retries=0).cluster.health) == []


def test_elasticsearch_by_default(server):
    """Four requests after 503, which is one of its statuses, and one after 500, which is not."""
    elasticsearch = pytest.importorskip("elasticsearch")
    server.on("/_cluster/health", DOWN)
    with elasticsearch.Elasticsearch(server.url, retry_backoff_base=0) as client:
        (text,) = repeated(client.cluster.health)
        assert "elasticsearch has sent a request 4 times" in text
        server.on("/_cluster/health", Status(500, DOWN.headers, DOWN.body))
        assert repeated(client.cluster.health) == []


def test_an_async_client_of_elasticsearch(server):
    """It has the same settings."""
    elasticsearch = pytest.importorskip("elasticsearch")
    server.on("/_cluster/health", DOWN)

    @mainstay.retry(on=mainstay.transient, attempts=2, backoff=Backoff.constant(0))
    async def ask():
        async with elasticsearch.AsyncElasticsearch(server.url, retry_backoff_base=0) as client:
            await client.cluster.health()

    with (
        virtual_time(),
        pytest.warns(mainstay.NestedRetryWarning, match="4 x 2 = 8"),
        pytest.raises(elasticsearch.ApiError),
    ):
        asyncio.run(ask())
    assert server.count() == 8


@pytest.mark.parametrize("fault", [Reset(), DOWN], ids=["reset", "503"])
def test_azure(server, fault):
    """As the clients of Azure are generated: what their operation has got is in its frame."""
    azure = pytest.importorskip("azure.core")
    rest, policies = (
        importlib.import_module(f"azure.core.{name}") for name in ("rest", "pipeline.policies")
    )
    url = server.on("/", fault)

    def read(retries):
        own = policies.RetryPolicy(retry_total=retries, retry_backoff_factor=0)
        with azure.PipelineClient(url, policies=[own]) as client:
            pipeline_response = client._pipeline.run(rest.HttpRequest("GET", url))
            pipeline_response.http_response.raise_for_status()

    (text,) = repeated(lambda: read(2))
    assert "azure has sent a request 3 times" in text
    assert "3 x 2 = 6 requests; pass retry_total=0 to the client" in text
    assert server.count() == 12
    assert repeated(lambda: read(0)) == []


def test_pymongo():
    """A write once more after a lost connection, twice more if the server is overloaded."""
    pymongo = pytest.importorskip("pymongo")
    busy = {"ok": 0.0, "code": 462, "errmsg": "busy", "baseBackoffMS": 1}
    busy["errorLabels"] = ["SystemOverloadedError", "RetryableError"]
    with MongoStub() as stub, pymongo.MongoClient(stub.uri, connectTimeoutMS=60_000) as client:
        for answer, count in ((CLOSE, 2), (busy, 3)):
            stub.answer("insert", answer)
            (text,) = repeated(lambda: client.db.things.insert_one({"n": 1}))
            driver._warned.clear()
            assert f"pymongo has sent a request {count} times" in text
            assert "pass retryReads=False, retryWrites=False to the client" in text
            assert stub.seen["insert"] == 4 * count
    off = {"retryReads": False, "retryWrites": False}
    with MongoStub() as stub, pymongo.MongoClient(stub.uri, **off) as client:
        stub.answer("insert", CLOSE)
        assert repeated(lambda: client.db.things.insert_one({"n": 1})) == []


def test_neo4j():
    """A managed transaction is repeated for as long as its session says."""
    neo4j = pytest.importorskip("neo4j")
    options = {"max_transaction_retry_time": 0.1, "initial_retry_delay": 0.2}
    counts = []
    with (
        BoltStub() as stub,
        neo4j.GraphDatabase.driver(stub.url, auth=("neo4j", "secret"), **options) as made,
        made.session() as session,
    ):
        stub.answers({RUN: "Neo.TransientError.Transaction.DeadlockDetected"})

        def write():
            try:
                session.execute_write(lambda inside: inside.run("CREATE ()").consume())
            finally:
                counts.append(stub.count)

        (text,) = repeated(write)
        assert f"neo4j has sent a request {counts[0]} times" in text
        assert "begin_transaction()" in text
        driver._warned.clear()

        def once():
            with session.begin_transaction() as inside:
                inside.run("CREATE ()").consume()

        assert repeated(once) == []


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
