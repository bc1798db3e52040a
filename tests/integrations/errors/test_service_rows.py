"""Azure, Elasticsearch, Consul and Vault: rows that the other tests do not come to."""

import consul
import consul.aio
import elasticsearch
import elasticsearch.dsl
import elasticsearch.helpers
import hvac
import hvac.exceptions
import pytest
from azure.core import PipelineClient
from azure.core.pipeline.policies import RedirectPolicy, RequestIdPolicy, RetryPolicy
from azure.core.polling import LROPoller
from azure.core.polling.base_polling import LROBasePolling
from azure.core.rest import HttpRequest
from elasticsearch import AsyncElasticsearch, Elasticsearch

from mainstay import Kind
from mainstay.core.retry.kinds import kind_of
from tests.integrations.errors.rows import comes_to, raised_by, row_of
from tests.integrations.errors.service_stub import Answer, ServiceStub, dead_port, in_json
from tests.servers.http_faults import full_port

PRODUCT = {"x_elastic_product": "Elasticsearch"}


@pytest.fixture(scope="module")
def stub():
    with ServiceStub() as stub:
        yield stub


# --- Azure ----------------------------------------------------------------------------------------


def pipeline(url, *policies):
    return PipelineClient(url, policies=[*policies, RetryPolicy(retry_total=0)])


def redirected(stub):
    stub.answers(Answer(302, b"", {"Location": "/again"}))
    policy = RedirectPolicy(redirect_max=1)
    pipeline(stub.url, policy).send_request(HttpRequest("GET", stub.url)).raise_for_status()


def refused(stub):
    stub.answers(in_json(401, {"error": {"code": "x", "message": "m"}}))
    pipeline(stub.url).send_request(HttpRequest("GET", stub.url)).raise_for_status()


def unreadable(stub):
    from azure.core.pipeline.policies import ContentDecodePolicy

    stub.answers(Answer(200, b"{", {"Content-Type": "application/json"}))
    pipeline(stub.url, ContentDecodePolicy()).send_request(HttpRequest("GET", stub.url))


def unread(stub):
    stub.answers(Answer(200, b"{}"))
    response = pipeline(stub.url).send_request(HttpRequest("GET", stub.url), stream=True)
    try:
        return response.content
    finally:
        response.close()


def consumed(stub):
    stub.answers(Answer(200, b"{}"))
    response = pipeline(stub.url).send_request(HttpRequest("GET", stub.url), stream=True)
    for _ in range(2):
        list(response.iter_bytes())


def closed(stub):
    stub.answers(Answer(200, b"{}"))
    response = pipeline(stub.url).send_request(HttpRequest("GET", stub.url), stream=True)
    response.close()
    list(response.iter_bytes())


def late(_stub):
    with full_port() as port:
        url = f"http://127.0.0.1:{port}"
        pipeline(url).send_request(HttpRequest("GET", url), connection_timeout=0.05)


def polled(stub, *answers):
    """An operation that goes on after its first answer; its state is asked for at once."""
    begun = Answer(202, b"{}", {"Operation-Location": f"{stub.url}/state", "Retry-After": "0"})
    stub.answers(begun, *answers)
    client = pipeline(stub.url, RequestIdPolicy())
    first = client.send_request(HttpRequest("PUT", stub.url), _return_pipeline_response=True)
    LROPoller(client, first, lambda answer: answer, LROBasePolling(0)).result()


AZURE = {
    "HttpResponseError class TooManyRedirectsError": redirected,
    "HttpResponseError status 401": refused,
    "DecodeError": unreadable,
    "ResponseNotReadError": unread,
    "StreamConsumedError": consumed,
    "StreamClosedError": closed,
    "ServiceRequestTimeoutError": late,
}


@pytest.mark.parametrize("row", AZURE)
def test_azure(stub, row):
    """Through azure-core's own client."""
    comes_to(f"azure.core.exceptions.{row}", lambda: AZURE[row](stub))


POLLED = {
    "OperationFailed": (in_json(200, {"status": "Failed"}), Kind.PERMANENT),
    "BadResponse": (Answer(200, b""), Kind.TRANSIENT),
    "BadStatus": (Answer(305, b""), Kind.UNKNOWN),
}


@pytest.mark.parametrize("row", POLLED)
def test_an_operation_of_azure(stub, row):
    """The client raises HttpResponseError for it, with the reason inside, which decides."""
    answer, kind = POLLED[row]
    error = comes_to("azure.core.exceptions.HttpResponseError wraps", lambda: polled(stub, answer))
    assert row_of(error.inner_exception)[0].rpartition(".")[2] == row
    assert kind_of(error).kind is kind


def test_a_status_that_an_operation_of_azure_has(stub):
    """The service is busy while it is asked for the state: the status decides."""
    error = raised_by(lambda: polled(stub, Answer(503, b"")))
    assert (type(error.inner_exception).__name__, kind_of(error).kind) == (
        "BadStatus",
        Kind.OVERLOAD,
    )


# --- Elasticsearch --------------------------------------------------------------------------------


def bulk(stub, *statuses):
    items = [{"index": {"status": each, "error": {"type": "t"}}} for each in statuses]
    stub.answers(in_json(200, {"errors": True, "items": items, "took": 1}, **PRODUCT))
    with Elasticsearch(stub.url, max_retries=0) as client:
        elasticsearch.helpers.bulk(client, [{"_index": "i", "n": 1}] * len(statuses))


def scanned(stub):
    shards = {"total": 2, "successful": 1, "skipped": 0, "failed": 1}
    page = {"_scroll_id": "s", "_shards": shards, "hits": {"hits": [{}]}}
    stub.answers(in_json(200, page, **PRODUCT))
    with Elasticsearch(stub.url, max_retries=0) as client:
        list(elasticsearch.helpers.scan(client))


def sniffed(stub):
    stub.answers(in_json(503, {}, **PRODUCT))
    Elasticsearch(stub.url, sniff_on_start=True).info()


def plain_tls(stub):
    url = stub.url.replace("http:", "https:")
    with Elasticsearch(url, max_retries=0, verify_certs=False, ssl_show_warn=False) as client:
        client.info()


def late_elastic(_stub):
    with (
        full_port() as port,
        Elasticsearch(f"http://127.0.0.1:{port}", max_retries=0, request_timeout=0.05) as client,
    ):
        client.info()


async def asked(**options):
    async with AsyncElasticsearch(
        f"http://127.0.0.1:{dead_port()}", max_retries=0, **options
    ) as client:
        await client.info()


ELASTIC = {
    "elasticsearch.helpers.BulkIndexError status 503": lambda stub: bulk(stub, 503),
    "elasticsearch.helpers.ScanError": scanned,
    "elastic_transport.SniffingError": sniffed,
    "elastic_transport.TlsError wraps": plain_tls,
    "elastic_transport.ConnectionTimeout cause ConnectTimeoutError": late_elastic,
    "elastic_transport.ConnectionError cause ClientConnectorError": lambda _: asked(),
    "elastic_transport.ConnectionError cause ConnectError": lambda _: asked(
        node_class="httpxasync"
    ),
    "elasticsearch.dsl.exceptions.IllegalOperation": lambda _: (
        elasticsearch.dsl.Document().update()
    ),
    "elasticsearch.dsl.exceptions.UnknownDslObject": lambda _: elasticsearch.dsl.Q("nothing"),
    "elasticsearch.dsl.exceptions.ValidationException": lambda _: (
        elasticsearch.dsl.Date().deserialize("no date")
    ),
}


@pytest.mark.parametrize("row", ELASTIC)
def test_elasticsearch(stub, row):
    """Through its own client, and its module for queries."""
    comes_to(row, lambda: ELASTIC[row](stub))


# --- Consul and Vault -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:ssl_context is deprecated:DeprecationWarning")
def test_consul(stub):
    """A status that stands for a timeout."""

    async def ask():
        stub.answers(Answer(599, b"m"))
        client = consul.aio.Consul("127.0.0.1", stub.port)
        try:
            await client.kv.get("k")
        finally:
            await client.close()

    comes_to("consul.exceptions.Timeout", ask)


def test_vault():
    """A wrong parameter."""
    comes_to(
        "hvac.exceptions.ParamValidationError",
        lambda: hvac.Client().secrets.identity.create_or_update_entity("n", metadata=7),
    )
