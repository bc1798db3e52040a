"""redis-py's own retries, driven by a policy: `Retry` and `AsyncRetry` for its clients.

redis-py repeats every command of a `Redis(...)` ten times by default; a policy around that
multiplies. With one of these, the policy alone decides what is repeated, how often, and after which
wait. redis-py still closes the connection after a failure, as it must: an answer that comes late
would be taken for that to the next command.
"""

from __future__ import annotations

import redis.asyncio.retry
import redis.retry
from redis.backoff import NoBackoff

__all__ = ["AsyncRetry", "Retry"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any, Protocol, Self, TypeVar

    T = TypeVar("T")

    class Policy(Protocol):
        """A RetryPolicy, as far as it is needed here."""

        max_attempts: int

        def call(self, function: Callable[[], T], /) -> T: ...
        async def acall(self, function: Callable[[], Awaitable[T]], /) -> T: ...

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
        policy: a RetryPolicy; one for commands that may be repeated if their answer was lost.

    >>> from mainstay import RetryPolicy
    >>> client = redis.Redis(retry=Retry(RetryPolicy(max_attempts=3)))
    >>> client.get_retry().get_retries()
    2
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__(NoBackoff(), policy.max_attempts - 1)
        self.policy = policy

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy with errors of its own, which redis-py adds to; the policy is the same."""
        copy = type(self)(self.policy)
        copy.update_supported_errors(self._supported_errors)
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

        def attempt() -> T:
            nonlocal failures
            try:
                return do()
            except self._supported_errors as error:
                failures += 1
                _check(is_retryable, error)
                try:
                    fail(error, failures) if with_failure_count else fail(error)
                except Exception as raised:
                    raise _Final(raised) from error
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

    def __init__(self, policy: Policy) -> None:
        super().__init__(NoBackoff(), policy.max_attempts - 1)
        self.policy = policy

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

        async def attempt() -> T:
            nonlocal failures
            try:
                return await do()
            except self._supported_errors as error:
                failures += 1
                _check(is_retryable, error)
                try:
                    await (fail(error, failures) if with_failure_count else fail(error))
                except Exception as raised:
                    raise _Final(raised) from error
                raise

        attempt.__qualname__ = "redis"  # what notes and events call it
        try:
            return await self.policy.acall(attempt)
        except _Final as final:
            raise final.error from final.__cause__


def _check(is_retryable: IsRetryable, error: Exception) -> None:
    if is_retryable is not None and not is_retryable(error):
        raise _Final(error)
