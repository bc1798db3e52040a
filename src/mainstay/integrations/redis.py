"""redis-py's own retries, driven by a policy: `Retry` and `AsyncRetry` for its clients.

redis-py repeats every command of a `Redis(...)` ten times by default; a policy around that
multiplies. With one of these, the policy alone decides what is repeated, how often, and after which
wait. redis-py still closes the connection after a failure, as it must: an answer that comes late
would be taken for that to the next command.

redis-py has a timeout for each read, none for a command and none for the lookup of a name. So a
sync connection that a `Retry` has seen looks at what is left of the deadline before each read and
write. redis-py hands a retry nothing but functions; the connection is the one among what they refer
to that has this very retry. Its private names that are used here (`_connect`,
`_wrap_socket_with_ssl`) have been the same for years, and the tests use the newest version. In an
event loop the attempt is cancelled.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

import redis.asyncio.connection
import redis.asyncio.retry
import redis.retry
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection

import mainstay.runtime.clock as clock
from mainstay import deadline
from mainstay.core.base.deadline import NEVER
from mainstay.errors import UsageError
from mainstay.integrations.http_exchange import end_around, limited
from mainstay.integrations.http_headers import calls_of
from mainstay.integrations.http_lookup import addresses

__all__ = ["AsyncRetry", "Retry"]

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Iterator
    from typing import Any, Self, TypeVar

    from mainstay.integrations.http_headers import Calls, Operations

    T = TypeVar("T")

    Fail = Callable[..., Any]
    IsRetryable = Callable[[Exception], bool] | None


class _Final(BaseException):
    """Carries a failure past the policy: redis-py has decided that it is not to be repeated."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class Retry(redis.retry.Retry):
    """The retries of a sync client, driven by a policy.

    Args:
        policy: a RetryPolicy, an Engine, or an operation of one; one for commands that may be
            repeated if their answer was lost.
        operation: the operation of the engine.

    >>> from mainstay import RetryPolicy
    >>> client = redis.Redis(retry=Retry(RetryPolicy(max_attempts=3)))
    >>> client.get_retry().get_retries()
    2
    """

    def __init__(self, policy: Calls | Operations, *, operation: str = "redis") -> None:
        self.policy, retries = _calls_of(policy, operation)
        super().__init__(NoBackoff(), retries)
        self._is_copy = self._has_bound = False
        """A copy is that of one connection, so it binds once."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy with errors of its own, which redis-py adds to; the policy is the same."""
        copy = type(self)(self.policy)
        copy.update_supported_errors(self._supported_errors)
        copy._is_copy = True  # noqa: SLF001 -- its own class's
        return copy

    def call_with_retry(
        self,
        do: Callable[[], T],
        fail: Fail,
        is_retryable: IsRetryable = None,
        with_failure_count: bool = False,
    ) -> T:
        """Calls `do` under the policy, and `fail` after each failure of the connection."""
        failures = 0
        if not self._has_bound:
            self._has_bound = _bound(self, do, fail) and self._is_copy
        end = None if _limits(self.policy) else end_around()

        def attempt() -> T:
            nonlocal failures
            try:
                return do() if end == NEVER else _before(end, do)
            except self._supported_errors as error:
                failures += 1
                _check(is_retryable, error)
                try:
                    fail(error, failures) if with_failure_count else fail(error)
                except Exception as raised:
                    raise _Final(raised) from error
                raise
            except redis.RedisError as error:
                _check_part(do, error)
                raise

        attempt.__qualname__ = "redis"  # what notes and events call it
        try:
            return self.policy.call(attempt)
        except _Final as final:
            raise final.error from final.__cause__


class AsyncRetry(redis.asyncio.retry.Retry):
    """The retries of an asyncio client, driven by a policy.

    >>> import redis.asyncio
    >>> from mainstay import RetryPolicy
    >>> client = redis.asyncio.Redis(retry=AsyncRetry(RetryPolicy(max_attempts=3)))
    """

    def __init__(self, policy: Calls | Operations, *, operation: str = "redis") -> None:
        self.policy, retries = _calls_of(policy, operation)
        super().__init__(NoBackoff(), retries)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy with errors of its own, which redis-py adds to; the policy is the same."""
        copy = type(self)(self.policy)
        copy.update_supported_errors(self._supported_errors)
        return copy

    async def call_with_retry(
        self,
        do: Callable[[], Awaitable[T]],
        fail: Fail,
        is_retryable: IsRetryable = None,
        with_failure_count: bool = False,
    ) -> T:
        """Awaits `do` under the policy, and `fail` after each failure of the connection."""
        failures = 0
        end = NEVER if _limits(self.policy) else end_around()

        async def attempt() -> T:
            nonlocal failures
            try:
                return await (do() if end == NEVER else _until(end, do))
            except self._supported_errors as error:
                failures += 1
                _check(is_retryable, error)
                try:
                    await (fail(error, failures) if with_failure_count else fail(error))
                except Exception as raised:
                    raise _Final(raised) from error
                raise
            except redis.RedisError as error:
                _check_part(do, error)
                raise

        attempt.__qualname__ = "redis"  # what notes and events call it
        try:
            return await self.policy.acall(attempt)
        except _Final as final:
            raise final.error from final.__cause__


def _calls_of(policy: Calls | Operations, operation: str) -> tuple[Calls, int]:
    """What makes the calls, and the retries that it allows."""
    calls = calls_of(policy, operation)
    if calls is None:
        raise UsageError(
            "policy = None: must be a RetryPolicy, an Engine or an operation of one",
            hint="for one attempt redis-py has Retry(NoBackoff(), 0)",
        )
    limits: Any = getattr(calls, "policy", calls)
    return calls, limits.max_attempts - 1


def _check(is_retryable: IsRetryable, error: Exception) -> None:
    if is_retryable is not None and not is_retryable(error):
        raise _Final(error)


def _check_part(do: Callable[..., Any], error: Exception) -> None:
    """Refuses to execute a pipeline again of which the server has answered one command with this.

    The others were executed, and the watches of a transaction are gone: executed again, it would
    overwrite what another client has written. The whole of it, from `watch` on, can be repeated.
    """
    names = getattr(getattr(do, "__code__", None), "co_freevars", ())
    if "stack" in names:  # the commands, in `execute` of a pipeline
        raise _Final(error)


# --- the deadline ---------------------------------------------------------------------------------


_END: ContextVar[float] = ContextVar("mainstay.integrations.redis.end", default=NEVER)
"""The moment at which the attempt must be over that reads and writes here."""


def _before(end: float | None, do: Callable[[], T]) -> T:
    """Calls `do`, whose reads and writes end at a moment; None for that of the policy."""
    end = deadline.moment() if end is None else end
    _check_time(end)
    token = _END.set(end)
    try:
        return do()
    finally:
        _END.reset(token)


def _check_time(end: float) -> None:
    if end <= clock.current.monotonic():
        raise redis.TimeoutError("Timeout connecting to server: no time is left of the deadline")


def _limits(policy: Any) -> bool:
    """Whether the policy limits its attempts: it cuts those of a coroutine by itself."""
    policy = getattr(policy, "policy", policy)  # of an operation
    return policy.deadline is not None or policy.attempt_timeout is not None


async def _until(end: float, do: Callable[[], Awaitable[T]]) -> T:
    """Awaits `do` up to a moment; the failure is redis-py's own."""
    _check_time(end)
    limit = asyncio.timeout(end - clock.current.monotonic())
    try:
        async with limit:
            return await do()
    except TimeoutError as error:
        if not limit.expired():
            raise  # a timeout of redis-py's own
        is_connecting = any(isinstance(each, _ASYNC) for each in _owners(do))
        what = "connecting to server" if is_connecting else "reading from socket"
        raise redis.TimeoutError(f"Timeout {what}: the deadline has passed") from error


_ASYNC = redis.asyncio.connection.AbstractConnection


def _owners(do: Callable[..., Any]) -> Iterator[Any]:
    """What `do` is a method of, or is in a method of: a connection, or a client with a command."""
    yield getattr(do, "__self__", None)
    names = getattr(getattr(do, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(do, "__closure__", None) or (), strict=True):
        if name == "self":
            yield cell.cell_contents


def _bound(retry: Retry, *functions: Callable[..., Any]) -> bool:
    """Has the connection that has this retry end at the deadline from its next socket on.

    False if it is not there.
    """
    for each in chain.from_iterable(map(_held_by, functions)):
        if isinstance(each, AbstractConnection) and each.retry is retry:
            cls: Any = type(each)
            if not issubclass(cls, _Ending):
                each.__class__ = _ending(cls)
            return True
    return False


def _held_by(function: Callable[..., Any]) -> Iterator[Any]:
    yield getattr(function, "__self__", None)
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # nothing is in it yet
            yield cell.cell_contents


@cache
def _ending(cls: Any) -> Any:
    return type(cls.__name__, (_Ending, cls), {"__module__": cls.__module__})


class _Ending:
    """What a connection has besides its own class, once a `Retry` has seen it."""

    host: Any
    port: Any
    socket_connect_timeout: float | None
    socket_timeout: float | None

    def _connect(self) -> Any:
        """As redis-py does it, one address after the other, with what is left for each."""
        connection: Any = super()
        end, given = _END.get(), self.socket_connect_timeout
        if end == NEVER:
            return _Socket(connection._connect(), self.socket_timeout)  # noqa: SLF001 -- see above
        self._ms_host = host = getattr(self, "host", None)
        left = limited(given, end)
        places = [] if host is None else addresses(host, self.port, left)
        try:
            while True:
                self.socket_connect_timeout = left.left(TimeoutError)
                if places:  # else it is a file
                    self.host = places.pop(0)
                try:
                    sock = connection._connect()  # noqa: SLF001 -- see above
                except OSError as error:
                    if not places or isinstance(error, ssl.SSLError):
                        raise
                else:
                    return _Socket(sock, self.socket_timeout)
        finally:
            self.socket_connect_timeout = given
            if host is not None:
                self.host = host

    def _wrap_socket_with_ssl(self, sock: Any) -> Any:
        """The certificate is for the name, and the handshake has what is left."""
        connection: Any = super()
        end = _END.get()
        if end != NEVER:
            self.host = self._ms_host
            sock.settimeout(limited(self.socket_timeout, end).left(TimeoutError))
        return connection._wrap_socket_with_ssl(sock)  # noqa: SLF001 -- see above


class _Socket:
    """A socket whose reads and writes end at the deadline of the attempt that makes them.

    Its timeout is set before each of them and not set back: what redis-py sets is kept here.
    """

    __slots__ = ("_given", "_set", "_sock")

    def __init__(self, sock: socket.socket, timeout: float | None) -> None:
        self._sock = sock
        self.settimeout(timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def settimeout(self, timeout: float | None) -> None:
        self._given = self._set = timeout
        self._sock.settimeout(timeout)

    def gettimeout(self) -> float | None:
        return self._given

    def recv(self, size: int, flags: int = 0) -> bytes:
        self._limit(_END.get())
        return self._sock.recv(size, flags)

    def recv_into(self, buffer: Any) -> int:
        self._limit(_END.get())
        return self._sock.recv_into(buffer)

    def sendall(self, data: Any) -> None:
        """By parts: a socket of TLS has its timeout for each of them, not for the whole."""
        end = _END.get()
        self._limit(end)
        if end == NEVER:
            self._sock.sendall(data)
            return
        rest = memoryview(data).cast("B")
        while True:
            rest = rest[self._sock.send(rest) :]
            if not rest:
                return
            self._limit(end)

    def _limit(self, end: float) -> None:
        timeout = self._given
        if end != NEVER and timeout != 0.0:
            left = end - clock.current.monotonic()
            if left <= 0.0:
                raise TimeoutError("the deadline has passed")
            timeout = left if timeout is None else min(timeout, left)
        if timeout != self._set:
            self._set = timeout
            self._sock.settimeout(timeout)
