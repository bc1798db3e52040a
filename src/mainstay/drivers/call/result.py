"""What became of a call: the answer of `run`, which never raises for a failed call."""

from __future__ import annotations

from typing import Generic, TypeVar

from mainstay.core.retry.give_up import reason_of

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
