"""neo4j: what the server reports by its code, what the driver finds by its class.

The server rolls back what it reports as failed, so that is not ambiguous; a connection that is lost
is, unless the loss came before anything was sent.
"""

from __future__ import annotations

from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, OwnRetries, Row, Same, Table
from mainstay.integrations.errors import shared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_SESSIONS = ("neo4j._sync.work.session", "neo4j._async.work.session")
_WRONG = Row(Kind.PERMANENT, "a mistake in the call")
_SETTINGS = Row(Kind.PERMANENT, "a mistake in the configuration")
_STATEMENT = Row(Kind.PERMANENT, "the statement is wrong, or not permitted here")
_REFUSED = Row(Kind.AUTH, "the credentials are not accepted or not permitted")
_BUSY = Row(Kind.OVERLOAD, "the server has no memory or no slot for it at the moment")
_ROLLED_BACK = Row(Kind.TRANSIENT, "rolled back by the server, for a reason that will pass")
_NO_SERVER = Row(Kind.TRANSIENT, "no server takes it at the moment; nothing was changed")
_NOT_SENT = Row(Kind.TRANSIENT, "no connection was made, so nothing was sent")
_LOST = Row(Kind.TRANSIENT, "the connection was lost; it may have been committed", ambiguous=True)
_TERMINATED = Row(Kind.TIMEOUT, "the server ended the transaction, and rolled it back")

_CODES: dict[str | int, Row] = {
    "Neo.TransientError.General.DatabaseUnavailable": _BUSY,
    "Neo.TransientError.General.OutOfMemoryError": _BUSY,
    "Neo.TransientError.General.MemoryPoolOutOfMemoryError": _BUSY,
    "Neo.TransientError.General.TransactionMemoryLimit": _BUSY,
    "Neo.TransientError.Request.NoThreadsAvailable": _BUSY,
    "Neo.TransientError.Transaction.MaximumTransactionLimitReached": _BUSY,
    "Neo.TransientError.*": _ROLLED_BACK,
    "Neo.ClientError.Security.AuthorizationExpired": Row(
        Kind.TRANSIENT, "the driver signs in again with the same credentials"
    ),
    "Neo.ClientError.Security.AuthenticationRateLimit": Row(
        Kind.AUTH, "wrong credentials too often; more attempts prolong it"
    ),
    "Neo.ClientError.Security.*": _REFUSED,
    "Neo.ClientError.Cluster.NotALeader": _ROLLED_BACK,
    "Neo.ClientError.General.ForbiddenOnReadOnlyDatabase": _ROLLED_BACK,
    "Neo.ClientError.Transaction.TransactionTimedOut*": _TERMINATED,
    "Neo.ClientError.Transaction.LockClientStopped": _TERMINATED,
    "Neo.ClientError.*": _STATEMENT,
    "Neo.DatabaseError.*": Row(
        Kind.UNKNOWN, "the database failed; it does not state that repeating helps", ambiguous=True
    ),
}


def _code(error: Any) -> tuple[str | None]:
    return (error.code,)


def _message(error: Any) -> tuple[str]:
    return (str(error),)


def _cause(error: Any) -> tuple[str]:
    return (type(error.__cause__).__name__,)


_NO_ANSWER = Row(Kind.TIMEOUT, "sent, and no answer in time", ambiguous=True)
_CONNECTION = Cases(_cause, {"SocketDeadlineExceeded*": _NO_ANSWER}, otherwise=_LOST, of="cause")
_SESSION = Cases(
    _cause,
    {
        "SocketDeadlineExceeded*": _NO_ANSWER,
        "ReadServiceUnavailable": _NO_SERVER,
        "WriteServiceUnavailable": _NO_SERVER,
    },
    otherwise=_LOST,
    of="cause",
)
_SERVER = Cases(_code, _CODES, otherwise=Row(Kind.UNKNOWN, "a code that is not known"))
_UNAVAILABLE = Cases(
    _message,
    {
        "Couldn't connect*": _NOT_SENT,
        "Cannot resolve*": _NOT_SENT,
        "Failed to DNS resolve*": _NOT_SENT,
        "Unable to retrieve routing information*": _NO_SERVER,
    },
    otherwise=_CONNECTION,
    of="message",
)


def _each(module: str, names: str, row: Row) -> Mapping[str, Row]:
    return {f"{module}.{name}": row for name in names.split()}


_OF_SERVER = """AuthError ClientError ConstraintError CypherSyntaxError CypherTypeError
    DatabaseError DatabaseUnavailable Forbidden ForbiddenOnReadOnlyDatabase NotALeader TokenExpired
    TransientError"""

TABLE = Table(
    "neo4j",
    {
        "neo4j.exceptions.GqlError": Row(
            Kind.UNKNOWN, "a base class, which neo4j itself does not raise"
        ),
        "neo4j.exceptions.Neo4jError": _SERVER,
        **{
            f"neo4j.exceptions.{name}": Same("neo4j.exceptions.Neo4jError")
            for name in _OF_SERVER.split()
        },
        "neo4j.exceptions.DriverError": Row(Kind.PERMANENT, "the driver was closed"),
        "neo4j.exceptions.ServiceUnavailable": _UNAVAILABLE,
        "neo4j.exceptions.ReadServiceUnavailable": _NO_SERVER,
        "neo4j.exceptions.WriteServiceUnavailable": _NO_SERVER,
        "neo4j.exceptions.RoutingServiceUnavailable": _NO_SERVER,
        "neo4j.exceptions.IncompleteCommit": Row(
            Kind.TRANSIENT, "the connection was lost while committing", ambiguous=True
        ),
        "neo4j.exceptions.SessionExpired": _SESSION,
        "neo4j.exceptions.ConnectionAcquisitionTimeoutError": Row(
            Kind.TIMEOUT, "no connection of the pool was free in time, so nothing was sent"
        ),
        "neo4j.exceptions.ConnectionPoolError": _NO_SERVER,
        **_each(
            "neo4j.exceptions",
            """BrokenRecordError ResultConsumedError ResultError ResultFailedError
            ResultNotSingleError SessionError TransactionError TransactionNestingError""",
            _WRONG,
        ),
        **_each(
            "neo4j.exceptions",
            """AuthConfigurationError CertificateConfigurationError ConfigurationError
            UnsupportedServerProduct""",
            _SETTINGS,
        ),
        "neo4j._async._debug._concurrency_check.NonConcurrentMethodError": _WRONG,
        "neo4j._sync._debug._concurrency_check.NonConcurrentMethodError": _WRONG,
        "neo4j._exceptions.BoltError": Row(
            Kind.UNKNOWN, "a base class, which neo4j itself does not raise"
        ),
        "neo4j._exceptions.BoltConnectionError": _NOT_SENT,
        "neo4j._exceptions.BoltHandshakeError": Row(
            Kind.PERMANENT, "the two sides have no version of the protocol in common"
        ),
        "neo4j._exceptions.BoltProtocolError": Row(
            Kind.PERMANENT, "the other side does not keep to the protocol"
        ),
        "neo4j._exceptions.BoltSecurityError": Row(Kind.PERMANENT, "TLS cannot be agreed on"),
        "neo4j._exceptions.QueryApiHttpError": Row(
            Kind.UNKNOWN, "the driver raises one of its public errors in its place"
        ),
        "neo4j._exceptions.SocketDeadlineExceededError": _NO_ANSWER,
        "neo4j._exceptions.SocketDeadlineExceeded": _NO_ANSWER,
        "neo4j._exceptions.BoltConnectionBroken": _LOST,
        "neo4j._exceptions.BoltConnectionClosed": _LOST,
        "neo4j._exceptions.BoltFailure": Row(
            Kind.UNKNOWN, "the driver raises one of its public errors in its place"
        ),
        "neo4j._exceptions.BoltTransactionError": _WRONG,
    },
    retries="of managed transactions (`execute_read`, `execute_write`, `execute_query`) for 30"
    " seconds: `max_transaction_retry_time=0` turns them off",
    own_retries=OwnRetries(
        lambda error: shared.longest(error, "errors", *_SESSIONS),
        "begin the transaction with session.begin_transaction()",
    ),
)

OTHER_VERSIONS = tuple(
    f"neo4j._exceptions.{name}"
    for name in (
        "BoltConnectionBroken",
        "BoltConnectionClosed",
        "BoltFailure",
        "BoltTransactionError",
        "SocketDeadlineExceeded",
    )
)
"""Of neo4j 5."""
