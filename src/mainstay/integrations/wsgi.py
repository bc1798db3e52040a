"""The deadline of the caller, as WSGI middleware: what a request starts ends when its caller does.

As asgi_deadline.py, for Flask, Django and the rest under a WSGI server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay import deadline
from mainstay.core.known.headers import TIMEOUT, Trust
from mainstay.integrations.http_headers import until, within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_NAME = f"HTTP_{TIMEOUT.upper().replace('-', '_')}"


class DeadlineMiddleware:
    """Opens `mainstay.deadline.within(...)` for a request whose caller has stated its deadline.

    Args:
        app: the WSGI application.
        trust: the callers that are believed: addresses, networks such as "10.0.0.0/8". Behind a
            proxy that is the proxy, which has to remove the header from what strangers send.

    Example:
        >>> def app(environ, start_response):
        ...     start_response("200 OK", [])
        ...     return [b""]
        >>> app = DeadlineMiddleware(app, trust=["10.0.0.0/8"])
    """

    def __init__(self, app: WSGIApplication, *, trust: Iterable[str] = ()) -> None:
        self._app = app
        self._trust = Trust(trust)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """One request."""
        stated = environ.get(_NAME)
        if stated is None or not self._trust.covers(environ.get("REMOTE_ADDR")):
            return self._app(environ, start_response)
        limit = within(str(stated).split(","))
        if limit is None:
            return self._app(environ, start_response)
        with limit:
            return _Body(self._app(environ, start_response), deadline.moment())


class _Body:
    """The body of a response, whose parts an application may make one by one, under the deadline.

    The server iterates after the application has returned: each part is made in a block of its own.
    """

    def __init__(self, body: Iterable[bytes], end: float) -> None:
        self._body: Any = body
        self._parts: Iterator[bytes] | None = None
        self._end = end

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        with until(self._end):
            if self._parts is None:
                self._parts = iter(self._body)
            return next(self._parts)

    def close(self) -> None:
        """As the server does with every body."""
        close = getattr(self._body, "close", None)
        if close is not None:
            close()
