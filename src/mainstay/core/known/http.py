"""HTTP: the kind of a status, and whether a request may be repeated when its answer was lost."""

from __future__ import annotations

from mainstay.core.base.attributes import KEEPS_SIGNALS, PerClass, attribute, carries
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

IDEMPOTENCY_KEY = "an Idempotency-Key"
KEY_HEADERS = ("idempotency-key",)
"""What lets a POST be repeated, for people; and the header that it is, in lower case."""

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
    if KEEPS_SIGNALS[type(exception)]:
        carried = exception.__dict__
        response = carried.get("response")
        if "status_code" not in carried and "status" not in carried:
            return None if response is None else status_of_response(response)
        status, other = carried.get("status_code"), carried.get("status")
    else:
        status, other = attribute(exception, "status_code"), attribute(exception, "status")
        response = attribute(exception, "response")
    if type(status) is int and 100 <= status < 600:
        return status
    if type(other) is int and 100 <= other < 600:
        return other
    return None if response is None else status_of_response(response)


def status_of_response(response: object) -> int | None:
    """The HTTP status of a response, as httpx, requests, aiohttp and botocore spell it."""
    if isinstance(response, dict):
        return _status_in(response)
    try:
        status = getattr(response, "status_code", None)
    except Exception:  # a property may raise
        status = None
    if type(status) is not int or not 100 <= status < 600:
        status = attribute(response, "status")
    return status if type(status) is int and 100 <= status < 600 else None


def _status_in(response: Mapping[object, object]) -> int | None:
    """The status in a response that botocore has parsed."""
    metadata = response.get("ResponseMetadata")
    status = metadata.get("HTTPStatusCode") if isinstance(metadata, dict) else None
    return status if type(status) is int and 100 <= status < 600 else None


def unsafe_request(
    exception: BaseException,
    find: Callable[[BaseException], object] | None = None,
    key: str = IDEMPOTENCY_KEY,
    key_headers: tuple[str, ...] = KEY_HEADERS,
) -> str:
    """Why the request that an exception carries must not be repeated if its answer was lost.

    Empty if it may be: the method is idempotent, the request has one of the headers with a key, or
    the exception carries no request, and `find` finds none. `key` is what it lacks, for people.

    >>> class Request:
    ...     method, headers = "POST", {}
    >>> error = TimeoutError()
    >>> error.request = Request()
    >>> unsafe_request(error)
    'POST without an Idempotency-Key'
    """
    if KEEPS_REQUESTS[type(exception)]:
        carried = exception.__dict__
        request, response = carried.get("request"), carried.get("response")
        request = carried.get("request_info") if request is None else request
    else:
        request, response = attribute(exception, "request"), attribute(exception, "response")
        request = attribute(exception, "request_info") if request is None else request
    if request is None and response is not None:
        request = attribute(response, "request")
    if request is None and find is not None:
        try:
            request = find(exception)
        except Exception:  # of another version of the library than the table knows
            return ""
    return "" if request is None else unsafe(request, key, key_headers)


def unsafe(
    request: object, key: str = IDEMPOTENCY_KEY, key_headers: tuple[str, ...] = KEY_HEADERS
) -> str:
    """Why a request must not be repeated if its answer was lost; empty if it may be.

    >>> class Request:
    ...     method, headers = "PUT", {}
    >>> unsafe(Request())
    ''
    """
    method = attribute(request, "method")
    if not isinstance(method, str) or method.upper() in REPEATABLE_METHODS:
        return ""
    headers = attribute(request, "headers")
    try:
        has_key = any(str(name).lower() in key_headers for name in headers or ())
    except Exception:  # headers that only look like some
        has_key = False
    return "" if has_key else f"{method.upper()[:20]} without {key}"


def sent_once(exception: BaseException) -> str:
    """The request of an exception, if it cannot be sent again, whatever the failure; or empty.

    >>> error = TimeoutError()
    >>> error.ms_once = "PUT whose body cannot be read again"
    >>> sent_once(error)
    'PUT whose body cannot be read again'
    """
    request = exception.__dict__.get(ONCE)
    return request if isinstance(request, str) else ""


def _keeps_requests(cls: type) -> bool:
    return KEEPS_SIGNALS[cls] and not (carries(cls, "request") or carries(cls, "request_info"))


KEEPS_REQUESTS = PerClass(_keeps_requests)
"""Whether the request that an exception of the class carries is in its dict, or in its response."""
