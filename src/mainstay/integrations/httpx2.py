"""httpx2: transports that retry, end at the deadline, and hand on what the next service needs.

For clients of httpx2, on which the newest clients of openai and anthropic are built. They behave as
those for httpx, which mainstay.integrations.httpx describes, and are made of the same code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpcore2
import httpx2

from mainstay.integrations import httpx_exchange
from mainstay.integrations.http_headers import Outgoing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstay.integrations.http_headers import Calls, Operations

_LIBRARY = httpx_exchange.Library(httpx2, httpcore2)


class Transport(
    httpx_exchange.SyncTransport[httpx2.Request, httpx2.Response], httpx2.BaseTransport
):
    """A transport for `httpx2.Client(transport=...)` that retries and ends at the deadline.

    Args:
        retry: a RetryPolicy, an Engine, or an operation of one; None for one attempt.
        transport: what sends; by default `httpx2.HTTPTransport()`.
        trust: the hosts that get our headers, and whose give-up is believed: names, patterns such
            as "*.svc.local", networks, each with or without a port.
        operation: the operation of the engine.

    Example:
        >>> import httpx2, mainstay
        >>> transport = Transport(mainstay.RetryPolicy(attempts=3), trust=["orders.internal"])
        >>> with httpx2.Client(transport=transport) as client:
        ...     client.timeout.connect
        5.0
    """

    def __init__(
        self,
        retry: Calls | Operations | None = None,
        *,
        transport: httpx2.BaseTransport | None = None,
        trust: Iterable[str] = (),
        operation: str = "httpx2",
    ) -> None:
        outgoing = Outgoing(retry, trust, operation)
        sends = httpx2.HTTPTransport() if transport is None else transport
        super().__init__(_LIBRARY, sends, outgoing)


class AsyncTransport(
    httpx_exchange.AsyncTransport[httpx2.Request, httpx2.Response], httpx2.AsyncBaseTransport
):
    """A transport for `httpx2.AsyncClient(transport=...)`, on asyncio and on Trio.

    The arguments are those of Transport.

    Example:
        >>> import asyncio, httpx2, mainstay
        >>> async def main():
        ...     transport = AsyncTransport(mainstay.RetryPolicy(attempts=3))
        ...     async with httpx2.AsyncClient(transport=transport) as client:
        ...         return client.timeout.connect
        >>> asyncio.run(main())
        5.0
    """

    def __init__(
        self,
        retry: Calls | Operations | None = None,
        *,
        transport: httpx2.AsyncBaseTransport | None = None,
        trust: Iterable[str] = (),
        operation: str = "httpx2",
    ) -> None:
        outgoing = Outgoing(retry, trust, operation)
        sends = httpx2.AsyncHTTPTransport() if transport is None else transport
        super().__init__(_LIBRARY, sends, outgoing)
