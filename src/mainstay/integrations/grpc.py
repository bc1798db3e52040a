"""grpc: interceptors that retry, and end calls at the deadline.

A call with one request and one answer is repeated by the policy. A call with a stream on one side
is not: part of it may have been read. The time that is left becomes the timeout of every attempt,
which grpc itself hands on to the server.

grpc repeats by itself what a service config asks for. `NO_RETRIES` are the options of a channel
that turn it off; an interceptor that is given the options of its channel warns of the product.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import grpc
import grpc.aio

from mainstay import deadline
from mainstay.core.known.headers import ATTEMPT
from mainstay.integrations.http_headers import KEY, Outgoing
from mainstay.integrations.idempotency_key import current_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from mainstay.integrations.http_headers import Calls, Operations

NO_RETRIES = (("grpc.enable_retries", 0),)
"""Options of a channel: grpc repeats nothing but what was never sent."""
_ATTEMPT, _KEY = ATTEMPT.lower(), KEY.lower()


class ClientInterceptor(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """An interceptor for `grpc.intercept_channel(channel, ...)`.

    A call that is made with `.future()`, and one with a stream on a side, is not repeated: nothing
    waits for it here. It ends at the deadline, and at the limits of the policy.

    Args:
        retry: a RetryPolicy, an Engine, or an operation of one; None for one attempt.
        trusted: whether the server of the channel is one of yours; it gets the number of the
            attempt then, as `mainstay-attempt`, and the key of a `keyed_call` around the call, as
            `idempotency-key`.
        options: those of the channel; if they have a service config that retries, a warning names
            the product.
        operation: the operation of the engine.

    Example:
        >>> import grpc, mainstay
        >>> channel = grpc.insecure_channel("localhost:50051", options=NO_RETRIES)
        >>> retrying = grpc.intercept_channel(channel, ClientInterceptor(mainstay.RetryPolicy()))
        >>> retrying.close()
    """

    def __init__(
        self,
        retry: Calls | Operations | None = None,
        *,
        trusted: bool = False,
        options: Iterable[tuple[str, Any]] = (),
        operation: str = "grpc",
    ) -> None:
        self._outgoing = _Outgoing(retry, options, operation, trusted=trusted)

    def intercept_unary_unary(
        self, continuation: Callable[..., Any], details: Any, request: Any
    ) -> Any:
        """Makes the call, as often as the policy allows."""
        calls, numbers = self._outgoing.calls, count(1)
        if calls is None or _is_future(continuation):
            return self._once(continuation, details, request)

        def attempt() -> Any:
            call = continuation(self._outgoing.details(details, next(numbers)), request)
            call.result()
            return call

        attempt.__qualname__ = "grpc"  # what notes and events call it
        return calls.call(attempt)

    def _once(self, continuation: Callable[..., Any], details: Any, requests: Any) -> Any:
        return continuation(self._outgoing.only_details(details), requests)

    intercept_unary_stream: Any = _once
    intercept_stream_unary: Any = _once
    intercept_stream_stream: Any = _once


def _is_future(continuation: Callable[..., Any]) -> bool:
    """Whether the program waits for the call later; grpc hands over both kinds by one method.

    What grpc returns does not show it: a future may be done at once, as on a port where nobody
    listens, and to repeat it would hold the caller.
    """
    return "future" in getattr(continuation, "__qualname__", "").split(".")


def aio_interceptors(
    retry: Calls | Operations | None = None,
    *,
    trusted: bool = False,
    options: Iterable[tuple[str, Any]] = (),
    operation: str = "grpc",
) -> list[Any]:
    """The interceptors for `grpc.aio.insecure_channel(..., interceptors=...)`: one of each kind.

    The arguments are those of ClientInterceptor.

    >>> import mainstay
    >>> len(aio_interceptors(mainstay.RetryPolicy()))
    4
    """
    outgoing = _Outgoing(retry, options, operation, trusted=trusted)
    return [made(outgoing) for made in (_AioUnary, _AioUnaryStream, _AioStreamUnary, _AioStreams)]


class _AioUnary(grpc.aio.UnaryUnaryClientInterceptor):
    def __init__(self, outgoing: _Outgoing) -> None:
        self._outgoing = outgoing

    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], details: Any, request: Any
    ) -> Any:
        calls, numbers = self._outgoing.calls, count(1)

        async def attempt() -> Any:
            call = await continuation(self._outgoing.details(details, next(numbers)), request)
            await call
            return call

        attempt.__qualname__ = "grpc"  # what notes and events call it
        return await (attempt() if calls is None else calls.acall(attempt))


class _AioOnce:
    """A call that is bounded and not repeated; grpc wants a class for each kind of streams."""

    def __init__(self, outgoing: _Outgoing) -> None:
        self._outgoing = outgoing

    async def once(self, continuation: Callable[..., Any], details: Any, requests: Any) -> Any:
        return await continuation(self._outgoing.only_details(details), requests)


class _AioUnaryStream(_AioOnce, grpc.aio.UnaryStreamClientInterceptor):
    intercept_unary_stream: Any = _AioOnce.once


class _AioStreamUnary(_AioOnce, grpc.aio.StreamUnaryClientInterceptor):
    intercept_stream_unary: Any = _AioOnce.once


class _AioStreams(_AioOnce, grpc.aio.StreamStreamClientInterceptor):
    intercept_stream_stream: Any = _AioOnce.once


class _Details(NamedTuple):
    """The details of a call, as both interfaces of grpc read them."""

    method: Any
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class _Outgoing(Outgoing):
    """What retries, and what an attempt is sent with."""

    __slots__ = ("_trusted",)

    def __init__(
        self,
        retry: Calls | Operations | None,
        options: Iterable[tuple[str, Any]],
        operation: str,
        *,
        trusted: bool,
    ) -> None:
        super().__init__(retry, (), operation)
        self._trusted = trusted
        inside = configured_attempts(options) - 1
        self.warn_of_retries("grpc", inside, "add NO_RETRIES to the options of the channel")

    def only_details(self, given: Any) -> _Details:
        """The details of a call that is made once: the policy does not call it, and limits it."""
        policy: Any = getattr(self.calls, "policy", self.calls)
        limits = [getattr(policy, name, None) for name in ("deadline", "attempt_timeout")]
        return self.details(given, 1, min([each for each in limits if each], default=None))

    def details(self, given: Any, attempt: int, limit: float | None = None) -> _Details:
        """The details of a call for one attempt."""
        limits = [each for each in (given.timeout, deadline.remaining(), limit) if each is not None]
        timeout = max(0.0, min(limits)) if limits else None
        metadata = given.metadata
        if self._trusted:
            pairs = (*(metadata or ()), (_ATTEMPT, str(attempt)))
            key = current_key()
            if key is not None and all(name != _KEY for name, _ in pairs):
                pairs = (*pairs, (_KEY, key))
            is_aio = isinstance(metadata, grpc.aio.Metadata)
            metadata = grpc.aio.Metadata(*pairs) if is_aio else pairs
        return _Details(
            given.method,
            timeout,
            metadata,
            given.credentials,
            getattr(given, "wait_for_ready", None),
            getattr(given, "compression", None),
        )


def configured_attempts(options: Iterable[tuple[str, Any]]) -> int:
    """The most attempts that a service config among the options of a channel allows; 1 if none.

    >>> configured_attempts([("grpc.service_config", '{"methodConfig": []}')])
    1
    """
    given = dict(options or ())
    if given.get("grpc.enable_retries", 1) == 0:
        return 1
    from json import loads

    try:
        config = loads(given.get("grpc.service_config") or "{}")
    except (TypeError, ValueError):  # grpc does not take it either
        return 1
    methods = config.get("methodConfig") if isinstance(config, dict) else None
    methods = methods if isinstance(methods, list) else []
    policies = [each.get("retryPolicy") for each in methods if isinstance(each, dict)]
    attempts = [each.get("maxAttempts") for each in policies if isinstance(each, dict)]
    return max([1, *(each for each in attempts if type(each) is int)])
