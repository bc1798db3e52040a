"""HTTP: the kind of a status, and whether a request may be repeated when its answer was lost."""

from __future__ import annotations

from mainstay.core.base.attributes import attribute
from mainstay.core.known.kind import Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

STATUS_KINDS = {
    401: Kind.AUTH,
    403: Kind.AUTH,
    407: Kind.AUTH,
    408: Kind.TIMEOUT,
    425: Kind.TRANSIENT,
    429: Kind.THROTTLED,
    500: Kind.TRANSIENT,
    502: Kind.TRANSIENT,
    503: Kind.OVERLOAD,
    504: Kind.TIMEOUT,
}
AMBIGUOUS_STATUSES = frozenset({500, 502, 504})
"""After these the request may have been carried out, in part or whole."""
REPEATABLE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"})
"""Safe and idempotent methods (RFC 9110, section 9.2)."""

ONCE = "ms_once"
"""Where an exception has the request that cannot be sent again: "PUT whose body ..."."""


def kind_of_status(status: int) -> Kind:
    """The kind of an HTTP status.

    >>> kind_of_status(429), kind_of_status(404)
    (<Kind.THROTTLED: 'throttled'>, <Kind.PERMANENT: 'permanent'>)
    """
    known = STATUS_KINDS.get(status)
    if known is not None:
        return known
    return Kind.PERMANENT if 400 <= status < 600 else Kind.UNKNOWN


def status_of(exception: BaseException) -> int | None:
    """The HTTP status an exception carries, as httpx, requests, aiohttp and urllib spell it."""
    response = attribute(exception, "response")
    for holder in (exception, response):
        for name in ("status_code", "status"):
            status = attribute(holder, name)
            if type(status) is int and 100 <= status < 600:
                return status
    return _status_in(response) if isinstance(response, dict) else None


def _status_in(response: Mapping[object, object]) -> int | None:
    """The status in a response that botocore has parsed."""
    metadata = response.get("ResponseMetadata")
    status = metadata.get("HTTPStatusCode") if isinstance(metadata, dict) else None
    return status if type(status) is int and 100 <= status < 600 else None


def unsafe_request(
    exception: BaseException, find: Callable[[BaseException], object] | None = None
) -> str:
    """Why the request that an exception carries must not be repeated if its answer was lost.

    Empty if it may be: the method is idempotent, the request has an Idempotency-Key, or the
    exception carries no request, and `find` finds none.

    >>> class Request:
    ...     method, headers = "POST", {}
    >>> error = TimeoutError()
    >>> error.request = Request()
    >>> unsafe_request(error)
    'POST without an Idempotency-Key'
    """
    request = _request_of(exception)
    if request is None and find is not None:
        request = _found(find, exception)
    method = attribute(request, "method")
    if not isinstance(method, str) or method.upper() in REPEATABLE_METHODS:
        return ""
    headers = attribute(request, "headers")
    try:
        has_key = any(str(name).lower() == "idempotency-key" for name in headers or ())
    except Exception:  # headers that only look like some
        has_key = False
    return "" if has_key else f"{method.upper()[:20]} without an Idempotency-Key"


def sent_once(exception: BaseException) -> str:
    """The request of an exception, if it cannot be sent again, whatever the failure; or empty.

    >>> error = TimeoutError()
    >>> error.ms_once = "PUT whose body cannot be read again"
    >>> sent_once(error)
    'PUT whose body cannot be read again'
    """
    request = attribute(exception, ONCE)
    return request if isinstance(request, str) else ""


def _request_of(exception: BaseException) -> object:
    for name in ("request", "request_info"):
        found = attribute(exception, name)
        if found is not None:
            return found
    return attribute(attribute(exception, "response"), "request")


def _found(find: Callable[[BaseException], object], exception: BaseException) -> object:
    try:
        return find(exception)
    except Exception:  # of another version of the library than the table knows
        return None
