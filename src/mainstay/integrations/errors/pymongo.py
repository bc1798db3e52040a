"""pymongo, with bson and gridfs: labels and codes of the server's error document decide.

Labels come first: in a transaction they are about the whole of it, whatever went wrong inside. The
codes are those of MongoDB's src/mongo/base/error_codes.yml. That pymongo has repeated a write by
itself is not in what the error of the last attempt carries; so a lost connection is ambiguous, also
if that last attempt found nobody.
"""

from __future__ import annotations

from mainstay.core.base.attributes import attribute
from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Inner, OwnRetries, Row, Same, Table
from mainstay.integrations.errors import shared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_WRONG = Row(Kind.PERMANENT, "a mistake in the call")
_LOST = Row(
    Kind.TRANSIENT, "the connection was lost after the command was sent, maybe", ambiguous=True
)
_CERTIFICATE = Row(Kind.PERMANENT, "the server's certificate is not accepted")
_BSON = Row(Kind.PERMANENT, "no valid BSON, or a value that BSON has no type for")

_TRANSACTION: dict[str | int, Row] = {
    "TransientTransactionError": Row(
        Kind.TRANSIENT, "the transaction was aborted; the whole of it can be repeated"
    ),
    "UnknownTransactionCommitResult": Row(
        Kind.TRANSIENT, "the commit was sent, and no answer came", ambiguous=True
    ),
}
"""Labels that are about a transaction."""
_LABELS: dict[str | int, Row] = {
    "RetryableError": Row(Kind.OVERLOAD, "the server is overloaded, and has done nothing"),
    "SystemOverloadedError": Row(Kind.OVERLOAD, "the server is overloaded", ambiguous=True),
    "RetryableWriteError": Row(
        Kind.TRANSIENT, "the write failed on a server that is leaving, maybe after it was applied",
        ambiguous=True,
    ),
}  # fmt: skip
"""Labels that decide where the code does not."""

_AUTH = Row(Kind.AUTH, "the server refuses the credentials")
_NOT_PRIMARY = Row(Kind.TRANSIENT, "no primary by now: after an election another server is")
_ENDING = Row(
    Kind.TRANSIENT, "the server ends or steps down, in the middle of it, maybe", ambiguous=True
)
_INSIDE = Row(
    Kind.TRANSIENT, "the server lost another member of the cluster, maybe too late", ambiguous=True
)
_LOCK = Row(Kind.TRANSIENT, "another operation holds a lock; nothing was changed")
_STALE = Row(Kind.TRANSIENT, "the router's view of the shards is out of date; nothing was changed")
_AGAIN = Row(Kind.TRANSIENT, "the cursor is gone; the query can be started again")
_TOO_LONG = Row(
    Kind.TIMEOUT, "stopped by the server after its time limit, in part done, maybe", ambiguous=True
)
_DUPLICATE = Row(Kind.PERMANENT, "a document with the same unique key exists")

_CODES: dict[str | int, Row] = {
    6: _INSIDE,  # HostUnreachable
    7: _INSIDE,  # HostNotFound
    13: Row(Kind.AUTH, "the user may not do that"),  # Unauthorized
    18: _AUTH,  # AuthenticationFailed
    24: _LOCK,  # LockTimeout
    43: _AGAIN,  # CursorNotFound
    46: _LOCK,  # LockBusy
    50: _TOO_LONG,  # MaxTimeMSExpired
    63: _STALE,  # StaleShardVersion
    64: Row(Kind.TIMEOUT, "applied, and not replicated in time", ambiguous=True),
    89: _INSIDE,  # NetworkTimeout
    91: _ENDING,  # ShutdownInProgress
    107: _LOCK,  # LockFailed
    112: Row(Kind.TRANSIENT, "another operation changed the same document; nothing was changed"),
    133: Row(Kind.OVERLOAD, "no server that the read preference asks for is there at present"),
    134: Row(Kind.TRANSIENT, "no majority of the servers has the data yet"),
    136: _AGAIN,  # CappedPositionLost
    150: _STALE,  # StaleEpoch
    175: _AGAIN,  # QueryPlanKilled
    189: _ENDING,  # PrimarySteppedDown
    202: _TOO_LONG,  # NetworkInterfaceExceededTimeLimit
    237: _AGAIN,  # CursorKilled
    251: Row(Kind.TRANSIENT, "the transaction was aborted; the whole of it can be repeated"),
    262: _TOO_LONG,  # ExceededTimeLimit
    317: Row(Kind.TRANSIENT, "a connection of the server's own pool had expired"),
    391: _AUTH,  # ReauthenticationRequired
    462: Row(Kind.THROTTLED, "more requests than the server accepts"),
    8000: _AUTH,  # AtlasError, which is what Atlas answers to wrong credentials
    9001: _INSIDE,  # SocketException
    10058: _NOT_PRIMARY,  # LegacyNotPrimary
    10107: _NOT_PRIMARY,  # NotWritablePrimary
    11000: _DUPLICATE,
    11001: _DUPLICATE,
    11600: _ENDING,  # InterruptedAtShutdown
    11601: Row(Kind.PERMANENT, "the operation was killed by a command", ambiguous=True),
    11602: _ENDING,  # InterruptedDueToReplStateChange
    12582: _DUPLICATE,
    13388: _STALE,  # StaleConfig
    13435: _NOT_PRIMARY,  # NotPrimaryNoSecondaryOk
    13436: _NOT_PRIMARY,  # NotPrimaryOrSecondary
    14031: Row(Kind.OVERLOAD, "the server's disk is full"),
}
"""What is not here is a mistake: a command, a document or a setting that is refused every time."""


def _labels(error: Any, labels: Iterable[str | int]) -> list[str | int | None]:
    return [label for label in labels if error.has_error_label(label)]


def _network(error: Any) -> list[str | int | None]:
    """Of a failed connection: what it is in a transaction, then a certificate."""
    found = _labels(error, _TRANSACTION)
    return [*found, "certificate"] if "CERTIFICATE_VERIFY_FAILED" in str(error) else found


def _answer(error: Any) -> list[str | int | None]:
    """Of an error document: labels of a transaction, its code, the other labels."""
    code = attribute(error, "code")
    if code is None:
        document = attribute(error, "details")
        code = document.get("code") if isinstance(document, dict) else None
    number = code if isinstance(code, int) else None
    return [*_labels(error, _TRANSACTION), number, *_labels(error, _LABELS)]


def _bulk(error: Any) -> list[str | int | None]:
    """Of several writes: the code that all failures have in common; some writes were applied."""
    document = attribute(error, "details")
    details = document if isinstance(document, dict) else {}
    failed = [*details.get("writeErrors", ()), *details.get("writeConcernErrors", ())]
    codes = {_code(each) for each in failed}
    found = _labels(error, _TRANSACTION)
    return [*found, codes.pop()] if len(codes) == 1 else found


def _code(failure: object) -> int | None:
    found = failure.get("code") if isinstance(failure, dict) else attribute(failure, "code")
    return found if isinstance(found, int) else None


def _in_part(row: Row) -> Row:
    return Row(row.kind, f"of one write: {row.why}", ambiguous=True)


_ROWS: dict[str | int, Row] = {**_TRANSACTION, **_CODES, **_LABELS}
_REFUSED = Row(Kind.PERMANENT, "the server refuses the command: the same answer every time")
_OPERATION = Cases(_answer, _ROWS, otherwise=_REFUSED)
_CONNECTION = Cases(
    _network, {**_TRANSACTION, "certificate": _CERTIFICATE}, otherwise=_LOST, of="label"
)
_BULK = Cases(
    _bulk,
    {**_TRANSACTION, **{code: _in_part(row) for code, row in _CODES.items()}},
    otherwise=Row(Kind.PERMANENT, "some of the writes failed, others were applied", ambiguous=True),
)
_CLOSED = Row(Kind.PERMANENT, "the client was closed; nothing was sent")
_BASE = Row(Kind.UNKNOWN, "a base class, which pymongo itself does not raise")


def _asked_to_wait(error: BaseException) -> float | None:
    """The backoff that an overloaded server asks for, in seconds."""
    document = attribute(error, "details")
    asked = document.get("baseBackoffMS") if isinstance(document, dict) else None
    return asked / 1000 if isinstance(asked, int | float) else None


def _sent(error: BaseException) -> int:
    """By the number that the function which repeats has in the traceback.

    It has counted the last failure if the server was overloaded. If it found no server for another
    attempt, it raises the failure before that one, in `_check_last_error`.
    """
    steps = [each for module in _CLIENTS for each in shared.frames(error, module)]
    runs = [each.f_locals for each in steps if each.f_code.co_name == "run"]
    most = max([attribute(each.get("self"), "_attempt_number") or 0 for each in runs], default=0)
    is_last = any(each.f_code.co_name == "_check_last_error" for each in steps)
    has_counted = is_last or any(each.get("overloaded") for each in runs)
    return int(most) + (not has_counted)


_CLIENTS = ("pymongo.synchronous.mongo_client", "pymongo.asynchronous.mongo_client")
_NO_PRIMARY = Cases(
    _answer, _ROWS, otherwise=Row(Kind.TRANSIENT, "the server is no primary, or recovers")
)

TABLE = Table(
    "pymongo",
    {
        "pymongo.errors.PyMongoError": _BASE,
        "pymongo.errors.ConnectionFailure": _CONNECTION,
        "pymongo.errors.AutoReconnect": Same("pymongo.errors.ConnectionFailure"),
        "pymongo.errors._OperationCancelled": Same("pymongo.errors.ConnectionFailure"),
        "pymongo.errors.NetworkTimeout": Cases(
            _network,
            {**_TRANSACTION, "certificate": _CERTIFICATE},
            otherwise=Row(Kind.TIMEOUT, "sent, and no answer in time", ambiguous=True),
            of="label",
        ),
        "pymongo.errors.ServerSelectionTimeoutError": Cases(
            _network,
            {"certificate": _CERTIFICATE},
            otherwise=Row(Kind.TIMEOUT, "no suitable server was found in time; nothing was sent"),
            of="label",
        ),
        "pymongo.errors.WaitQueueTimeoutError": Row(
            Kind.TIMEOUT, "no connection of the pool was free in time, so nothing was sent"
        ),
        "pymongo.errors.NotPrimaryError": _NO_PRIMARY,
        "pymongo.errors.NotMasterError": _NO_PRIMARY,
        "pymongo.errors.ExceededMaxWaiters": Row(
            Kind.OVERLOAD,
            "more threads wait for a connection than the pool allows; nothing was sent",
        ),
        "pymongo.errors.OperationFailure": _OPERATION,
        "pymongo.errors.CursorNotFound": _AGAIN,
        "pymongo.errors.ExecutionTimeout": Same("pymongo.errors.OperationFailure"),
        "pymongo.errors.WriteError": Same("pymongo.errors.OperationFailure"),
        "pymongo.errors.DuplicateKeyError": Same("pymongo.errors.OperationFailure"),
        "pymongo.errors.WriteConcernError": Cases(
            _answer,
            {
                100: Row(Kind.PERMANENT, "applied; fewer servers than it asks for", ambiguous=True),
                **{code: _in_part(row) for code, row in _CODES.items()},
            },
            otherwise=Row(Kind.TRANSIENT, "applied, and not replicated as asked", ambiguous=True),
        ),
        "pymongo.errors.WTimeoutError": Row(
            Kind.TIMEOUT, "applied, and not replicated in time", ambiguous=True
        ),
        "pymongo.errors.BulkWriteError": _BULK,
        "pymongo.errors.ClientBulkWriteException": Inner("error", otherwise=_BULK, ambiguous=True),
        "pymongo.errors.ConfigurationError": _WRONG,
        "pymongo.errors.InvalidURI": _WRONG,
        "pymongo.errors.InvalidOperation": _WRONG,
        "pymongo.errors.InvalidName": _WRONG,
        "pymongo.errors.CollectionInvalid": _WRONG,
        "pymongo.errors.ProtocolError": Row(
            Kind.PERMANENT, "the answer is not of the protocol", ambiguous=True
        ),
        "pymongo.errors.DocumentTooLarge": Row(
            Kind.PERMANENT, "the document is larger than the server accepts"
        ),
        "pymongo.errors.EncryptionError": Inner(
            "cause", otherwise=Row(Kind.PERMANENT, "a value cannot be encrypted or decrypted")
        ),
        "pymongo.errors.EncryptedCollectionError": Same("pymongo.errors.EncryptionError"),
        "pymongo.pool_shared._PoolClosedError": _CLOSED,
        "pymongo.pool._PoolClosedError": _CLOSED,
        "pymongo.asynchronous.pool._PoolClosedError": _CLOSED,
        "pymongo.synchronous.pool._PoolClosedError": _CLOSED,
        "bson.errors.BSONError": _BASE,
        "bson.errors.InvalidBSON": _BSON,
        "bson.errors.InvalidStringData": _BSON,
        "bson.errors.InvalidDocument": _BSON,
        "bson.errors.InvalidId": _BSON,
        "gridfs.errors.GridFSError": _BASE,
        "gridfs.errors.NoFile": Row(Kind.PERMANENT, "there is no such file"),
        "gridfs.errors.FileExists": Row(Kind.PERMANENT, "the file exists"),
        "gridfs.errors.CorruptGridFile": Row(Kind.PERMANENT, "chunks of the file are missing"),
    },
    packages=("pymongo", "bson", "gridfs"),
    retries=(
        "a read and a write once more after a lost connection or an election (retryReads,"
        " retryWrites), up to twice if the server is overloaded; connecting for"
        " serverSelectionTimeoutMS, 30 s"
    ),
    hint=_asked_to_wait,
    own_retries=OwnRetries(_sent, "pass retryReads=False, retryWrites=False to the client"),
)

OTHER_VERSIONS = (
    "pymongo.errors.ExceededMaxWaiters",
    "pymongo.errors.NotMasterError",
    "pymongo.pool._PoolClosedError",
    "pymongo.asynchronous.pool._PoolClosedError",
    "pymongo.synchronous.pool._PoolClosedError",
)
"""Up to 3, up to 4.8, and from 4.9 on."""
