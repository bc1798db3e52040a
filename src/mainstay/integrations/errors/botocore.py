"""botocore, boto3 and s3transfer: a ClientError by its error code, then by its status.

The classes that botocore makes for a service at run time (module botocore.errorfactory) derive from
ClientError, and are judged as it is.
"""

from __future__ import annotations

from mainstay.core.base.attributes import attribute
from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Inner, OwnRetries, Row, Same, Table, by_status
from mainstay.integrations.errors.shared import Sent, counted, frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_NOT_SENT = "no connection was made, so nothing was sent"
_LOST = "the connection failed after the request was sent, in part or whole"
_BASE = "a base class, which botocore itself does not raise"

_WRONG = Row(Kind.PERMANENT, "a mistake in the call")
_SETTINGS = Row(Kind.PERMANENT, "a mistake in the configuration")
_OF_A_TEST = Row(Kind.PERMANENT, "a stub that a test has set up otherwise")
_NO_CREDENTIALS = Row(Kind.AUTH, "there are no credentials, or they cannot be used")
_CONNECT = Row(Kind.TRANSIENT, _NOT_SENT)
_READ = Row(Kind.TRANSIENT, _LOST, ambiguous=True)
_DAMAGED = Row(Kind.TRANSIENT, "the answer came damaged or in part", ambiguous=True)
_METADATA = Row(Kind.TRANSIENT, "the service that has the credentials did not answer")

# --- error codes ----------------------------------------------------------------------------------

_THROTTLED = Row(Kind.THROTTLED, "the service asks for fewer requests")
_OVERLOAD = Row(Kind.OVERLOAD, "the service has no capacity for it at the moment")
_INTERNAL = Row(Kind.TRANSIENT, "an error inside the service", ambiguous=True)
_CONFLICT = Row(Kind.TRANSIENT, "refused, since another request was under way; nothing was changed")
_REFUSED = Row(Kind.AUTH, "credentials, signature or permission are not accepted")
_CLOCK = Row(Kind.AUTH, "the time in the signature is not accepted; compare the clock")
_MISSING = Row(Kind.PERMANENT, "what it names is not there")
_CONDITION = Row(Kind.PERMANENT, "a condition of the request does not hold")
_REQUEST = Row(Kind.PERMANENT, "a mistake in the request")

_CODES: dict[Row, str] = {
    _THROTTLED: """SlowDown SlowDownRead SlowDownWrite Throttl* RequestThrottled* EC2Throttled*
        RequestLimitExceeded BandwidthLimitExceeded LimitExceededException TooManyRequests
        TooManyRequestsException ProvisionedThroughputExceeded* KmsThrottled
        KMSThrottlingException""",
    _OVERLOAD: """ServiceUnavailable* Unavailable InsufficientInstanceCapacity
        InsufficientHostCapacity InsufficientCapacity* ModelNotReadyException""",
    _INTERNAL: """InternalError* InternalFailure* InternalServer* InternalService*
        InternalException ServerException""",
    _CONFLICT: """OperationAborted ConditionalRequestConflict TransactionConflict*
        TransactionInProgressException PriorRequestNotComplete ReplicatedWriteConflictException
        ConcurrentModification ConcurrentModificationException""",
    _REFUSED: """AccessDenied* AllAccessDisabled AccountProblem AuthFailure
        AuthorizationHeaderMalformed ExpiredToken* Forbidden IncompleteSignature InvalidAccessKeyId
        InvalidClientTokenId InvalidSecurity InvalidSignatureException InvalidToken
        MissingAuthenticationToken* MissingSecurityHeader NotAuthorized* NotSignedUp OptInRequired
        SignatureDoesNotMatch TokenRefreshRequired Unauthorized* UnrecognizedClientException""",
    _CLOCK: "RequestTimeTooSkewed RequestExpired RequestInTheFuture",
    _MISSING: """NoSuch* NotFound NotFoundException ResourceNotFound ResourceNotFoundException
        TableNotFoundException AWS.SimpleQueueService.NonExistentQueue QueueDoesNotExist""",
    _CONDITION: "PreconditionFailed ConditionalCheckFailedException NotModified",
    _REQUEST: """Validation* InvalidParameter* InvalidRequest* MalformedXML MalformedQueryString
        MethodNotAllowed EntityTooLarge EntityTooSmall BucketAlreadyExists
        BucketAlreadyOwnedByYou BucketNotEmpty TransactionCanceledException""",
    Row(Kind.TIMEOUT, "the service did not receive the whole request in time"): """RequestTimeout
        RequestTimeoutException""",
    Row(Kind.TRANSIENT, "fewer bytes arrived than were announced"): "IncompleteBody",
    Row(Kind.TRANSIENT, "the name of the bucket is still being moved"): "TemporaryRedirect",
    Row(Kind.PERMANENT, "the bucket is in another region"): "PermanentRedirect",
}
_ROWS: dict[str | int, Row] = {code: row for row, text in _CODES.items() for code in text.split()}


def _codes(error: Any) -> tuple[str | None, ...]:
    """The code of a ClientError; before it, why DynamoDB has cancelled a transaction."""
    response = error.response
    code, cancelled = response["Error"].get("Code"), response.get("CancellationReasons")
    if not cancelled:
        return (code,)
    of_a_conflict = ("TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded")
    named = [each["Code"] for each in cancelled if each.get("Code") not in (None, "None")]
    if not all(each in of_a_conflict for each in named):
        return (code,)
    return (*named[:1], code)


def _status(error: Any) -> tuple[int | None]:
    return (error.response["ResponseMetadata"]["HTTPStatusCode"],)


_CLIENT_ERROR = Cases(
    _codes,
    _ROWS,
    otherwise=by_status(
        Row(Kind.UNKNOWN, "an error code that is not known, and no status"),
        {509: Row(Kind.THROTTLED, "status 509, the limit of the bandwidth")},
        _status,
    ),
    of="error code",
)


_OF_A_HEAD = {
    "401": "Unauthorized", "403": "AccessDenied", "429": "Throttling", "500": "InternalError",
    "502": "InternalError", "503": "ServiceUnavailable", "504": "RequestTimeout",
}  # fmt: skip
"""An answer to a HEAD has no body: its code is the status, and this is the code of that."""


def _waiting(error: Any) -> tuple[str | None, ...]:
    """Why a waiter has ended, then the code of the last answer."""
    code = error.last_response.get("Error", {}).get("Code")
    return error.kwargs["reason"], code, _OF_A_HEAD.get(code)


_WAITER = Cases(
    _waiting,
    {
        "Max attempts exceeded*": Row(Kind.TIMEOUT, "the state was not reached in time"),
        "Waiter encountered*": Row(Kind.PERMANENT, "a state from which it is not reached"),
        **_ROWS,
    },
    otherwise=Row(Kind.UNKNOWN, "an error code that is not known"),
    of="reason",
)

# --- what an error has inside ---------------------------------------------------------------------


def _error(error: Any) -> BaseException | None:
    """What urllib3 raised."""
    found: BaseException | None = error.kwargs.get("error")
    return found


def _tls(error: Any) -> BaseException | None:
    """The error of the `ssl` module in the one of urllib3."""
    found: BaseException | None = error.kwargs["error"].args[0]
    return found


def _handled(error: Any) -> BaseException | None:
    """The error of botocore in whose place it was raised, and no other."""
    found: BaseException | None = error.__cause__ or error.__context__
    is_own = type(found).__module__.partition(".")[0] in ("botocore", "s3transfer")
    return found if is_own else None


def _last(error: Any) -> BaseException | None:
    found: BaseException | None = error.last_exception
    return found


_FAILED_TRANSFER = Inner(_handled, otherwise=Row(Kind.UNKNOWN, "a transfer failed; why is unknown"))
_GAVE_UP = Inner(_last, otherwise=_READ)

# --- classes --------------------------------------------------------------------------------------


def _each(module: str, names: str, row: Row) -> Mapping[str, Row]:
    return {f"{module}.{name}": row for name in names.split()}


_MISTAKES = """AliasConflictParameterError InvalidDNSNameError InvalidExpressionError
    InvalidHostLabelError InvalidRegionError MissingParametersError OperationNotPageableError
    PaginationError ParamValidationError RangeError UnknownClientMethodError UnknownKeyError
    UnknownParameterError UnsupportedOutpostResourceError UnsupportedS3ArnError
    UnsupportedS3ControlArnError ValidationError AwsChunkedWrapperError"""
_CONFIGURATION = """ApiVersionNotFoundError BaseEndpointResolverError ConfigNotFound
    ConfigParseError DataNotFoundError EndpointProviderError EndpointResolutionError
    EndpointVariantError InfiniteLoopConfigError InvalidChecksumConfigError InvalidConfigError
    InvalidDefaultsMode InvalidEndpointConfigurationError
    InvalidEndpointDiscoveryConfigurationError InvalidIMDSEndpointError
    InvalidIMDSEndpointModeError InvalidMaxRetryAttemptsError InvalidProxiesConfigError
    InvalidRetryConfigurationError InvalidRetryModeError InvalidS3AddressingStyleError
    InvalidS3UsEast1RegionalEndpointConfigError InvalidSTSRegionalEndpointsConfigError
    MD5UnavailableError MissingDependencyException MissingServiceIdError NoRegionError
    ProfileNotFound ServiceNotInRegionError UndefinedModelAttributeError UnknownCredentialError
    UnknownEndpointError UnknownEndpointResolutionBuiltInName UnknownFIPSEndpointError
    UnknownRegionError UnknownServiceError UnknownServiceStyle UnknownSignatureVersionError
    UnknownTokenProviderError UnsupportedS3AccesspointConfigurationError
    UnsupportedS3ConfigurationError UnsupportedS3ControlConfigurationError
    UnsupportedServiceProtocolsError UnsupportedSignatureVersionError WaiterConfigError"""
_CREDENTIALS = """LoginAuthorizationCodeError LoginError LoginInsufficientPermissions
    LoginRefreshRequired LoginTokenLoadError NoAuthTokenError NoCredentialsError
    PartialCredentialsError RefreshWithMFAUnsupportedError SSOError SSOTokenLoadError
    TokenRetrievalError UnauthorizedSSOTokenError"""

_READS = ("BatchGet", "Describe", "Get", "Head", "List", "Lookup", "Query", "Scan", "Search")


def _request(error: BaseException) -> object:
    """The request, which only some errors carry; the function that sent it has it as well."""
    carried = attribute(error, "request")
    if carried is not None:
        return carried
    sent = (each.f_locals.get("request") for each in frames(error, "botocore.httpsession"))
    found = next((each for each in sent if each is not None), None)
    if found is not None:
        return found
    for each in frames(error, "botocore.client"):  # an error that was answered
        made = each.f_locals.get("request_dict")
        if isinstance(made, dict):
            return Sent(made.get("method"), made.get("headers"))
    return None


def _only_reads(error: BaseException) -> bool:
    """Whether a POST may be repeated: one of S3, or of an operation that reads."""
    for each in frames(error, "botocore.client"):
        operation = each.f_locals.get("operation_name")
        if isinstance(operation, str):
            service = each.f_locals["self"].meta.service_model.service_name
            return service == "s3" or operation.startswith(_READS)
    target = attribute(attribute(_request(error), "headers"), "get")("X-Amz-Target")
    target = target.decode() if isinstance(target, bytes) else target
    return bool(target.rpartition(".")[2].startswith(_READS))


def _repeated(error: Any) -> int:
    answered = getattr(error, "response", None) or {}
    metadata = answered.get("ResponseMetadata", {})
    made = int(metadata.get("RetryAttempts") or 0) + 1
    return max(made, counted(error, "attempts", "botocore.endpoint"))


TABLE = Table(
    "botocore",
    {
        "botocore.exceptions.ClientError": _CLIENT_ERROR,
        "botocore.exceptions.EventStreamError": Same("botocore.exceptions.ClientError"),
        "botocore.exceptions.WaiterError": _WAITER,
        "botocore.exceptions.BotoCoreError": Row(Kind.UNKNOWN, _BASE),
        "botocore.exceptions.ConnectionError": _CONNECT,
        "botocore.exceptions.EndpointConnectionError": Inner(_error, otherwise=_CONNECT),
        "botocore.exceptions.ProxyConnectionError": _CONNECT,
        "botocore.exceptions.ConnectTimeoutError": Row(Kind.TIMEOUT, _NOT_SENT),
        "botocore.exceptions.SSLError": Inner(_tls, otherwise=_READ),
        "botocore.exceptions.HTTPClientError": Inner(_error, otherwise=_READ, ambiguous=True),
        "botocore.exceptions.ConnectionClosedError": _READ,
        "botocore.exceptions.ReadTimeoutError": Row(
            Kind.TIMEOUT, "sent, and no answer in time", ambiguous=True
        ),
        "botocore.exceptions.ResponseStreamingError": _DAMAGED,
        "botocore.exceptions.IncompleteReadError": _DAMAGED,
        "botocore.exceptions.ChecksumError": _DAMAGED,
        "botocore.exceptions.FlexibleChecksumError": _DAMAGED,
        "botocore.exceptions.UnseekableStreamError": Row(
            Kind.PERMANENT, "the body cannot be sent a second time: pass a file or bytes"
        ),
        "botocore.exceptions.CapacityNotAvailableError": Row(
            Kind.THROTTLED, "botocore's own limit of the rate; nothing was sent"
        ),
        "botocore.exceptions.CredentialRetrievalError": Inner(_handled, otherwise=_NO_CREDENTIALS),
        "botocore.exceptions.MetadataRetrievalError": _METADATA,
        "botocore.discovery.EndpointDiscoveryException": Row(Kind.UNKNOWN, _BASE),
        "botocore.discovery.EndpointDiscoveryRefreshFailed": Row(
            Kind.TRANSIENT,
            "the address of the service is not known at the moment; nothing was sent",
        ),
        "botocore.discovery.EndpointDiscoveryRequired": _SETTINGS,
        "botocore.parsers.ResponseParserError": _DAMAGED,
        "botocore.utils.BadIMDSRequestError": _METADATA,
        "botocore.utils._RetriesExceededError": _METADATA,
        "botocore.utils.InvalidArnException": _WRONG,
        "botocore.vendored.requests.exceptions.*": Row(Kind.UNKNOWN, _BASE),
        "botocore.vendored.requests.packages.urllib3.exceptions.*": Row(Kind.UNKNOWN, _BASE),
        **_each("botocore.exceptions", _MISTAKES, _WRONG),
        **_each("botocore.exceptions", _CONFIGURATION, _SETTINGS),
        **_each("botocore.exceptions", _CREDENTIALS, _NO_CREDENTIALS),
        **_each(
            "botocore.exceptions",
            "StubAssertionError StubResponseError UnStubbedResponseError",
            _OF_A_TEST,
        ),
        **_each(
            "botocore.eventstream",
            """ChecksumMismatch DuplicateHeader InvalidHeadersLength InvalidPayloadLength
            NoInitialResponseError ParserError""",
            _DAMAGED,
        ),
        **_each(
            "botocore.model",
            "InvalidShapeError InvalidShapeReferenceError NoShapeFoundError OperationNotFoundError",
            _SETTINGS,
        ),
        "boto3.exceptions.Boto3Error": Row(Kind.UNKNOWN, _BASE.replace("botocore", "boto3")),
        "boto3.exceptions.RetriesExceededError": _GAVE_UP,
        "boto3.exceptions.S3TransferFailedError": _FAILED_TRANSFER,
        "boto3.exceptions.S3UploadFailedError": _FAILED_TRANSFER,
        **_each(
            "boto3.exceptions",
            """DynamoDBNeedsConditionError DynamoDBNeedsKeyConditionError
            DynamoDBOperationNotSupportedError""",
            _WRONG,
        ),
        **_each(
            "boto3.exceptions",
            """InvalidCrtTransferConfigError NoVersionFound ResourceLoadException
            ResourceNotExistsError UnknownAPIVersionError""",
            _SETTINGS,
        ),
        "s3transfer.QueueShutdownError": Row(Kind.PERMANENT, "the transfer has been stopped"),
        "s3transfer.bandwidth.RequestExceededException": Row(
            Kind.THROTTLED, "s3transfer's own limit of the bandwidth"
        ),
        "s3transfer.exceptions.FatalError": Row(Kind.PERMANENT, "the transfers were cancelled"),
        "s3transfer.exceptions.InvalidSubscriberMethodError": _WRONG,
        "s3transfer.exceptions.RetriesExceededError": _GAVE_UP,
        "s3transfer.exceptions.S3CopyFailedError": Row(
            Kind.TRANSIENT, "the object changed meanwhile, or was copied in part", ambiguous=True
        ),
        "s3transfer.exceptions.S3DownloadFailedError": _FAILED_TRANSFER,
        "s3transfer.exceptions.S3UploadFailedError": _FAILED_TRANSFER,
        "s3transfer.exceptions.S3ValidationError": Row(
            Kind.TRANSIENT, "a part of the object came that was not asked for"
        ),
        "s3transfer.exceptions.TransferNotDoneError": _WRONG,
        "s3transfer.utils.NoResourcesAvailable": Row(
            Kind.OVERLOAD, "s3transfer has no slot free for another part"
        ),
    },
    packages=("botocore", "boto3", "s3transfer"),
    retries="2 by default (4 in the mode `legacy`, that of older versions); s3transfer begins"
    " a download up to 5 times. `Config(retries={'total_max_attempts': 1})` turns botocore's off",
    hint=lambda error: _milliseconds(error.response["ResponseMetadata"].get("HTTPHeaders")),
    request=_request,
    changes_nothing=_only_reads,
    key="a token or a condition (ClientToken, ClientRequestToken, MessageDeduplicationId)",
    key_headers=(),
    own_retries=OwnRetries(
        _repeated, "pass Config(retries={'total_max_attempts': 1}) to the client"
    ),
)


def _milliseconds(headers: Mapping[str, str] | None) -> float | None:
    asked = headers.get("x-amz-retry-after") if headers else None
    return None if asked is None else int(asked) / 1000
