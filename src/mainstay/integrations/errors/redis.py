"""redis-py: what the server answers is known by the first word, what the network does by the text.

redis-py raises one class if no connection was made and if one was lost; its text has the phase.
"""

from __future__ import annotations

from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Inner, OwnRetries, Row, Same, Table, by_status
from mainstay.integrations.errors.shared import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstay.core.known.table import Entry

_NOT_SENT = "no connection was made, so nothing was sent"
_LOST = Row(
    Kind.TRANSIENT, "the connection was lost after the command was sent, maybe", ambiguous=True
)
_WRONG = Row(Kind.PERMANENT, "a mistake in the call")
_AUTH = Row(Kind.AUTH, "the server refuses the credentials")
_NO_POOL = Row(Kind.TIMEOUT, "no connection of the pool was free in time, so nothing was sent")
_EXHAUSTED = Row(Kind.OVERLOAD, "the pool has as many connections as it may; nothing was sent")
_REFUSED_NOW = "the server refuses commands at present"

# --- what the text of a failed connection begins with or contains ---------------------------------

_TEXTS = (
    ("Cluster mode is not enabled", "settings"),
    ("CERTIFICATE_VERIFY_FAILED", "certificate"),
    (" connecting to ", "connecting"),
    ("Timeout connecting", "connecting"),
    ("No connection available", "pool"),
    ("Connection has data", "stale"),
    ("Connection not ready", "stale"),
    ("max number of clients reached", "clients"),
    ("Too many connections", "exhausted"),
    ("protocol must be", "settings"),
    ("Invalid RESP version", "settings"),
    ("Invalid Database", "settings"),
    ("failed to fetch ocsp certificate", "responder"),
    ("failed to fetch issuer certificate", "responder"),
    ("response from the ocsp responder", "responder"),
    ("ocsp", "certificate"),
    ("No AIA information", "certificate"),
    ("certificate chain", "certificate"),
    ("certificates do not match", "certificate"),
    ("for the responder", "certificate"),
    ("for ssl peer", "certificate"),
    ("Unable to acquire lock", "acquire"),
    ("while watching one or more keys", "lost"),
    ("cannot be connected", "connecting"),
    ("slots are not covered", "slots"),
    ("could not agree on a valid", "slots"),
)


def _phase(error: BaseException) -> Iterable[str]:
    text = str(error)
    return [phase for part, phase in _TEXTS if part in text]


_CONNECTION = Cases(
    _phase,
    {
        "certificate": Row(Kind.PERMANENT, "the server's certificate is not accepted"),
        "responder": Row(Kind.TRANSIENT, "OCSP's responder did not answer, so nothing was sent"),
        "connecting": Row(Kind.TRANSIENT, _NOT_SENT),
        "pool": _NO_POOL,
        "stale": Row(Kind.TRANSIENT, "a connection of the pool was not usable; nothing was sent"),
        "clients": Row(Kind.OVERLOAD, "the server has as many clients as it accepts"),
        "exhausted": _EXHAUSTED,
        "settings": Row(Kind.PERMANENT, "the server does not support what the client is set to"),
    },
    otherwise=_LOST,
    of="phase",
)
_TIMEOUT = Cases(
    _phase,
    {"connecting": Row(Kind.TIMEOUT, _NOT_SENT)},
    otherwise=Row(Kind.TIMEOUT, "sent, and no answer in time", ambiguous=True),
    of="phase",
)

# --- what the server answers ----------------------------------------------------------------------


def _prefix(error: BaseException) -> Iterable[str | None]:
    """The first word of the answer: redis-py 7 and newer keep it beside the text.

    In a pipeline the text begins with the number of the command.
    """
    kept = getattr(error, "status_code", None)
    text = str(error).rpartition(" of pipeline caused error: ")[2]
    first = text.partition(" ")[0]
    return [kept if isinstance(kept, str) else None, first if first.isupper() else None]


_OOM = Row(Kind.OVERLOAD, "the server's memory is full, and nothing can be evicted")
_LOADING = Row(Kind.OVERLOAD, "the server is loading its data")
_READONLY = Row(Kind.TRANSIENT, "a replica by now: after a failover another server is the primary")
_TRY_AGAIN = Row(Kind.TRANSIENT, "the keys are being moved between nodes")
_CLUSTER_DOWN = Row(Kind.OVERLOAD, "the cluster does not serve the slot at present")
_MASTER_DOWN = Row(Kind.OVERLOAD, "a replica without its primary, which serves no stale data")
_MOVED = Row(Kind.PERMANENT, "another node has the key; only a client for clusters goes there")
_NO_PERMISSION = Row(Kind.AUTH, "the user may not do that")
_SLOTS = Row(Kind.PERMANENT, "the keys are of different slots")
_SCRIPT = Row(Kind.PERMANENT, "the server does not have the script; EVAL sends it")
_ABORTED = Row(Kind.PERMANENT, "a command of the transaction was refused; nothing was executed")

_RESPONSE = Cases(
    _prefix,
    {
        "OOM": _OOM,
        "LOADING": _LOADING,
        "BUSY": Row(Kind.OVERLOAD, "a script or function keeps the server busy"),
        "MISCONF": Row(Kind.OVERLOAD, "the server cannot save, and refuses writes until it can"),
        "NOREPLICAS": Row(Kind.OVERLOAD, "too few replicas are connected for a write"),
        "READONLY": _READONLY,
        "TRYAGAIN": _TRY_AGAIN,
        "CLUSTERDOWN": _CLUSTER_DOWN,
        "MASTERDOWN": _MASTER_DOWN,
        "UNBLOCKED": Row(Kind.TRANSIENT, "the server became a replica while the command waited"),
        "REDIRECT": Row(Kind.TRANSIENT, "the server became a replica; another is the primary"),
        "NOGOODSLAVE": Row(Kind.OVERLOAD, "no replica can take over at present"),
        "NOGOODREPLICA": Row(Kind.OVERLOAD, "no replica can take over at present"),
        "INPROG": Row(Kind.OVERLOAD, "a failover is in progress"),
        "NOQUORUM": Row(Kind.OVERLOAD, "too few sentinels are reachable"),
        "IOERR": Row(Kind.TRANSIENT, "the other server of a MIGRATE was lost", ambiguous=True),
        "NOAUTH": _AUTH,
        "WRONGPASS": _AUTH,
        "NOPERM": _NO_PERMISSION,
        "DENIED": Row(Kind.AUTH, "the server is in protected mode"),
        "MOVED": _MOVED,
        "ASK": _MOVED,
        "CROSSSLOT": _SLOTS,
        "NOSCRIPT": _SCRIPT,
        "EXECABORT": _ABORTED,
    },
    otherwise=Row(Kind.PERMANENT, "the server refuses the command: the same answer every time"),
)

_MASTER_NOT_FOUND = Row(Kind.TRANSIENT, "no sentinel knows a primary at present; nothing was sent")
_SLAVE_NOT_FOUND = Row(Kind.TRANSIENT, "no sentinel knows a replica at present; nothing was sent")


def _first(error: BaseException) -> BaseException | None:
    first = error.args[0]
    return first if isinstance(first, BaseException) else None


ENTRIES: dict[str, Entry] = {
    "redis.exceptions.RedisError": _WRONG,
    "redis.exceptions.ConnectionError": _CONNECTION,
    "redis.exceptions.TimeoutError": _TIMEOUT,
    "redis.exceptions.BusyLoadingError": _LOADING,
    "redis.exceptions.MaxConnectionsError": _EXHAUSTED,
    "redis.exceptions.AuthenticationError": _AUTH,
    "redis.exceptions.AuthorizationError": Row(
        Kind.AUTH, "OCSP's responder refuses to answer; nothing was sent"
    ),
    "redis.exceptions.ExternalAuthProviderError": Row(
        Kind.OVERLOAD, "the server cannot reach the service that checks passwords"
    ),
    "redis.exceptions.AuthenticationWrongNumberOfArgsError": _AUTH,
    "redis.exceptions.InvalidResponse": Row(
        Kind.PERMANENT, "the answer is not of the protocol: no Redis answers there", ambiguous=True
    ),
    "redis.exceptions.ResponseError": _RESPONSE,
    "redis.exceptions.OutOfMemoryError": _OOM,
    "redis.exceptions.ReadOnlyError": _READONLY,
    "redis.exceptions.NoPermissionError": _NO_PERMISSION,
    "redis.exceptions.NoScriptError": _SCRIPT,
    "redis.exceptions.ExecAbortError": _ABORTED,
    "redis.exceptions.ModuleError": Row(Kind.PERMANENT, "the module cannot be loaded or unloaded"),
    "redis.exceptions.NoSuchFieldsetError": Row(
        Kind.PERMANENT, "the fieldset is not prepared on this connection"
    ),
    "redis.exceptions.TryAgainError": _TRY_AGAIN,
    "redis.exceptions.ClusterDownError": _CLUSTER_DOWN,
    "redis.exceptions.MasterDownError": _MASTER_DOWN,
    "redis.exceptions.AskError": _MOVED,
    "redis.exceptions.MovedError": Same("redis.exceptions.AskError"),
    "redis.exceptions.ClusterCrossSlotError": _SLOTS,
    "redis.exceptions.ClusterError": Row(
        Kind.TRANSIENT, "redirected too often: the slots are being moved"
    ),
    "redis.exceptions.RedisClusterException": Cases(
        _phase,
        {
            "settings": Row(Kind.PERMANENT, "the server is no node of a cluster"),
            "connecting": Row(Kind.TRANSIENT, "no node of the cluster was reachable"),
            "slots": Row(Kind.OVERLOAD, "the cluster does not serve all slots at present"),
        },
        otherwise=_WRONG,
        of="phase",
    ),
    "redis.exceptions.SlotNotCoveredError": Row(
        Kind.OVERLOAD, "no node serves the slot at present; nothing was sent"
    ),
    "redis.exceptions.CrossSlotTransactionError": _SLOTS,
    "redis.exceptions.InvalidPipelineStack": Row(
        Kind.PERMANENT, "fewer answers than commands: a defect of the client", ambiguous=True
    ),
    "redis.exceptions.DataError": _WRONG,
    "redis.exceptions.PubSubError": _WRONG,
    "redis.exceptions.IncorrectPolicyType": _WRONG,
    "redis.exceptions.WatchError": Cases(
        _phase,
        {"lost": _LOST},
        otherwise=Row(Kind.TRANSIENT, "another client changed a watched key; nothing was executed"),
        of="phase",
    ),
    "redis.exceptions.LockError": Cases(
        _phase,
        {"acquire": Row(Kind.TIMEOUT, "another client holds the lock")},
        otherwise=_WRONG,
        of="phase",
    ),
    "redis.exceptions.LockNotOwnedError": Row(
        Kind.PERMANENT, "the lock has expired, and another client may hold it"
    ),
    "redis.exceptions.ChildDeadlockedError": Row(
        Kind.PERMANENT, "a fork left a lock of the pool locked in the child"
    ),
    "redis.sentinel.MasterNotFoundError": _MASTER_NOT_FOUND,
    "redis.sentinel.SlaveNotFoundError": _SLAVE_NOT_FOUND,
    "redis.asyncio.sentinel.MasterNotFoundError": _MASTER_NOT_FOUND,
    "redis.asyncio.sentinel.SlaveNotFoundError": _SLAVE_NOT_FOUND,
    "redis.multidb.exception.NoValidDatabaseException": Row(
        Kind.OVERLOAD, "none of the databases is healthy; nothing was sent"
    ),
    "redis.multidb.exception.TemporaryUnavailableException": Row(
        Kind.OVERLOAD, "none of the databases is healthy for now; nothing was sent"
    ),
    "redis.multidb.exception.InitialHealthCheckFailedError": Row(
        Kind.OVERLOAD, "too few databases were healthy at the start; nothing was sent"
    ),
    "redis.multidb.exception.UnhealthyDatabaseException": Inner(
        "original_exception", otherwise=Row(Kind.OVERLOAD, "the database is not healthy")
    ),
    "redis.auth.err.RequestTokenErr": Inner(
        "__cause__", otherwise=Row(Kind.AUTH, "the identity provider gave no token")
    ),
    "redis.auth.err.TokenRenewalErr": Inner(
        _first, otherwise=Row(Kind.AUTH, "the identity provider gave no token that is still valid")
    ),
    "redis.auth.err.InvalidTokenSchemaErr": Row(Kind.AUTH, "the token lacks a field"),
    "redis.event.EventException": Inner(
        "exception", otherwise=Row(Kind.UNKNOWN, "a listener of the client failed")
    ),
    "redis.http.http_client.HttpError": by_status(),
    "redis.commands.graph.exceptions.VersionMismatchException": Row(
        Kind.PERMANENT, "the graph has changed; its schema must be read again"
    ),
}

OTHER_VERSIONS = ("redis.commands.graph.exceptions.VersionMismatchException",)
"""Up to version 5."""

TABLE = Table(
    "redis",
    ENTRIES,
    retries=(
        "every command up to 10 more times (3 in versions 6 and 7) after a lost connection or a"
        " timeout, also one that may have been executed; `Retry(NoBackoff(), 0)` turns that off"
    ),
    own_retries=OwnRetries(
        lambda error: counted(error, "failures", "redis.retry", "redis.asyncio.retry"),
        "pass retry=Retry(NoBackoff(), 0) to the client",
    ),
)
