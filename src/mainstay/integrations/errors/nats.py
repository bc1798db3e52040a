"""nats-py: core NATS by class, JetStream by the `err_code` of its answers, then by their status.

The codes are those of nats-server's server/errors.json.
"""

from __future__ import annotations

from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Row, Same, Table, by_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mainstay.core.known.table import Entry

_WRONG = Row(Kind.PERMANENT, "a mistake in the call")
_AUTH = Row(Kind.AUTH, "the server refuses the credentials")
_LOST = Row(
    Kind.TRANSIENT, "the connection was lost after the message was sent, maybe", ambiguous=True
)
_NO_ANSWER = Row(Kind.TIMEOUT, "sent, and no answer in time", ambiguous=True)
_TLS = Row(Kind.PERMANENT, "client and server do not agree about TLS")
_NOT_FOUND = Row(Kind.PERMANENT, "there is no such stream, consumer, message, key or object")
_UNAVAILABLE = Row(Kind.OVERLOAD, "JetStream is not available at present")
_FAILED = Row(Kind.TRANSIENT, "the server failed, maybe after it had stored it", ambiguous=True)
_FULL = Row(Kind.OVERLOAD, "the stream is full, or the server's memory or disk is")
_OFFLINE = Row(Kind.OVERLOAD, "no server of the stream or the consumer is there at present")
_CHANGED = Row(Kind.PERMANENT, "another client has written since: it must be read again")
_NO_JETSTREAM = Row(Kind.PERMANENT, "the server or the account is without JetStream")
_LEADER = Row(Kind.TRANSIENT, "another server is becoming the leader")

# --- JetStream ------------------------------------------------------------------------------------

_ANSWERS: dict[str | int, Row] = {
    10002: _FULL,
    10005: Row(Kind.OVERLOAD, "no server has room for the stream at present"),
    10006: Row(Kind.TRANSIENT, "not all servers have answered"),
    10008: _UNAVAILABLE,
    10009: _LEADER,
    10011: Row(Kind.PERMANENT, "the server is in no cluster"),
    10023: _FULL,
    10028: _FULL,
    10039: _NO_JETSTREAM,
    10040: Row(Kind.TRANSIENT, "the stream is moving to another server"),
    10041: _FAILED,
    10047: _FULL,
    10070: _CHANGED,
    10071: _CHANGED,
    10074: Row(Kind.PERMANENT, "the server is in no cluster"),
    10076: _NO_JETSTREAM,
    10077: _FULL,
    10118: _OFFLINE,
    10119: _OFFLINE,
    10164: _CHANGED,
    10167: Row(Kind.THROTTLED, "more requests than the server accepts"),
    "409 Leadership Change*": _LEADER,
    "409 Server Shutdown*": Row(Kind.TRANSIENT, "the server ends"),
    "409 Exceeded MaxWaiting*": Row(Kind.OVERLOAD, "too many requests wait for messages"),
    401: _AUTH,
    403: _AUTH,
    404: _NOT_FOUND,
    408: Row(Kind.TIMEOUT, "no message came in time"),
    429: Row(Kind.THROTTLED, "more requests than the server accepts"),
    500: _FAILED,
    503: _UNAVAILABLE,
    "4*": Row(Kind.PERMANENT, "JetStream refuses the request: the same answer every time"),
}


def _answer(error: Any) -> list[str | int | None]:
    """Code, and status; the status 409 has many meanings, which its words separate."""
    words = f"409 {error.description}" if error.code == 409 else None
    return [error.err_code, words, error.code]


def _api(otherwise: Row) -> Cases:
    """By the answer; nats-py raises some of the classes without one."""
    return Cases(_answer, _ANSWERS, otherwise=otherwise)


# --- the connection -------------------------------------------------------------------------------

_WORDS = (
    ("authorization", "auth"),
    ("authentication", "auth"),
    ("permissions violation", "auth"),
    ("maximum connections exceeded", "full"),
    ("expecting info message", "lost"),
    ("stale connection", "lost"),
    ("connection throttling", "throttled"),
    ("connect url", "mistake"),
    ("websocket", "mistake"),
    ("ssl context", "mistake"),
    ("json parse error", "mistake"),
    ("payload violation", "mistake"),
)


def _words(error: BaseException) -> list[str]:
    """What the server's own words, or those of nats-py, are about."""
    text = str(error).lower()
    return [case for words, case in _WORDS if words in text]


_PLAIN = Cases(
    _words,
    {
        "auth": _AUTH,
        "full": Row(Kind.OVERLOAD, "the server has as many connections as it accepts"),
        "throttled": Row(Kind.THROTTLED, "the server accepts connections more slowly"),
        "lost": Row(Kind.TRANSIENT, "the connection was closed while it was made"),
        "mistake": _WRONG,
    },
    otherwise=Row(Kind.UNKNOWN, "an error in the server's own words"),
    of="words",
)

_ENTRIES: dict[str, Entry] = {
    "nats.errors.Error": _PLAIN,
    "nats.errors.TimeoutError": _NO_ANSWER,
    "nats.errors.FlushTimeoutError": Row(
        Kind.TIMEOUT, "sent, and the server did not confirm it in time", ambiguous=True
    ),
    "nats.errors.DrainTimeoutError": Row(
        Kind.TIMEOUT, "not everything was sent or handled in time", ambiguous=True
    ),
    "nats.errors.NoRespondersError": Row(
        Kind.TRANSIENT, "nobody listens on the subject at present, so nobody has got it"
    ),
    "nats.errors.NoServersError": Row(
        Kind.TRANSIENT, "no server accepted a connection, so nothing was sent"
    ),
    "nats.errors.StaleConnectionError": _LOST,
    "nats.errors.UnexpectedEOF": Same("nats.errors.StaleConnectionError"),
    "nats.errors.ProtocolError": _LOST,
    "nats.errors.ConnectionReconnectingError": Row(
        Kind.TRANSIENT, "the client is connecting again; nothing was sent"
    ),
    "nats.errors.OutboundBufferLimitError": Row(
        Kind.OVERLOAD, "the client keeps as much for an unavailable server as it may"
    ),
    "nats.errors.SlowConsumerError": Row(
        Kind.OVERLOAD, "messages came faster than they were handled, and were dropped"
    ),
    "nats.errors.ConnectionClosedError": Row(
        Kind.PERMANENT, "the client is closed, and does not connect again; nothing was sent"
    ),
    "nats.errors.ConnectionDrainingError": Row(
        Kind.PERMANENT, "the client is being closed; nothing was sent"
    ),
    "nats.errors.AuthorizationError": _AUTH,
    "nats.errors.InvalidUserCredentialsError": _AUTH,
    "nats.errors.MaxPayloadError": Row(Kind.PERMANENT, "more than the server accepts in a message"),
    "nats.errors.SecureConnRequiredError": _TLS,
    "nats.errors.SecureConnWantedError": _TLS,
    "nats.errors.SecureConnFailedError": _TLS,
    "nats.errors.BadSubscriptionError": _WRONG,
    "nats.errors.BadSubjectError": _WRONG,
    "nats.errors.BadHeaderError": _WRONG,
    "nats.errors.BadTimeoutError": _WRONG,
    "nats.errors.JsonParseError": Row(Kind.PERMANENT, "the answer is no JSON", ambiguous=True),
    "nats.errors.InvalidCallbackTypeError": _WRONG,
    "nats.errors.MsgAlreadyAckdError": _WRONG,
    "nats.errors.NotJSMessageError": _WRONG,
    "nats.errors.ServerNotInPoolError": _WRONG,
    "nats.protocol.parser.ErrProtocol": Same("nats.errors.ProtocolError"),
    "nats.js.errors.Error": _WRONG,
    "nats.js.errors.APIError": _api(Row(Kind.UNKNOWN, "an answer without a code")),
    "nats.js.errors.ServiceUnavailableError": _api(_UNAVAILABLE),
    "nats.js.errors.ServerError": _api(_FAILED),
    "nats.js.errors.NotFoundError": _api(_NOT_FOUND),
    "nats.js.errors.BadRequestError": _api(_WRONG),
    "nats.js.errors.ConsumerInvalidResetError": Same("nats.js.errors.BadRequestError"),
    "nats.js.errors.NoStreamResponseError": Row(
        Kind.TRANSIENT, "no stream listens on the subject at present, so nothing was stored"
    ),
    "nats.js.errors.TooManyStalledMsgsError": Row(
        Kind.OVERLOAD, "too many messages wait for their acknowledgement; this was not sent"
    ),
    "nats.js.errors.FetchTimeoutError": Row(Kind.TIMEOUT, "no message came in time"),
    "nats.js.errors.ConsumerSequenceMismatchError": Row(
        Kind.PERMANENT, "messages were missed; the subscription must be made again"
    ),
    "nats.js.errors.BadBucketError": Row(Kind.PERMANENT, "the stream is no key-value bucket"),
    "nats.js.errors.BucketNotFoundError": _NOT_FOUND,
    "nats.js.errors.KeyValueError": _WRONG,
    "nats.js.errors.KeyDeletedError": _NOT_FOUND,
    "nats.js.errors.KeyNotFoundError": _NOT_FOUND,
    "nats.js.errors.NoKeysError": _NOT_FOUND,
    "nats.js.errors.KeyWrongLastSequenceError": _CHANGED,
    "nats.js.errors.KeyHistoryTooLargeError": _WRONG,
    "nats.js.errors.KeyValueLimitMarkerTTLNotSupportedError": Row(
        Kind.PERMANENT, "the server is too old for it"
    ),
    "nats.js.errors.InvalidBucketNameError": _WRONG,
    "nats.js.errors.InvalidKeyError": _WRONG,
    "nats.js.errors.InvalidObjectNameError": _WRONG,
    "nats.js.errors.BadObjectMetaError": Row(
        Kind.PERMANENT, "what describes the object is damaged"
    ),
    "nats.js.errors.LinkIsABucketError": _WRONG,
    "nats.js.errors.DigestMismatchError": Row(
        Kind.TRANSIENT, "the object was replaced while it was read, or is damaged"
    ),
    "nats.js.errors.ObjectNotFoundError": _NOT_FOUND,
    "nats.js.errors.ObjectDeletedError": _NOT_FOUND,
    "nats.js.errors.ObjectAlreadyExists": Row(Kind.PERMANENT, "there is an object of that name"),
}

_OLD_NAMES = {
    "NatsError": "Error",
    "ErrAuthorization": "AuthorizationError",
    "ErrBadSubject": "BadSubjectError",
    "ErrBadSubscription": "BadSubscriptionError",
    "ErrBadTimeout": "BadTimeoutError",
    "ErrConnectionClosed": "ConnectionClosedError",
    "ErrConnectionDraining": "ConnectionDrainingError",
    "ErrConnectionReconnecting": "ConnectionReconnectingError",
    "ErrDrainTimeout": "DrainTimeoutError",
    "ErrInvalidCallbackType": "InvalidCallbackTypeError",
    "ErrInvalidUserCredentials": "InvalidUserCredentialsError",
    "ErrJsonParse": "JsonParseError",
    "ErrMaxPayload": "MaxPayloadError",
    "ErrNoServers": "NoServersError",
    "ErrSecureConnFailed": "SecureConnFailedError",
    "ErrSecureConnRequired": "SecureConnRequiredError",
    "ErrSecureConnWanted": "SecureConnWantedError",
    "ErrSlowConsumer": "SlowConsumerError",
    "ErrStaleConnection": "StaleConnectionError",
    "ErrTimeout": "TimeoutError",
}


def _service_code(error: Any) -> list[int | None]:
    code = str(error.code)
    return [int(code) if code.isdecimal() else None]


TABLE = Table(
    "nats",
    {
        **_ENTRIES,
        **{f"nats.aio.errors.{old}": Same(f"nats.errors.{new}") for old, new in _OLD_NAMES.items()},
        "nats.micro.request.ServiceError": by_status(
            Row(Kind.UNKNOWN, "a code that the service has made up"), read=_service_code
        ),
    },
    retries=(
        "connecting, 60 times with 2 s between them (max_reconnect_attempts); what is published"
        " meanwhile is kept, 2 MB of it, and sent later; no request is repeated"
    ),
)
