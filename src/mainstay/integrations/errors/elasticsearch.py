"""elasticsearch and elastic_transport, which it sends its requests with."""

from __future__ import annotations

from collections.abc import Collection

from mainstay.core.base.attributes import attribute
from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Inner, OwnRetries, Row, Same, Table, by_status
from mainstay.core.retry.retry_after import Hint, parse
from mainstay.integrations.errors import shared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mainstay.core.known.table import Entry

_WRONG = Row(Kind.PERMANENT, "a mistake in the call")
_NOT_SENT = Row(Kind.TRANSIENT, "no connection was made, so nothing was sent")
_LOST = Row(
    Kind.TRANSIENT,
    "the connection failed after the request was sent, in part or whole",
    ambiguous=True,
)
_LATE = Row(Kind.TIMEOUT, "sent, and no answer in time", ambiguous=True)
_SHARDS = Row(Kind.TRANSIENT, "some shards did not answer")

_CLASSES: dict[str | int, Row] = {
    "BadRequestError": _WRONG,
    "AuthenticationException": Row(Kind.AUTH, "the credentials are not accepted"),
    "AuthorizationException": Row(Kind.AUTH, "the credentials do not permit it"),
    "NotFoundError": Row(Kind.PERMANENT, "what it names is not there"),
    "ConflictError": Row(Kind.PERMANENT, "it is there already, or was changed meanwhile"),
    "UnsupportedProductError": Row(Kind.PERMANENT, "the other side is no Elasticsearch"),
}
"""Each of one status, so that a rule which names the class names that."""


def _class(error: Any) -> tuple[str]:
    return (type(error).__name__,)


def _status(error: Any) -> tuple[int]:
    return (error.meta.status,)


def _tries(error: Any) -> int:
    """By the failures that it keeps; of a status it keeps none, and ends when all are used up."""
    status = attribute(attribute(error, "meta"), "status")
    if status is None:
        return len(error.errors) + 1
    sending = [each for module in _CLIENTS for each in shared.frames(error, module)]
    return 1 + (_most(sending[-1].f_locals["self"], status) if sending else 0)


_CLIENTS = ("elasticsearch._sync.client._base", "elasticsearch._async.client._base")


def _most(client: Any, status: int) -> int:
    """The retries that a client makes after a status: its own setting, or that of its transport."""
    transport = client.transport
    statuses, most = client._retry_on_status, client._max_retries  # noqa: SLF001 -- not public
    statuses = statuses if isinstance(statuses, Collection) else transport.retry_on_status
    most = most if isinstance(most, int) else transport.max_retries
    return int(most) if status in statuses else 0


def _below(error: Any) -> BaseException | None:
    """What the HTTP library raised; the node of aiohttp does not name it the cause."""
    found: BaseException | None = error.__cause__ or error.__context__
    return found


def _cause(error: Any) -> tuple[str, ...]:
    """The class of what the HTTP library raised, if no attempt before it was sent either."""
    return () if error.errors else (type(_below(error)).__name__,)


def _lookup(error: Any) -> BaseException | None:
    """A name lookup that failed. Nothing else is looked into: a search is a POST as a write is."""
    return _below(error) if _cause(error) == ("NameResolutionError",) else None


def _statuses(error: Any) -> tuple[int, ...]:
    """The statuses of the documents that a bulk request did not write, the worst first."""
    found = [each["status"] for item in error.errors for each in item.values()]
    return tuple(sorted(found, key=lambda status: status in (429, 503)))


def _wait(error: Any) -> Hint | None:
    headers = error.meta.headers
    return parse(headers.get("retry-after"), headers.get("date"))


_SENDERS = (
    "elasticsearch._sync.client._base",
    "elasticsearch._async.client._base",
    "elastic_transport._transport",
    "elastic_transport._async_transport",
    "elasticsearch.transport",  # up to version 7
)
_READS = frozenset(
    "_analyze _async_search _cache _close _count _eql _explain _field_caps _flush _forcemerge"
    " _mget _msearch _mtermvectors _open _pit _query _rank_eval _refresh _render _search"
    " _search_shards _sql _termvectors _terms_enum _validate".split()
)
"""Parts of a path to which a POST may be sent twice. A scroll is not: it goes on to the next."""


def _sent(error: BaseException) -> tuple[object, list[str]] | None:
    """The method, and the parts of the path, as a function of the client has them."""
    for module in _SENDERS:
        for frame in shared.frames(error, module):
            names = frame.f_locals
            if "method" in names:
                path = str(names.get("target") or names.get("path") or names.get("url"))
                return names["method"], path.partition("?")[0].split("/")
    return None


def _request(error: BaseException) -> shared.Sent | None:
    """The client sends `_bulk` as a PUT, and its documents without an id are new each time."""
    sent = _sent(error)
    return None if sent is None else shared.Sent("POST" if "_bulk" in sent[1] else sent[0], None)


def _only_reads(error: BaseException) -> bool:
    sent = _sent(error)
    parts = [] if sent is None else sent[1]
    return "scroll" not in parts and not _READS.isdisjoint(parts)


_API = Cases(_class, _CLASSES, otherwise=by_status(read=_status), of="class")
_CONNECTION = Cases(
    _cause,
    {
        "NewConnectionError": _NOT_SENT,
        "ClientConnectorError": _NOT_SENT,
        "ConnectError": _NOT_SENT,
    },
    otherwise=Inner(_lookup, otherwise=_LOST),
    of="cause",
)
_TIMEOUT = Cases(
    _cause,
    {"ConnectTimeoutError": Row(Kind.TIMEOUT, "no connection was made in time")},
    otherwise=_LATE,
    of="cause",
)
_BULK = by_status(
    Row(Kind.UNKNOWN, "some documents were not written", ambiguous=True),
    {
        429: Row(Kind.THROTTLED, "a document was refused with status 429", ambiguous=True),
        503: Row(Kind.OVERLOAD, "a document was refused with status 503", ambiguous=True),
    },
    _statuses,
)
_UNREADABLE = Row(Kind.PERMANENT, "a body that cannot be written or read as JSON", ambiguous=True)
_TRANSPORT = "elasticsearch.exceptions.TransportError"
_BEFORE: dict[str, Entry] = {
    "elasticsearch.exceptions.ElasticsearchException": Row(
        Kind.UNKNOWN, "a base class, which elasticsearch itself does not raise"
    ),
    "elasticsearch.exceptions.ImproperlyConfigured": _WRONG,
    "elasticsearch.exceptions.SerializationError": _UNREADABLE,
    _TRANSPORT: Cases(
        _class,
        {**_CLASSES, "RequestError": _WRONG},
        otherwise=by_status(Row(Kind.UNKNOWN, "no status; no node gave the list of nodes, maybe")),
        of="class",
    ),
    **{
        f"elasticsearch.exceptions.{name}": Same(_TRANSPORT)
        for name in (*_CLASSES, "RequestError")
        if name != "BadRequestError"
    },
    # the client has repeated it by then, and what the attempts before failed with is not kept
    "elasticsearch.exceptions.ConnectionError": _LOST,
    "elasticsearch.exceptions.ConnectionTimeout": _LATE,
    "elasticsearch.exceptions.SSLError": Inner("info", otherwise=_LOST),
    "elasticsearch.helpers.errors.BulkIndexError": _BULK,
    "elasticsearch.helpers.errors.ScanError": _SHARDS,
}
"""Up to version 7, which had no elastic_transport."""
OTHER_VERSIONS = tuple(_BEFORE)

TABLE = Table(
    "elasticsearch",
    {
        **_BEFORE,
        "elastic_transport.ApiError": by_status(read=_status),
        "elasticsearch.ApiError": _API,
        **{f"elasticsearch.{name}": Same("elasticsearch.ApiError") for name in _CLASSES},
        "elastic_transport.TransportError": Row(
            Kind.UNKNOWN, "a base class, which elastic_transport itself does not raise"
        ),
        "elastic_transport.ConnectionError": _CONNECTION,
        "elastic_transport.ConnectionTimeout": _TIMEOUT,
        "elastic_transport.TlsError": Inner(_below, otherwise=_LOST),
        "elastic_transport.SniffingError": Row(
            Kind.TRANSIENT, "no node gave the list of nodes; the request was not sent"
        ),
        "elastic_transport.SerializationError": _UNREADABLE,
        "elasticsearch.helpers.BulkIndexError": _BULK,
        "elasticsearch.helpers.ScanError": _SHARDS,
        "elasticsearch.dsl.exceptions.ElasticsearchDslException": _WRONG,
        "elasticsearch.dsl.exceptions.IllegalOperation": _WRONG,
        "elasticsearch.dsl.exceptions.UnknownDslObject": _WRONG,
        "elasticsearch.dsl.exceptions.ValidationException": _WRONG,
    },
    packages=("elasticsearch", "elastic_transport"),
    retries="3 after a connection that fails, or the statuses 429, 502, 503 and 504, none after a"
    " timeout; also of a write: `max_retries=0` turns them off",
    hint=_wait,
    request=_request,
    changes_nothing=_only_reads,
    key="an id of your own",
    key_headers=(),
    own_retries=OwnRetries(_tries, "pass max_retries=0 to the client"),
)
