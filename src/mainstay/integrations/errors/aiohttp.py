"""aiohttp. Only its errors of a status carry the request; the traceback has it for the others.

`ClientTimeout(total=...)` ends a request with Python's own TimeoutError: see `behind`.
"""

from __future__ import annotations

import mainstay.integrations.errors.shared as shared
from mainstay.core.base.attributes import attribute
from mainstay.core.known.kind import Kind, qualified_name
from mainstay.core.known.table import Cases, Inner, OwnRetries, Row, Same, Table, by_status
from mainstay.integrations.errors.shared import LOST, MISUSE, NO_ANSWER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_BASE = Row(Kind.UNKNOWN, "a base class, which aiohttp itself does not raise")
_SERVER = Row(Kind.UNKNOWN, "of aiohttp's server; a client does not raise it")
_NO_HTTP = Row(Kind.TRANSIENT, "what came back is no HTTP", ambiguous=True)
_CONNECT = shared.connecting(lambda error: error.os_error)
_CLOSED = Row(Kind.PERMANENT, "the connector or the response was closed before")
_CONSUMED = Row(Kind.PERMANENT, "the body was read and cannot be sent again", ambiguous=True)
_RESPONSE = "aiohttp.client_reqrep.ClientResponse"
_ARES = {1: "EAI_NODATA", 4: "EAI_NONAME", 11: "EAI_AGAIN", 12: "EAI_AGAIN"}
"""Numbers of c-ares, if aiodns is installed."""


def _resolving(error: Any) -> Iterator[str]:
    yield from shared.names(error.os_error)
    found = error.os_error.__cause__
    if type(found).__module__ == "aiodns.error":
        yield _ARES.get(found.args[0], "")


def _parser(error: Any) -> list[str]:
    """Aiohttp's parser, if it refused the answer: the status is made up then."""
    is_parser = type(error.__cause__).__module__ == "aiohttp.http_exceptions"
    return ["parser"] if is_parser else []


def _response(otherwise: Row) -> Cases:
    statuses = by_status(otherwise)
    return Cases(_parser, {"parser": _NO_HTTP}, otherwise=statuses, of="cause")


def _request_of_stream(error: BaseException, streams: list[object]) -> object:
    """Of the answer whose `content` was read: a stream does not have it, its reader does."""
    for frame in shared.frames(error):
        for answer in [*frame.f_locals.values()]:
            if _RESPONSE in map(qualified_name, type(answer).__mro__):
                content = attribute(answer, "content")
                if any(content is each for each in streams):
                    return attribute(answer, "request_info")
    return None


def _request(error: BaseException) -> object:
    """Of the answer that was awaited or read, or of the function that sent the request."""
    for frame in shared.frames(error, "aiohttp.client_reqrep"):
        request = attribute(frame.f_locals.get("self"), "request_info")
        if request is not None:
            return request
    streams = [each.f_locals.get("self") for each in shared.frames(error, "aiohttp.streams")]
    if streams:
        return _request_of_stream(error, streams)
    for frame in shared.frames(error, "aiohttp.client"):
        names = frame.f_locals
        if "method" in names:
            return shared.Sent(names["method"], names.get("headers"))
    return None


def _first(error: BaseException) -> object:
    """Of the answers that redirected the call, which an error of a status carries."""
    history = attribute(error, "history")
    if history:
        return shared.first_of(history, attribute(error, "request_info"))
    for frame in shared.frames(error):
        module, names = frame.f_globals.get("__name__"), frame.f_locals
        if module == "aiohttp.client" and names.get("history"):
            sent = shared.Sent(names.get("method"), None)
            return shared.first_of(names["history"], sent)
        if module == "aiohttp.client_reqrep":
            answer = names.get("self")
            asked = attribute(answer, "request_info")
            return shared.first_of(attribute(answer, "history"), asked)
    return None


def _sent(error: BaseException) -> int:
    """Two if aiohttp has repeated the request: its function keeps whether it still may.

    What it may was decided by the method before redirects, and by the session.
    """
    for frame in shared.frames(error, "aiohttp.client"):
        names = frame.f_locals
        if names.get("retry_persistent_connection") is False:
            history = names.get("history")
            method = history[0].method if history else names["method"]
            may = getattr(names["self"], "_retry_connection", True)
            return 2 if may and method in frame.f_globals["IDEMPOTENT_METHODS"] else 1
    return 1


TABLE = Table(
    "aiohttp",
    {
        "aiohttp.client_exceptions.ClientError": Row(
            Kind.PERMANENT, "a challenge of digest authentication that cannot be answered"
        ),
        "aiohttp.client_exceptions.ClientResponseError": _response(
            Row(Kind.UNKNOWN, "a response without a status")
        ),
        "aiohttp.client_exceptions.ContentTypeError": by_status(
            Row(Kind.PERMANENT, "the body is of another type than was asked for", ambiguous=True)
        ),
        "aiohttp.client_exceptions.WSServerHandshakeError": by_status(
            Row(Kind.PERMANENT, "the answer is none of a WebSocket")
        ),
        "aiohttp.client_exceptions.ClientHttpProxyError": by_status(rows=shared.PROXY_STATUSES),
        "aiohttp.client_exceptions.TooManyRedirects": shared.ENDLESS,
        "aiohttp.client_exceptions.ClientConnectionError": Inner(
            "__cause__", otherwise=_CLOSED, ambiguous=True
        ),
        "aiohttp.client_exceptions.ClientConnectionResetError": LOST,
        "aiohttp.client_exceptions.ClientOSError": LOST,
        "aiohttp.client_exceptions.ClientConnectorError": _CONNECT,
        "aiohttp.client_exceptions.ClientConnectorDNSError": Cases(
            _resolving,
            shared.RESOLVER,
            otherwise=Row(Kind.TRANSIENT, "the name was not resolved, so nothing was sent"),
            of="cause",
        ),
        "aiohttp.client_exceptions.ClientProxyConnectionError": _CONNECT,
        "aiohttp.client_exceptions.UnixClientConnectorError": shared.NOT_SENT,
        "aiohttp.client_exceptions.ClientSSLError": _BASE,
        "aiohttp.client_exceptions.ClientConnectorSSLError": shared.connecting(
            lambda error: error.os_error,
            otherwise=Row(Kind.UNKNOWN, "a failure of TLS that may be of either side"),
        ),
        "aiohttp.client_exceptions.ClientConnectorCertificateError": Row(
            Kind.PERMANENT, "the certificate is not accepted"
        ),
        "aiohttp.client_exceptions.ServerConnectionError": _BASE,
        "aiohttp.client_exceptions.ServerDisconnectedError": LOST,
        "aiohttp.client_exceptions.ServerTimeoutError": Cases(
            lambda error: [str(error)],
            {"Connection timeout to *": shared.CONNECT_TIMEOUT},  # before 3.10
            otherwise=NO_ANSWER,
            of="text",
        ),
        "aiohttp.client_exceptions.ConnectionTimeoutError": shared.CONNECT_TIMEOUT,
        "aiohttp.client_exceptions.SocketTimeoutError": NO_ANSWER,
        "aiohttp.client_exceptions.ServerFingerprintMismatch": Row(
            Kind.PERMANENT, "the certificate is not the one that was expected"
        ),
        "aiohttp.client_exceptions.ClientPayloadError": Inner(
            "__cause__",
            otherwise=Cases(
                lambda error: [str(error)],
                {"Cannot follow redirect*": _CONSUMED},
                otherwise=shared.CUT,  # before 3.10
                of="text",
            ),
            ambiguous=True,
        ),
        "aiohttp.client_exceptions.UploadAbortedError": LOST,
        "aiohttp.client_exceptions.InvalidURL": MISUSE,
        "aiohttp.client_exceptions.InvalidUrlClientError": MISUSE,
        "aiohttp.client_exceptions.InvalidUrlRedirectClientError": Row(
            Kind.PERMANENT, "the server redirects to what is no address"
        ),
        "aiohttp.client_exceptions.NonHttpUrlClientError": MISUSE,
        "aiohttp.client_exceptions.NonHttpUrlRedirectClientError": Row(
            Kind.PERMANENT, "the server redirects to what is no address of HTTP"
        ),
        "aiohttp.client_exceptions.RedirectClientError": _BASE,
        "aiohttp.client_exceptions.WSMessageTypeError": MISUSE,
        "aiohttp._websocket.models.WebSocketError": Row(
            Kind.PERMANENT, "a frame that is none of a WebSocket", ambiguous=True
        ),
        "aiohttp._websocket.models.WSHandshakeError": _SERVER,
        "aiohttp.http_websocket.WebSocketError": Same("aiohttp._websocket.models.WebSocketError"),
        "aiohttp.http_websocket.WSHandshakeError": _SERVER,
        "aiohttp.http_exceptions.*": _NO_HTTP,
        "aiohttp.http_exceptions.ContentEncodingError": shared.UNREADABLE,
        "aiohttp.http_exceptions.DecompressSizeError": shared.UNREADABLE,
        "aiohttp.http_exceptions.TransferEncodingError": shared.CUT,
        "aiohttp.http_exceptions.ContentLengthError": shared.CUT,
        "aiohttp.compression_utils.TooManyMembersError": shared.UNREADABLE,
        "aiohttp.payload.LookupError": MISUSE,
        "aiohttp.streams.EofStream": Row(Kind.UNKNOWN, "the end of a stream, which is no failure"),
        "aiohttp.web_exceptions.*": by_status(
            Row(Kind.UNKNOWN, "an answer of aiohttp's server that is no failure")
        ),
        "aiohttp.web_app.CleanupError": _SERVER,
        "aiohttp.web_protocol.*": _SERVER,
        "aiohttp.web_runner.GracefulExit": _SERVER,
    },
    retries=(
        "an idempotent request is sent once more at once if its connection is lost, a first one"
        " too; aiohttp has no public switch for it"
    ),
    request=_request,
    first=_first,
    own_retries=OwnRetries(
        _sent, "send through a Middleware of mainstay.integrations.aiohttp, which counts them"
    ),
)
OTHER_VERSIONS = (
    "aiohttp.http_websocket.WSHandshakeError",
    "aiohttp.http_websocket.WebSocketError",
)
