"""What is known about exceptions without a rule.

`kind_of(exception)` asks the table of the library that the exception is from (core/known/), then
looks at the HTTP status it carries, then its errno, then its type. It reads attributes only;
nothing is imported to recognise a library's exception.
"""

from __future__ import annotations

import errno

from mainstay.core.base.attributes import PerClass, attribute
from mainstay.core.known.behind import by_client
from mainstay.core.known.http import kind_of_status, sent_once, status_of
from mainstay.core.known.kind import NOTHING_KNOWN, Kind, Known, qualified_name, shared
from mainstay.core.known.registry import REGISTRY
from mainstay.core.known.resolve import known_by_table
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

NEVER_RETRIED = frozenset({"concurrent.futures._base.CancelledError", "mainstay.errors.WrapError"})
"""Cancellations that derive from Exception (the others are BaseExceptions and never caught); and
the error of a function that cannot be retried as it is, which would be the same the next time."""


def is_never_retried(cls: type[BaseException]) -> bool:
    """Whether a class is of those that no policy may retry.

    >>> is_never_retried(KeyboardInterrupt), is_never_retried(OSError)
    (True, False)
    """
    if not issubclass(cls, Exception):
        return True
    return any(qualified_name(base) in NEVER_RETRIED for base in cls.__mro__)


RECORDED = "ms_known"
"""Where an exception that stands for a recorded one has what was known of it then, or None: the
tables of today do not decide what was decided."""


def kind_of(exception: BaseException, depth: int = 0) -> Known:
    """The kind of an exception, and why.

    >>> kind_of(ConnectionResetError()).kind
    <Kind.TRANSIENT: 'transient'>
    """
    carried = exception.__dict__
    if RECORDED in carried:
        known: Known | None = carried[RECORDED]
        if known is not None:
            return known
    else:
        found = REGISTRY.found[type(exception)]
        if found is not None:
            return known_by_table(found, exception, kind_of, depth)
    known = _by_itself(exception)
    return known if depth or RECORDED in carried else by_client(exception, known)


def _by_itself(exception: BaseException) -> Known:
    """Of an exception that no table knows."""
    status = status_of(exception)
    if status is not None:
        return Known(kind_of_status(status), f"status {status}", by_code=True)
    inner = wrapped(exception)
    if inner is not None:
        known = kind_of(inner, 1)
        return Known(known.kind, known.reason)  # of this instance, whatever its type
    if isinstance(exception, OSError):
        return _kind_of_oserror(exception)
    return _facts[type(exception)].known


def known_of(exception: BaseException) -> Known:
    """What is known of a failure without any rule: its kind, and whether it can be sent again."""
    known, once = kind_of(exception), sent_once(exception)
    if once and not known.once:
        known = known.copied()
        known.once = once
    return known


def wrapped(exception: BaseException) -> BaseException | None:
    """The real exception inside urllib's URLError."""
    if not _facts[type(exception)].is_wrapper:
        return None
    reason = attribute(exception, "reason")
    return reason if isinstance(reason, BaseException) else None


def spelled(cls: type) -> str:
    """`module:QualName`, as proofs spell a class: it can be taken apart again."""
    return f"{cls.__module__}:{cls.__qualname__}"


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


_BY_ERRNO = {
    number: shared(Known(kind, f"errno {errno.errorcode[number]}"))
    for number, kind in _errno_table().items()
}
ERRNOS = {errno.errorcode[number]: number for number in _BY_ERRNO}
"""The errnos that decide, by name; those of this system."""
_SETTLED_OSERRORS = (ConnectionError, TimeoutError)


def _kind_of_oserror(exception: OSError) -> Known:
    facts = _facts[type(exception)]
    if facts.has_foreign_numbers:
        if type(exception).__name__ == "gaierror" and number_of(exception, "errno") in _EAI_AGAIN:
            return Known(Kind.TRANSIENT, "a name that cannot be resolved for now")
        return facts.known
    winerror = number_of(exception, "winerror")
    if winerror in _WINERROR_KINDS:
        return Known(_WINERROR_KINDS[winerror], f"winerror {winerror}")
    if isinstance(exception, _SETTLED_OSERRORS):
        return facts.known
    number = number_of(exception, "errno")
    return facts.of_instance if number is None else _BY_ERRNO.get(number, facts.of_instance)


def is_decided_by_errno(cls: type[BaseException]) -> bool:
    """Whether the class leaves it to the number that an instance carries.

    >>> is_decided_by_errno(OSError), is_decided_by_errno(FileNotFoundError)
    (True, False)
    """
    facts = _facts[cls]
    is_own = issubclass(cls, OSError) and not facts.has_foreign_numbers
    return is_own and not facts.is_wrapper and facts.known.kind is Kind.UNKNOWN


def number_of(exception: OSError, name: str) -> int | None:
    """A number of the operating system's; an OSError may be given anything at all in its place.

    >>> number_of(OSError(2, "no such file"), "errno"), number_of(OSError([2], "x"), "errno")
    (2, None)
    """
    number = attribute(exception, name)
    return int(number) if isinstance(number, int) and type(number) is not bool else None


_EAI_AGAIN = (-3, 2, 11002)
"""The resolver's "try again" on Linux, on macOS and the BSDs, and on Windows."""


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


class _ClassFacts:
    """What its class decides about an exception, looked up once."""

    __slots__ = ("has_foreign_numbers", "is_wrapper", "known", "of_instance")

    def __init__(self, cls: type[BaseException]) -> None:
        names = [qualified_name(base) for base in cls.__mro__]
        self.is_wrapper = "urllib.error.URLError" in names
        modules = {base.__module__ for base in cls.__mro__}
        self.has_foreign_numbers = not modules.isdisjoint(("ssl", "socket"))
        """Whether an OSError's number is no errno: OpenSSL and the resolver have their own."""
        kind, reason = _by_ancestors(cls, names)
        self.known = shared(Known(kind, reason, cls.__module__ == "builtins"))
        self.of_instance = shared(Known(kind, reason))
        """The same for an instance that decides by what it carries."""


def _by_ancestors(cls: type[BaseException], names: list[str]) -> tuple[Kind, str]:
    for base, name in zip(cls.__mro__, names, strict=True):
        if name in _NAME_KINDS:
            return _NAME_KINDS[name], f"a {base.__name__}"
    for known, kind in _TYPE_KINDS:
        if issubclass(cls, known):
            return kind, f"a {known.__name__}"
    return Kind.UNKNOWN, NOTHING_KNOWN


_facts = PerClass(_ClassFacts)
