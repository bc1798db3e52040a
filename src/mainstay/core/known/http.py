"""HTTP: the kind of a status, and whether a request may be repeated when its answer was lost."""

from __future__ import annotations

from mainstay.core.base.attributes import attribute, signals_of
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
_STATUS_NAMES = frozenset({"response", "status", "status_code"})
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
    signals = signals_of(exception)
    if signals is not None and _STATUS_NAMES.isdisjoint(signals):
        return None
    for name in ("status_code", "status"):
        status = attribute(exception, name) if signals is None else signals.get(name)
        if type(status) is int and 100 <= status < 600:
            return status
    response = attribute(exception, "response") if signals is None else signals.get("response")
    return None if response is None else status_of_response(response)


def status_of_response(response: object) -> int | None:
    """The HTTP status of a response, as httpx, requests, aiohttp and botocore spell it."""
    if isinstance(response, dict):
        return _status_in(response)
    for name in ("status_code", "status"):
        status = attribute(response, name)
        if type(status) is int and 100 <= status < 600:
            return status
    return None


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
    request = exception.__dict__.get(ONCE)
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
