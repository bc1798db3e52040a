"""requests, whose errors wrap those of urllib3."""

from __future__ import annotations

from mainstay.core.base.attributes import attribute
from mainstay.core.known.kind import Kind
from mainstay.core.known.table import OwnRetries, Row, Table, by_status
from mainstay.integrations.errors import shared
from mainstay.integrations.errors.shared import LOST, MISUSE, NO_ANSWER


def _request(error: BaseException) -> object:
    """Of an error in the body of an answer, to which requests does not attach it."""
    for frame in shared.frames(error, "requests.models"):
        request = attribute(frame.f_locals.get("self"), "request")
        if request is not None:
            return request
    return None


def _first(error: BaseException) -> object:
    response, last = attribute(error, "response"), attribute(error, "request")
    if response is not None:
        return shared.first_of(attribute(response, "history"), attribute(response, "request"))
    for frame in shared.frames(error, "requests.sessions"):
        first = frame.f_locals.get("request")  # of `send`; `request` has one without headers of it
        if frame.f_code.co_name == "send":
            return shared.changed(first, last or _request(error))
    for frame in shared.frames(error, "requests.models"):  # of a body that is read later
        answer = frame.f_locals.get("self")
        return shared.first_of(attribute(answer, "history"), attribute(answer, "request"))
    return None


def _sent(error: BaseException) -> int:
    """By the exception of urllib3 that is inside, or by the response whose status it repeated."""
    inner = error.args[0] if error.args else None
    response = attribute(attribute(error, "response"), "raw")
    return shared.sent_by_urllib3(inner if isinstance(inner, BaseException) else None, response)


_NOT_JSON = Row(Kind.PERMANENT, "the body is not JSON", ambiguous=True)

TABLE = Table(
    "requests",
    {
        "requests.exceptions.RequestException": Row(
            Kind.UNKNOWN, "a base class, which requests itself does not raise"
        ),
        "requests.exceptions.HTTPError": by_status(),
        "requests.exceptions.ConnectionError": shared.wrapping(LOST),
        "requests.exceptions.ProxyError": shared.wrapping(
            Row(Kind.TRANSIENT, "the proxy refused or broke the connection"),
        ),
        "requests.exceptions.SSLError": shared.wrapping(
            Row(Kind.UNKNOWN, "a failure of TLS that may be of either side"),
        ),
        "requests.exceptions.Timeout": NO_ANSWER,
        "requests.exceptions.ConnectTimeout": shared.CONNECT_TIMEOUT,
        "requests.exceptions.ReadTimeout": NO_ANSWER,
        "requests.exceptions.RetryError": shared.wrapping(
            Row(Kind.TRANSIENT, "answers with statuses that were to be repeated", ambiguous=True),
        ),
        "requests.exceptions.ChunkedEncodingError": shared.CUT,
        "requests.exceptions.ContentDecodingError": shared.UNREADABLE,
        "requests.exceptions.TooManyRedirects": shared.ENDLESS,
        "requests.exceptions.JSONDecodeError": _NOT_JSON,
        "requests.exceptions.InvalidJSONError": MISUSE,
        "requests.exceptions.InvalidHeader": Row(
            Kind.PERMANENT, "a header of the call, or a Retry-After of the answer, is not valid"
        ),
        "requests.exceptions.InvalidProxyURL": MISUSE,
        "requests.exceptions.InvalidSchema": MISUSE,
        "requests.exceptions.InvalidURL": MISUSE,
        "requests.exceptions.MissingSchema": MISUSE,
        "requests.exceptions.URLRequired": MISUSE,
        "requests.exceptions.StreamConsumedError": MISUSE,
        "requests.exceptions.UnrewindableBodyError": Row(
            Kind.PERMANENT, "the body was read and cannot be sent again"
        ),
        "requests.cookies.CookieConflictError": MISUSE,
    },
    retries=(
        "none by default; an adapter with `max_retries=Retry(...)` has urllib3 repeat inside each"
        " of our attempts"
    ),
    request=_request,
    first=_first,
    senders=frozenset({"requests.models", "requests.sessions"}),
    own_retries=OwnRetries(_sent, "leave out max_retries of the adapter"),
)
