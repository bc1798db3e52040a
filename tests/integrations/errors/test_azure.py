"""Azure through azure-core's own PipelineClient, against a stub with the errors of Azure Storage.

The bodies are those of "Status and error codes" and "Common REST API error codes" in the reference
of Azure Storage.
"""

import socket

import azure.core.exceptions
import pytest
from azure.core import PipelineClient
from azure.core.pipeline.policies import RetryPolicy
from azure.core.rest import HttpRequest

import mainstay
from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.testing import virtual_time
from tests.integrations.errors.service_stub import (
    BROKEN,
    CUT,
    DATE,
    HAS_REQUESTS,
    LATER,
    RESET,
    SILENCE,
    ServiceStub,
    dead_port,
    in_json,
    seen,
)
from tests.processes import wait_until


@pytest.fixture(scope="module")
def azure_stub():
    with ServiceStub() as stub:
        yield stub


def error(status, code, **headers):
    body = {"error": {"code": code, "message": "m"}}
    return in_json(status, body, x_ms_error_code=code, **headers)


def send(url, method="GET", timeout=60, retries=0):
    """A request as the clients of Azure send it: the status is mapped to an error."""
    client = PipelineClient(url, policies=[RetryPolicy(retry_total=retries)])
    response = client.send_request(HttpRequest(method, url), read_timeout=timeout)
    mapped = {
        401: azure.core.exceptions.ClientAuthenticationError,
        404: azure.core.exceptions.ResourceNotFoundError,
        409: azure.core.exceptions.ResourceExistsError,
        412: azure.core.exceptions.ResourceModifiedError,
        304: azure.core.exceptions.ResourceNotModifiedError,
    }
    azure.core.exceptions.map_error(response.status_code, response, mapped)
    response.raise_for_status()


@pytest.mark.parametrize(
    ("status", "code", "kind", "ambiguous", "count"),
    [
        (503, "ServerBusy", Kind.OVERLOAD, False, 3),
        (500, "InternalError", Kind.TRANSIENT, True, 3),
        (429, "TooManyRequests", Kind.THROTTLED, False, 3),
        (408, "RequestTimeout", Kind.TIMEOUT, False, 3),
        (401, "NoAuthenticationInformation", Kind.AUTH, False, 1),
        (403, "AuthorizationFailure", Kind.AUTH, False, 1),
        (404, "BlobNotFound", Kind.PERMANENT, False, 1),
        (409, "BlobAlreadyExists", Kind.PERMANENT, False, 1),
        (412, "ConditionNotMet", Kind.PERMANENT, False, 1),
        (304, "ConditionNotMet", Kind.PERMANENT, False, 1),
        (400, "InvalidHeaderValue", Kind.PERMANENT, False, 1),
        (407, "ProxyAuthenticationRequired", Kind.AUTH, False, 1),
        (425, "TooEarly", Kind.TRANSIENT, False, 3),
        (502, "BadGateway", Kind.TRANSIENT, True, 3),
        (504, "GatewayTimeout", Kind.TIMEOUT, True, 3),
        (501, "NotImplemented", Kind.PERMANENT, False, 1),
    ],
)
def test_what_azure_answers(azure_stub, status, code, kind, ambiguous, count):
    """By the status; the client's own retries are off."""
    azure_stub.answers(error(status, code))
    known = kind_of(seen(lambda: send(azure_stub.url)))
    assert (known.kind, known.is_ambiguous, azure_stub.count) == (kind, ambiguous, count)


@pytest.mark.parametrize(
    ("answer", "raised", "kind"),
    [
        (RESET, azure.core.exceptions.ServiceResponseError, Kind.TRANSIENT),
        (SILENCE, azure.core.exceptions.ServiceResponseTimeoutError, Kind.TIMEOUT),
        (CUT, azure.core.exceptions.IncompleteReadError, Kind.TRANSIENT),
        (BROKEN, azure.core.exceptions.HttpResponseError, Kind.TRANSIENT),
    ],
)
def test_an_answer_that_does_not_come_leaves_it_in_doubt(azure_stub, answer, raised, kind):
    """The request was sent."""
    azure_stub.answers(answer)
    timeout = 0.2 if answer is SILENCE else 60
    problem = seen(lambda: send(azure_stub.url, timeout=timeout), attempts=2)
    known = kind_of(problem)
    assert isinstance(problem, raised)
    wait_until(lambda: azure_stub.count >= 2, "the requests")
    assert (known.kind, known.is_ambiguous, azure_stub.count) == (kind, True, 2)


def test_a_dead_port_is_tried_again():
    """Nothing was sent, so nothing is in doubt."""
    tries = []
    url = f"http://127.0.0.1:{dead_port()}"
    known = kind_of(seen(lambda: (tries.append(1), send(url))))
    assert (known.kind, known.is_ambiguous, len(tries)) == (Kind.TRANSIENT, False, 3)


def test_a_post_that_failed_inside_azure_is_not_sent_again(azure_stub):
    """The answer has the request with it, so its method is known."""
    azure_stub.answers(error(500, "InternalError"))
    known = kind_of(seen(lambda: send(azure_stub.url, "POST")))
    assert (known.unsafe, azure_stub.count) == ("POST without a Repeatability-Request-ID", 1)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": LATER, "date": DATE}, 7.0),
        ({"x_ms_retry_after_ms": "1500"}, 1.5),
    ],
)
def test_the_wait_that_azure_asks_for_is_kept(azure_stub, headers, wait):
    """Seconds, a date, or Azure's own header with milliseconds."""
    azure_stub.answers(error(429, "TooManyRequests", **headers))
    problem = seen(lambda: send(azure_stub.url), attempts=2)
    assert mainstay.RetryPolicy().classification(problem).retry_after == wait
    assert problem.waits[0] >= wait


def test_a_rule_that_names_the_class_names_its_status(azure_stub):
    """A blob that another program is about to write is waited for."""
    azure_stub.answers(error(404, "BlobNotFound"))
    missing = azure.core.exceptions.ResourceNotFoundError
    with virtual_time(), pytest.raises(missing):
        mainstay.retry(on=missing, attempts=3)(send)(azure_stub.url)
    assert azure_stub.count == 3
    azure_stub.answers(error(404, "BlobNotFound"))
    base = azure.core.exceptions.HttpResponseError
    with virtual_time(), pytest.raises(missing):
        mainstay.retry(on=base, attempts=3)(send)(azure_stub.url)
    assert azure_stub.count == 1


def test_retries_of_azure_multiply(azure_stub):
    """Three attempts of ours, each with two more of azure-core's, are nine requests."""
    azure_stub.answers(error(503, "ServerBusy"))
    seen(lambda: send(azure_stub.url, retries=2))
    assert azure_stub.count == 9


@pytest.mark.skipif(not HAS_REQUESTS, reason="the table of urllib3 judges the name lookup")
def test_a_name_that_no_host_has_is_final(monkeypatch):
    """The resolver decides; it is asked by the real client, and its answer is scripted."""

    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    known = kind_of(seen(lambda: send("http://shop.invalid")))
    assert (known.kind, known.is_ambiguous) == (Kind.PERMANENT, False)
