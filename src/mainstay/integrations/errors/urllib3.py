"""urllib3. Its errors carry no request; the traceback has the function that sent it."""

from __future__ import annotations

import re

from mainstay.core.base.attributes import attribute
from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Inner, OwnRetries, Row, Table, by_status
from mainstay.integrations.errors import shared
from mainstay.integrations.errors.shared import LOST, MISUSE, NO_ANSWER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_BASE = Row(Kind.UNKNOWN, "a base class, which urllib3 itself does not raise")
_READERS = ("botocore.", "elastic_transport.", "requests.")
"""Modules of clients that have urllib3 below, and read the body of an answer themselves."""
_BROKEN = "the proxy refused or broke the connection; nothing was sent through it"
_STATUS = re.compile(r"Tunnel connection failed: (\d{3})|too many (\d{3}) error responses")


def _status_in(text: str) -> Iterator[int]:
    """The status in a text of http.client or urllib3, which keep it nowhere else."""
    for found in _STATUS.finditer(text):
        yield int(found[1] or found[2])


def _proxy_status(error: Any) -> Iterator[int]:
    return _status_in(str(error.original_error))


def _given_up_on(error: Any) -> Iterator[int]:
    return _status_in(str(error))


def _tls(error: Any) -> list[str]:
    """What failed, or the text if urllib3 itself refuses the certificate or the settings."""
    found = error.args[0]
    return [found] if isinstance(found, str) else shared.names(found)


def _request(error: BaseException) -> shared.Sent | None:
    for frame in shared.frames(error, "urllib3.connectionpool"):
        names = frame.f_locals
        if "method" in names:
            return shared.Sent(names["method"], names.get("headers"))
    answer = _answer(error)
    method = attribute(attribute(answer, "_original_response"), "_method")
    return None if method is None else shared.Sent(method, None)


def _answer(error: BaseException) -> object:
    """The answer whose body was read after the pool had returned it; its headers are gone by then.

    None if a client above reads it: that one knows the request.
    """
    found = None
    for frame in shared.frames(error):
        module = str(frame.f_globals.get("__name__"))
        if module.startswith(_READERS):
            return None
        if module == "urllib3.response" and found is None:
            found = frame.f_locals.get("self")
    return found


def _first(error: BaseException) -> object:
    """What the manager was asked for; the pool has what is sent after redirects."""
    for module in ("urllib3._request_methods", "urllib3.request"):  # urllib3 1 has the second
        for frame in shared.frames(error, module):
            names = frame.f_locals
            return shared.changed(
                shared.Sent(names.get("method"), names.get("headers")), _request(error)
            )
    return None


_REFUSED: dict[str | int, Row] = {
    "Fingerprints did not match*": Row(
        Kind.PERMANENT, "the certificate is not the one that was expected"
    ),
    "Fingerprint of invalid length*": MISUSE,
    "Client private key is encrypted*": MISUSE,
}
_OTHER_HOST = Row(Kind.PERMANENT, "the certificate is of another host")
_OTHER_HOST_BEFORE = "urllib3.packages.ssl_match_hostname._implementation.CertificateError"

TABLE = Table(
    "urllib3",
    {
        "urllib3.exceptions.HTTPError": _BASE,
        "urllib3.exceptions.PoolError": _BASE,
        "urllib3.exceptions.RequestError": _BASE,
        "urllib3.exceptions.MaxRetryError": Inner(
            "reason", otherwise=Row(Kind.UNKNOWN, "given up for a reason that is not known")
        ),
        "urllib3.exceptions.ResponseError": by_status(
            Cases(
                lambda error: [str(error)],
                {"too many redirects": shared.ENDLESS},
                otherwise=Row(
                    Kind.TRANSIENT, "answers with statuses that were to be repeated", ambiguous=True
                ),
            ),
            read=_given_up_on,
        ),
        "urllib3.exceptions.TimeoutError": NO_ANSWER,
        "urllib3.exceptions.ReadTimeoutError": NO_ANSWER,
        "urllib3.exceptions.ConnectTimeoutError": shared.CONNECT_TIMEOUT,
        "urllib3.exceptions.NewConnectionError": shared.connecting(
            lambda error: error.__cause__ or error.__context__  # urllib3 1 has no cause
        ),
        "urllib3.exceptions.NameResolutionError": shared.connecting(
            lambda error: error.__cause__ or error._reason,  # noqa: SLF001 -- kept by pickle
            otherwise=Row(Kind.TRANSIENT, "the name was not resolved, so nothing was sent"),
        ),
        "urllib3.exceptions.EmptyPoolError": Row(
            Kind.TIMEOUT, "no connection of the pool was free in time, so nothing was sent"
        ),
        "urllib3.exceptions.FullPoolError": MISUSE,
        "urllib3.exceptions.ClosedPoolError": MISUSE,
        "urllib3.exceptions.HostChangedError": MISUSE,
        "urllib3.exceptions.TimeoutStateError": MISUSE,
        "urllib3.exceptions.LocationValueError": MISUSE,
        "urllib3.exceptions.LocationParseError": MISUSE,
        "urllib3.exceptions.URLSchemeUnknown": MISUSE,
        "urllib3.exceptions.ProxySchemeUnknown": MISUSE,
        "urllib3.exceptions.ProxySchemeUnsupported": MISUSE,
        "urllib3.exceptions.UnrewindableBodyError": Row(
            Kind.PERMANENT, "the body was read and cannot be sent again", ambiguous=True
        ),
        "urllib3.exceptions.ProxyError": by_status(
            Inner("original_error", otherwise=Row(Kind.TRANSIENT, _BROKEN)),
            shared.PROXY_STATUSES,
            read=_proxy_status,
        ),
        "urllib3.exceptions.SSLError": Cases(
            _tls,
            shared.TLS | dict.fromkeys(("SSLEOFError", "SSLZeroReturnError"), LOST) | _REFUSED,
            otherwise=Row(Kind.UNKNOWN, "a failure of TLS that may be of either side"),
            of="cause",
        ),
        "urllib3.util.ssl_match_hostname.CertificateError": _OTHER_HOST,
        _OTHER_HOST_BEFORE: _OTHER_HOST,
        "urllib3.exceptions.ProtocolError": LOST,
        "urllib3.exceptions.IncompleteRead": shared.CUT,
        "urllib3.exceptions.InvalidChunkLength": shared.CUT,
        "urllib3.exceptions.DecodeError": shared.UNREADABLE,
        "urllib3.exceptions.HeaderParsingError": shared.UNREADABLE,
        "urllib3.exceptions.InvalidHeader": Row(
            Kind.PERMANENT, "a Retry-After that is no date and no number", ambiguous=True
        ),
        "urllib3.exceptions.ResponseNotChunked": MISUSE,
        "urllib3.exceptions.BodyNotHttplibCompatible": MISUSE,
        "urllib3.contrib.appengine.AppEnginePlatformError": MISUSE,
        "urllib3.util.wait.NoWayToWaitForSocketError": MISUSE,
    },
    retries=(
        "three by default (`Retry(3)`): connecting, and for idempotent methods also what fails"
        " after sending; no status, except 413, 429 and 503 with a Retry-After, also without"
        " `status_forcelist`; `retries=False` turns it off"
    ),
    request=_request,
    first=_first,
    own_retries=OwnRetries(shared.sent_by_urllib3, "pass retries=False"),
)
OTHER_VERSIONS = (
    _OTHER_HOST_BEFORE,
    "urllib3.contrib.appengine.AppEnginePlatformError",
    "urllib3.util.wait.NoWayToWaitForSocketError",
)
