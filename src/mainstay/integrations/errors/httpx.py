"""httpx and httpcore, whose errors httpx hands on under its own names."""

from __future__ import annotations

from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Row, Same, Table, by_status

_NOT_SENT = "no connection was made, so nothing was sent"
_LOST = "the connection failed after the request was sent, in part or whole"
_MISUSE = "a mistake in the call"

_CONNECT = Row(Kind.TRANSIENT, _NOT_SENT)
_CONNECT_TIMEOUT = Row(Kind.TIMEOUT, _NOT_SENT)
_POOL = Row(Kind.TIMEOUT, "no connection of the pool was free in time, so nothing was sent")
_READ_TIMEOUT = Row(Kind.TIMEOUT, "sent, and no answer in time", ambiguous=True)
_READ = Row(Kind.TRANSIENT, _LOST, ambiguous=True)
_WRONG = Row(Kind.PERMANENT, _MISUSE)

TABLE = Table(
    "httpx",
    {
        "httpx.HTTPError": Row(Kind.UNKNOWN, "a base class, which httpx itself does not raise"),
        "httpx.HTTPStatusError": by_status(),
        "httpx.RequestError": Row(Kind.UNKNOWN, "a base class, which httpx itself does not raise"),
        "httpx.TransportError": Row(Kind.TRANSIENT, _LOST, ambiguous=True),
        "httpx.TimeoutException": _READ_TIMEOUT,
        "httpx.ConnectTimeout": _CONNECT_TIMEOUT,
        "httpx.ReadTimeout": _READ_TIMEOUT,
        "httpx.WriteTimeout": Row(
            Kind.TIMEOUT, "not sent in time, at least not whole", ambiguous=True
        ),
        "httpx.PoolTimeout": _POOL,
        "httpx.NetworkError": Same("httpx.TransportError"),
        "httpx.ConnectError": _CONNECT,
        "httpx.ReadError": _READ,
        "httpx.WriteError": _READ,
        "httpx.CloseError": _READ,
        "httpx.ProtocolError": Same("httpx.TransportError"),
        "httpx.LocalProtocolError": _WRONG,
        "httpx.RemoteProtocolError": _READ,
        "httpx.ProxyError": Row(Kind.TRANSIENT, "the proxy refused or broke the connection"),
        "httpx.UnsupportedProtocol": _WRONG,
        "httpx.DecodingError": Row(Kind.PERMANENT, "the body is not what its headers declare"),
        "httpx.TooManyRedirects": Row(Kind.PERMANENT, "the redirects do not end"),
        "httpx.InvalidURL": _WRONG,
        "httpx.CookieConflict": _WRONG,
        "httpx.StreamError": _WRONG,
        "httpx.StreamConsumed": _WRONG,
        "httpx.StreamClosed": _WRONG,
        "httpx.ResponseNotRead": _WRONG,
        "httpx.RequestNotRead": _WRONG,
        "httpcore.ConnectionNotAvailable": Row(
            Kind.TRANSIENT, "the connection was taken; nothing was sent"
        ),
        "httpcore.ConnectError": _CONNECT,
        "httpcore.ConnectTimeout": _CONNECT_TIMEOUT,
        "httpcore.PoolTimeout": _POOL,
        "httpcore.ReadTimeout": _READ_TIMEOUT,
        "httpcore.ReadError": _READ,
        "httpcore.RemoteProtocolError": _READ,
        "httpcore.LocalProtocolError": _WRONG,
        "httpcore.NetworkError": Row(Kind.TRANSIENT, _LOST, ambiguous=True),
        "httpcore.ProtocolError": Row(Kind.TRANSIENT, _LOST, ambiguous=True),
        "httpcore.ProxyError": Row(Kind.TRANSIENT, "the proxy refused or broke the connection"),
        "httpcore.TimeoutException": _READ_TIMEOUT,
        "httpcore.UnsupportedProtocol": _WRONG,
        "httpcore.WriteError": _READ,
        "httpcore.WriteTimeout": Row(Kind.TIMEOUT, "not sent whole in time", ambiguous=True),
    },
    packages=("httpx", "httpcore"),
    retries="none but `HTTPTransport(retries=n)`, which repeats connecting",
)
