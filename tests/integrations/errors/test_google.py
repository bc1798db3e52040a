"""Google's APIs through google-auth's session and google-api-core's parser of an answer.

The bodies are those of "HTTP status and error codes for JSON" in the reference of Cloud Storage,
and of AIP-193 (google.rpc.Status, ErrorInfo, RetryInfo).
"""

import warnings

import google.auth.exceptions
import google.auth.transport.requests
import pytest
from google.auth.credentials import AnonymousCredentials
from google.oauth2 import _client

import mainstay
from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.testing import virtual_time
from tests.integrations.errors.service_stub import (
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

with warnings.catch_warnings():  # it asks for grpcio-status if there is grpcio
    warnings.simplefilter("ignore", ImportWarning)
    import google.api_core.exceptions as api
    from google.api_core.retry import Retry

RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1.5s"}


@pytest.fixture(scope="module")
def service():
    with ServiceStub() as stub:
        yield stub


def error(status, reason="x", details=(), **headers):
    body = {"code": status, "message": "m", "errors": [{"reason": reason}], "details": [*details]}
    return in_json(status, {"error": body}, **headers)


def send(url, method="GET", timeout=60):
    """A request as Google's clients send it: an answer that is no success becomes an error."""
    session = google.auth.transport.requests.AuthorizedSession(
        AnonymousCredentials(), refresh_status_codes=()
    )
    response = session.request(method, url, timeout=timeout, allow_redirects=False)
    if response.status_code >= 300:
        raise api.from_http_response(response)


@pytest.mark.parametrize(
    ("status", "reason", "raised", "kind", "ambiguous", "count"),
    [
        (429, "rateLimitExceeded", api.TooManyRequests, Kind.THROTTLED, False, 3),
        (403, "userRateLimitExceeded", api.Forbidden, Kind.THROTTLED, False, 3),
        (403, "quotaExceeded", api.Forbidden, Kind.PERMANENT, False, 1),
        (503, "backendError", api.ServiceUnavailable, Kind.TRANSIENT, True, 3),
        (503, "x", api.ServiceUnavailable, Kind.OVERLOAD, False, 3),
        (500, "x", api.InternalServerError, Kind.TRANSIENT, True, 3),
        (502, "x", api.BadGateway, Kind.TRANSIENT, True, 3),
        (504, "x", api.GatewayTimeout, Kind.TIMEOUT, True, 3),
        (408, "x", api.GoogleAPICallError, Kind.TIMEOUT, False, 3),
        (401, "authError", api.Unauthorized, Kind.AUTH, False, 1),
        (403, "forbidden", api.Forbidden, Kind.AUTH, False, 1),
        (404, "notFound", api.NotFound, Kind.PERMANENT, False, 1),
        (409, "conflict", api.Conflict, Kind.PERMANENT, False, 1),
        (412, "conditionNotMet", api.PreconditionFailed, Kind.PERMANENT, False, 1),
        (400, "invalid", api.BadRequest, Kind.PERMANENT, False, 1),
        (405, "x", api.MethodNotAllowed, Kind.PERMANENT, False, 1),
        (411, "x", api.LengthRequired, Kind.PERMANENT, False, 1),
        (416, "x", api.RequestRangeNotSatisfiable, Kind.PERMANENT, False, 1),
        (499, "x", api.Cancelled, Kind.PERMANENT, False, 1),
        (501, "x", api.MethodNotImplemented, Kind.PERMANENT, False, 1),
        (301, "x", api.MovedPermanently, Kind.PERMANENT, False, 1),
        (307, "x", api.TemporaryRedirect, Kind.PERMANENT, False, 1),
        (304, "x", api.NotModified, Kind.PERMANENT, False, 1),
        (308, "x", api.ResumeIncomplete, Kind.TRANSIENT, True, 3),
    ],
)
def test_what_google_answers(service, status, reason, raised, kind, ambiguous, count):
    """The reason in the body decides before the status: a 403 may be a matter of the rate."""
    service.answers(error(status, reason))
    problem = seen(lambda: send(service.url))
    known = kind_of(problem)
    assert isinstance(problem, raised)
    assert (known.kind, known.is_ambiguous, service.count) == (kind, ambiguous, count)


@pytest.mark.parametrize(
    ("answer", "wait"),
    [
        (error(429, retry_after="7"), 7.0),
        (error(503, retry_after=LATER, date=DATE), 7.0),
        (error(429, details=[RETRY_INFO]), 1.5),
    ],
    ids=["seconds", "date", "RetryInfo"],
)
def test_the_wait_that_google_asks_for_is_kept(service, answer, wait):
    """In the header, or in the body as RetryInfo."""
    service.answers(answer)
    problem = seen(lambda: send(service.url), attempts=2)
    assert mainstay.RetryPolicy().classification(problem).retry_after == wait
    assert problem.waits[0] >= wait


UNSAFE = "POST without a condition or an id (if_generation_match, request_id)"


def test_a_post_that_failed_inside_google_is_not_sent_again(service):
    """The answer has the request with it, so its method is known."""
    service.answers(error(500))
    known = kind_of(seen(lambda: send(service.url, "POST")))
    assert (known.unsafe, service.count) == (UNSAFE, 1)


def test_a_rule_that_names_the_class_names_its_status(service):
    """An object that is about to be written is waited for; a base class names nothing."""
    for on, count in ((api.NotFound, 3), (api.ClientError, 1)):
        service.answers(error(404))
        with virtual_time(), pytest.raises(api.NotFound):
            mainstay.retry(on=on, attempts=3)(send)(service.url)
        assert service.count == count


def test_what_googles_own_retry_gave_up_on_is_judged_by_its_cause(service):
    """Its RetryError has the last failure inside."""
    service.answers(error(503))
    repeat = Retry(lambda _error: True, timeout=0.01)
    with pytest.raises(api.RetryError) as caught:
        repeat(send)(service.url)
    assert kind_of(caught.value).kind is Kind.OVERLOAD


def token(url):
    """Asks for a token, as credentials of google-auth do when they are refreshed."""
    request = google.auth.transport.requests.Request()
    return _client._token_endpoint_request(request, url, {}, can_retry=False)


@pytest.mark.parametrize(
    ("status", "content", "kind", "count"),
    [
        (400, {"error": "invalid_grant"}, Kind.AUTH, 1),
        (503, {"error": "temporarily_unavailable"}, Kind.TRANSIENT, 3),
        (500, {"error": "internal_failure"}, Kind.TRANSIENT, 3),
    ],
)
def test_a_token_that_cannot_be_refreshed(service, status, content, kind, count):
    """The bodies are those of RFC 6749, section 5.2; google-auth marks what may be repeated."""
    service.answers(in_json(status, content))
    problem = seen(lambda: token(service.url))
    assert isinstance(problem, google.auth.exceptions.RefreshError)
    assert (kind_of(problem).kind, service.count) == (kind, count)


def test_a_token_service_that_cannot_be_reached_is_tried_again():
    """A dead port."""
    tries, url = [], f"http://127.0.0.1:{dead_port()}"
    problem = seen(lambda: (tries.append(1), token(url)))
    known = kind_of(problem)
    assert isinstance(problem, google.auth.exceptions.TransportError)
    assert (known.kind, known.is_ambiguous, len(tries)) == (Kind.TRANSIENT, False, 3)


@pytest.mark.skipif(not HAS_REQUESTS, reason="the table of requests judges a lost connection")
@pytest.mark.parametrize(("answer", "kind"), [(RESET, Kind.TRANSIENT), (SILENCE, Kind.TIMEOUT)])
def test_an_answer_that_does_not_come_leaves_it_in_doubt(service, answer, kind):
    """The session hands on the errors of requests."""
    service.answers(answer)
    timeout = 0.2 if answer is SILENCE else 60
    known = kind_of(seen(lambda: send(service.url, timeout=timeout), attempts=2))
    wait_until(lambda: service.count >= 2, "the requests")
    assert (known.kind, known.is_ambiguous, service.count) == (kind, True, 2)


@pytest.mark.parametrize(
    ("code", "kind", "ambiguous"),
    [
        ("UNAVAILABLE", Kind.OVERLOAD, False),
        ("RESOURCE_EXHAUSTED", Kind.THROTTLED, False),
        ("ABORTED", Kind.TRANSIENT, False),
        ("DEADLINE_EXCEEDED", Kind.TIMEOUT, True),
        ("INTERNAL", Kind.TRANSIENT, True),
        ("UNKNOWN", Kind.UNKNOWN, True),
        ("UNAUTHENTICATED", Kind.AUTH, False),
        ("PERMISSION_DENIED", Kind.AUTH, False),
        ("ALREADY_EXISTS", Kind.PERMANENT, False),
        ("FAILED_PRECONDITION", Kind.PERMANENT, False),
        ("INVALID_ARGUMENT", Kind.PERMANENT, False),
        ("OUT_OF_RANGE", Kind.PERMANENT, False),
        ("DATA_LOSS", Kind.PERMANENT, False),
        ("CANCELLED", Kind.PERMANENT, False),
    ],
)
def test_grpc_codes_are_read_by_the_parser_of_google_api_core(code, kind, ambiguous):
    """A code of gRPC has a class of its own; ABORTED is no conflict that stays."""
    grpc = pytest.importorskip("grpc")
    known = kind_of(api.from_grpc_status(grpc.StatusCode[code], "m"))
    assert (known.kind, known.is_ambiguous) == (kind, ambiguous)
