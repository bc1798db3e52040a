"""What the tables of several libraries have in common: connecting, name lookups and TLS.

No table of its own: the rows are those of the libraries that use them.
"""

from __future__ import annotations

from mainstay.core.base.attributes import KEEPS_SIGNALS, PerClass, attribute, carries
from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Inner, Row
from mainstay.core.retry.retry_after import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from mainstay.core.known.table import Entry
    from mainstay.core.retry.retry_after import Hint

NOT_SENT = Row(Kind.TRANSIENT, "no connection was made, so nothing was sent")
CONNECT_TIMEOUT = Row(Kind.TIMEOUT, "no connection was made in time, so nothing was sent")
NO_ANSWER = Row(Kind.TIMEOUT, "sent, and no answer in time", ambiguous=True)
LOST = Row(
    Kind.TRANSIENT, "the connection failed after the request was sent, in part or whole",
    ambiguous=True,
)  # fmt: skip
CUT = Row(Kind.TRANSIENT, "the answer began and did not end", ambiguous=True)
MISUSE = Row(Kind.PERMANENT, "a mistake in the call")
UNREADABLE = Row(Kind.PERMANENT, "the body is not what its headers declare", ambiguous=True)
ENDLESS = Row(Kind.PERMANENT, "the redirects do not end")
NO_NAME = Row(Kind.PERMANENT, "no host has that name")

RESOLVER: dict[str | int, Row] = {
    "EAI_AGAIN": Row(Kind.TRANSIENT, "a name that cannot be resolved for now"),
    "EAI_NONAME": NO_NAME,
    "EAI_NODATA": Row(Kind.PERMANENT, "the name has no address"),
    "EAI_FAIL": Row(Kind.PERMANENT, "the name server refuses the name"),
}
_NUMBERS = {
    -3: "EAI_AGAIN", 2: "EAI_AGAIN", 11002: "EAI_AGAIN",
    -2: "EAI_NONAME", 8: "EAI_NONAME", 11001: "EAI_NONAME",
    -5: "EAI_NODATA", 7: "EAI_NODATA", 11004: "EAI_NODATA",
    -4: "EAI_FAIL", 4: "EAI_FAIL", 11003: "EAI_FAIL",
}  # fmt: skip
"""The resolver's numbers on Linux, on macOS and the BSDs, and on Windows: no two are the same."""

_NO_AGREEMENT = Row(Kind.PERMANENT, "the two sides do not agree on TLS")
_TLS_LOST = Row(Kind.TRANSIENT, "the TLS connection broke")
TLS: dict[str | int, Row] = {
    "SSLCertVerificationError": Row(Kind.PERMANENT, "the certificate is not accepted"),
    "SSLEOFError": _TLS_LOST,
    "SSLZeroReturnError": _TLS_LOST,
    "WRONG_VERSION_NUMBER": Row(Kind.PERMANENT, "the other side does not speak TLS"),
    "RECORD_LAYER_FAILURE": Row(Kind.PERMANENT, "the other side does not speak TLS"),
    "HTTP_REQUEST": Row(Kind.PERMANENT, "the other side does not speak TLS"),
    "UNSUPPORTED_PROTOCOL": _NO_AGREEMENT,
    "NO_PROTOCOLS_AVAILABLE": _NO_AGREEMENT,
    "TLSV1_ALERT_*": _NO_AGREEMENT,
    "TLSV13_ALERT_*": _NO_AGREEMENT,
    "SSLV3_ALERT_*": _NO_AGREEMENT,
}
"""By the class of the error, or by the reason that OpenSSL gives."""


PROXY_STATUSES = {
    status: Row(kind, f"status {status} of the proxy, so nothing was sent through it")
    for status, kind in (
        (500, Kind.TRANSIENT), (502, Kind.TRANSIENT), (503, Kind.OVERLOAD), (504, Kind.TIMEOUT),
    )
}  # fmt: skip
"""Statuses of a proxy that was to make a tunnel; after them nothing is ambiguous."""


def connecting(read: Callable[[Any], BaseException | None], otherwise: Entry = NOT_SENT) -> Cases:
    """Cases of a connection that was not made: `read` gives the error of the system.

    >>> import socket
    >>> error = OSError()
    >>> error.__cause__ = socket.gaierror(-2, "Name or service not known")
    >>> connecting(cause).row(error)
    Row(permanent, 'no host has that name')
    """
    if read is cause:
        return _OfCause(_names_of_cause, RESOLVER | TLS, otherwise=otherwise, of="cause")
    return Cases(lambda error: names(read(error)), RESOLVER | TLS, otherwise=otherwise, of="cause")


class _OfCause(Cases):
    """Cases of what it was raised from: as those of Cases, in fewer steps."""

    __slots__ = ()

    def cases(self, exception: BaseException) -> tuple[str, ...]:
        try:
            return tuple(names(exception.__cause__))
        except Exception:  # an attribute of another shape than the library gives it
            return ()


class _OfArgument(Inner):
    """What is its first argument: as an Inner that reads by `first`, in fewer steps."""

    __slots__ = ()

    def of(self, exception: BaseException) -> BaseException | None:
        args = exception.args
        found = args[0] if args else None
        return found if isinstance(found, BaseException) and found is not exception else None


def wrapping(otherwise: Entry, *, ambiguous: bool = False) -> Inner:
    """What the exception was made of decides, its first argument.

    >>> wrapping(NOT_SENT).of(OSError(ConnectionResetError("peer")))
    ConnectionResetError('peer')
    """
    return _OfArgument(first, otherwise=otherwise, ambiguous=ambiguous)


def names(error: BaseException | None) -> list[str]:
    """What the resolver or OpenSSL calls an error and those it was raised from."""
    found: list[str] = []
    for _ in range(4):  # httpx's own, httpcore's, anyio's, the system's
        if error is None:
            break
        is_of_resolver, named, has_reason = _NAMED[type(error)]
        if is_of_resolver:
            number = attribute(error, "errno")
            found.append(_NUMBERS.get(number, f"EAI {number}"))
        found += named
        if has_reason or error.__dict__:
            reason = attribute(error, "reason")
            if isinstance(reason, str):
                found.append(reason)
        inner = error.__cause__
        if inner is None:
            args = error.args  # as `first` does, without a call
            inner = args[0] if args and isinstance(args[0], BaseException) else None
        error = inner
    return found


def _names_of_cause(error: BaseException) -> list[str]:
    return names(error.__cause__)


def _named(cls: type) -> tuple[bool, tuple[str, ...], bool]:
    """Whether errors of the class are the resolver's, their names in `ssl`, and may have a reason.

    A reason may be an attribute of the class; that of an instance is in its dict.
    """
    bases = [base for base in cls.__mro__ if base.__module__ in ("socket", "ssl")]
    is_of_resolver = any(
        (base.__module__, base.__name__) == ("socket", "gaierror") for base in bases
    )
    named = [base.__name__ for base in bases if base.__module__ == "ssl"]
    may_have = carries(cls, "reason") or not KEEPS_SIGNALS[cls]
    return is_of_resolver, tuple([name for name in named if name != "SSLError"]), may_have


_NAMED = PerClass(_named)


def cause(error: BaseException) -> BaseException | None:
    """What it was raised from."""
    return error.__cause__


def first(error: BaseException) -> BaseException | None:
    """The exception that it was made of, as its first argument: httpcore drops the cause."""
    args = error.args
    return args[0] if args and isinstance(args[0], BaseException) else None


class Sent:
    """A request, as far as it decides whether it may be repeated."""

    __slots__ = ("headers", "method")

    def __init__(self, method: object, headers: object) -> None:
        self.method = method
        self.headers = headers


def first_of(history: Any, last: object) -> object:
    """The request of the first answer of a chain of redirects, if the last has another method."""
    if not history:
        return None
    request = attribute(history[0], "request") or attribute(history[0], "request_info")
    return changed(request, last)


def changed(first: object, last: object) -> object:
    """The first of two requests, if redirects have led from it to another method.

    >>> changed(Sent("POST", {}), Sent("GET", {})).method
    'POST'
    >>> changed(Sent("POST", {}), Sent("POST", {}))
    """
    methods = attribute(first, "method"), attribute(last, "method")
    return first if None not in methods and methods[0] != methods[1] else None


def counted(error: BaseException, name: str, *modules: str) -> int:
    """The largest number that a function of these modules has by that name in a traceback; or 0.

    >>> counted(ValueError(), "attempts", "botocore.endpoint")
    0
    """
    found = [each.f_locals.get(name) for module in modules for each in frames(error, module)]
    return max([each for each in found if type(each) is int], default=0)


def longest(error: BaseException, name: str, *modules: str) -> int:
    """The length of the longest list that a function of these modules has by that name; or 0.

    >>> longest(ValueError(), "errors", "neo4j._sync.work.session")
    0
    """
    found = [each.f_locals.get(name) for module in modules for each in frames(error, module)]
    return max([len(each) for each in found if type(each) is list], default=0)


def sent_by_urllib3(error: BaseException | None, response: Any = None) -> int:
    """The requests that urllib3 has made, those of a redirect aside: its Retry keeps them.

    It is in the traceback of a failure, or in the response whose status was repeated in vain.
    """
    retries = [getattr(response, "retries", None)]
    if error is not None:
        sending = frames(error, "urllib3.connectionpool")
        retries += [each.f_locals.get("retries") for each in sending]
    kept = [getattr(each, "history", ()) for each in retries]
    made = [[step for step in history if not step.redirect_location] for history in kept]
    return max(map(len, made), default=0) + 1


def asked_wait(error: BaseException, *modules: str) -> Hint | None:
    """The Retry-After of the answer that a function of these modules has in a traceback.

    For clients whose errors keep nothing of the answer but its text.
    """
    for module in modules:
        for each in frames(error, module):
            headers: Any = getattr(each.f_locals.get("response"), "headers", None)
            if headers is not None:
                return parse(headers.get("Retry-After"), headers.get("Date"))
    return None


def frames(error: BaseException, module: str = "") -> list[FrameType]:
    """The frames of a module's functions, or of all, in a traceback, from the outermost on.

    The errors of some clients carry no request; the function that sent it still has it then.
    """
    found = []
    trace = error.__traceback__
    while trace is not None:
        if not module or trace.tb_frame.f_globals.get("__name__") == module:
            found.append(trace.tb_frame)
        trace = trace.tb_next
    return found
