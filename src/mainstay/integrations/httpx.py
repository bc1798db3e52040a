"""httpx: transports that retry, end at the deadline, and hand on what the next service needs.

A failure of httpx, and a response with an error status, are judged by the policy; the last response
is returned as httpx would return it. An attempt ends where the transport returns, with the headers
of the response: the body is read later, and is bounded by the same deadline but not repeated.

How a request is sent is in httpx_exchange.py, for httpx2 too; how the deadline reaches the socket
in httpx_streams.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpcore
import httpx

from mainstay.integrations import httpx_exchange
from mainstay.integrations.http_headers import Outgoing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstay.integrations.http_headers import Calls, Operations

_LIBRARY = httpx_exchange.Library(httpx, httpcore)


class Transport(httpx_exchange.SyncTransport[httpx.Request, httpx.Response], httpx.BaseTransport):
    """A transport for `httpx.Client(transport=...)` that retries and ends at the deadline.

    Args:
        retry: a RetryPolicy, an Engine, or an operation of one; None for one attempt.
        transport: what sends; by default `httpx.HTTPTransport()`.
        trust: the hosts that get our headers, and whose give-up is believed: names, patterns such
            as "*.svc.local", networks, each with or without a port.
        operation: the operation of the engine.

    Example:
        >>> import httpx, mainstay
        >>> transport = Transport(mainstay.RetryPolicy(attempts=3), trust=["orders.internal"])
        >>> with httpx.Client(transport=transport) as client:
        ...     client.timeout.connect
        5.0
    """

    def __init__(
        self,
        retry: Calls | Operations | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
        trust: Iterable[str] = (),
        operation: str = "httpx",
    ) -> None:
        outgoing = Outgoing(retry, trust, operation)
        sends = httpx.HTTPTransport() if transport is None else transport
        super().__init__(_LIBRARY, sends, outgoing)


class AsyncTransport(
    httpx_exchange.AsyncTransport[httpx.Request, httpx.Response], httpx.AsyncBaseTransport
):
    """A transport for `httpx.AsyncClient(transport=...)`, on asyncio and on Trio.

    The arguments are those of Transport.

    Example:
        >>> import asyncio, httpx, mainstay
        >>> async def main():
        ...     transport = AsyncTransport(mainstay.RetryPolicy(attempts=3))
        ...     async with httpx.AsyncClient(transport=transport) as client:
        ...         return client.timeout.connect
        >>> asyncio.run(main())
        5.0
    """

    def __init__(
        self,
        retry: Calls | Operations | None = None,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        trust: Iterable[str] = (),
        operation: str = "httpx",
    ) -> None:
        outgoing = Outgoing(retry, trust, operation)
        sends = httpx.AsyncHTTPTransport() if transport is None else transport
        super().__init__(_LIBRARY, sends, outgoing)
