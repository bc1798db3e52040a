"""The deadline of the caller, as ASGI middleware: what a request starts ends when its caller does.

The header `Mainstay-Timeout` has the seconds that the caller has left. It is believed from hosts
that are listed, and ignored from all others. No web framework is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.known.headers import TIMEOUT, Trust
from mainstay.integrations.http_headers import within

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstay.integrations.asgi_messages import App, Receive, Scope, Send

_NAME = TIMEOUT.lower().encode("ascii")


class DeadlineMiddleware:
    """Opens `mainstay.deadline.within(...)` for a request whose caller has stated its deadline.

    Retries inside then start no attempt that has no time left, and clients with a transport of
    ours end in time.

    Args:
        app: the ASGI application.
        trust: the callers that are believed: addresses, networks such as "10.0.0.0/8". Behind a
            proxy that is the proxy, which has to remove the header from what strangers send.

    Example:
        >>> async def app(scope, receive, send): ...
        >>> app = DeadlineMiddleware(app, trust=["10.0.0.0/8"])
    """

    def __init__(self, app: App, *, trust: Iterable[str] = ()) -> None:
        self._app = app
        self._trust = Trust(trust)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        limit = within(self._stated(scope))
        if limit is None:
            await self._app(scope, receive, send)
            return
        with limit:
            await self._app(scope, receive, send)

    def _stated(self, scope: Scope) -> list[str]:
        client = scope.get("client")
        if client is None or not self._trust.covers(str(client[0])):
            return []
        headers = scope.get("headers") or ()
        values = [value.decode("latin-1") for name, value in headers if name.lower() == _NAME]
        return ",".join(values).split(",")  # as a proxy joins them, too (RFC 9110, 5.3)
