"""Google: rows of the table that the other tests do not come to, raised by the real libraries.

A client of long-running operations, which google-api-core has, speaks HTTP to a stub; the wrapper
that every client of Google Cloud puts around a method of gRPC speaks to a local server.
"""

import json
import warnings

import google.auth.aio.transport.aiohttp
import google.auth.app_engine
import google.auth.exceptions
import google.auth.jwt
import google.auth.transport.requests
import google.oauth2.challenges
import google.oauth2.reauth
import google.oauth2.utils
import grpc
import pytest
import requests
from google.auth import _cloud_sdk, _default, aws, downscoped, impersonated_credentials
from google.auth.credentials import AnonymousCredentials

from tests.integrations.errors.grpc_server import GrpcServer
from tests.integrations.errors.rows import comes_to
from tests.integrations.errors.service_stub import CUT, ServiceStub, in_json

with warnings.catch_warnings():  # it asks for grpcio-status if there is grpcio
    warnings.simplefilter("ignore", ImportWarning)
    import google.api_core._feature_gating_helpers as gates
    import google.api_core.exceptions as api
    import google.api_core.future.async_future
    import google.api_core.future.polling
    import google.api_core.iam
    import google.api_core.universe
    from google.api_core import grpc_helpers
    from google.api_core.operations_v1 import AbstractOperationsClient
    from google.api_core.operations_v1.transports.rest import OperationsRestTransport
    from google.api_core.retry.retry_base import RetryFailureReason, build_retry_error

CALL = "GoogleAPICallError"
pytestmark = [
    pytest.mark.filterwarnings("ignore:Please install grpcio-status:ImportWarning"),
    pytest.mark.filterwarnings("ignore:The :DeprecationWarning"),  # a file with credentials
]


@pytest.fixture(scope="module")
def stub():
    with ServiceStub() as stub:
        yield stub


class Plain(requests.adapters.HTTPAdapter):
    """The client of operations speaks HTTPS alone; the stub does not."""

    def send(self, request, *args, **options):
        request.url = request.url.replace("https:", "http:", 1)
        return super().send(request, *args, **options)


@pytest.fixture(scope="module")
def operations(stub):
    host = stub.url.removeprefix("http://")
    transport = OperationsRestTransport(
        host=host, credentials=AnonymousCredentials(), url_scheme="http"
    )
    transport._session._refresh_status_codes = ()
    transport._session.mount("https://", Plain())
    made = AbstractOperationsClient(transport=transport)
    return lambda: made.get_operation("shop/operations/7", retry=None, timeout=10)


def error(status, reason="x"):
    body = {"code": status, "message": "m", "errors": [{"reason": reason}]}
    return in_json(status, {"error": body})


REASONS = {
    "rateLimitExceeded": 429, "userRateLimitExceeded": 403, "quotaExceeded": 403,
    "dailyLimitExceeded": 403, "backendError": 503,
}  # fmt: skip
CLASSES = {
    "BadRequest": 400, "Unauthorized": 401, "Forbidden": 403, "NotFound": 404,
    "MethodNotAllowed": 405, "Conflict": 409, "LengthRequired": 411, "PreconditionFailed": 412,
    "RequestRangeNotSatisfiable": 416, "TooManyRequests": 429, "Cancelled": 499,
    "InternalServerError": 500, "MethodNotImplemented": 501, "BadGateway": 502,
    "ServiceUnavailable": 503, "GatewayTimeout": 504,
}  # fmt: skip
STATUSES = {"407": 407, "408": 408, "425": 425, "4*": 418, "5*": 508}


@pytest.mark.parametrize(
    ("row", "answer"),
    [(f"{CALL} class or reason {each}", error(REASONS[each], each)) for each in REASONS]
    + [(f"{CALL} class or reason {each}", error(CLASSES[each])) for each in CLASSES]
    + [(f"{CALL} status {each}", error(STATUSES[each])) for each in STATUSES],
)
def test_what_a_service_answers_over_http(stub, operations, row, answer):
    """The client of operations raises it, and has sent one request."""
    stub.answers(answer)
    comes_to(row, operations)
    assert stub.count == 1


@pytest.fixture(scope="module")
def server():
    server = GrpcServer()
    yield server
    server.stop()


CODES = {
    "InvalidArgument": "INVALID_ARGUMENT", "OutOfRange": "OUT_OF_RANGE",
    "FailedPrecondition": "FAILED_PRECONDITION", "Unauthenticated": "UNAUTHENTICATED",
    "PermissionDenied": "PERMISSION_DENIED", "NotFound": "NOT_FOUND",
    "AlreadyExists": "ALREADY_EXISTS", "Aborted": "ABORTED", "Unknown": "UNKNOWN",
    "ResourceExhausted": "RESOURCE_EXHAUSTED", "Cancelled": "CANCELLED", "DataLoss": "DATA_LOSS",
    "InternalServerError": "INTERNAL", "MethodNotImplemented": "UNIMPLEMENTED",
    "ServiceUnavailable": "UNAVAILABLE", "DeadlineExceeded": "DEADLINE_EXCEEDED",
}  # fmt: skip


@pytest.fixture(scope="module")
def channel(server):
    with grpc.insecure_channel(server.target) as channel:
        yield channel


@pytest.mark.parametrize("name", CODES)
def test_what_a_service_answers_over_grpc(channel, name):
    """google-api-core gives each code a class of its own."""
    method = grpc_helpers.wrap_errors(channel.unary_unary(f"/t.T/{CODES[name]}"))
    comes_to(f"{CALL} class or reason {name}", lambda: method(b"", timeout=30))


@pytest.mark.parser
@pytest.mark.parametrize(
    ("status", "name"),
    [
        (301, "MovedPermanently"),
        (307, "TemporaryRedirect"),
        (304, "NotModified"),
        (308, "ResumeIncomplete"),
    ],
)
def test_statuses_that_only_some_clients_hand_to_the_parser(stub, status, name):
    """Those of uploads; google-api-core makes the exception from the answer of a server."""
    from tools.provoked import handed

    stub.answers(error(status))
    session = google.auth.transport.requests.AuthorizedSession(AnonymousCredentials())
    answered = session.get(stub.url, allow_redirects=False, timeout=10)

    def parse():
        raise handed(api.from_http_response(answered))

    comes_to(f"{CALL} class or reason {name}", parse)
    session.close()


# --- google-auth ----------------------------------------------------------------------------------


def plain():
    return google.auth.transport.requests.Request()


def oauth(_stub):
    answered = json.dumps({"error": "invalid_client", "error_description": "d"})
    google.oauth2.utils.handle_error_response(answered)


def reauthenticate(stub):
    """A challenge of a kind that nobody knows."""
    first = {"status": "CHALLENGE_REQUIRED", "sessionId": "1", "challenges": []}
    stub.answers(in_json(200, first))
    google.oauth2.reauth._run_next_challenge(
        {"challenges": [{"status": "READY", "challengeType": "NONE"}], "sessionId": "1"},
        plain(), "token",
    )  # fmt: skip


def cut_answer(stub):
    async def read():
        import aiohttp

        stub.answers(CUT)
        async with aiohttp.ClientSession() as session:
            request = google.auth.aio.transport.aiohttp.Request(session)
            response = await request(stub.url, timeout=10)
            try:
                async for _ in response.content():
                    pass
            finally:
                await response.close()

    return read()


def no_gcloud(monkeypatch):
    monkeypatch.setenv("PATH", "/none")
    _cloud_sdk.get_auth_access_token()


class Pending(google.api_core.future.polling.PollingFuture):
    def done(self, retry=None):
        return False

    def cancel(self):
        """Nothing."""

    def cancelled(self):
        return False

    def running(self):
        return True


class PendingLater(google.api_core.future.async_future.AsyncFuture):
    def __init__(self):
        """Without a loop."""

    async def done(self, retry=None):
        return False

    cancel = cancelled = running = None


def policy():
    made = google.api_core.iam.Policy(version=3)
    made["roles/x"] = []


def never_retried():
    error, _ = build_retry_error([], RetryFailureReason.NON_RETRYABLE_ERROR, None)
    from tools.provoked import handed

    raise handed(error)


def wrong_file(tmp_path, text="{"):
    (tmp_path / "key.json").write_text(text)
    _default.load_credentials_from_file(str(tmp_path / "key.json"))


AUTH = {
    "auth.exceptions.OAuthError otherwise": oauth,
    "ReauthFailError": reauthenticate,
    "auth.exceptions.ResponseError": cut_answer,
    "ReauthSamlChallengeFailError": lambda _: google.oauth2.challenges.SamlChallenge()
    .obtain_challenge_input({}),
    "GoogleAuthError": lambda _: impersonated_credentials.IDTokenCredentials(object()),
    "MalformedError": lambda _: google.auth.jwt.decode("no token", verify=False),
    "InvalidValue": lambda _: google.auth.jwt._verify_iat_and_exp(
        {"iat": 1, "exp": 2}
    ),
    "InvalidOperation": lambda _: AnonymousCredentials().refresh(plain()),
    "InvalidResource": lambda _: aws.RequestSigner("eu-west-1").get_request_options(
        None, "ftp://", "GET"
    ),
    "InvalidType": lambda _: downscoped.CredentialAccessBoundary(rules=["x"]),
    "google.auth.exceptions.OSError": lambda _: google.auth.app_engine.get_project_id(),
    "DuplicateCredentialArgs": lambda _: grpc_helpers._create_composite_credentials(
        credentials=AnonymousCredentials(), credentials_file="x"
    ),
    "FeatureGatingError": lambda _: gates.resolve_feature_flags(
        configuration={"x": True}, feature_key="x", env_var="GOOGLE_EXPERIMENTAL_X"
    ),
    "InvalidOperationException": lambda _: policy(),
    "EmptyUniverseError": lambda _: google.api_core.universe.determine_domain("", None),
    "UniverseMismatchError": lambda _: google.api_core.universe.compare_domains(
        "example.com", AnonymousCredentials()
    ),
    "future.polling._OperationNotComplete": lambda _: Pending()._done_or_raise(),
    "async_future._OperationNotComplete": lambda _: PendingLater()._done_or_raise(),
    "RetryError otherwise": lambda _: never_retried(),
}  # fmt: skip


@pytest.mark.parametrize("row", AUTH)
def test_credentials_and_wrong_calls(stub, row):
    """google-auth and google-api-core raise it."""
    comes_to(row, lambda: AUTH[row](stub))


def test_credentials_that_are_not_there(tmp_path, monkeypatch):
    """A file that is no key, and a gcloud that is not installed."""
    comes_to("DefaultCredentialsError", lambda: wrong_file(tmp_path))
    comes_to("UserAccessTokenError", lambda: no_gcloud(monkeypatch))
