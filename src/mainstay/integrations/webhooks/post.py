"""One POST of a webhook over a checked connection, within a time that holds for the whole of it."""

from __future__ import annotations

import threading
from base64 import b64encode
from contextlib import contextmanager, suppress
from socket import SHUT_RDWR
from socket import socket as Socket  # noqa: N812 -- the class, beside what is called so
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from mainstay.integrations.webhooks.targets import CheckedConnection, CheckedTlsConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from urllib.parse import SplitResult

_AGAIN = 0.05
"""Seconds until a connection is cut again."""


def parts_of(url: object) -> SplitResult | None:
    """The parts of a URL that can be posted to; others would be tried for ever."""
    if not isinstance(url, str) or not url.isprintable() or " " in url:
        return None
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        host.encode("idna")
    except ValueError:  # of the port, of brackets, of the host's name
        return None
    is_plain = parts.path.isascii() and parts.query.isascii() and port != 0
    return parts if parts.scheme in ("http", "https") and host and is_plain else None


def connection_to(parts: SplitResult, seconds: float, *, allow_local: bool) -> CheckedConnection:
    """A connection to the host of a URL, which is not made yet."""
    kind = CheckedTlsConnection if parts.scheme == "https" else CheckedConnection
    port = parts.port or kind.default_port
    connection = kind(parts.hostname or "", port, timeout=seconds)
    connection.allow_local = allow_local
    return connection


def target_of(parts: SplitResult) -> str:
    """What is requested from the host of a URL.

    >>> target_of(urlsplit("https://example.org/hooks?a=1"))
    '/hooks?a=1'
    """
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def authorization_of(parts: SplitResult) -> dict[str, str]:
    """The header for a user and password in a URL; nothing if there are none.

    >>> authorization_of(urlsplit("https://me:secret@example.org/"))
    {'Authorization': 'Basic bWU6c2VjcmV0'}
    """
    if not parts.username:
        return {}
    who = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {b64encode(who.encode()).decode()}"}


@contextmanager
def in_time(open_socket: Callable[[], Socket | None], seconds: float) -> Iterator[None]:
    """Cuts a connection when its time is up.

    A socket's own timeout is for one read: a server that answers byte by byte would hold up
    every later notification without limit. It is cut until the delivery has ended: at first
    there may be no connection yet, or one that TLS is just taking over.
    """
    is_late, is_over = threading.Event(), threading.Event()

    def cut() -> None:
        is_late.set()
        while not is_over.is_set():
            with suppress(OSError, AttributeError):  # it is closed, or not open yet
                found = open_socket()
                if found is not None:
                    Socket.shutdown(found, SHUT_RDWR)
            is_over.wait(_AGAIN)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    with suppress(RuntimeError):  # at the interpreter's end no thread can be started
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        is_over.set()
        if is_late.is_set():
            raise TimeoutError(f"no answer within {seconds:g} s")
