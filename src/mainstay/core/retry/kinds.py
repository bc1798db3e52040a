"""The kinds of failure, and what is known about exceptions without a rule.

`kind_of(exception)` looks at the HTTP status an exception carries, then its errno, then its type.
It reads attributes only; nothing is imported to recognise a library's exception.
"""

from __future__ import annotations

import errno
from enum import Enum

from mainstay.core.base.attributes import attribute
from mainstay.errors import (
    AttemptTimeout,
    CallCancelled,
    CommandFailed,
    CommandKilled,
    CommandNotRun,
    DeadlineExceeded,
    MainstayError,
    Refused,
)


class Kind(str, Enum):  # noqa: UP042 -- hash and repr stay those of an enum
    """What sort of failure it was; retries, breakers, budgets and people all decide by it.

    >>> Kind("throttled") is Kind.THROTTLED
    True
    """

    TRANSIENT = "transient"
    THROTTLED = "throttled"
    TIMEOUT = "timeout"
    PERMANENT = "permanent"
    AUTH = "auth"
    AMBIGUOUS = "ambiguous"
    OVERLOAD = "overload"
    UNKNOWN = "unknown"

    __str__ = str.__str__


RETRIED_KINDS = frozenset({Kind.TRANSIENT, Kind.THROTTLED, Kind.TIMEOUT, Kind.OVERLOAD})
"""What a policy without `retry_on` retries."""

NEVER_RETRIED = frozenset({"concurrent.futures._base.CancelledError", "mainstay.errors.WrapError"})
"""Cancellations that derive from Exception (the others are BaseExceptions and never caught); and
the error of a function that cannot be retried as it is, which would be the same the next time."""


class Known:
    """What is known of one exception; `by_type` if every instance of its type is alike."""

    __slots__ = ("by_type", "kind", "reason")

    def __init__(self, kind: Kind, reason: str, by_type: bool = False) -> None:
        self.kind = kind
        self.reason = reason
        self.by_type = by_type


def kind_of(exception: BaseException) -> Known:
    """The kind of an exception, and why.

    >>> kind_of(ConnectionResetError()).kind
    <Kind.TRANSIENT: 'transient'>
    """
    status = status_of(exception)
    if status is not None:
        return Known(_kind_of_status(status), f"status {status}")
    inner = wrapped(exception)
    if inner is not None:
        known = kind_of(inner)
        return Known(known.kind, known.reason)  # of this instance, whatever its type
    if isinstance(exception, OSError):
        return _kind_of_oserror(exception)
    return _kind_of_type(type(exception))


def wrapped(exception: BaseException) -> BaseException | None:
    """The real exception inside urllib's URLError."""
    if not any(qualified_name(base) == "urllib.error.URLError" for base in type(exception).__mro__):
        return None
    reason = attribute(exception, "reason")
    return reason if isinstance(reason, BaseException) else None


def qualified_name(cls: type) -> str:
    """`module.QualName`, as rules and records spell a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def spelled(cls: type) -> str:
    """`module:QualName`, as proofs spell a class: it can be taken apart again."""
    return f"{cls.__module__}:{cls.__qualname__}"


# --- HTTP ---------------------------------------------------------------------------------------

_STATUS_KINDS = {
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


def _kind_of_status(status: int) -> Kind:
    known = _STATUS_KINDS.get(status)
    if known is not None:
        return known
    return Kind.PERMANENT if 400 <= status < 600 else Kind.UNKNOWN


def status_of(exception: BaseException) -> int | None:
    """The HTTP status an exception carries, as httpx, requests, aiohttp and urllib spell it."""
    for holder in (exception, attribute(exception, "response")):
        for name in ("status_code", "status"):
            status = attribute(holder, name)
            if type(status) is int and 100 <= status < 600:
                return status
    return None


# --- the operating system -------------------------------------------------------------------------

_TRANSIENT_ERRNOS = (
    "EAGAIN EWOULDBLOCK EBUSY ETXTBSY EINTR EDEADLK ENOLCK EALREADY EINPROGRESS ECONNABORTED"
    " ECONNREFUSED ECONNRESET EHOSTDOWN EHOSTUNREACH ENETDOWN ENETRESET ENETUNREACH ENOTCONN"
    " EPIPE ESHUTDOWN ESTALE"
)
_OVERLOAD_ERRNOS = "EMFILE ENFILE ENOBUFS ENOMEM"
_AUTH_ERRNOS = "EACCES EPERM"
_PERMANENT_ERRNOS = (
    "EBADF EEXIST EFBIG EINVAL EISDIR ELOOP ENAMETOOLONG ENODEV ENOENT ENOEXEC ENOSPC ENOSYS"
    " ENOTDIR ENOTEMPTY EROFS EXDEV"
)
# Windows: ERROR_ACCESS_DENIED, ERROR_SHARING_VIOLATION, ERROR_LOCK_VIOLATION, ERROR_BUSY,
# ERROR_SEM_TIMEOUT, ERROR_NETNAME_DELETED; Python gives several of them the errno EACCES, so they
# are looked at first.
_WINERROR_KINDS = {
    5: Kind.AUTH,
    32: Kind.TRANSIENT,
    33: Kind.TRANSIENT,
    64: Kind.TRANSIENT,
    121: Kind.TIMEOUT,
    170: Kind.TRANSIENT,
}


def _errno_table() -> dict[int, Kind]:
    """Errno numbers differ between systems; names that a system lacks are left out."""
    table = {}
    for names, kind in (
        (_PERMANENT_ERRNOS, Kind.PERMANENT),
        (_AUTH_ERRNOS, Kind.AUTH),
        (_OVERLOAD_ERRNOS, Kind.OVERLOAD),
        (_TRANSIENT_ERRNOS, Kind.TRANSIENT),
        ("ETIMEDOUT", Kind.TIMEOUT),
    ):
        for name in names.split():
            number = getattr(errno, name, None)
            if number is not None:
                table[number] = kind
    return table


_ERRNO_KINDS = _errno_table()
_SETTLED_OSERRORS = (ConnectionError, TimeoutError)


def _kind_of_oserror(exception: OSError) -> Known:
    if _foreign_numbers(type(exception)):
        if type(exception).__name__ == "gaierror" and number_of(exception, "errno") in _EAI_AGAIN:
            return Known(Kind.TRANSIENT, "a name that cannot be resolved for now")
        return _kind_of_type(type(exception))
    winerror = number_of(exception, "winerror")
    if winerror in _WINERROR_KINDS:
        return Known(_WINERROR_KINDS[winerror], f"winerror {winerror}")
    if isinstance(exception, _SETTLED_OSERRORS):
        return _kind_of_type(type(exception))
    number = number_of(exception, "errno")
    if number in _ERRNO_KINDS:
        return Known(_ERRNO_KINDS[number], f"errno {errno.errorcode[number]}")
    by_type = _kind_of_type(type(exception))
    return Known(by_type.kind, by_type.reason)


def number_of(exception: OSError, name: str) -> int | None:
    """A number of the operating system's; an OSError may be given anything at all in its place.

    >>> number_of(OSError(2, "no such file"), "errno"), number_of(OSError([2], "x"), "errno")
    (2, None)
    """
    number = attribute(exception, name)
    return int(number) if isinstance(number, int) and type(number) is not bool else None


_EAI_AGAIN = (-3, 2, 11002)
"""The resolver's "try again" on Linux, on macOS and the BSDs, and on Windows."""


def _foreign_numbers(cls: type) -> bool:
    """Whether an OSError's number is no errno: OpenSSL and the resolver have their own."""
    return any(base.__module__ in ("ssl", "socket") for base in cls.__mro__)


# --- types ----------------------------------------------------------------------------------------

_TYPE_KINDS: tuple[tuple[type[BaseException], Kind], ...] = (
    (CallCancelled, Kind.PERMANENT),
    (AttemptTimeout, Kind.TIMEOUT),
    (DeadlineExceeded, Kind.TIMEOUT),
    (Refused, Kind.OVERLOAD),
    (CommandKilled, Kind.UNKNOWN),
    (CommandNotRun, Kind.UNKNOWN),
    (CommandFailed, Kind.TRANSIENT),
    (MainstayError, Kind.PERMANENT),
    (TimeoutError, Kind.TIMEOUT),
    (ConnectionError, Kind.TRANSIENT),
    (BlockingIOError, Kind.TRANSIENT),
    (InterruptedError, Kind.TRANSIENT),
    (PermissionError, Kind.AUTH),
    (FileExistsError, Kind.PERMANENT),
    (FileNotFoundError, Kind.PERMANENT),
    (IsADirectoryError, Kind.PERMANENT),
    (NotADirectoryError, Kind.PERMANENT),
    (ArithmeticError, Kind.PERMANENT),
    (AssertionError, Kind.PERMANENT),
    (AttributeError, Kind.PERMANENT),
    (ImportError, Kind.PERMANENT),
    (LookupError, Kind.PERMANENT),
    (MemoryError, Kind.PERMANENT),
    (NameError, Kind.PERMANENT),
    (NotImplementedError, Kind.PERMANENT),
    (RecursionError, Kind.PERMANENT),
    (SyntaxError, Kind.PERMANENT),
    (TypeError, Kind.PERMANENT),
    (ValueError, Kind.PERMANENT),
)


# Classes that are expensive to import, or of a library that need not be there, by name.
_NAME_KINDS = {
    "ssl.SSLCertVerificationError": Kind.PERMANENT,
    "ssl.SSLEOFError": Kind.TRANSIENT,
    "ssl.SSLZeroReturnError": Kind.TRANSIENT,
    "http.client.IncompleteRead": Kind.TRANSIENT,
    "http.client.BadStatusLine": Kind.TRANSIENT,
    "asyncio.exceptions.IncompleteReadError": Kind.TRANSIENT,
    "trio.TooSlowError": Kind.TIMEOUT,
}


def _kind_of_type(cls: type[BaseException]) -> Known:
    by_type = cls.__module__ == "builtins"
    for base in cls.__mro__:
        name = qualified_name(base)
        if name in _NAME_KINDS:
            return Known(_NAME_KINDS[name], f"a {base.__name__}", by_type)
    for known, kind in _TYPE_KINDS:
        if issubclass(cls, known):
            return Known(kind, f"a {known.__name__}", by_type)
    return Known(Kind.UNKNOWN, "nothing is known of it", by_type)
