"""socket: the errors of the resolver, whose numbers are no errnos and differ between systems.

Those of Linux are negative, those of macOS and the BSDs small, those of Windows above 11000; so
each is known wherever it is read. Other errors of sockets are OSErrors, known by their errno.
"""

from __future__ import annotations

from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Row, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_NO_NAME = Row(Kind.PERMANENT, "the name does not exist")
_NO_ADDRESS = Row(Kind.PERMANENT, "the name has no such address")
_AGAIN = Row(Kind.TRANSIENT, "the name cannot be resolved for now")
_REFUSED = Row(Kind.PERMANENT, "the name servers refuse to answer")
_MISUSE = Row(Kind.PERMANENT, "a mistake in the call")

_RESOLVER: dict[str | int, Row] = {
    "EAI_AGAIN": _AGAIN,
    "EAI_NONAME": _NO_NAME,
    "EAI_NODATA": _NO_ADDRESS,
    "EAI_ADDRFAMILY": _NO_ADDRESS,
    "EAI_FAIL": _REFUSED,
    "EAI_MEMORY": Row(Kind.OVERLOAD, "no memory to resolve the name with"),
    "EAI_SERVICE": Row(Kind.PERMANENT, "there is no such service"),
    "EAI_FAMILY": _MISUSE,
    "EAI_SOCKTYPE": _MISUSE,
    "EAI_BADFLAGS": _MISUSE,
}
_NUMBERS = {
    "EAI_AGAIN": (-3, 2, 11002),
    "EAI_NONAME": (-2, 8, 11001),
    "EAI_NODATA": (-5, 7, 11004),
    "EAI_ADDRFAMILY": (-9, 1),
    "EAI_FAIL": (-4, 4, 11003),
    "EAI_MEMORY": (-10, 6),
    "EAI_SERVICE": (-8, 9, 10109),
    "EAI_FAMILY": (-6, 5, 10047),
    "EAI_SOCKTYPE": (-7, 10, 10044),
    "EAI_BADFLAGS": (-1, 3, 10022),
}
_NAMES = {number: name for name, numbers in _NUMBERS.items() for number in numbers}


def _eai(exception: Any) -> Iterable[str | None]:
    return (_NAMES.get(exception.errno),)


def _host(exception: Any) -> Iterable[int | None]:
    return (exception.errno,)


TABLE = Table(
    "socket",
    {
        "socket.gaierror": Cases(
            _eai,
            _RESOLVER,
            otherwise=Row(Kind.UNKNOWN, "a number of the resolver that is not known"),
        ),
        "socket.herror": Cases(
            _host,
            {1: _NO_NAME, 2: _AGAIN, 3: _REFUSED, 4: _NO_ADDRESS},
            otherwise=Row(Kind.UNKNOWN, "a number of the resolver that is not known"),
        ),
        "socket._GiveupOnSendfile": Row(
            Kind.UNKNOWN, "of socket's own use: a file is sent in another way then"
        ),
    },
    retries="the resolver of the system, as resolv.conf sets it: 2 rounds of 5 s by default",
)
