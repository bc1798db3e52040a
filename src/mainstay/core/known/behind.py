"""Python's own errors, if they come through a client of HTTP.

`urllib` raises the errors of its sockets as they are, aiohttp ends a request with a TimeoutError,
and so does `asyncio.timeout()` around any client. Such an error carries no request, but its
traceback has the functions of the client.
"""

from __future__ import annotations

from mainstay.core.base.attributes import is_direct
from mainstay.core.known.http import AMBIGUOUS_STATUSES, status_of, unsafe_request
from mainstay.core.known.kind import RETRIED_KINDS, Known
from mainstay.core.known.registry import REGISTRY
from mainstay.core.known.resolve import unsafe_before


def may_be_of_client(exception: BaseException, known: Known) -> bool:
    """Whether a client behind errors like this decides about them: of no table, and retried."""
    return known.kind in RETRIED_KINDS and REGISTRY.found[type(exception)] is None


def by_client(exception: BaseException, known: Known) -> Known:
    """What is known of an error of Python's own, with the request of the client behind it."""
    if not may_be_of_client(exception, known) or is_direct(exception):
        return known
    found = REGISTRY.behind(exception)
    if found is None:
        return known
    table, holder, is_sent = found
    status = status_of(exception)
    is_ambiguous = is_sent if status is None else status in AMBIGUOUS_STATUSES
    refused = unsafe_before(table, holder)
    if is_ambiguous and not refused:
        refused = unsafe_request(holder, table.request, table.key, table.key_headers)
    return Known(
        known.kind,
        known.reason,
        by_code=known.by_code,
        is_ambiguous=is_ambiguous or refused != "",
        unsafe=refused,
        table=table.library,
    )
