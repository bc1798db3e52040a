"""httpx and httpcore, whose errors httpx hands on under its own names."""

from __future__ import annotations

import mainstay.integrations.errors.shared as shared
from mainstay.core.base.attributes import attribute
from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Row, Same, Table, by_status
from mainstay.integrations.errors.shared import LOST, MISUSE, NO_ANSWER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from mainstay.core.known.table import Entry

_BASE = Row(Kind.UNKNOWN, "a base class, which httpx itself does not raise")
_POOL = Row(Kind.TIMEOUT, "no connection of the pool was free in time, so nothing was sent")
_CONNECT = shared.connecting(shared.cause)
_TAKEN = Row(Kind.TRANSIENT, "the connection was taken; nothing was sent")
_WRITE_TIMEOUT = Row(Kind.TIMEOUT, "not sent in time, at least not whole", ambiguous=True)


def _proxy_status(error: Any) -> Iterator[int]:
    """The status with which a proxy refuses a tunnel: the text begins with it."""
    status = str(error)[:3]
    if status.isdecimal():
        yield int(status)


def _socks(error: Any) -> list[str]:
    return [str(error).removeprefix("Proxy Server could not connect: ")]


class Finder:
    """Finds requests in the tracebacks of a package: httpx, or httpx2, which has its modules."""

    def __init__(self, package: str) -> None:
        self._client = f"{package}._client"
        self._models = f"{package}._models"
        self.senders = frozenset({self._client, self._models})

    def request(self, error: BaseException) -> object:
        """Of an error that is none of the package's: what was sent, or sent last."""
        found = None
        for each in shared.frames(error, self._client):
            request = each.f_locals.get("request")
            found = found if attribute(request, "method") is None else request
        return found

    def first(self, error: BaseException) -> object:
        """What the call began with, if redirects have led to another method.

        In the answer, also in the one whose body is read when the redirects are over; or in what
        the client was given and what it made for a redirect.
        """
        answer = attribute(error, "response")
        if answer is not None:
            return shared.first_of(attribute(answer, "history"), attribute(answer, "request"))
        begun = last = None
        for each in shared.frames(error):
            module = each.f_globals.get("__name__")
            if module == self._models:
                answer = each.f_locals.get("self")
                history = attribute(answer, "history")
                if history:
                    return shared.first_of(history, attribute(answer, "request"))
            elif module == self._client:
                request = each.f_locals.get("request")
                if attribute(request, "method") is not None:
                    begun, last = begun or request, request
        return shared.changed(begun, last)


FINDER = Finder("httpx")
_PROXY = by_status(
    Cases(
        _socks,
        {
            "Invalid username/password*": Row(Kind.AUTH, "the proxy refuses the credentials"),
            "Requested *": Row(Kind.AUTH, "the proxy asks for other credentials"),
            "Connection not allowed*": Row(Kind.PERMANENT, "the proxy does not allow the address"),
            "Command not supported*": Row(Kind.PERMANENT, "the proxy makes no tunnels"),
            "Address type not supported*": Row(Kind.PERMANENT, "the proxy knows no such address"),
        },
        otherwise=Row(Kind.TRANSIENT, "the proxy made no connection, so nothing was sent"),
    ),
    shared.PROXY_STATUSES,
    read=_proxy_status,
)
"""Raised while a tunnel is made, so never after the request was sent."""
_BEFORE: dict[str, Entry] = {
    "HTTPError": by_status(_BASE),
    "Timeout": NO_ANSWER,
    "TimeoutException": NO_ANSWER,
    "ConnectTimeout": shared.CONNECT_TIMEOUT,
    "ReadTimeout": NO_ANSWER,
    "WriteTimeout": _WRITE_TIMEOUT,
    "PoolTimeout": _POOL,
    "NetworkError": LOST,
    "ConnectionClosed": LOST,
    "ProtocolError": LOST,
    "ProxyError": _PROXY,
    "DecodingError": shared.UNREADABLE,
    "RedirectError": shared.ENDLESS,
    "RedirectLoop": shared.ENDLESS,
    "TooManyRedirects": shared.ENDLESS,
    "RedirectBodyUnavailable": MISUSE,
    "RequestBodyUnavailable": MISUSE,
    "NotRedirectResponse": MISUSE,
    "StreamError": MISUSE,
    "StreamConsumed": MISUSE,
    "ResponseNotRead": MISUSE,
    "RequestNotRead": MISUSE,
    "ResponseClosed": MISUSE,
    "InvalidURL": MISUSE,
    "CookieConflict": MISUSE,
}
BEFORE: dict[str, Entry] = {
    f"httpx.{module}.{name}": entry
    for module in ("exceptions", "_exceptions")
    for name, entry in _BEFORE.items()
}
"""Up to version 0.13, which raised HTTPError for a status."""

TABLE = Table(
    "httpx",
    {
        "httpx.HTTPError": _BASE,
        "httpx.HTTPStatusError": by_status(),
        "httpx.RequestError": _BASE,
        "httpx.TransportError": LOST,
        "httpx.TimeoutException": NO_ANSWER,
        "httpx.ConnectTimeout": shared.CONNECT_TIMEOUT,
        "httpx.ReadTimeout": NO_ANSWER,
        "httpx.WriteTimeout": _WRITE_TIMEOUT,
        "httpx.PoolTimeout": _POOL,
        "httpx.NetworkError": Same("httpx.TransportError"),
        "httpx.ConnectError": _CONNECT,
        "httpx.ReadError": LOST,
        "httpx.WriteError": LOST,
        "httpx.CloseError": LOST,
        "httpx.ProtocolError": Row(
            Kind.PERMANENT, "a challenge of digest authentication that cannot be answered"
        ),
        "httpx.LocalProtocolError": MISUSE,
        "httpx.RemoteProtocolError": LOST,
        "httpx.ProxyError": _PROXY,
        "httpx.UnsupportedProtocol": MISUSE,
        "httpx.DecodingError": shared.UNREADABLE,
        "httpx.TooManyRedirects": shared.ENDLESS,
        "httpx.InvalidURL": MISUSE,
        "httpx.CookieConflict": MISUSE,
        "httpx.StreamError": MISUSE,
        "httpx.StreamConsumed": MISUSE,
        "httpx.StreamClosed": MISUSE,
        "httpx.ResponseNotRead": MISUSE,
        "httpx.RequestNotRead": MISUSE,
        "httpcore.ConnectionNotAvailable": _TAKEN,
        "httpcore._async.base.NewConnectionRequired": _TAKEN,
        "httpcore._sync.base.NewConnectionRequired": _TAKEN,
        "httpcore.CloseError": LOST,
        "httpcore.ConnectError": _CONNECT,
        "httpcore.ConnectTimeout": shared.CONNECT_TIMEOUT,
        "httpcore.PoolTimeout": _POOL,
        "httpcore.ReadTimeout": NO_ANSWER,
        "httpcore.ReadError": LOST,
        "httpcore.RemoteProtocolError": LOST,
        "httpcore.LocalProtocolError": MISUSE,
        "httpcore.NetworkError": LOST,
        "httpcore.ProtocolError": LOST,
        "httpcore.ProxyError": _PROXY,
        "httpcore.TimeoutException": NO_ANSWER,
        "httpcore.UnsupportedProtocol": MISUSE,
        "httpcore.WriteError": LOST,
        "httpcore.WriteTimeout": _WRITE_TIMEOUT,
        **BEFORE,
    },
    packages=("httpx", "httpcore"),
    request=FINDER.request,
    first=FINDER.first,
    senders=FINDER.senders,
    retries="none but `HTTPTransport(retries=n)`, which repeats connecting",
)
OTHER_VERSIONS = (
    "httpcore.CloseError",
    "httpcore._async.base.NewConnectionRequired",
    "httpcore._sync.base.NewConnectionRequired",
    *BEFORE,
)
