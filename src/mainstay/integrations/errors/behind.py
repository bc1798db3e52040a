"""Clients of HTTP whose requests may fail with an error of Python's own, and how they are found.

`urllib` hands on what its sockets raise, and what `http.client` does. aiohttp's own limit of time
and `asyncio.timeout()` end a request by cancelling it: the TimeoutError has the cancellation as its
cause, and that the traceback. No table of its own: what is found is judged as Python's errors are.
"""

from __future__ import annotations

from functools import partial

import mainstay.integrations.errors.aiohttp as aiohttp
import mainstay.integrations.errors.httpx as httpx
import mainstay.integrations.errors.httpx2 as httpx2
import mainstay.integrations.errors.model_api as model_api
import mainstay.integrations.errors.shared as shared
from mainstay.core.base.attributes import attribute
from mainstay.core.known.table import Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.known.registry import Behind

_CONNECTS = {
    ("aiohttp.connector", "connect"),
    ("http.client", "connect"),
    ("httpcore._async.connection", "_connect"),
    ("httpcore._async.connection_pool", "wait_for_connection"),
    ("httpcore2._async.connection", "_connect"),
    ("httpcore2._async.connection_pool", "wait_for_connection"),
}
"""Functions in which a request has not been sent yet."""


def client_of(exception: BaseException) -> Behind | None:
    """The table of the client; the error that has its functions; whether it has sent anything."""
    cause = exception.__cause__
    for holder in (exception, cause):
        table = None if holder is None else _table(holder)
        if holder is not None and table is not None:
            reason = attribute(exception, "reason")  # of urllib's URLError
            steps = [holder, cause, reason if isinstance(reason, BaseException) else None]
            return table, holder, not any(map(_is_connecting, steps))
    return None


def _table(holder: BaseException) -> Table | None:
    """That of the first client in a traceback, if its request is there."""
    for frame in shared.frames(holder):
        table = _CLIENTS.get(frame.f_globals.get("__name__"))
        if table is not None:
            find = table.request
            return table if find is not None and find(holder) is not None else None
    return None


def _is_connecting(error: BaseException | None) -> bool:
    found = [] if error is None else shared.frames(error)
    steps = [(each.f_globals.get("__name__"), each.f_code.co_name) for each in found]
    return not _CONNECTS.isdisjoint(steps)


def _asked(error: BaseException) -> list[shared.Sent]:
    """The requests of urllib in a traceback: the one that was asked for, those of redirects."""
    found = [each.f_locals.get("req") for each in shared.frames(error, "urllib.request")]
    return [
        shared.Sent(each.get_method(), [*each.headers, *each.unredirected_hdrs])
        for each in found
        if each is not None
    ]


def _request(error: BaseException) -> object:
    asked = _asked(error)
    return asked[-1] if asked else None


def _first(error: BaseException) -> object:
    asked = _asked(error)
    return shared.changed(asked[0], asked[-1]) if asked else None


def _answered(error: BaseException) -> object:
    """Of an answer that urllib gave, while it is read; http.client's own have no address."""
    for frame in shared.frames(error, "http.client"):
        answer = frame.f_locals.get("self")
        if attribute(answer, "url") is not None:
            return shared.Sent(attribute(answer, "_method"), None)
    return None


def _of_httpx(table: Table, error: BaseException) -> object:
    """A request of httpx or httpx2; one that only computes, by a client of models, only reads."""
    sent = None if table.request is None else table.request(error)
    is_model = any(shared.frames(error, module) for module in _MODELS)
    if is_model and model_api.is_computed(sent):
        return shared.Sent("GET", None)
    return sent


_MODELS = ("openai._base_client", "anthropic._base_client")
_HTTPX, _HTTPX2 = (
    Table(each.library, {}, request=partial(_of_httpx, each), first=each.first)
    for each in (httpx.TABLE, httpx2.TABLE)
)
_URLLIB = Table("urllib", {}, request=_request, first=_first)
_BODY = Table("urllib", {}, request=_answered, key="a key that urllib still has")
_CLIENTS: dict[object, Table] = {
    "aiohttp.client": aiohttp.TABLE,
    "aiohttp.client_reqrep": aiohttp.TABLE,
    "http.client": _BODY,
    "httpx._client": _HTTPX,
    "httpx2._client": _HTTPX2,
    "urllib.request": _URLLIB,
}
"""The client of each of the `SENDERS`."""
