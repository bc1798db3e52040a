"""google-api-core and google-auth, which every Google Cloud client raises the errors of.

A class of google-api-core stands for one HTTP status or gRPC code, so a rule that names the class
names that.
"""

from __future__ import annotations

from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Inner, OwnRetries, Row, Same, Table, by_status
from mainstay.integrations.errors.shared import frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

_WRONG = Row(Kind.PERMANENT, "a mistake in the call")
_REDIRECT = Row(Kind.PERMANENT, "a redirect that the client does not follow")
_CONDITION = Row(Kind.PERMANENT, "a condition of the request does not hold")
_EXISTS = Row(Kind.PERMANENT, "it is there already, or was changed meanwhile")
_MISSING = Row(Kind.PERMANENT, "what it names is not there")
_NOT_OFFERED = Row(Kind.PERMANENT, "the service does not offer it")
_THROTTLED = Row(Kind.THROTTLED, "the service asks for fewer requests")
_OVERLOAD = Row(Kind.OVERLOAD, "the service cannot take it at the moment")
_REFUSED = Row(Kind.AUTH, "the credentials are not accepted")
_FORBIDDEN = Row(Kind.AUTH, "the credentials do not permit it")
_QUOTA = Row(Kind.PERMANENT, "a quota is used up")
_INTERNAL = Row(Kind.TRANSIENT, "an error inside the service", ambiguous=True)
_TIMEOUT = Row(Kind.TIMEOUT, "no answer in time; it may be under way", ambiguous=True)

_REASONS: dict[str | int, Row] = {
    "rateLimitExceeded": _THROTTLED,
    "userRateLimitExceeded": _THROTTLED,
    "quotaExceeded": _QUOTA,
    "dailyLimitExceeded": _QUOTA,
    "backendError": _INTERNAL,
}
"""Google's own words, in the body; a 403 with the first two is no matter of permission."""

_CLASSES: dict[str | int, Row] = {
    "MovedPermanently": _REDIRECT,
    "TemporaryRedirect": _REDIRECT,
    "NotModified": _CONDITION,
    "ResumeIncomplete": Row(Kind.TRANSIENT, "the upload is not complete yet", ambiguous=True),
    "BadRequest": _WRONG,
    "InvalidArgument": _WRONG,
    "OutOfRange": _WRONG,
    "FailedPrecondition": _CONDITION,
    "Unauthorized": _REFUSED,
    "Unauthenticated": _REFUSED,
    "Forbidden": _FORBIDDEN,
    "PermissionDenied": _FORBIDDEN,
    "NotFound": _MISSING,
    "MethodNotAllowed": _NOT_OFFERED,
    "Conflict": _EXISTS,
    "AlreadyExists": _EXISTS,
    "Aborted": Row(Kind.TRANSIENT, "given up for another transaction; nothing was changed"),
    "LengthRequired": _WRONG,
    "PreconditionFailed": _CONDITION,
    "RequestRangeNotSatisfiable": _WRONG,
    "TooManyRequests": _THROTTLED,
    "ResourceExhausted": _THROTTLED,
    "Cancelled": Row(Kind.PERMANENT, "the call was cancelled"),
    "InternalServerError": _INTERNAL,
    "Unknown": Row(Kind.UNKNOWN, "the service does not give the reason", ambiguous=True),
    "DataLoss": Row(Kind.PERMANENT, "data are lost or damaged"),
    "MethodNotImplemented": _NOT_OFFERED,
    "BadGateway": _INTERNAL,
    "ServiceUnavailable": _OVERLOAD,
    "GatewayTimeout": _TIMEOUT,
    "DeadlineExceeded": _TIMEOUT,
    "TransferStalledError": Row(Kind.TIMEOUT, "the upload was too slow", ambiguous=True),
    "UnseekableStreamError": Row(Kind.PERMANENT, "the body cannot be sent a second time"),
    "UploadCancelledError": Row(Kind.PERMANENT, "the upload was cancelled"),
    "MissingStatusHeaderError": Row(
        Kind.TRANSIENT, "the answer to a part of the upload is not complete", ambiguous=True
    ),
}


def _cases(error: Any) -> Iterator[str]:
    """The reasons in the body, then the class."""
    for each in error.errors:
        if isinstance(each, dict):
            yield each.get("reason", "")
    yield type(error).__name__


def _code(error: Any) -> tuple[int | None]:
    return (error.code,)


_API = "google.api_core.exceptions."
_CALL = Cases(
    _cases,
    {**_REASONS, **_CLASSES},
    otherwise=by_status(read=_code),
    of="class or reason",
)


def _first(error: Any) -> BaseException | None:
    found: BaseException | None = error.args[0]
    return found


_CREDENTIALS = Row(Kind.AUTH, "there are no credentials, or they cannot be used")
_REFRESH = Cases(
    lambda error: ("repeatable",) if error.retryable else (),
    {"repeatable": Row(Kind.TRANSIENT, "the token service could not answer at the moment")},
    otherwise=_CREDENTIALS,
    of="case",
)


def _repeated(error: BaseException) -> int:
    modules = ("google.api_core.retry.retry_unary", "google.api_core.retry.retry_unary_async")
    lists = [of.f_locals.get("error_list") for each in modules for of in frames(error, each)]
    return max([len(each) for each in lists if isinstance(each, list)], default=0)


def _retry_info(error: Any) -> float | None:
    """`RetryInfo` of google.rpc: in JSON, or as the message that gRPC has."""
    for each in error.details:
        if isinstance(each, dict) and each.get("@type", "").endswith("google.rpc.RetryInfo"):
            return float(each["retryDelay"].removesuffix("s"))
        delay = getattr(each, "retry_delay", None)
        if delay is not None:
            return float(delay.seconds + delay.nanos / 1e9)
    return None


def _each(module: str, names: str, row: Row) -> Mapping[str, Row]:
    return {f"{module}.{name}": row for name in names.split()}


TABLE = Table(
    "google",
    {
        f"{_API}GoogleAPIError": Row(Kind.UNKNOWN, "a base class, which is not raised itself"),
        f"{_API}GoogleAPICallError": _CALL,
        **{
            f"{_API}{name}": Same(f"{_API}GoogleAPICallError")
            for name in ("ClientError", "Redirection", "ResumableTransferError", "ServerError")
        },
        **{f"{_API}{name}": Same(f"{_API}GoogleAPICallError") for name in _CLASSES},
        f"{_API}RetryError": Inner("cause", otherwise=_TIMEOUT),
        f"{_API}AsyncRestUnsupportedParameterError": _WRONG,
        f"{_API}DuplicateCredentialArgs": _WRONG,
        "google.api_core._feature_gating_helpers.FeatureGatingError": _WRONG,
        "google.api_core.iam.InvalidOperationException": _WRONG,
        **_each("google.api_core.universe", "EmptyUniverseError UniverseMismatchError", _WRONG),
        **_each(
            "google.api_core.future",
            "async_future._OperationNotComplete polling._OperationNotComplete",
            Row(Kind.TRANSIENT, "the operation is not complete yet"),
        ),
        "google.auth.exceptions.GoogleAuthError": Row(
            Kind.PERMANENT, "credentials or a token of the wrong sort"
        ),
        "google.auth.exceptions.TransportError": Inner(
            _first, otherwise=Row(Kind.TRANSIENT, "the token service could not be reached")
        ),
        "google.auth.exceptions.TimeoutError": Row(Kind.TIMEOUT, "no answer in time"),
        "google.auth.exceptions.RefreshError": _REFRESH,
        "google.auth.exceptions.OAuthError": _REFRESH,
        "google.auth.exceptions.ResponseError": Row(
            Kind.TRANSIENT, "the token service gave an answer that cannot be read"
        ),
        **_each(
            "google.auth.exceptions",
            """ClientCertError DefaultCredentialsError MalformedError MutualTLSChannelError OSError
            ReauthFailError ReauthSamlChallengeFailError UserAccessTokenError""",
            _CREDENTIALS,
        ),
        **_each(
            "google.auth.exceptions",
            "InvalidOperation InvalidResource InvalidType InvalidValue",
            _WRONG,
        ),
        "google.auth.transport._mtls_helper._MemfdCreationError": _CREDENTIALS,
    },
    packages=("google.api_core", "google.auth"),
    retries="a client of Google Cloud repeats some of its methods for two to ten minutes: pass"
    " `retry=None` to a method to turn that off; google-auth asks for a token three times",
    hint=_retry_info,
    own_retries=OwnRetries(_repeated, "pass retry=None to the method"),
    key="a condition or an id (if_generation_match, request_id)",
)
