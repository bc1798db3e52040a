"""What became of a call: the answer of `run`, which never raises for a failed call; statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from mainstay.core.retry.give_up import reason_of
from mainstay.runtime.fork import make_lock

if TYPE_CHECKING:
    from mainstay.core.base.event import Event

R = TypeVar("R")


class RetryResult(Generic[R]):
    """What became of a call.

    Attributes:
        success: whether it returned a value that the policy accepts.
        attempts: how many were made, the first included.
        last_exception: what it failed with; None if it succeeded.
        total_time_ms: from the first attempt's start to the end, waits included.
        value: what it returned; None if it failed.

    >>> from mainstay import RetryPolicy
    >>> result = RetryPolicy(retry_on=OSError).run(lambda: 42)
    >>> result.value, result.attempts, result.succeeded_on_first_attempt
    (42, 1, True)
    """

    __slots__ = ("attempts", "last_exception", "success", "total_time_ms", "value")

    def __init__(
        self,
        success: bool,
        attempts: int,
        last_exception: BaseException | None = None,
        total_time_ms: float = 0.0,
        value: R | None = None,
    ) -> None:
        self.success = success
        self.attempts = attempts
        self.last_exception = last_exception
        self.total_time_ms = total_time_ms
        self.value = value

    @property
    def reason(self) -> str:
        """Why there was no further attempt; empty if the call succeeded or was not retried.

        >>> from mainstay import RetryPolicy
        >>> policy = RetryPolicy(max_attempts=2, retry_on=ZeroDivisionError)
        >>> policy.run(lambda: 1 / 0).reason
        'no attempt left'
        """
        return reason_of(self.last_exception)

    @property
    def succeeded_on_first_attempt(self) -> bool:
        """Whether it succeeded without a retry."""
        return self.success and self.attempts == 1

    @property
    def failed_after_retries(self) -> bool:
        """Whether it failed although it was retried."""
        return not self.success and self.attempts > 1

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"RetryResult({', '.join(shown)})"


class RetryStatistics:
    """What the failing calls of a decorated function came to: `fetch.mainstay.statistics`.

    Counting begins when it is first read. Calls that succeed at once are not counted: nothing
    looks at them.

    Attributes:
        failed_attempts: attempts that failed, or whose result was not accepted.
        retries: attempts that were made after one that failed.
        recovered: calls that succeeded after a retry.
        given_up: calls that ended with a failure, retried or not.
        waited_seconds: what the waits before retries add up to.

    >>> from mainstay import Backoff, retry
    >>> @retry(on=OSError, attempts=2, backoff=Backoff.constant(0))
    ... def fetch():
    ...     raise OSError("down")
    >>> counted = fetch.mainstay.statistics
    >>> try:
    ...     fetch()
    ... except OSError:
    ...     counted.failed_attempts, counted.retries, counted.given_up
    (2, 1, 1)
    """

    __slots__ = (
        "_lock", "failed_attempts", "given_up", "recovered", "retries", "waited_seconds"
    )  # fmt: skip

    def __init__(self) -> None:
        self._lock = make_lock()
        self.reset()

    def reset(self) -> None:
        """Begins at zero again.

        >>> RetryStatistics().reset()
        """
        self.failed_attempts = self.retries = self.recovered = self.given_up = 0
        self.waited_seconds = 0.0

    def __call__(self, event: Event) -> None:
        """Counts an event of a call."""
        kind = event.event_type
        with self._lock:
            if kind == "attempt_failed":
                self.failed_attempts += 1
            elif kind == "retry_attempt":
                self.retries += 1
                self.waited_seconds += getattr(event, "delay_seconds", 0.0)
            elif kind == "call_succeeded":
                self.recovered += getattr(event, "total_attempts", 1) > 1
            elif kind in ("retry_exhausted", "call_failed"):
                self.given_up += 1

    def to_dict(self) -> dict[str, float]:
        """As plain data.

        >>> RetryStatistics().to_dict()["retries"]
        0
        """
        return {name: getattr(self, name) for name in self.__slots__ if name != "_lock"}

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.to_dict().items())
        return f"RetryStatistics({shown})"
