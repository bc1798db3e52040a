"""The lookup of a name within a time, for clients whose own lookup has no timeout.

The resolver of the operating system takes as long as it likes, up to half a minute if a name server
does not answer. So it is asked in a thread of its own, which is left behind if it takes too long;
only for a new connection to a name, and only if there is a deadline.
"""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstay.integrations.http_exchange import Until


def addresses(host: str, port: int, timeout: Until) -> list[str]:
    """The addresses of a host, in the order in which they are to be tried.

    Raises TimeoutError if they are not known in time; else what the lookup raises.

    >>> from mainstay.integrations.http_exchange import limited
    >>> addresses("127.0.0.1", 80, limited(None, 1e12))
    ['127.0.0.1']
    """
    if _is_address(host):
        return [host]
    found: list[str] = []
    failure: list[OSError] = []

    def look_up() -> None:
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            failure.append(error)
        else:
            found.extend(dict.fromkeys(str(answer[4][0]) for answer in answers))

    thread = threading.Thread(target=look_up, name="mainstay-lookup", daemon=True)
    thread.start()
    thread.join(timeout.left(TimeoutError))
    if failure:
        raise failure[0]
    if not found:
        raise TimeoutError(f"the deadline has passed while {host} was looked up")
    return list(found)


def _is_address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, UnicodeError):
            continue
        return True
    return False
