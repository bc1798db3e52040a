"""aiohttp: a client middleware that retries, ends at the deadline, and hands on what services need.

A failure of aiohttp, and a response with an error status, are judged by the policy; the last
response is returned as aiohttp would return it. An attempt ends with the headers of the response:
the body is read by your code, later; it is bounded by the same deadline but not repeated.

aiohttp repeats an idempotent request once by itself if a connection that was kept alive has broken,
and it does so around all middlewares. Beside a policy that does not happen: the second pass raises
the failure of the first.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, ref

import aiohttp
from aiohttp.base_protocol import BaseProtocol

import mainstay.runtime.clock as clock
from mainstay.core.base.deadline import NEVER
from mainstay.core.known.http import REPEATABLE_METHODS
from mainstay.core.retry.give_up import ON_RESPONSE
from mainstay.integrations.http_exchange import LONGEST, PATIENCE, Exchange
from mainstay.integrations.http_headers import Outgoing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping
    from typing import Any, TypeAlias

    from mainstay.core.retry.give_up import GaveUp
    from mainstay.integrations.http_headers import Calls, Operations

    Handler: TypeAlias = Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]

_REPEATED = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)
_NOT_REPEATED = (aiohttp.ClientConnectorError,)
"""What aiohttp itself repeats once, if the method is idempotent, and what of that it does not."""
_SOON = 1.0
"""Seconds; the second pass follows as soon as the writing of a body has ended."""


class Middleware:
    """A middleware for `aiohttp.ClientSession(middlewares=[...])`, from aiohttp 3.12 on.

    Args:
        retry: a RetryPolicy, an Engine, or an operation of one; None for one attempt.
        trust: the hosts that get our headers, and whose give-up is believed: names, patterns such
            as "*.svc.local", networks, each with or without a port.
        operation: the operation of the engine.

    Example:
        >>> import aiohttp, asyncio, mainstay
        >>> async def main():
        ...     retries = Middleware(mainstay.RetryPolicy(attempts=3))
        ...     async with aiohttp.ClientSession(middlewares=[retries]) as session:
        ...         return session.closed
        >>> asyncio.run(main())
        False
    """

    def __init__(
        self,
        retry: Calls | Operations | None = None,
        *,
        trust: Iterable[str] = (),
        operation: str = "aiohttp",
    ) -> None:
        self._outgoing = Outgoing(retry, trust, operation)
        self._send = self._outgoing.retried(_send)
        self._given_up: WeakKeyDictionary[Any, tuple[object, BaseException]] = WeakKeyDictionary()
        """By task: the request that a failure was of, for a second pass by aiohttp."""

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: Handler
    ) -> aiohttp.ClientResponse:
        """Sends the request, as often as the policy allows; returns the last response."""
        exchange = _Exchange(self._outgoing, request)
        if self._given_up:
            self._refuse_second_pass(request)
        try:
            return await self._send(exchange, handler)
        except BaseException as error:
            response: aiohttp.ClientResponse | None = exchange.last_response(error)
            if response is not None:
                _mark_status_error(response)
                return response
            if exchange.response is not None:
                exchange.response.close()
            self._remember(exchange, error)
            raise

    def _remember(self, exchange: _Exchange, error: BaseException) -> None:
        """Keeps a failure that aiohttp will repeat at once; not for long, if it does not."""
        if self._outgoing.calls is None:
            return  # there is no retry that it would be inside of
        is_repeated = isinstance(error, _REPEATED) and not isinstance(error, _NOT_REPEATED)
        method = exchange.request.method
        if is_repeated and method in REPEATABLE_METHODS and not exchange.is_spent:
            task = asyncio.current_task()
            self._given_up[task] = (_pass_of(exchange.request), error)
            asyncio.get_running_loop().call_later(_SOON, self._given_up.pop, task, None)

    def _refuse_second_pass(self, request: aiohttp.ClientRequest) -> None:
        of, error = self._given_up.pop(asyncio.current_task(), (None, None))
        if error is not None and of is _pass_of(request):
            raise error


def _pass_of(request: aiohttp.ClientRequest) -> object:
    """The same object for every pass of one request of the session's."""
    return getattr(request, "_timer", None)


async def _send(exchange: _Exchange, handler: Handler) -> aiohttp.ClientResponse:
    """One attempt."""
    if exchange.attempt:
        if exchange.check_repeat():
            await exchange.release()
        await exchange.request.close()  # what was still writing the body has ended then
    end = exchange.begin()
    try:
        response = await _within(end, handler, exchange.request)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise exchange.failed(error)  # noqa: B904 -- the same one, with its request
    except Exception:
        exchange.is_under_way = False
        raise
    finally:
        if exchange.is_touched:
            exchange.end()
    exchange.is_under_way = False
    if end != NEVER:
        _end_body(response, end)
    if response.status >= 400:
        exchange.answered(response, response.status)
        _mark_status_error(response)
    exchange.response = response  # to be closed, if the policy does not accept it
    return response


_send.__qualname__ = "aiohttp"  # what notes and events call it


async def _within(
    end: float, handler: Handler, request: aiohttp.ClientRequest
) -> aiohttp.ClientResponse:
    if end == NEVER:
        return await handler(request)
    scope = asyncio.timeout(end - clock.current.monotonic())
    try:
        async with scope:
            return await handler(request)
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise aiohttp.ServerTimeoutError("the deadline has passed") from error


def _end_body(response: aiohttp.ClientResponse, end: float) -> None:
    """Ends the reading of a body at the deadline, with a timeout."""
    alive = ref(response)

    def expire() -> None:
        late = alive()
        if late is None or late.closed:
            return
        late.content.set_exception(aiohttp.ServerTimeoutError("the deadline has passed"))
        late.close()

    rest = max(0.0, end - clock.current.monotonic())
    handle = asyncio.get_running_loop().call_later(rest, expire)
    response.content.on_eof(handle.cancel)


def _mark_status_error(response: aiohttp.ClientResponse) -> None:
    """Has `raise_for_status()` of a response that was given up on put the mark on its exception.

    An exception of aiohttp does not have the response that it is of.
    """
    note: GaveUp | None = vars(response).get(ON_RESPONSE)
    if note is None:
        return
    alive, plain = ref(response), type(response).raise_for_status

    def raise_for_status() -> None:
        marked = alive()
        assert marked is not None, "it is called on the response"
        try:
            plain(marked)
        except aiohttp.ClientResponseError as error:
            note.put_on(error)
            raise

    response.raise_for_status = raise_for_status  # type: ignore[method-assign]


def _whole(body: bytes) -> aiohttp.StreamReader:
    """A body that has been read, as a response has one that has not."""
    loop = asyncio.get_running_loop()
    content = aiohttp.StreamReader(BaseProtocol(loop), LONGEST, loop=loop)
    content.feed_data(body)
    content.feed_eof()
    return content


class _Exchange(Exchange):
    request: aiohttp.ClientRequest

    @property
    def address(self) -> tuple[str, int | None]:
        return self.request.url.host or "", self.request.url.port

    @property
    def is_spent(self) -> bool:
        return bool(getattr(self.request.body, "consumed", False))

    def marks_of(self, response: aiohttp.ClientResponse) -> MutableMapping[str, Any]:
        return vars(response)

    def late(self, text: str) -> Exception:
        return aiohttp.ConnectionTimeoutError(text)

    def cut(self, text: str) -> Exception:
        return aiohttp.ServerTimeoutError(text)

    async def release(self) -> None:
        response, body = self.response, bytearray()
        with suppress(Exception):  # a body that breaks off is lost
            if self.has_short_body():
                async with asyncio.timeout(PATIENCE):
                    while len(body) <= LONGEST and not response.content.at_eof():
                        body += await response.content.readany()
            self.is_released = response.content.at_eof() and len(body) <= LONGEST
        if self.is_released:
            response.content = _whole(bytes(body))
        else:
            response.close()
            self.response = None  # no part of a body is returned as the whole

    @staticmethod
    def status_error(
        text: str,
        *,
        request: aiohttp.ClientRequest,  # noqa: ARG004 -- as the errors of the other libraries
        response: aiohttp.ClientResponse,
    ) -> aiohttp.ClientResponseError:
        """The exception that aiohttp has for a status, with the response that it is of."""
        error = aiohttp.ClientResponseError(
            response.request_info,
            response.history,
            status=response.status,
            message=text,
            headers=response.headers,
        )
        error.response = response  # type: ignore[attr-defined]  # by which it is known again
        return error
