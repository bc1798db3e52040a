"""What an effect came to: one attempt, success or failure, and how long it took."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mainstay.core.base.validate import Checker
from mainstay.errors import DependencyError

if TYPE_CHECKING:
    from mainstay.core.base.types import UserValue


@dataclass(frozen=True, slots=True)
class EffectResult:
    """The outcome of one attempt. It has no number of retries: an effect never retries.

    Args:
        success: whether it succeeded.
        error: what went wrong, in words, without secrets.
        duration_ms: how long it took.
        value: what the function returned.
        error_type: the error of the taxonomy that it is, such as "InfraTimeoutError", or the name
            of its class.
        exception: what the function raised, as it was raised.

    >>> EffectResult(success=True, duration_ms=45.2, value=7).unwrap()
    7
    >>> EffectResult(success=False, error="timeout").unwrap()
    Traceback (most recent call last):
    mainstay.errors.DependencyError: the effect has failed: timeout
    """

    success: bool
    error: str | None = None
    duration_ms: float = 0.0
    value: Any = None
    error_type: str | None = None
    exception: Exception | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check = Checker("EffectResult")
        if not isinstance(self.success, bool):
            check.note("success", self.success, "True or False")
        if self.error is not None and not isinstance(self.error, str):
            check.note("error", self.error, "a text; the exception belongs into exception=")
        if self.success is True and (self.error is not None or self.exception is not None):
            check.note("success", True, "False if there is an error")
        check.number("duration_ms", self.duration_ms, 0.0, math.inf)
        check.instance("error_type", self.error_type, str, '"InfraTimeoutError"')
        check.instance("exception", self.exception, Exception)
        check.close()

    def unwrap(self) -> Any:
        """The value; raises what the function raised if it has failed.

        >>> EffectResult(False, "no route", exception=OSError("no route")).unwrap()
        Traceback (most recent call last):
        OSError: no route
        """
        if self.success:
            return self.value
        if self.exception is not None:
            raise self.exception
        raise DependencyError(f"the effect has failed: {self.error or 'without a reason'}")


def result_of(value: UserValue, duration_ms: float) -> EffectResult:
    """The result of a function that has returned; a result that it made itself is taken.

    >>> result_of(7, 1.5).value, result_of(EffectResult(success=False), 1.5).duration_ms
    (7, 1.5)
    """
    if not isinstance(value, EffectResult):
        return EffectResult(success=True, duration_ms=duration_ms, value=value)
    return value if value.duration_ms else replace(value, duration_ms=duration_ms)
